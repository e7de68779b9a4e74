#include "server/control/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/givers.h"
#include "server/control/plans.h"
#include "server/control/records.h"
#include "server/control/runs.h"
#include "server/control/state.h"

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
    int r = records_parse_job(stored, &job, &doc, err);

    (void)i;
    if (r < 0)
        return r == -ENOENT ? merr_set(err, -EIO, "the store lists a job that it does not have") : r;
    r = read_spec(doc, &spec, &refusal, err);
    json_decref(doc);
    e = r == 0 ? entry_new(&c->cluster.classes, spec) : NULL;
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
        e->run.ranks = calloc(job.n_places, sizeof(*e->run.ranks));
    if (!e->spec_text || (job.live && !e->run.ranks)) {
        entry_free(e);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    if (table_insert(&c->jobs, e) < 0) {
        entry_free(e);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    givers_load(c, e);
    if (!job.live)
        return 0;
    e->run.drain_deadline_us = moment_mono_of(&c->now, job.drain_by_us);
    if (e->run.drain_deadline_us == 0 && strcmp(job_order(&job), "drain") == 0) /* an older musterd kept none */
        e->run.drain_deadline_us = c->now.mono_us + CHANGE_DRAIN_S * INT64_C(1000000);
    return 0;
}

static int by_assignment(const void *a, const void *b)
{
    const struct job *x = &(*(struct entry *const *)a)->job, *y = &(*(struct entry *const *)b)->job;

    if (x->assigned != y->assigned)
        return x->assigned < y->assigned ? -1 : 1;
    if (x->changed_us != y->changed_us) /* older musterds kept no number */
        return x->changed_us < y->changed_us ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Live runs have their slots again. Where two say so of one, it is the later one's: it was given to that once the ranks
 * of the other were over there. */
static int adopt_runs(struct core *c, struct merr *err)
{
    struct entry **live = calloc(c->jobs.n + 1, sizeof(struct entry *));
    size_t n = 0;

    if (!live)
        return merr_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && e->job.live)
            live[n++] = e;
    }
    qsort(live, n, sizeof(struct entry *), by_assignment);
    for (size_t i = 0; i < n; i++)
        runs_adopt(c, live[i]);
    free(live);
    return 0;
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
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);
        struct job_cause cause = {.kind = CAUSE_REFUSED,
                                  .actor = "server",
                                  .code = "spec-refused",
                                  .class_ = JOB_CLASS_USER,
                                  .text = e->refusal};
        int r;

        if (!e->refusal)
            continue;
        log_warn("job j%llu: %s", (unsigned long long)e->job.id, e->refusal);
        r = change_job(c, e, &cause, err);
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
    c->jobs.next = counters.next_job ? counters.next_job : 1;
    events_set_next(c, counters.next_event ? counters.next_event : 1);
    memcpy(c->jobs.ended, counters.ended, sizeof(c->jobs.ended));
    return 0;
}

/* No new job gets a number whose folder is there: it would go on from the checkpoints of another. The store knows less
 * than the folders when it came from a backup. Returns 0, or a negative errno with words. */
static int skip_folders(struct core *c, struct merr *err)
{
    uint64_t last;
    int r = spool_newest_job(&c->cfg.spool, &last, err);

    if (r < 0)
        return r;
    if (last >= c->jobs.next) {
        log_warn("'%s' holds a folder of a job j%llu, which the store does not know: new jobs begin at j%llu",
                 c->cfg.jobs_dir, (unsigned long long)last, (unsigned long long)last + 1);
        c->jobs.next = last + 1;
    }
    return 0;
}

int load_all(struct core *c, struct merr *err)
{
    int r = load_counters(c, err);

    if (r == 0)
        r = skip_folders(c, err);
    if (r == 0)
        r = records_read_nodes(c, err);
    if (r == 0)
        r = records_read_removed(c, err);
    if (r == 0)
        r = records_read_speeds(c, err);
    if (r == 0)
        r = records_read_links(c, err);
    if (r == 0)
        r = records_read_projects(c, err);
    if (r == 0)
        r = load_jobs(c, err);
    if (r == 0)
        r = adopt_runs(c, err);
    if (r == 0)
        r = fail_refused(c, err);
    return r;
}
