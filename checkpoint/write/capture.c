#include "checkpoint/write/capture.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "checkpoint/write/copy.h"

static bool have_slot(const struct mck_writer *w, const struct attempt *a)
{
    const struct extent *e = &a->extent[w->plan.piece[a->next_piece].extent];

    return e->in_place || w->free_slots > 0 || e->slot != NO_SLOT;
}

static void extent_filled(struct mck_writer *w, struct attempt *a, uint32_t extent)
{
    w->job[(w->job_first + w->jobs++) % w->job_max] = (struct encode_job){.a = a, .extent = extent};
    a->to_encode++;
    (void)pthread_cond_signal(&w->encode);
}

/* A piece needs its source no longer. Lock held. */
static void piece_done(struct mck_writer *w, struct attempt *a, const struct piece *p)
{
    a->pieces_left--;
    w->alive_us = clock_mono_us();
    if (!a->pieces_left) {
        a->captured_us = clock_mono_us();
        if (a->mode == MCK_STAGED && a->captured_us > a->begun_us)
            writer_average(&w->copy_rate, (double)w->plan.stream_len * 1e6 / (double)(a->captured_us - a->begun_us));
    }
    if (--a->bucket_left[p->bucket] == 0 || !a->pieces_left)
        (void)pthread_cond_broadcast(&w->gate);
}

/* Nothing of the attempt is read from the buffers any more, or one reader less. Lock held. */
static void reader_done(struct mck_writer *w, struct attempt *a)
{
    a->copying--;
    if ((a->code || a->skip) && !a->copying) {
        (void)pthread_cond_broadcast(&w->commit);
        (void)pthread_cond_broadcast(&w->gate);
    }
}

void capture_release(struct mck_writer *w, struct attempt *a, uint32_t extent)
{
    for (size_t i = w->plan.extent_first[extent]; i < w->plan.extent_first[extent + 1]; i++)
        piece_done(w, a, &w->plan.piece[w->plan.by_extent[i]]);
    a->in_place--;
    reader_done(w, a);
    (void)pthread_cond_signal(&w->encode); /* for the tail */
}

/* A copy has ended, or has not begun for an error. Lock held. */
static void piece_read(struct mck_writer *w, const struct reading *v, int code, const struct merr *err)
{
    struct extent *e = &v->a->extent[v->p->extent];

    if (code)
        writer_fail(w, v->a, code, err);
    else
        piece_done(w, v->a, v->p);
    if (--e->left == 0)
        extent_filled(w, v->a, v->p->extent);
    reader_done(w, v->a);
}

/* Copy a piece. Lock held, dropped meanwhile. */
static void copy_piece(struct mck_writer *w, struct attempt *a, const struct piece *p, char *to)
{
    struct reading v = {.a = a, .p = p};
    struct merr err = {""};
    int r = 0;

    a->copying++;
    (void)pthread_mutex_unlock(&w->lock);
    if (w->cfg.fetch)
        r = w->cfg.fetch(w->cfg.fetch_arg, p->src, to, p->len, &err);
    else
        copy_past_cache(to, p->src, p->len);
    memset(to + p->len, 0, p->pad);
    (void)pthread_mutex_lock(&w->lock);
    piece_read(w, &v, r, &err);
}

/* Begin the copy of a piece that lies on the GPU. Lock held, dropped meanwhile. */
static void lift_piece(struct mck_writer *w, struct attempt *a, const struct piece *p, char *to)
{
    struct reading v = {.a = a, .p = p};
    struct merr err = {""};
    int r;

    a->copying++;
    (void)pthread_mutex_unlock(&w->lock);
    memset(to + p->len, 0, p->pad);
    r = lift_begin(w->lift, to, p->src, p->len, &err);
    (void)pthread_mutex_lock(&w->lock);
    if (r < 0)
        piece_read(w, &v, r, &err);
    else
        w->lifted[(w->lifted_first + w->lifted_n++) % LIFT_DEPTH] = v;
}

/* Wait for the oldest copy from the GPU. Lock held, dropped meanwhile. */
static void end_lift(struct mck_writer *w)
{
    struct reading v = w->lifted[w->lifted_first];
    struct merr err = {""};
    int r;

    w->lifted_first = (w->lifted_first + 1) % LIFT_DEPTH;
    w->lifted_n--;
    (void)pthread_mutex_unlock(&w->lock);
    r = lift_end(w->lift, &err);
    (void)pthread_mutex_lock(&w->lock);
    piece_read(w, &v, r, &err);
}

bool capture_one(struct mck_writer *w, struct attempt *a)
{
    const struct piece *p = &w->plan.piece[a->next_piece];
    struct extent *e = &a->extent[p->extent];
    char *to;

    if (a->next_piece == w->plan.pieces || a->code || a->skip || !have_slot(w, a))
        return false;
    if (e->slot == NO_SLOT && !e->in_place)
        e->slot = w->free_slot[--w->free_slots];
    a->next_piece++;
    if (e->in_place) {
        if (--e->left == 0) {
            a->copying++;
            a->in_place++;
            extent_filled(w, a, p->extent);
        }
        return true;
    }
    to = w->pool + (size_t)e->slot * MCK_SLOT + p->at;
    if (w->lift && lift_holds(w->lift, p->src))
        lift_piece(w, a, p, to);
    else
        copy_piece(w, a, p, to);
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

    writer_yield();
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop || w->lifted_n) {
        struct attempt *a = w->stop ? NULL : wanting(w);

        if (a && w->lifted_n < LIFT_DEPTH && capture_one(w, a))
            continue;
        if (w->lifted_n)
            end_lift(w);
        else
            (void)pthread_cond_wait(&w->capture, &w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}
