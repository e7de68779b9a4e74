#include "checkpoint/write/writer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/coding.h"
#include "checkpoint/write/capture.h"
#include "checkpoint/write/commit.h"
#include "checkpoint/write/encode.h"
#include "checkpoint/write/flush.h"
#include "checkpoint/write/writer_priv.h"

#define TIMEOUT_DEFAULT_US (INT64_C(300) * 1000000)
#define STUCK_DEFAULT_US (INT64_C(60) * 1000000)

static void lock(struct mck_writer *w)
{
    (void)pthread_mutex_lock(&w->lock);
}

static void unlock(struct mck_writer *w)
{
    (void)pthread_mutex_unlock(&w->lock);
}

/* May any thread read the buffers at once, as memory of the host? */
static bool reads_memory(const struct mck_writer *w)
{
    return !w->lift && !w->cfg.fetch;
}

/* --- birth ------------------------------------------------------------------------------------- */

static int check_cfg(const struct mck_cfg *c, struct merr *err)
{
    const char *codec = c->codec ? c->codec : "";

    if (!c->dir || !*c->dir)
        return merr_set(err, -EINVAL, "no checkpoint folder is given");
    if (c->size < 1 || (uint32_t)c->size > MCK_RANKS_MAX || c->rank < 0 || c->rank >= c->size)
        return merr_set(err, -EINVAL, "rank %d of %d is impossible", c->rank, c->size);
    if (coding_parse(codec) < 0 && strcmp(codec, "auto") != 0)
        return merr_set(err, -EINVAL, "checkpoint codec '%s' is unknown: want none, plane, zstd, lz4 or auto", codec);
    return 0;
}

static int make_pool(struct mck_writer *w, struct merr *err)
{
    size_t want = (w->cfg.pool_bytes ? w->cfg.pool_bytes : MCK_POOL_BYTES) / MCK_SLOT, least = 2 * w->plan.groups + 4;

    if (want > 2u * w->plan.extents)
        want = 2u * w->plan.extents; /* two attempts at once hold no more */
    if (least > w->plan.extents)     /* a slot for each: nothing can wait for anything */
        least = w->plan.extents ? w->plan.extents : 1;
    if (want < least)
        want = least;
    if (want > 1u << 20)
        return merr_set(err, -EINVAL, "a staging pool of %zu bytes is too large", w->cfg.pool_bytes);
    w->pool_bytes = want * MCK_SLOT;
    w->pool = mmap(NULL, w->pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->pool == MAP_FAILED) {
        w->pool = NULL;
        return merr_set(err, -ENOMEM, "no memory for a staging pool of %zu MiB", w->pool_bytes >> 20);
    }
    (void)madvise(w->pool, w->pool_bytes, MADV_HUGEPAGE);
    (void)madvise(w->pool, w->pool_bytes, MADV_DONTFORK);
    memset(w->pool, 0, w->pool_bytes); /* the first touch of a page can cost more than to write it out */
    w->slots = (int)want;
    w->free_slot = calloc(want, sizeof(*w->free_slot));
    w->job_max = ATTEMPTS_MAX * (size_t)w->plan.extents + 1;
    w->job = calloc(w->job_max, sizeof(*w->job));
    w->done = calloc(DONE_MAX, sizeof(*w->done));
    if (!w->free_slot || !w->job || !w->done)
        return merr_set(err, -ENOMEM, "no memory");
    for (int i = 0; i < w->slots; i++)
        w->free_slot[w->free_slots++] = w->slots - 1 - i;
    return w->cfg.device ? lift_new(w->cfg.device, w->cfg.device_ordinal, w->pool, w->pool_bytes, &w->lift, err) : 0;
}

static int make_coder(struct mck_writer *w, struct merr *err)
{
    w->fill_out = NO_SLOT;
    if (coding_parse(w->cfg.codec) == CHUNK_RAW)
        return 0;
    w->coder = chunk_coder_new();
    for (int i = 0; i < OUTS; i++) {
        void *p = NULL;

        if (posix_memalign(&p, MCK_ALIGN, MCK_SLOT) == 0)
            w->out[w->free_outs] = p;
        if (!p || !w->coder)
            return merr_set(err, -ENOMEM, "no memory to encode checkpoints");
        w->free_out[w->free_outs++] = i;
    }
    return 0;
}

