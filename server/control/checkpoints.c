#include "server/control/checkpoints.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/jobs.h"
#include "server/control/readers.h"
#include "server/control/state.h"
#include "server/control/timeline.h"
#include "server/http/call.h"

#define PATH_BYTES 4096
#define OWN_FOLDER "checkpoints" /* where they are, unless the spec says otherwise */

/* --- the list ------------------------------------------------------------------------------------------------ */

/* The folder of a path of a step, relative to the job's own folder; "": it is not below it. */
static void folder_of(const char *jobs_dir, uint64_t job, const char *path, char ret[PATH_BYTES])
{
    char own[PATH_BYTES];
    const char *last = path ? strrchr(path, '/') : NULL;
    size_t n;

    (void)snprintf(own, sizeof(own), "%s/j%llu/", jobs_dir, (unsigned long long)job);
    n = strlen(own);
    *ret = '\0';
    if (last && strncmp(path, own, n) == 0 && last > path + n)
        (void)snprintf(ret, PATH_BYTES, "%.*s", (int)(last - path - (ptrdiff_t)n), path + n);
}

static json_int_t step_of(const json_t *o)
{
    return json_integer_value(json_object_get(o, "step"));
}

/* Take a step out of what lies on the disk. New; NULL: it is not there. */
static json_t *take_found(json_t *found, json_int_t step)
{
    json_t *one;
    size_t i;

    json_array_foreach (found, i, one) {
        if (step_of(one) != step)
            continue;
        json_incref(one);
        (void)json_array_remove(found, i);
        return one;
    }
    return NULL;
}

/* What the disk says of a checkpoint that the job told of; known: it could be looked. */
static void add_state(json_t *told, json_t *found, bool known)
{
    json_auto_t *one = known && !json_object_get(told, "error") ? take_found(found, step_of(told)) : NULL;
    const json_t *size = json_object_get(one, "disk_bytes"), *stored = json_object_get(told, "stored_bytes");
    const char *state = json_object_get(told, "error")                   ? "failed"
                        : !known                                         ? "unknown"
                        : !one                                           ? "removed"
                        : json_is_true(json_object_get(one, "complete")) ? "complete"
                                                                         : "incomplete";

    (void)json_object_set_new(told, "state", json_string(state));
    if (!one)
        return;
    (void)json_object_set(told, "disk_bytes", (json_t *)size);
    (void)json_object_set(told, "files", json_object_get(one, "files"));
    (void)json_object_set_new(told, "archived", json_boolean(json_integer_value(size) < json_integer_value(stored)));
}

/* On a reader's thread. */
static void run_list(void *core, struct call *call)
{
    const struct core *c = core;
    const struct spool *s = &c->cfg.spool;
    json_t *list = call->body, *one;
    json_auto_t *found = NULL;
    char dir[PATH_BYTES] = OWN_FOLDER, at[PATH_BYTES];
    bool known;

    for (size_t i = json_array_size(list); i-- > 0;) { /* where it wrote last */
        const char *path = json_string_value(json_object_get(json_array_get(list, i), "path"));

        if (!path)
            continue;
        folder_of(c->cfg.jobs_dir, call->job, path, dir);
        break;
    }
    known = *dir && s->ops->saved(s->self, call->job, dir, &found) == 0;
    for (size_t i = json_array_size(list); i-- > 0;) { /* of a step told twice the last is there */
        one = json_array_get(list, i);
        folder_of(c->cfg.jobs_dir, call->job, json_string_value(json_object_get(one, "path")), at);
        add_state(one, found, known && (json_object_get(one, "error") || strcmp(at, dir) == 0));
    }
    for (size_t i = 0; i < json_array_size(found); i++) {
        one = json_array_get(found, i);
        (void)json_object_set_new(
            one, "state", json_string(json_is_true(json_object_get(one, "complete")) ? "complete" : "incomplete"));
        (void)json_object_del(one, "complete");
        (void)json_array_append(list, one);
    }
    call_answer_new(call, 200, json_pack("{s:O, s:n}", "checkpoints", list, "next_cursor"));
    call_deliver(call);
}

void checkpoints_list(struct core *c, struct call *call)
{
    call->body = timeline_checkpoints(c, call);
    if (!call->body)
        return;
    call->run = run_list;
    c->handed = true;
    readers_post(c->readers, call);
}

/* --- what is done to one ---------------------------------------------------------------------------------------- */

