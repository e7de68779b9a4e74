#include "checkpoint/write/encode.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "checkpoint/format/coding.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/part.h"
#include "checkpoint/write/attempt.h"
#include "checkpoint/write/capture.h"
#include "checkpoint/write/flush.h"

static const struct merr no_memory = {.text = "no memory to write a checkpoint"};

/* What was asked for, or where that is left to what was measured: plane when the disk is the slower. Lock held: the
 * I/O thread measures the disk. */
static int choose_codec(const struct mck_writer *w)
{
    int asked = coding_parse(w->cfg.codec);

    if (asked >= 0)
        return asked;
    return w->encode_rate > 0 && w->disk_rate > 0 && w->disk_rate <= 0.8 * w->encode_rate ? CHUNK_PLANE : CHUNK_RAW;
}

/* Queue a write of len bytes at off. Lock not held. False when memory is short (the attempt has failed then). */
static bool queue_write(struct mck_writer *w, struct attempt *a, const void *data, uint32_t len, uint64_t off, int slot,
                        int out, int64_t extent)
{
    struct write *q = calloc(1, sizeof(*q));

    (void)pthread_mutex_lock(&w->lock);
    if (q) {
        *q = (struct write){.req = {.op = MIO_WRITE, .fd = a->fd, .data = data, .len = len, .off = off},
                            .a = a,
                            .slot = slot,
                            .out = out,
                            .extent = extent};
        a->io_left++;
        flush_queue(w, q);
    } else {
        if (slot != NO_SLOT)
            writer_free_slot(w, slot);
        if (out != NO_SLOT)
            w->free_out[w->free_outs++] = out;
        if (extent >= 0)
            capture_release(w, a, (uint32_t)extent);
        writer_fail(w, a, -ENOMEM, &no_memory);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return q != NULL;
}

static uint32_t extent_bytes(const struct mck_writer *w, uint32_t extent)
{
    uint64_t left = w->plan.stream_len - (uint64_t)extent * MCK_SLOT;

    return left < MCK_SLOT ? (uint32_t)left : MCK_SLOT;
}

/* Uncompressed: chunk i lies at 4096 + i MiB, and the slot itself is written, or the extent where it lies. */
static void put_plain(struct mck_writer *w, struct attempt *a, uint32_t extent, int slot)
{
    uint32_t bytes = extent_bytes(w, extent), whole = (uint32_t)mck_round(bytes, MCK_ALIGN);
    const char *data = slot == NO_SLOT ? w->plan.extent_src[extent] : w->pool + (size_t)slot * MCK_SLOT;
    uint64_t off = MCK_ALIGN + (uint64_t)extent * MCK_SLOT;

    if (slot != NO_SLOT)
        memset(w->pool + (size_t)slot * MCK_SLOT + bytes, 0, whole - bytes);
    for (uint32_t at = 0; at < bytes; at += MCK_CHUNK) {
        uint32_t n = bytes - at < MCK_CHUNK ? bytes - at : MCK_CHUNK;
        uint32_t i = extent * (MCK_SLOT / MCK_CHUNK) + at / MCK_CHUNK;

        a->chunk[i] = (struct mck_chunk){.file_off = off + at,
                                         .stored_len = n,
                                         .logical_len = n,
                                         .flags = (uint16_t)dtype_part_size(w->plan.chunk_dtype[i]),
                                         .crc32c = hash_crc32c(0, data + at, n),
                                         .xxh3 = hash_xxh3(data + at, n)};
        a->stored += n;
    }
    if (off + whole > a->append)
        a->append = off + whole;
    (void)queue_write(w, a, data, whole, off, slot, NO_SLOT, slot == NO_SLOT ? (int64_t)extent : -1);
}

/* --- encoded: chunks are appended ---------------------------------------------------------------- */

static void fill_flush(struct mck_writer *w)
{
    struct attempt *a = w->filling;
    int out = w->fill_out;
    uint32_t len = w->fill_len;

    w->filling = NULL;
    w->fill_out = NO_SLOT;
    w->fill_len = 0;
    if (out != NO_SLOT && len)
        (void)queue_write(w, a, w->out[out], len, a->append - len, NO_SLOT, out, -1);
}

/* Drop what is half filled for a failed attempt. Lock held. */
static void fill_drop(struct mck_writer *w, const struct attempt *a)
{
    if (w->filling != a)
        return;
    if (w->fill_out != NO_SLOT)
        w->free_out[w->free_outs++] = w->fill_out;
    w->filling = NULL;
    w->fill_out = NO_SLOT;
    w->fill_len = 0;
}

/* What is half filled is not for a: on its way with it, or away if its own attempt has ended. */
static void fill_end(struct mck_writer *w, const struct attempt *a)
{
    struct attempt *old = w->filling;
    bool lives;

    (void)pthread_mutex_lock(&w->lock);
    lives = old->used && old->serial == w->fill_serial && !old->code;
    if (lives && old == a) {
        (void)pthread_mutex_unlock(&w->lock);
        return;
    }
    if (lives)
        old->to_encode++; /* it stays until its bytes are queued */
    else
        fill_drop(w, old);
    (void)pthread_mutex_unlock(&w->lock);
    if (!lives)
        return;
    fill_flush(w);
    (void)pthread_mutex_lock(&w->lock);
    old->to_encode--;
    (void)pthread_cond_broadcast(&w->commit);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Have a buffer that can take a chunk. False when the attempt failed meanwhile. */
static bool fill_reserve(struct mck_writer *w, struct attempt *a)
{
    bool ok;

    if (w->filling)
        fill_end(w, a);
    if (w->fill_out != NO_SLOT && w->fill_len + MCK_CHUNK > MCK_SLOT)
        fill_flush(w);
    if (w->fill_out != NO_SLOT)
        return true;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->free_outs && !a->code)
        (void)pthread_cond_wait(&w->encode, &w->lock);
    ok = !a->code;
    if (ok) {
        w->fill_out = w->free_out[--w->free_outs];
        w->filling = a;
        w->fill_serial = a->serial;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return ok;
}

static bool put_chunk(struct mck_writer *w, struct attempt *a, uint32_t i, const char *data, uint32_t n)
{
    uint32_t whole;

    if (!fill_reserve(w, a))
        return false;
    whole = part_encode(w->coder, (enum chunk_codec)a->codec, w->plan.chunk_dtype[i], data, n, a->append,
                        w->out[w->fill_out] + w->fill_len, &a->chunk[i]);
    a->append += whole;
    a->stored += a->chunk[i].stored_len;
    w->fill_len += whole;
    return true;
}

/* How fast would the codec be here? Measured on one chunk of each attempt that is stored raw. */
static void probe_codec(struct mck_writer *w, struct attempt *a, const char *data, uint32_t n, int dtype)
{
    struct chunk_form form;
    int64_t start = clock_mono_us(), us;

    if (!n || !fill_reserve(w, a))
        return;
    chunk_encode(w->coder, CHUNK_PLANE, dtype_part_size(dtype), dtype_is_float(dtype), data, n,
                 w->out[w->fill_out] + w->fill_len, &form);
    us = clock_mono_us() - start;
    w->encode_rate = (double)n * 1e6 / (double)(us > 0 ? us : 1);
}

static void put_encoded(struct mck_writer *w, struct attempt *a, uint32_t extent, int slot)
{
    uint32_t bytes = extent_bytes(w, extent), i = extent * (MCK_SLOT / MCK_CHUNK);
    const char *data = w->pool + (size_t)slot * MCK_SLOT;
    int64_t start = clock_mono_us();

    if (a->codec == CHUNK_RAW && a->extents_encoded == 0)
        probe_codec(w, a, data, bytes < MCK_CHUNK ? bytes : MCK_CHUNK, w->plan.chunk_dtype[i]);
    for (uint32_t at = 0; at < bytes; at += MCK_CHUNK, i++)
        if (!put_chunk(w, a, i, data + at, bytes - at < MCK_CHUNK ? bytes - at : MCK_CHUNK))
            break;
    a->encode_us += clock_mono_us() - start;
    a->encode_bytes += bytes;
    (void)pthread_mutex_lock(&w->lock);
    writer_free_slot(w, slot);
    (void)pthread_mutex_unlock(&w->lock);
}

/* --- the thread ---------------------------------------------------------------------------------- */

static void open_attempt(struct mck_writer *w, struct attempt *a)
{
    struct merr err = {.text = ""};
    int r;

    a->opened = true;
    (void)pthread_mutex_lock(&w->lock);
    a->codec = choose_codec(w);
    (void)pthread_mutex_unlock(&w->lock);
    r = attempt_open(w, a, &err);
    (void)pthread_mutex_lock(&w->lock);
    w->alive_us = clock_mono_us();
    if (r < 0)
        writer_fail(w, a, r, &err);
    if (r < 0 || a->skip) {
        (void)pthread_cond_broadcast(&w->commit);
        (void)pthread_cond_broadcast(&w->gate);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

static void encode_extent(struct mck_writer *w, struct attempt *a, uint32_t extent)
{
    int slot = a->extent[extent].slot;
    bool drop;

    (void)pthread_mutex_lock(&w->lock);
    drop = a->code || a->skip;
    a->extent[extent].slot = NO_SLOT;
    if (drop && slot == NO_SLOT)
        capture_release(w, a, extent);
    else if (drop)
        writer_free_slot(w, slot);
    (void)pthread_mutex_unlock(&w->lock);
    if (!drop && w->coder)
        put_encoded(w, a, extent, slot);
    else if (!drop)
        put_plain(w, a, extent, slot);
    a->extents_encoded++;
    (void)pthread_mutex_lock(&w->lock);
    if (a->code)
        fill_drop(w, a);
    a->to_encode--;
    (void)pthread_cond_broadcast(&w->commit);
    (void)pthread_mutex_unlock(&w->lock);
}

/* It has all that it needs. */
static void end_file(struct mck_writer *w, struct attempt *a)
{
    (void)pthread_mutex_lock(&w->lock);
    a->tail_queued = true;
    flush_queue(w, NULL);
    (void)pthread_cond_broadcast(&w->commit);
    (void)pthread_mutex_unlock(&w->lock);
}

static void write_tail(struct mck_writer *w, struct attempt *a)
{
    struct merr err = {.text = ""};
    uint32_t len = 0, n;
    bool queued;
    int r;

    if (a->file.path[0]) {
        end_file(w, a);
        return;
    }
    if (w->filling == a && w->fill_serial == a->serial)
        fill_flush(w);
    if (a->encode_us > 0 && a->codec != CHUNK_RAW)
        w->encode_rate = (double)a->encode_bytes * 1e6 / (double)a->encode_us;
    r = attempt_make_tail(w, a, &len, &err);
    queued = r == 0 && queue_write(w, a, a->tail, MCK_ALIGN, 0, NO_SLOT, NO_SLOT, -1);
    for (uint32_t at = 0; queued && at < len; at += n) {
        n = len - at < MCK_SLOT ? len - at : MCK_SLOT;
        queued = queue_write(w, a, (char *)a->tail + MCK_ALIGN + at, n, a->append + at, NO_SLOT, NO_SLOT, -1);
    }
    (void)pthread_mutex_lock(&w->lock);
    if (r < 0)
        writer_fail(w, a, r, &err);
    a->tail_queued = true;
    flush_queue(w, NULL);
    (void)pthread_cond_broadcast(&w->commit);
    (void)pthread_mutex_unlock(&w->lock);
}

/* What to do next: open an attempt, encode an extent, write a tail. Lock held. */
static struct attempt *find_work(struct mck_writer *w, bool *ret_extent)
{
    struct attempt *a = NULL;

    *ret_extent = false;
    if (w->jobs) {
        a = w->job[w->job_first].a;
        *ret_extent = a->opened;
        return a;
    }
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        struct attempt *b = &w->attempt[i];

        if (!b->used || b->code || b->skip || b->tail_queued)
            continue;
        if (b->opened && (b->pieces_left || b->copying))
            continue;
        if (!a || b->serial < a->serial)
            a = b;
    }
    return a;
}

void *encode_run(void *writer)
{
    struct mck_writer *w = writer;

    writer_yield();
    (void)pthread_mutex_lock(&w->lock);
    for (;;) {
        bool is_extent;
        struct attempt *a = find_work(w, &is_extent);
        uint32_t extent = 0;

        if (!a) {
            if (w->stop && !writer_oldest(w))
                break;
            (void)pthread_cond_wait(&w->encode, &w->lock);
            continue;
        }
        if (is_extent) {
            extent = w->job[w->job_first].extent;
            w->job_first = (w->job_first + 1) % w->job_max;
            w->jobs--;
        } else {
            a->to_encode++;
        }
        (void)pthread_mutex_unlock(&w->lock);
        if (is_extent)
            encode_extent(w, a, extent);
        else if (!a->opened)
            open_attempt(w, a);
        else
            write_tail(w, a);
        (void)pthread_mutex_lock(&w->lock);
        if (!is_extent) {
            a->to_encode--;
            (void)pthread_cond_broadcast(&w->commit);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}
