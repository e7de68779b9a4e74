/* What grows with time: jobs that ended long ago and a job's old generations leave the store and the spool. Jobs' own
 * folders stay. */
#include <stdio.h>
#include <stdlib.h>

#include "server/control/core.h"
#include "server/store/history.h"

#define RETIRE_MOST 256 /* at once */

static void drop_record(struct core *c, const char *number)
{
    char key[48];

    (void)snprintf(key, sizeof(key), "muster:job:%.20s", number);
    store_add(c->store, "DEL", key, NULL);
    history_drop(c->store, number);
    store_add(c->store, "ZREM", "muster:jobs:ended", number, NULL);
}

/* On the files' thread. */
static void drop_spool(struct core *c, struct call *call)
{
    files_drop_job(c->files, call->job);
    call_free(call);
}

/* On the files' thread. */
static void drop_generation(struct core *c, struct call *call)
{
    files_drop_generation(c->files, call->job, call->generation);
    call_free(call);
}

void retire_generation(struct core *c, struct entry *e)
{
    struct call *call = e->job.generation > FILES_GENERATIONS ? call_new(NULL, drop_generation) : NULL;
    uint32_t old = e->job.generation - FILES_GENERATIONS;
    char key[48], field[JOB_NODE_MAX + 32];
    size_t kept = 0;

    if (!call)
        return;
    call->job = e->job.id;
    call->generation = old;
    files_post(c->files, call);
    (void)snprintf(key, sizeof(key), "muster:job:%llu", (unsigned long long)e->job.id);
    for (size_t i = 0; i < c->n_nodes; i++) { /* on any of them it may have run */
        (void)snprintf(field, sizeof(field), "evoff:%s:%u", c->nodes[i]->name, old);
        store_add(c->store, "HDEL", key, field, NULL);
    }
    for (size_t i = 0; i < e->n_offsets; i++)
        if (e->offsets[i].generation > old)
            e->offsets[kept++] = e->offsets[i];
    e->n_offsets = kept;
}

void retire_jobs(struct core *c)
{
    redisReply *reply = store_read(c->store, NULL, "ZCARD muster:jobs:ended");
    long long surplus = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer - c->cfg.keep_ended : 0;

    freeReplyObject(reply);
    c->ended_new = 0;
    if (surplus <= 0)
        return;
    if (surplus > RETIRE_MOST) {
        surplus = RETIRE_MOST;
        c->ended_new = SIZE_MAX; /* go on with the next tick */
    }
    reply = store_read(c->store, NULL, "ZRANGE muster:jobs:ended 0 %lld", surplus - 1);
    for (size_t i = 0; reply && i < reply->elements; i++) {
        struct call *call = call_new(NULL, drop_spool);

        if (!call) /* no memory: the record stays, or nothing would find the spool again */
            break;
        drop_record(c, reply->element[i]->str);
        call->job = strtoull(reply->element[i]->str, NULL, 10);
        files_post(c->files, call);
    }
    freeReplyObject(reply);
}