static bool refuse_field(struct call *call, const char *pointer, const char *text)
{
    call_answer_new(call, 422,
                    json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "code", "body-invalid", "detail",
                              "what is asked is not valid", "errors", "pointer", pointer, "message", text));
    return false;
}

static bool knows(struct call *call, const char *const *names)
{
    const char *key;
    json_t *value;

    json_object_foreach (call->body, key, value) {
        char pointer[100];
        size_t i = 0;

        while (names[i] && strcmp(names[i], key) != 0)
            i++;
        (void)snprintf(pointer, sizeof(pointer), "/%.90s", key);
        if (!names[i])
            return refuse_field(call, pointer, "is not known here");
    }
    return true;
}

/* The folder in which the job has its checkpoints. */
static void own_folder(const struct core *c, const struct call *call, const struct jobs_origin *o, char ret[PATH_BYTES])
{
    const char *dir = json_string_value(json_object_get(json_object_get(o->spec, "checkpoint"), "dir"));

    if (dir && *dir == '/')
        (void)snprintf(ret, PATH_BYTES, "%s", dir);
    else
        (void)snprintf(ret, PATH_BYTES, "%s/j%llu/%s", c->cfg.jobs_dir, (unsigned long long)call->job,
                       dir ? dir : OWN_FOLDER);
}

static bool add_export(const struct core *c, struct call *call, const char *step, json_t *argv)
{
    static const char *const names[] = {"dtype", NULL}, *const types[] = {"f32", "bf16", "f16", NULL};
    const json_t *given = json_object_get(call->body, "dtype");
    const char *dtype = given ? json_string_value(given) : "f32";
    size_t i = 0;

    while (dtype && types[i] && strcmp(types[i], dtype) != 0)
        i++;
    if (!knows(call, names))
        return false;
    if (!dtype || !types[i])
        return refuse_field(call, "/dtype", "wants f32, bf16 or f16");
    (void)json_array_append_new(
        argv, json_sprintf("%s/j%llu/exports/%s-%s", c->cfg.jobs_dir, (unsigned long long)call->job, step, dtype));
    (void)json_array_append_new(argv, json_sprintf("--dtype=%s", dtype));
    return true;
}

static bool add_sample(struct call *call, json_t *argv)
{
    static const char *const names[] = {"prompt", "tokens", "temperature", "seed", NULL};
    const json_t *prompt = json_object_get(call->body, "prompt"), *tokens = json_object_get(call->body, "tokens"),
                 *heat = json_object_get(call->body, "temperature"), *seed = json_object_get(call->body, "seed");

    if (!knows(call, names))
        return false;
    if (prompt && (!json_is_string(prompt) || json_string_length(prompt) > CHECKPOINTS_PROMPT_MAX ||
                   strlen(json_string_value(prompt)) != json_string_length(prompt)))
        return refuse_field(call, "/prompt", "wants a text of at most 4096 bytes");
    if (tokens && (!json_is_integer(tokens) || json_integer_value(tokens) < 1 ||
                   json_integer_value(tokens) > CHECKPOINTS_TOKENS_MAX))
        return refuse_field(call, "/tokens", "wants a whole number from 1 to 4096");
    if (heat && (!json_is_number(heat) || !(json_number_value(heat) >= 0 && json_number_value(heat) <= 100)))
        return refuse_field(call, "/temperature", "wants a number from 0 to 100");
    if (seed && (!json_is_integer(seed) || json_integer_value(seed) < 0))
        return refuse_field(call, "/seed", "wants a whole number of 0 or more");
    if (json_string_length(prompt) > 0)
        (void)json_array_append_new(argv, json_sprintf("--prompt=%s", json_string_value(prompt)));
    if (tokens)
        (void)json_array_append_new(argv, json_sprintf("--tokens=%lld", (long long)json_integer_value(tokens)));
    if (heat)
        (void)json_array_append_new(argv, json_sprintf("--temperature=%g", json_number_value(heat)));
    if (seed)
        (void)json_array_append_new(argv, json_sprintf("--seed=%lld", (long long)json_integer_value(seed)));
    return true;
}

