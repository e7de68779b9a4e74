#include "server/control/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "server/control/arrays.h"
#include "server/control/audit.h"
#include "server/control/auth_load.h"
#include "server/control/booking.h"
#include "server/control/change.h"
#include "server/control/enroll.h"
#include "server/control/estimates.h"
#include "server/control/ledger.h"
#include "server/control/events.h"
#include "server/control/source_nodes.h"
#include "server/control/plans.h"
#include "server/control/predictions.h"
#include "server/control/quarantine.h"
#include "server/control/records.h"
#include "server/control/runs.h"
#include "server/control/secrets.h"
#include "server/control/webhook.h"
#include "server/control/state.h"
#include "server/control/usage.h"
#include "server/store/aside.h"

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

/* One that has ended: only where ended is set. */
static int load_entry(struct core *c, uint64_t id, const struct job_stored *stored, bool ended, struct merr *err)
{
    struct job_spec *spec = NULL;
    char *refusal = NULL;
    json_t *doc = NULL;
    struct entry *e = NULL;
    struct job job;
    int r = records_parse_job(id, stored, &job, &doc, err);

    if (r < 0)
        return r;
    if (job_ended(job.state) != ended) {
        job_clear(&job);
        json_decref(doc);
        return merr_set(err, -EINVAL, "the store lists the job as one that has %sended, and it has%s",
                        ended ? "" : "not ", ended ? " not" : "");
    }
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
    if (!ended)
        arrays_link(c, e);
    if ((ended ? table_insert_ended(&c->jobs, e) : table_insert(&c->jobs, e)) < 0) {
        entry_free(e);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    source_nodes_load(c, e);
    if (!job.live)
        return 0;
    if (job.state == JOB_STARTING) /* the last musterd may have ended before they were made */
        (void)spool_make_job(&c->cfg.spool, job.id, NULL);
    e->run.measure_links = job.link_suspect; /* its nodes may not have heard of it yet */
    e->run.drain_deadline_us = moment_mono_of(&c->now, job.drain_by_us);
    if (e->run.drain_deadline_us == 0 && strcmp(job_order(&job), "drain") == 0) /* an older musterd kept none */
        e->run.drain_deadline_us = c->now.mono_us + CHANGE_DRAIN_S * INT64_C(1000000);
    return 0;
}

struct loading {
    struct core *c;
    const uint64_t *ids;
};

/* One of the store's jobs; a record that cannot be read keeps no other from being loaded. */
static int load_one(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    const struct loading *l = arg;
    struct merr why = {""};
    int r = load_entry(l->c, l->ids[i], stored, false, &why);

    if (r != -EINVAL && r != -ENOENT)
        return r < 0 ? merr_set(err, r, "%s", why.text) : 0;
    quarantine_job(l->c, l->ids[i], why.text);
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

        r = job_store_read_each(c->store, ids.v + at, some, true, load_one,
                                &(struct loading){.c = c, .ids = ids.v + at}, err);
    }
    job_ids_clear(&ids);
    return r;
}

/* A job whose spec was not read fails; one that runs is stopped first. */
static int fail_refused(struct core *c, struct entry *e, struct merr *err)
{
    struct job_cause cause = {
        .kind = CAUSE_REFUSED, .actor = "server", .code = "spec-refused", .class_ = JOB_CLASS_USER, .text = e->refusal};
    int r;

    if (!e->refusal)
        return 0;
    log_warn("job j%llu: %s", (unsigned long long)e->job.id, e->refusal);
    r = change_job(c, e, &cause, err);
    return r == -ENOMEM ? r : 0; /* whatever else it is, it is this job's */
}

static int fail_all_refused(struct core *c, struct merr *err)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < c->jobs.n_order; i++)
        r = fail_refused(c, table_at(&c->jobs, i), err);
    return r;
}

static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static int load_counters(struct core *c, struct merr *err)
{
    struct job_counters counters;
    int r = job_store_read_counters(c->store, &counters, err);

    if (r < 0)
        return r;
    c->jobs.next = more(counters.next_job, more(store_mark(c->store)->next_job, 1));
    events_set_next(c, more(counters.next_event, more(store_mark(c->store)->next_event, 1)));
    memcpy(c->jobs.ended, counters.ended, sizeof(c->jobs.ended));
    return 0;
}

/* No new job gets a number whose folder is there: it would go on from the checkpoints of another. Where no watermark
 * says that nothing is missing, such a folder says that something is. Returns 0; -ENODATA; or another negative errno,
 * with words. */
static int skip_folders(struct core *c, struct merr *err)
{
    uint64_t last;
    int r = spool_newest_job(&c->cfg.spool, &last, err);

    if (r < 0)
        return r;
    if (last >= c->jobs.next && !c->cfg.marked && !c->cfg.accept_loss)
        return merr_set(err, -ENODATA,
                        "'%s' holds a folder of a job j%llu, and the store has none from j%llu on: what was "
                        "acknowledged is lost. Bring the store back as it was, or start once with --accept-loss to go "
                        "on without; new jobs then begin at j%llu",
                        c->cfg.jobs_dir, (unsigned long long)last, (unsigned long long)c->jobs.next,
                        (unsigned long long)last + 1);
    if (last >= c->jobs.next) {
        log_warn("'%s' holds a folder of a job j%llu, which the store does not know: new jobs begin at j%llu",
                 c->cfg.jobs_dir, (unsigned long long)last, (unsigned long long)last + 1);
        c->jobs.next = last + 1;
    }
    c->accept_below = c->jobs.next + ACCEPT_JOBS;
    return 0;
}

