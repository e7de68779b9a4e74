#include "server/control/retire.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/job_store.h"

#define RETIRE_MOST 256 /* at once */

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
    size_t kept = 0;

    if (!call)
        return;
    call->job = e->job.id;
    call->generation = old;
    files_post(c->files, call);
    for (size_t i = 0; i < c->cluster.n_nodes; i++) /* on any of them it may have run */
        job_store_drop_offset(c->store, e->job.id, c->cluster.nodes[i]->name, old);
    for (size_t i = 0; i < e->n_offsets; i++)
        if (e->offsets[i].generation > old)
            e->offsets[kept++] = e->offsets[i];
    e->n_offsets = kept;
}

bool retire_job(struct core *c, uint64_t job)
{
    struct call *call = call_new(NULL, drop_spool);

    if (!call) /* the record stays, or nothing would find the spool again */
        return false;
    job_store_drop(c->store, job);
    call->job = job;
    files_post(c->files, call);
    return true;
}

void retire_jobs(struct core *c)
{
    struct job_ids oldest = {0};
    uint64_t n = 0, surplus;

    (void)job_store_ended_count(c->store, &n, NULL); /* while the store is away there is nothing to forget */
    c->jobs.ended_new = 0;
    if (n <= (uint64_t)c->cfg.keep_ended)
        return;
    surplus = n - (uint64_t)c->cfg.keep_ended;
    if (surplus > RETIRE_MOST) {
        surplus = RETIRE_MOST;
        c->jobs.ended_new = SIZE_MAX; /* go on with the next tick */
    }
    (void)job_store_ended_oldest(c->store, surplus, &oldest, NULL);
    for (size_t i = 0; i < oldest.n && retire_job(c, oldest.v[i]); i++)
        continue;
    job_ids_clear(&oldest);
}