/* Arguments of `muster` for it. New; NULL: the call is answered. */
static json_t *words_new(const struct core *c, struct call *call, const struct jobs_origin *o, const char *verb,
                         long long step)
{
    static const char *const nothing[] = {NULL};
    char dir[PATH_BYTES], name[32];
    json_t *argv;
    bool good;

    own_folder(c, call, o, dir);
    (void)snprintf(name, sizeof(name), "step-%08lld", step);
    if (strcmp(verb, "delete") == 0)
        argv = json_pack("[s, s, s, o]", "checkpoint", verb, dir, json_sprintf("--step=%lld", step));
    else if (strcmp(verb, "sample") == 0)
        argv = json_pack("[s, o]", verb, json_sprintf("%s/%s", dir, name));
    else
        argv = json_pack("[s, s, o]", "checkpoint", verb, json_sprintf("%s/%s", dir, name));
    if (strcmp(verb, "export") == 0)
        good = add_export(c, call, name, argv);
    else if (strcmp(verb, "sample") == 0)
        good = add_sample(call, argv);
    else
        good = knows(call, nothing);
    if (good)
        return argv;
    json_decref(argv);
    return NULL;
}

/* The program lies beside the libraries of its node. */
static json_t *spec_new(const struct call *call, const struct jobs_origin *o, const char *verb, long long step,
                        json_t *words)
{
    json_t *argv = json_pack("[s, s, s, s]", "/bin/sh", "-c", "exec \"$MUSTER_LIB/../../bin/muster\" \"$@\"", "muster");

    (void)json_array_extend(argv, words);
    return json_pack("{s:o, s:s, s:i, s:{s:o, s:s, s:o}, s:{s:i, s:i}, s:{s:o}, s:{s:i}}", "name",
                     json_sprintf("%s-j%llu-step-%lld", verb, (unsigned long long)call->job, step), "project",
                     o->project, "priority", o->priority, "labels", "checkpoint-of",
                     json_sprintf("j%llu", (unsigned long long)call->job), "checkpoint-verb", verb, "checkpoint-step",
                     json_sprintf("%lld", step), "devices", "min", 1, "max", 1, "command", "argv", argv, "retry", "max",
                     0);
}

/* Queue it as a job of the user whose checkpoint it is; the audit log knows who asked. */
static void submit(struct core *c, struct call *call, const struct jobs_origin *o, json_t *doc)
{
    struct faults faults = {.n = 0};
    json_auto_t *full = NULL;
    struct entry *e = NULL;

    if (spec_from_json(doc, &call->spec, &faults) < 0)
        call_problem(call, 422, "spec-invalid", "no job can be made for it: %s: %s",
                     faults.n ? faults.v[0].pointer : "", faults.n ? faults.v[0].message : "out of memory");
    faults_clear(&faults);
    if (call->status != 0)
        return;
    full = spec_to_json(call->spec);
    call->text = full ? json_dumps(full, JSON_COMPACT) : NULL;
    if (!call->text)
        call_problem(call, 503, "no-memory", "out of memory");
    else
        e = jobs_prepare(c, call, c->jobs.next);
    if (!e)
        return;
    (void)snprintf(e->job.user, sizeof(e->job.user), "%s", o->user);
    (void)snprintf(e->job.unix_user, sizeof(e->job.unix_user), "%s", o->unix_user);
    jobs_queue(c, call, e);
    jobs_answer_new(c, call, e);
}

void checkpoints_act(struct core *c, struct call *call)
{
    const char *given = http_param(call->req, 1), *text = given ? given : "",
               *slash = strrchr(http_path(call->req), '/');
    const char *verb = strcmp(http_method(call->req), "DELETE") == 0 ? "delete" : slash ? slash + 1 : "";
    size_t digits = strspn(text, "0123456789");
    struct jobs_origin o;
    json_t *words, *doc;
    long long step;

    if (!jobs_find_origin(c, call, &o))
        return;
    step = digits > 0 && digits <= 18 && !text[digits] ? strtoll(text, NULL, 10) : -1;
    if (step < 0)
        call_problem(call, 404, "unknown-checkpoint", "'%.40s' is no step of a checkpoint", text);
    else if (!o.train && strcmp(verb, "sample") == 0)
        call_problem(call, 409, "wrong-kind", "job '%s' runs a program of its own: Muster does not know its model",
                     http_param(call->req, 0));
    else if (strcmp(verb, "delete") == 0 && !o.ended && step >= o.newest)
        call_problem(call, 409, "in-use",
                     "job '%s' has not ended, and would go on from step %lld; delete an older one, or cancel the job",
                     http_param(call->req, 0), step);
    words = call->status == 0 ? words_new(c, call, &o, verb, step) : NULL;
    doc = words ? spec_new(call, &o, verb, step, words) : NULL;
    if (doc)
        submit(c, call, &o, doc);
    else if (call->status == 0)
        call_problem(call, 503, "no-memory", "out of memory");
    json_decref(doc);
    json_decref(words);
    json_decref(o.spec);
}
