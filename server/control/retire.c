#include "server/control/retire.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/control/files.h"
#include "server/control/offsets.h"
#include "server/control/records.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define RETIRE_MOST 256 /* in a turn */

/* On the files' thread. */
static void drop_spool(void *core, struct call *call)
{
    const struct core *c = core;

    spool_drop_job(&c->cfg.spool, call->job);
    call_free(call);
}

/* On the files' thread. */
static void drop_generation(void *core, struct call *call)
{
    const struct core *c = core;

    spool_drop_generation(&c->cfg.spool, call->job, call->generation);
    call_free(call);
}

void retire_generation(struct core *c, struct entry *e)
{
    struct call *call = e->job.generation > SPOOL_GENERATIONS ? call_new(NULL, drop_generation) : NULL;
    uint32_t old = e->job.generation - SPOOL_GENERATIONS;

    if (!call)
        return;
    call->job = e->job.id;
    call->generation = old;
    files_post(c->files, call);
    offsets_drop(c, e, old);
}

bool retire_job(struct core *c, uint64_t job)
{
    struct call *call = call_new(NULL, drop_spool);

    if (!call) /* the record stays, or nothing would find the spool again */
        return false;
    records_drop_ended(c, job);
    call->job = job;
    files_post(c->files, call);
    return true;
}

void retire_jobs(struct core *c)
{
    struct catalog *all = &c->jobs.catalog;

    for (int n = 0; n < RETIRE_MOST; n++) {
        bool many = all->n_ended > (size_t)c->cfg.keep_ended, large = all->ended_bytes > c->cfg.keep_ended_bytes;
        struct catalog_row *row = many || large ? catalog_surplus(all, !many) : NULL;

        if (!row || table_find(&c->jobs, row->id) || !retire_job(c, row->id)) /* or it ended in this turn */
            return;
    }
}