static int start_threads(struct mck_writer *w, struct merr *err)
{
    static void *(*const run[4])(void *) = {capture_run, encode_run, flush_run, commit_run};

    for (; w->threads < 4; w->threads++) {
        int r = pthread_create(&w->thread[w->threads], NULL, run[w->threads], w);

        if (r != 0)
            return merr_errno(err, -r, "cannot start the checkpoint writer's threads");
    }
    return 0;
}

static int make_attempts(struct mck_writer *w, struct merr *err)
{
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *a = &w->attempt[i];

        a->fd = -1;
        a->bucket_left = calloc(w->plan.buckets + 1, sizeof(*a->bucket_left));
        a->extent = calloc(w->plan.extents + 1, sizeof(*a->extent));
        a->chunk = calloc(w->plan.chunks + 1, sizeof(*a->chunk));
        if (!a->bucket_left || !a->extent || !a->chunk)
            return merr_set(err, -ENOMEM, "no memory for the tables of a checkpoint");
    }
    return 0;
}

static struct mck_writer *writer_alloc(void)
{
    struct mck_writer *w = calloc(1, sizeof(*w));
    pthread_condattr_t attr;

    if (!w)
        return NULL;
    w->stop_event = w->write_event = -1;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->capture, &attr);
    (void)pthread_cond_init(&w->gate, &attr);
    (void)pthread_cond_init(&w->encode, &attr);
    (void)pthread_cond_init(&w->commit, &attr);
    (void)pthread_cond_init(&w->idle, &attr);
    (void)pthread_condattr_destroy(&attr);
    return w;
}

static int writer_setup(struct mck_writer *w, const struct mck_cfg *cfg, const struct mck_buffer *bufs, size_t n,
                        struct merr *err)
{
    TRY(check_cfg(cfg, err));
    w->cfg = *cfg;
    w->cfg.dir = strdup(cfg->dir);
    w->cfg.codec = strdup(cfg->codec);
    if (w->cfg.keep < 2)
        w->cfg.keep = 2;
    if (!w->cfg.timeout_us)
        w->cfg.timeout_us = TIMEOUT_DEFAULT_US;
    if (!w->cfg.stuck_us)
        w->cfg.stuck_us = STUCK_DEFAULT_US;
    w->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->write_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!w->cfg.dir || !w->cfg.codec || w->stop_event < 0 || w->write_event < 0)
        return merr_set(err, -ENOMEM, "no memory or file descriptor for a checkpoint writer");
    TRY(plan_make(bufs, n, (uint32_t)cfg->rank, &w->plan, err));
    TRY(folder_make(w->cfg.dir, err));
    TRY(folder_raise_generation(w->cfg.dir, cfg->generation, err));
    TRY(make_pool(w, err));
    TRY(make_coder(w, err));
    TRY(make_attempts(w, err));
    TRY(mio_open(NULL, w->pool, w->pool_bytes, &w->mio, err));
    return start_threads(w, err);
}

int mck_writer_new(const struct mck_cfg *cfg, const struct mck_buffer *bufs, size_t n, struct mck_writer **ret,
                   struct merr *err)
{
    struct mck_writer *w = writer_alloc();
    int r;