/* Tokens that could not be read when the others were (auth.h). */
static int look_at_token(struct core *c, const struct store_row *row, struct merr *err)
{
    (void)c;
    return auth_reads(row) ? 0 : merr_set(err, -EINVAL, "the store's record of the token cannot be read");
}

int load_all(struct core *c, struct merr *err)
{
    TRY(quarantine_load(c, err));
    TRY(records_take_rows(c, STORE_TOKENS, "token", look_at_token, err));
    TRY(load_counters(c, err));
    TRY(skip_folders(c, err));
    TRY(audit_load(c, err));
    TRY(records_read_nodes(c, err));
    TRY(records_read_removed(c, err));
    TRY(records_read_speeds(c, err));
    TRY(records_read_kinds(c, err));
    TRY(records_read_links(c, err));
    TRY(records_read_projects(c, err));
    TRY(records_read_ended(c, err));
    TRY(enroll_load(c, err));
    TRY(secrets_load(c, err));
    TRY(webhook_load(c, err));
    TRY(usage_load(c, err));
    TRY(ledger_load(c, err));
    TRY(estimates_load(c, err));
    TRY(predictions_load(c, err));
    TRY(booking_load(c, err));
    TRY(records_read_arrays(c, err));
    TRY(load_jobs(c, err));
    arrays_loaded(c);
    TRY(adopt_runs(c, err));
    return fail_all_refused(c, err);
}

/* --- once more ---------------------------------------------------------------------------------------- */

struct loading_again {
    struct core *c;
    uint64_t job;
    bool ended;
};

static int load_job_again(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    struct loading_again *l = arg;
    struct job job;
    int r = records_parse_job(l->job, stored, &job, NULL, err);

    (void)i;
    if (r < 0)
        return r == -ENOENT ? -EINVAL : r;
    l->ended = job_ended(job.state);
    job_clear(&job);
    return l->ended ? 0 : load_entry(l->c, l->job, stored, false, err);
}

static int load_one_ended(void *arg, size_t i, const struct job_stored *stored, struct merr *err)
{
    struct loading_again *l = arg;

    (void)i;
    return load_entry(l->c, l->job, stored, true, err);
}

int load_ended(struct core *c, uint64_t id, struct entry **ret, struct merr *err)
{
    struct loading_again l = {.c = c, .job = id};

    TRY(job_store_read(c->store, id, load_one_ended, &l, err));
    *ret = table_find(&c->jobs, id);
    records_put_back(c, *ret);
    return 0;
}

static int again_job(struct core *c, uint64_t id, struct merr *err)
{
    struct loading_again l = {.c = c, .job = id};
    int r = table_find(&c->jobs, id) ? merr_set(err, -EEXIST, "the job is there")
                                     : job_store_read(c->store, id, load_job_again, &l, err);
    struct entry *e = r == 0 ? table_find(&c->jobs, id) : NULL;

    if (r < 0)
        return r;
    aside_show_job(c->store, id, l.ended);
    c->schedule_wanted = true;
    if (!e)
        return 0;
    if (e->job.live) {
        runs_adopt(c, e);
        change_orders(c, &e->job);
    }
    return fail_refused(c, e, err);
}

static int again_row(struct core *c, const char *kind, struct store_row *row, struct merr *err)
{
    bool node = strcmp(kind, "node") == 0;
    int r;

    if (!row->text)
        return merr_set(err, -EINVAL, "the store does not give the text that was kept");
    row->len = strlen(row->text);
    if (strcmp(kind, "token") == 0)
        return auth_take(c->cfg.auth, row, err);
    if (!node && strcmp(kind, "project") != 0)
        return merr_set(err, -EINVAL, "a %s is only kept: look at it in Redis, then drop it", kind);
    if (node ? cluster_node(&c->cluster, row->name) != NULL : project_find(&c->cluster.projects, row->name) != NULL)
        return merr_set(err, -EEXIST, "there is a %s '%s' again meanwhile", kind, row->name);
    r = node ? records_take_node(c, row, err) : records_take_project(c, row, err);
    if (r == 0 &&
        !records_put_row_new(c, node ? STORE_NODES : STORE_PROJECTS, row->name, json_loads(row->text, 0, NULL)))
        state_fatal(c, "out of memory for a record");
    c->schedule_wanted = true;
    return r;
}

int load_again(struct core *c, const char *id, struct merr *err)
{
    const json_t *note = quarantine_find(c, id);
    const char *kind = json_string_value(json_object_get(note, "kind"));
    const char *name = json_string_value(json_object_get(note, "name"));
    struct store_row row = {0};
    int r;

    if (!note || !kind || !name)
        return merr_set(err, -ENOENT, "nothing of the name '%s' is in quarantine", id);
    if (strcmp(kind, "job") == 0) {
        r = again_job(c, job_id_parse(name), err);
    } else {
        row = (struct store_row){.name = strdup(name), .text = aside_read_text(c->store, id)};
        r = row.name ? again_row(c, kind, &row, err) : merr_set(err, -ENOMEM, "out of memory");
    }
    free(row.name);
    free(row.text);
    if (r == 0)
        quarantine_forget(c, id);
    return r;
}
