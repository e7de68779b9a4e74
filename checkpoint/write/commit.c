#include "checkpoint/write/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/write/attempt.h"
#include "checkpoint/write/flush.h"

/* Nothing of it is under way any more. Lock held. */
static bool is_ready(const struct attempt *a)
{
    return a && !a->copying && !a->to_encode && !a->io_left && (a->code || (!a->held && (a->skip || a->durable)));
}

static void report(struct mck_writer *w, const struct attempt *a, int code, const struct merr *err)
{
    struct mck_done *d;

    if (w->dones == DONE_MAX) {
        w->done_first = (w->done_first + 1) % DONE_MAX;
        w->dones--;
    }
    d = &w->done[(w->done_first + w->dones++) % DONE_MAX];
    *d = (struct mck_done){.step = a->step, .bytes = a->bytes, .stored_bytes = a->stored, .code = code};
    d->removed = a->removed;
    d->mode = a->mode;
    d->stall_us = a->stall_us;
    d->expect_us = a->expect_us;
    d->capture_us = a->captured_us ? a->captured_us - a->begun_us : 0;
    d->write_us = clock_mono_us() - a->begun_us;
    memcpy(d->path, a->folder, sizeof(d->path));
    if (code)
        d->err = *err;
}

/* Lock held. */
static void retire(struct mck_writer *w, struct attempt *a, int code, const struct merr *err)
{
    report(w, a, code, err);
    for (uint32_t i = 0; i < w->plan.extents; i++)
        if (a->extent[i].slot != NO_SLOT)
            writer_free_slot(w, a->extent[i].slot);
    free(a->tail);
    free(a->kv);
    a->tail = NULL;
    a->kv = NULL;
    a->used = false;
    (void)pthread_cond_broadcast(&w->idle);
    (void)pthread_cond_broadcast(&w->encode);
    (void)pthread_cond_broadcast(&w->gate);
    flush_queue(w, NULL);
}

void *commit_run(void *writer)
{
    struct mck_writer *w = writer;

    (void)pthread_mutex_lock(&w->lock);
    for (;;) {
        struct attempt *a = writer_oldest(w);
        struct merr err;
        int code;

        if (!is_ready(a)) {
            if (w->stop && !a)
                break;
            (void)pthread_cond_wait(&w->commit, &w->lock);
            continue;
        }
        code = a->code;
        err = a->err;
        a->closing = true;
        if (!a->skip || code) {
            (void)pthread_mutex_unlock(&w->lock);
            if (!code)
                code = attempt_publish(w, a, &err);
            (void)pthread_mutex_lock(&w->lock);
            if (code && !a->code)
                writer_fail(w, a, code, &err);
            (void)pthread_mutex_unlock(&w->lock);
            if (code)
                attempt_discard(w, a);
            (void)pthread_mutex_lock(&w->lock);
        }
        retire(w, a, code, &err);
        if (!code && w->follower)
            w->follower->committed(w->follower_arg);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}