    if (!w)
        return merr_set(err, -ENOMEM, "no memory for a checkpoint writer");
    r = writer_setup(w, cfg, bufs, n, err);
    if (r < 0) {
        mck_writer_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void mck_writer_free(struct mck_writer *w)
{
    static const struct merr stopped = {.text = "the writer was stopped before the checkpoint was committed"};
    uint64_t one = 1;

    if (!w)
        return;
    lock(w);
    w->stop = true;
    for (int i = 0; i < ATTEMPTS_MAX; i++)
        if (w->attempt[i].used)
            writer_fail(w, &w->attempt[i], -ECANCELED, &stopped);
    (void)pthread_cond_broadcast(&w->capture);
    (void)pthread_cond_broadcast(&w->encode);
    (void)pthread_cond_broadcast(&w->commit);
    unlock(w);
    (void)!write(w->stop_event, &one, sizeof(one));
    (void)!write(w->write_event, &one, sizeof(one));
    for (int i = 0; i < w->threads; i++)
        (void)pthread_join(w->thread[i], NULL);
    if (w->follower)
        w->follower->free(w->follower_arg);
    mio_close(w->mio);
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        free(w->attempt[i].bucket_left);
        free(w->attempt[i].extent);
        free(w->attempt[i].chunk);
    }
    for (int i = 0; i < OUTS; i++)
        free(w->out[i]);
    lift_free(w->lift);
    if (w->pool)
        (void)munmap(w->pool, w->pool_bytes);
    chunk_coder_free(w->coder);
    plan_clear(&w->plan);
    free(w->free_slot);
    free(w->job);
    free(w->done);
    io_close(&w->stop_event);
    io_close(&w->write_event);
    free((char *)w->cfg.dir);
    free((char *)w->cfg.codec);
    (void)pthread_cond_destroy(&w->capture);
    (void)pthread_cond_destroy(&w->gate);
    (void)pthread_cond_destroy(&w->encode);
    (void)pthread_cond_destroy(&w->commit);
    (void)pthread_cond_destroy(&w->idle);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

/* --- the caller's side ------------------------------------------------------------------------- */

static bool is_zero(const char *p, size_t n)
{
    while (n && !*p)
        p++, n--;
    return n == 0;
}

/* The gaps between its pieces hold what the format wants there. */
static bool gaps_are_zero(const struct plan *p, uint32_t extent)
{
    for (size_t i = p->extent_first[extent]; i < p->extent_first[extent + 1]; i++) {
        const struct piece *q = &p->piece[p->by_extent[i]];

        if (!is_zero(q->src + q->len, q->pad))
            return false;
    }
    return true;
}

static double over(double excess_s)
{
    return excess_s > 0 ? excess_s * 1e6 : 0;
}

/* What waiting at the gate each mode would cost by the rates seen, and the mode that follows from that and from what
 * was asked for. */
static void choose_mode(const struct mck_writer *w, struct attempt *a, enum mck_mode asked)
{
    double bytes = (double)w->plan.stream_len, pool = (double)w->pool_bytes, window = w->window_s;
    double write_s = w->disk_rate > 0 ? bytes / w->disk_rate : 0;
    double copy_us = w->copy_rate > 0 ? over(bytes / w->copy_rate - window) : 0;
    double drain_us = w->disk_rate > 0 ? over((bytes - pool) / w->disk_rate - window) : 0;
    bool can = !w->coder && reads_memory(w) && w->plan.in_place_bytes > 0;
    bool pays = write_s > 0 && window > 0 && write_s < 0.8 * window && (double)w->plan.in_place_bytes > bytes / 2;

    if (asked == MCK_SYNC)
        a->mode = MCK_SYNC;
    else
        a->mode = can && (asked == MCK_ZEROCOPY || (asked == MCK_AUTO && pays)) ? MCK_ZEROCOPY : MCK_STAGED;
    if (copy_us < drain_us)
        copy_us = drain_us;
    if (a->mode == MCK_STAGED)
        a->expect_us = (int64_t)copy_us;
    else
        a->expect_us = (int64_t)over(a->mode == MCK_SYNC ? write_s : write_s - window);
}

static void attempt_reset(struct mck_writer *w, struct attempt *a, uint64_t step, char *kv, enum mck_mode asked)
{
    bool in_place;
    uint32_t *bucket_left = a->bucket_left;
    struct extent *extent = a->extent;
    struct mck_chunk *chunk = a->chunk;

    *a = (struct attempt){.used = true,
                          .step = step,
                          .serial = ++w->serial,
                          .kv = kv,
                          .held = w->cfg.hold,
                          .fd = -1,
                          .begun_us = clock_mono_us(),
                          .bucket_left = bucket_left,
                          .extent = extent,
                          .chunk = chunk,
                          .append = MCK_ALIGN,
                          .pieces_left = w->plan.pieces};
    w->tries = step == w->last_step && w->serial > 1 ? w->tries + 1 : 0;
    w->last_step = step;
    folder_attempt(w->cfg.generation, step, w->tries, a->uuid);
    memset(chunk, 0, w->plan.chunks * sizeof(*chunk));
    memcpy(bucket_left, w->plan.bucket_pieces, w->plan.buckets * sizeof(*bucket_left));
    choose_mode(w, a, asked);
    in_place = !w->coder && reads_memory(w) && a->mode != MCK_STAGED;
    for (uint32_t i = 0; i < w->plan.extents; i++)
        extent[i] = (struct extent){.slot = NO_SLOT,
                                    .left = w->plan.extent_pieces[i],
                                    .in_place = in_place && w->plan.extent_src[i] && gaps_are_zero(&w->plan, i)};
    w->window_open = true;
    w->begun_us = a->begun_us;
    if (!a->pieces_left)
        a->captured_us = a->begun_us;
}

/* Nothing is to be copied. */
static void take_file(struct mck_writer *w, struct attempt *a, const struct mck_file_of *file)
{
    a->file = *file;
    memcpy(a->uuid, file->uuid, sizeof(a->uuid));
    a->mode = MCK_STAGED;
    a->pieces_left = 0;
    a->next_piece = w->plan.pieces;
    memset(a->bucket_left, 0, w->plan.buckets * sizeof(*a->bucket_left));
    a->captured_us = a->begun_us;
}

static int begin_text(struct mck_writer *w, uint64_t step, char *text, const struct mck_file_of *file,
                      enum mck_mode asked, struct merr *err)
{
    int64_t start = clock_mono_us();
    struct attempt *unused = NULL;
    int r = 0;

    lock(w);
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        if (w->attempt[i].used && w->attempt[i].step == step && !w->attempt[i].code)
            r = 1; /* under way already */
        if (!w->attempt[i].used)
            unused = &w->attempt[i];
    }
    if (r == 0 && !unused)
        r = merr_set(err, -EBUSY, "%d checkpoints are under way: step %llu is not saved", ATTEMPTS_MAX,
                     (unsigned long long)step);
    if (r == 0) {
        attempt_reset(w, unused, step, text, asked);
        if (file)
            take_file(w, unused, file);
        unused->stall_us = clock_mono_us() - start;
        text = NULL;
        (void)pthread_cond_signal(&w->capture);
        (void)pthread_cond_signal(&w->encode);
    }
    w->stall_us += clock_mono_us() - start;
    unlock(w);
    if (text && file) /* not begun */
        (void)unlink(file->path);
    free(text);
    return r > 0 ? 0 : r;
}

static int begin(struct mck_writer *w, uint64_t step, const json_t *kv, enum mck_mode asked, struct merr *err)
{
    char *text;

    if (!json_is_object(kv) || !json_object_get(kv, "step"))
        return merr_set(err, -EINVAL, "the cursor of step %llu is not an object with a step", (unsigned long long)step);
    text = json_dumps(kv, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text || strlen(text) > MCK_KV_MAX) {
        free(text);
        return merr_set(err, -EMSGSIZE, "the cursor of step %llu passes %u bytes", (unsigned long long)step,
                        MCK_KV_MAX);
    }
    return begin_text(w, step, text, NULL, asked, err);
}

int mck_begin_file(struct mck_writer *w, uint64_t step, const struct mck_file_of *file, struct merr *err)
{
    char *text = strdup("{}"); /* the cursor is in the file */

    if (!text)
        return merr_set(err, -ENOMEM, "no memory to begin a checkpoint");
    return begin_text(w, step, text, file, MCK_STAGED, err);
}

int mck_begin(struct mck_writer *w, uint64_t step, const json_t *kv, struct merr *err)
{
    return begin(w, step, kv, w->cfg.mode, err);
}

int mck_begin_sync(struct mck_writer *w, uint64_t step, const json_t *kv, struct merr *err)
{
    return begin(w, step, kv, MCK_SYNC, err);
}

static uint64_t bucket_left(const struct mck_writer *w, const struct attempt *a, int bucket)
{
    if (!a->used)
        return 0;
    if (a->stuck)
        return a->copying - a->in_place;
    if (a->mode == MCK_SYNC)
        return 1;
    if (a->code || a->skip)
        return a->copying; /* a copy that began before the end still reads the buffers */
    if (bucket < 0)
        return a->pieces_left;
    return (uint32_t)bucket < w->plan.buckets ? a->bucket_left[bucket] : 0;
}

/* No older attempt has anything left to copy. */
static bool is_next(struct mck_writer *w, const struct attempt *a)
{
    const struct attempt *oldest = writer_oldest(w);

    return a == oldest || !oldest->pieces_left || oldest->code;
}

int mck_gate(struct mck_writer *w, int bucket, struct merr *err)
{
    int64_t start = 0;

    (void)err;
    lock(w);
    if (w->window_open)
        writer_average(&w->window_s, (double)(clock_mono_us() - w->begun_us) * 1e-6);
    w->window_open = false;
    for (int i = 0; i < ATTEMPTS_MAX && bucket < 0; i++)
        w->attempt[i].held = false;
    if (w->cfg.hold && bucket < 0)
        (void)pthread_cond_broadcast(&w->commit);
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *a = &w->attempt[i];
        int64_t from = 0;

        while (bucket_left(w, a, bucket)) {
            if (!from)
                from = clock_mono_us();
            if (!start)
                start = from;
            if (reads_memory(w) && is_next(w, a) && capture_one(w, a))
                continue; /* quicker than to wait for the capture thread */
            if (bucket_left(w, a, bucket))
                (void)pthread_cond_wait(&w->gate, &w->lock); /* ends: I/O frees slots, or fails the attempt */
        }
        a->stall_us += from ? clock_mono_us() - from : 0;
    }
    if (start)
        w->stall_us += clock_mono_us() - start;
    unlock(w);
    return 0;
}

