#include "server/control/batch.h"

#include <stdlib.h>
#include <string.h>

#include "api/spec_after.h"
#include "api/spec_array.h"
#include "server/control/jobs.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define BATCH_MAX 1000

struct batched {
    json_t *doc; /* borrowed */
    size_t turn; /* its job's number is that of the first and so many */
    bool placed;
    struct entry *entry; /* owned until it is queued */
    struct job_spec *spec;
    char *text;
};

/* The place of what an `after` names by its name; n: nothing. */
static size_t find_named(const struct batched *v, size_t n, const char *name)
{
    size_t i = 0;

    while (i < n && strcmp(name, json_string_value(json_object_get(v[i].doc, "name"))
                                     ? json_string_value(json_object_get(v[i].doc, "name"))
                                     : "") != 0)
        i++;
    return i;
}

/* Whether all that a job comes after, of those that are named, has its number; then these are in its document. */
static bool is_ready(const struct batched *v, size_t n, const struct batched *one, uint64_t first)
{
    json_t *o;
    size_t i;

    json_array_foreach (json_object_get(one->doc, "after"), i, o) {
        const char *job = json_string_value(json_object_get(o, "job"));
        size_t at = job && job_id_parse(job) == 0 ? find_named(v, n, job) : n;

        if (at < n && !v[at].placed)
            return false;
    }
    json_array_foreach (json_object_get(one->doc, "after"), i, o) {
        const char *job = json_string_value(json_object_get(o, "job"));
        size_t at = job && job_id_parse(job) == 0 ? find_named(v, n, job) : n;

        if (at < n)
            (void)json_object_set_new(o, "job", json_sprintf("j%llu", (unsigned long long)(first + v[at].turn)));
    }
    return true;
}

/* Number them so that each comes after those that it names. False: some name each other round. */
static bool number_all(struct batched *v, size_t n, uint64_t first)
{
    size_t placed = 0, was = n;

    while (placed < n && placed != was) {
        was = placed;
        for (size_t i = 0; i < n; i++)
            if (!v[i].placed && is_ready(v, n, &v[i], first)) {
                v[i].turn = placed++;
                v[i].placed = true;
            }
    }
    return placed == n;
}

/* What is wrong is told of one job of the batch. */
static void blame(struct call *call, size_t i)
{
    json_t *detail = json_object_get(call->reply, "detail"), *one;
    size_t k;

    (void)json_object_set_new(call->reply, "detail",
                              json_sprintf("job %zu of the batch: %s", i + 1, json_string_value(detail)));
    json_array_foreach (json_object_get(call->reply, "errors"), k, one) {
        const char *pointer = json_string_value(json_object_get(one, "pointer"));

        (void)json_object_set_new(one, "pointer", json_sprintf("/jobs/%zu%s", i, pointer ? pointer : ""));
    }
}

struct entry *batch_read(struct core *c, struct call *call, json_t *doc, uint64_t id)
{
    struct faults faults = {.n = 0};
    json_auto_t *full = NULL;
    struct entry *e = NULL;

    spec_after_fill(doc, c->cfg.jobs_dir, &faults);
    spec_check_paths(doc, &faults);
    if (spec_from_json(doc, &call->spec, &faults) == 0 && call->spec->array.tasks > 0)
        spec_check_tasks(doc, call->spec, &faults);
    if (!call->spec || faults.n > 0)
        call_answer_new(call, 422,
                        json_pack("{s:s, s:s, s:o}", "code", "spec-invalid", "detail", "its spec has faults", "errors",
                                  faults_json(&faults)));
    faults_clear(&faults);
    if (call->status == 0) {
        full = call->spec->array.tasks > 0 ? json_incref(doc) : spec_to_json(call->spec);
        call->text = full ? json_dumps(full, JSON_COMPACT) : NULL;
        if (!call->text)
            call_problem(call, 503, "no-memory", "out of memory");
        else
            e = jobs_prepare(c, call, id);
    }
    return e;
}

/* Read one and have it admitted. False: the call is answered. */
static bool prepare_one(struct core *c, struct call *call, struct batched *one, uint64_t id)
{
    one->entry = batch_read(c, call, one->doc, id);
    one->spec = call->spec;
    one->text = call->text;
    call->spec = NULL;
    call->text = NULL;
    return one->entry != NULL;
}

static json_t *list_of(const struct batched *v, size_t n, uint64_t first)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, json_pack("{s:o, s:O?}", "id",
                                                   json_sprintf("j%llu", (unsigned long long)(first + v[i].turn)),
                                                   "name", json_object_get(v[i].doc, "name")));
    return json_pack("{s:o}", "jobs", all);
}

/* All of them, by their turn, or none. */
static void submit_all(struct core *c, struct call *call, struct batched *v, size_t n, const struct wanted_key *key)
{
    uint64_t first = c->jobs.next;

    for (size_t turn = 0; turn < n && call->status == 0; turn++)
        for (size_t i = 0; i < n; i++)
            if (v[i].turn == turn && !prepare_one(c, call, &v[i], first + turn))
                blame(call, i);
            else if (v[i].turn == turn)
                c->ahead = (struct ahead){c->ahead.jobs + 1, c->ahead.bytes + strlen(v[i].text)};
    c->ahead = (struct ahead){0, 0};
    for (size_t turn = 0; turn < n && call->status == 0; turn++)
        for (size_t i = 0; i < n; i++)
            if (v[i].turn == turn) {
                call->spec = v[i].spec;
                call->text = v[i].text;
                jobs_queue(c, call, v[i].entry);
                if (turn == 0)
                    jobs_remember_key(c, v[i].entry, key, call->hash);
                call->spec = NULL;
                v[i].entry = NULL;
                v[i].text = NULL;
            }
    if (call->status == 0) {
        call_changed_new(call, NULL, list_of(v, n, first));
        call_answer_new(call, 201, list_of(v, n, first));
    }
}

void batch_submit(struct core *c, struct call *call)
{
    json_t *list = json_object_get(call->body, "jobs"), *doc;
    size_t n = json_array_size(list), i;
    struct batched *v = n > 0 && n <= BATCH_MAX ? calloc(n, sizeof(*v)) : NULL;
    struct wanted_key key;

    call->unchanged = true;
    if (!v || json_object_size(call->body) != 1) {
        call_problem(call, 422, "body-invalid", "want {\"jobs\": [SPEC, ...]} of 1 to %d jobs", BATCH_MAX);
        free(v);
        return;
    }
    json_array_foreach (list, i, doc) {
        v[i].doc = doc;
        if (!json_is_object(doc))
            call_problem(call, 422, "body-invalid", "job %zu of the batch is no object", i + 1);
    }
    if (call->status == 0 && !number_all(v, n, c->jobs.next))
        call_problem(call, 422, "after-circle", "some jobs of the batch come after each other in a circle");
    if (call->status == 0 && !jobs_key_was_used(c, call, &key))
        submit_all(c, call, v, n, &key);
    else if (call->status == 0 && call->job) /* the same batch once more */
        call_answer_new(call, 200, list_of(v, n, call->job));
    call->unchanged = call->status != 201;
    for (i = 0; i < n; i++) {
        entry_free(v[i].entry);
        spec_free(v[i].spec);
        free(v[i].text);
    }
    free(v);
}
