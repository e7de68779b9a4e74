#include "server/control/log_quota.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/spool_logs.h"

#define EVERY_US 10000000
#define LOOKS_MAX 4096 /* jobs, in a tick */
#define COUNT_MAX 1000
#define REMOVE_MAX 256

/* On the files' thread. */
static void run_remove(void *core, struct call *call)
{
    const struct core *c = core;
    int r = spool_remove_logs(&c->cfg.spool, call->job);

    if (r < 0 && r != -ENOENT) /* forgotten meanwhile */
        log_warn("the logs of job j%llu were removed, which its readers are not told: %s",
                 (unsigned long long)call->job, strerror(-r));
    call_free(call);
}

static void keep_within(struct core *c)
{
    struct catalog *all = &c->jobs.catalog;

    for (int n = 0; n < REMOVE_MAX && all->logs > (uint64_t)c->cfg.spool.all_bytes; n++) {
        struct catalog_row *row = catalog_most_logs(all);
        struct call *call = row ? call_new(NULL, run_remove) : NULL;

        if (!call)
            return;
        call->job = row->id;
        events_note(
            c, row->id, row->user->name, "note", 0, "server", "logs-removed",
            "the logs of all jobs took more than --all-logs; these were the oldest of the user who had most",
            json_pack("{s:I, s:I}", "bytes", (json_int_t)row->logs, "limit", (json_int_t)c->cfg.spool.all_bytes));
        catalog_count_logs(all, row, 0);
        files_post(c->files, call);
    }
}

/* Back on the core's thread. */
static void run_counted(void *core, struct call *call)
{
    struct core *c = core;
    const json_t *one;
    size_t i;

    c->handed = true;
    c->log_quota.counting = false;
    json_array_foreach (call->body, i, one) {
        struct catalog_row *row = catalog_find(&c->jobs.catalog, (uint64_t)json_integer_value(json_array_get(one, 0)));

        if (row)
            catalog_count_logs(&c->jobs.catalog, row, (uint64_t)json_integer_value(json_array_get(one, 1)));
    }
    call_free(call);
    keep_within(c);
}

/* On the files' thread. */
static void run_count(void *core, struct call *call)
{
    struct core *c = core;
    json_t *one;
    size_t i;

    json_array_foreach (call->body, i, one) {
        uint64_t job = (uint64_t)json_integer_value(json_array_get(one, 0));

        (void)json_array_append_new(one, json_integer((json_int_t)spool_logs_bytes(&c->cfg.spool, job)));
    }
    call->run = run_counted;
    if (!files_threaded(c->files))
        run_counted(c, call);
    else if (!queue_give(&c->turn.queue, call))
        call_free(call); /* the server stops */
}

/* Add the jobs below a number of which something came since they were counted, as [job]. Returns where to go on. */
static uint64_t add_changed(struct core *c, uint64_t below, json_t *list)
{
    struct catalog_query q = {.n = 0};
    bool any_state[JOB_STATES];
    uint64_t next;

    memset(any_state, true, sizeof(any_state));
    catalog_query_states(&c->jobs.catalog, &q, any_state);
    for (int looks = 0; looks < LOOKS_MAX && json_array_size(list) < COUNT_MAX; looks++) {
        struct catalog_row *row = catalog_next(&q, below, 1, &next);

        below = row ? row->id : 0;
        if (!row)
            break;
        if (row->counted == row->shipped + 1)
            continue;
        row->counted = row->shipped + 1;
        (void)json_array_append_new(list, json_pack("[I]", (json_int_t)row->id));
    }
    return below;
}

void log_quota_tick(struct core *c)
{
    struct call *call;

    if (c->cfg.spool.all_bytes == 0 || c->log_quota.counting || c->now.mono_us < c->log_quota.next_us)
        return;
    call = call_new(NULL, run_count);
    if (!call)
        return;
    c->log_quota.next_us = c->now.mono_us + EVERY_US;
    c->log_quota.counting = true;
    call->body = json_array();
    (void)add_changed(c, UINT64_MAX, call->body); /* the newest, and older ones in turn */
    c->log_quota.below = add_changed(c, c->log_quota.below, call->body);
    if (c->log_quota.below == 0)
        c->log_quota.below = UINT64_MAX;
    files_post(c->files, call);
}