int mck_abandon(struct mck_writer *w, uint64_t step, const char *why, struct merr *err)
{
    int r =
        merr_set(err, -ENOENT, "nothing of step %llu is under way that could be given up", (unsigned long long)step);

    lock(w);
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *a = &w->attempt[i];
        struct merr words;

        if (!a->used || a->step != step || a->code || a->skip || a->closing)
            continue;
        writer_fail(
            w, a,
            merr_set(&words, -EAGAIN, "the checkpoint of step %llu was given up: %s", (unsigned long long)step, why),
            &words);
        r = 0;
    }
    unlock(w);
    return r;
}

int mck_drain(struct mck_writer *w, int64_t deadline_us, struct merr *err)
{
    struct timespec ts = {.tv_sec = deadline_us / 1000000, .tv_nsec = deadline_us % 1000000 * 1000};
    int64_t start = clock_mono_us();
    int r = 0;

    lock(w);
    while (writer_oldest(w) && r == 0)
        r = pthread_cond_timedwait(&w->idle, &w->lock, &ts);
    if (writer_oldest(w))
        r = merr_set(err, -ETIMEDOUT, "the checkpoint of step %llu is still being written",
                     (unsigned long long)writer_oldest(w)->step);
    else
        r = 0;
    w->stall_us += clock_mono_us() - start;
    unlock(w);
    return r;
}

int mck_next_done(struct mck_writer *w, struct mck_done *ret)
{
    int r = 0;

    lock(w);
    if (w->dones) {
        *ret = w->done[w->done_first];
        w->done_first = (w->done_first + 1) % DONE_MAX;
        w->dones--;
        r = 1;
    }
    unlock(w);
    return r;
}

int mck_next_archive_failure(struct mck_writer *w, struct merr *ret)
{
    return w->follower ? w->follower->next_failure(w->follower_arg, ret) : 0;
}

int64_t mck_stall_us(struct mck_writer *w)
{
    int64_t us;

    lock(w);
    us = w->stall_us;
    w->stall_us = 0;
    unlock(w);
    return us;
}

const struct mck_cfg *writer_cfg(const struct mck_writer *w)
{
    return &w->cfg;
}

void writer_follow(struct mck_writer *w, const struct writer_follower *follower, void *arg)
{
    lock(w);
    w->follower_arg = arg;
    w->follower = follower;
    unlock(w);
}
