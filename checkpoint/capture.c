/* capture - copy the buffers into the pool while training goes on */
#include <assert.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/writer.h"

static bool have_slot(const struct mck_writer *w, const struct attempt *a)
{
    return w->free_slots > 0 || a->extent[w->plan.piece[a->next_piece].extent].slot != NO_SLOT;
}

static void extent_filled(struct mck_writer *w, struct attempt *a, uint32_t extent)
{
    w->job[(w->job_first + w->jobs++) % ((size_t)w->slots + 1)] = (struct job){.a = a, .extent = extent};
    a->to_encode++;
    (void)pthread_cond_signal(&w->encode);
}

bool capture_one(struct mck_writer *w, struct attempt *a)
{
    const struct piece *p = &w->plan.piece[a->next_piece];
    struct extent *e = &a->extent[p->extent];
    char *to;

    if (a->next_piece == w->plan.pieces || a->code || a->skip || !have_slot(w, a))
        return false;
    if (e->slot == NO_SLOT)
        e->slot = w->free_slot[--w->free_slots];
    to = w->pool + (size_t)e->slot * MCK_SLOT + p->at;
    a->next_piece++;
    a->copying++;
    (void)pthread_mutex_unlock(&w->lock);
    memcpy(to, p->src, p->len);
    memset(to + p->len, 0, p->pad);
    (void)pthread_mutex_lock(&w->lock);
    a->copying--;
    a->pieces_left--;
    if (--e->left == 0)
        extent_filled(w, a, p->extent);
    if (!a->pieces_left)
        a->captured_us = clock_mono_us();
    if (--a->bucket_left[p->bucket] == 0 || !a->pieces_left)
        (void)pthread_cond_broadcast(&w->gate);
    if ((a->code || a->skip) && !a->copying) {
        (void)pthread_cond_broadcast(&w->commit);
        (void)pthread_cond_broadcast(&w->gate);
    }
    return true;
}

/* The attempt to copy next: the oldest that has pieces left. */
static struct attempt *wanting(struct mck_writer *w)
{
    struct attempt *best = NULL;

    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *a = &w->attempt[i];

        if (a->used && !a->code && !a->skip && a->next_piece < w->plan.pieces && (!best || a->serial < best->serial))
            best = a;
    }
    return best;
}

void *capture_run(void *writer)
{
    struct mck_writer *w = writer;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 5); /* the trainer first; its gate helps out */
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct attempt *a = wanting(w);

        if (!a || !capture_one(w, a))
            (void)pthread_cond_wait(&w->capture, &w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}
