/* The working set, read back from the store when musterd starts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/control/core.h"

static int parse_job(const struct job_stored *stored, struct job *ret, json_t **ret_doc, struct merr *err)
{
    json_t *doc;
    int r;

    if (!stored->record)
        return -ENOENT;
    doc = json_loads(stored->record, 0, NULL);
    r = doc ? job_from_record(doc, ret) : -EINVAL;
    json_decref(doc);
    if (r == 0 && ret_doc)
        *ret_doc = stored->spec ? json_loads(stored->spec, 0, NULL) : NULL;
    return r < 0 ? merr_set(err, r, "a job's record in the store cannot be read") : 0;
}

struct one_job {
    struct job *job;
    char **spec; /* NULL: not wanted */
};

static int take_job(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    const struct one_job *one = arg;
    int r = parse_job(stored, one->job, NULL, err);

    (void)i;
    if (r == 0 && one->spec) {
        *one->spec = strdup(stored->spec ? stored->spec : "{}");
        if (!*one->spec) {
            r = merr_set(err, -ENOMEM, "no memory for the spec of job 'j%llu'", (unsigned long long)one->job->id);
            job_clear(one->job);
        }
    }
    return r;
}

int core_load_job(struct core *c, uint64_t id, struct job *ret, char **ret_spec, struct merr *err)
{
    return job_store_read(c->store, id, take_job, &(struct one_job){.job = ret, .spec = ret_spec}, err);
}

/* The spec of a stored job. One that this musterd does not take, because limits or fields have changed since it was
 * accepted, must not keep all others from being served: then *ret is a command of no meaning, and *ret_refusal, which
 * is the caller's, says what is wrong. */
static int read_spec(const json_t *doc, struct job_spec **ret, char **ret_refusal, struct merr *err)
{
    static const char stand_in[] = "{\"command\": {\"argv\": [\"true\"]}}";
    struct faults faults = {.n = 0};
    int r = spec_from_json(doc, ret, &faults), n = 0;

    if (r == -EINVAL && faults.n > 0) {
        n = asprintf(ret_refusal,
                     "this musterd does not take its spec any more: %s: %s%s; submit it anew with that "
                     "changed",
                     faults.v[0].pointer, faults.v[0].message, faults.n > 1 ? " (and more)" : "");
        faults_clear(&faults);
        r = n < 0 ? -ENOMEM : spec_from_text(stand_in, strlen(stand_in), ret, &faults);
        if (r < 0 && n >= 0)
            free(*ret_refusal);
    }
    faults_clear(&faults);
    return r < 0 ? merr_set(err, r, "out of memory") : 0;
}

static int load_entry(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    struct core *c = arg;
    struct job_spec *spec = NULL;
    char *refusal = NULL;
    json_t *doc = NULL;
    struct entry *e = NULL;
    struct job job;
    int r = parse_job(stored, &job, &doc, err);

    (void)i;
    if (r < 0)
        return r == -ENOENT ? merr_set(err, -EIO, "the store lists a job that it does not have") : r;
    r = read_spec(doc, &spec, &refusal, err);
    json_decref(doc);
    e = r == 0 ? core_entry_new(c, spec) : NULL;
    spec_free(spec);
    if (!e) {
        free(refusal);
        job_clear(&job);
        return r < 0 ? r : -ENOMEM;
    }
    e->refusal = refusal;
    e->job = job;
    plans_adopt(e);
    e->stored_version = stored->version;
    e->spec_text = strdup(stored->spec);
    if (job.live)
        e->ranks = calloc(job.n_places, sizeof(*e->ranks));
    if (!e->spec_text || (job.live && !e->ranks)) {
        core_entry_free(c, e);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    core_entry_insert(c, e);
    givers_load(c, e);
    if (!job.live)
        return 0;
    e->drain_deadline_us = core_mono_of(job.drain_by_us);
    if (e->drain_deadline_us == 0 && strcmp(job_order(&job), "drain") == 0) /* an older musterd kept none */
        e->drain_deadline_us = clock_mono_us() + DRAIN_LIMIT_S * 1000000LL;
    return dispatch_adopt(c, e);
}

static int load_jobs(struct core *c, struct merr *err)
{
    struct job_ids ids = {0};
    int r = job_store_active(c->store, &ids, err);

    for (size_t at = 0; r == 0 && at < ids.n; at += 256) {
        size_t some = ids.n - at < 256 ? ids.n - at : 256;

        r = job_store_read_each(c->store, ids.v + at, some, true, load_entry, c, err);
    }
    job_ids_clear(&ids);
    return r;
}

/* Let jobs fail whose specs were not read. Those that run are stopped first. */
static int fail_refused(struct core *c, struct merr *err)
{
    for (size_t i = 0; i < c->n_order; i++) {
        struct entry *e = core_find(c, c->order[i]);
        struct job_cause cause = {.kind = CAUSE_REFUSED, .actor = "server", .text = e->refusal};
        int r;

        if (!e->refusal)
            continue;
        log_warn("job j%llu: %s", (unsigned long long)e->job.id, e->refusal);
        r = core_change(c, e, &cause, err);
        if (r < 0 && r != -EALREADY)
            return r;
    }
    return 0;
}

static int load_counters(struct core *c, struct merr *err)
{
    struct job_counters counters;
    int r = job_store_read_counters(c->store, &counters, err);

    if (r < 0)
        return r;
    c->next_job = counters.next_job ? counters.next_job : 1;
    c->next_event = counters.next_event ? counters.next_event : 1;
    memcpy(c->ended, counters.ended, sizeof(c->ended));
    return 0;
}

int core_load(struct core *c, struct merr *err)
{
    int r = load_counters(c, err);

    if (r == 0)
        r = dispatch_skip_folders(c, err);
    if (r == 0)
        r = agents_load(c, err);
    if (r == 0)
        r = roster_load(c, err);
    if (r == 0)
        r = classes_load(c, err);
    if (r == 0)
        r = links_load(c, err);
    if (r == 0)
        r = projects_load(c, err);
    if (r == 0)
        r = load_jobs(c, err);
    if (r == 0)
        r = fail_refused(c, err);
    return r;
}
