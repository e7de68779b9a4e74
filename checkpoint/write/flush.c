#include "checkpoint/write/flush.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/write/attempt.h"
#include "checkpoint/write/capture.h"
#include "checkpoint/write/space.h"

void flush_queue(struct mck_writer *w, struct write *q)
{
    uint64_t one = 1;

    if (q) {
        if (w->write_tail)
            w->write_tail->next = q;
        else
            w->write_head = q;
        w->write_tail = q;
    }
    (void)!write(w->write_event, &one, sizeof(one));
}

static void give_back(struct mck_writer *w, struct write *q)
{
    if (q->slot != NO_SLOT)
        writer_free_slot(w, q->slot);
    if (q->extent >= 0)
        capture_release(w, q->a, (uint32_t)q->extent);
    if (q->out != NO_SLOT) {
        w->free_out[w->free_outs++] = q->out;
        (void)pthread_cond_broadcast(&w->encode);
    }
}

/* Lock held. */
static void finish_write(struct mck_writer *w, struct write *q)
{
    struct attempt *a = q->a;
    struct merr err;

    give_back(w, q);
    if (q->req.res && q->req.res != -ECANCELED) {
        const char *hint = q->req.res == -ENOSPC ? "; free some space there" : "";

        (void)merr_errno(&err, q->req.res, "cannot write '%s'", a->temp);
        (void)merr_prefix(&err, 0, "checkpoint of step %llu failed%s", (unsigned long long)a->step, hint);
        writer_fail(w, a, q->req.res, &err);
    }
    a->last_write_us = clock_mono_us();
    w->alive_us = a->last_write_us;
    if (q->req.op == MIO_SYNC && !a->code) {
        int64_t us = a->last_write_us - a->first_write_us;

        a->durable = true;
        writer_average(&w->disk_rate, (double)(a->append ? a->append : 1) * 1e6 / (double)(us > 0 ? us : 1));
    }
    a->io_left--;
    (void)pthread_cond_broadcast(&w->commit);
    free(q);
}

/* The disk was too full for a write: it is made once more where older checkpoints can go for it. Lock held, dropped
 * meanwhile. */
static bool write_again(struct mck_writer *w, struct write *q)
{
    bool again, in_vain = q->again;
    uint64_t bytes = (uint64_t)q->a->io_left * MCK_SLOT;

    if (q->req.op != MIO_WRITE || !space_is_short(q->req.res) || q->a->code)
        return false;
    (void)pthread_mutex_unlock(&w->lock);
    again = attempt_make_space(w, q->a, bytes, in_vain);
    if (again) {
        q->again = true;
        mio_submit(w->mio, &q->req);
    }
    (void)pthread_mutex_lock(&w->lock);
    w->alive_us = clock_mono_us();
    return again;
}

/* Sync files whose writes are all done. Lock held. */
static struct write *next_sync(struct mck_writer *w)
{
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *a = &w->attempt[i];
        struct write *q;

        if (!a->used || !a->tail_queued || a->syncing || a->code || a->io_left)
            continue;
        q = calloc(1, sizeof(*q));
        if (!q) {
            static const struct merr no_memory = {.text = "no memory to sync a checkpoint"};

            writer_fail(w, a, -ENOMEM, &no_memory);
            continue;
        }
        *q =
            (struct write){.req = {.op = MIO_SYNC, .fd = a->fd}, .a = a, .slot = NO_SLOT, .out = NO_SLOT, .extent = -1};
        a->syncing = true;
        a->io_left++;
        return q;
    }
    return NULL;
}

/* Hand queued requests to the kernel; those of failed attempts are answered here. Lock held, dropped meanwhile. */
static void start_writes(struct mck_writer *w)
{
    struct write *q;

    for (;;) {
        q = w->write_head;
        if (q) {
            w->write_head = q->next;
            if (!w->write_head)
                w->write_tail = NULL;
        } else {
            q = next_sync(w);
        }
        if (!q)
            return;
        if (q->a->code) {
            q->req.res = -ECANCELED;
            finish_write(w, q);
            continue;
        }
        if (!q->a->first_write_us)
            q->a->first_write_us = clock_mono_us();
        (void)pthread_mutex_unlock(&w->lock);
        mio_submit(w->mio, &q->req);
        (void)pthread_mutex_lock(&w->lock);
    }
}

/* A disk on which nothing has been done for long holds training up where gates wait for it: no more. Requests may still
 * come back, and end the attempt then. A sync may take long. Lock held. */
static void give_up_stuck(struct mck_writer *w)
{
    int64_t since = clock_mono_us() - w->cfg.stuck_us;

    for (int i = 0; i < ATTEMPTS_MAX; i++)
        if (w->attempt[i].used && w->attempt[i].syncing && !w->attempt[i].durable)
            return;
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *a = &w->attempt[i];
        struct merr err;

        if (!a->used || a->code || a->skip || a->durable || w->alive_us > since || a->begun_us > since)
            continue;
        (void)merr_set(&err, -ETIMEDOUT, "checkpoint of step %llu failed: nothing could be written to '%s' for %lld s",
                       (unsigned long long)a->step, a->temp, (long long)(w->cfg.stuck_us / 1000000));
        a->stuck = true;
        writer_fail(w, a, -ETIMEDOUT, &err);
    }
}

void *flush_run(void *writer)
{
    struct mck_writer *w = writer;
    struct pollfd p[2] = {{.fd = mio_fd(w->mio), .events = POLLIN}, {.fd = w->write_event, .events = POLLIN}};
    struct mio_req *r;
    uint64_t count;

    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop || writer_oldest(w)) {
        start_writes(w);
        (void)pthread_mutex_unlock(&w->lock);
        if (poll(p, 2, 1000) > 0 && p[1].revents)
            (void)!read(w->write_event, &count, sizeof(count));
        while ((r = mio_take(w->mio))) {
            (void)pthread_mutex_lock(&w->lock);
            if (!write_again(w, (struct write *)r))
                finish_write(w, (struct write *)r);
            (void)pthread_mutex_unlock(&w->lock);
        }
        (void)pthread_mutex_lock(&w->lock);
        give_up_stuck(w);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}
