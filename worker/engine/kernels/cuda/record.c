#include "worker/engine/kernels/cuda/record.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/cuda/backend_parts.h"
#include "worker/engine/kernels/cuda/stream.h"

#define RECORDINGS_MAX 128
#define KEY_BYTES_MAX ((size_t)64 << 10)
#define READ_MAX 128 /* arrays of a recording that are read again */
#define KEPT_MAX 64  /* arrays of a recording that later ones of it are compared with */
#define PLACES_BYTES ((size_t)32 << 20)
#define RESETS_MAX 4 /* times that places ran out before recording ends */

enum state {
    NEW,
    SEEN,     /* its uploads are measured */
    RECORDED, /* there is a graph */
    REFUSED,
};

struct recording {
    char *key;
    size_t key_bytes;
    uint64_t used; /* turn of the last use */
    enum state state;
    cudaGraphExec_t graph;
    char *place;                  /* on the device: what is read again, then what is kept */
    struct upload read[READ_MAX]; /* in the order of their places */
    int reads;
    size_t read_bytes, kept_bytes; /* measured: room for both */
};

struct kept {
    size_t at, bytes; /* in the mirror */
};

struct records {
    struct recording v[RECORDINGS_MAX];
    int n;
    uint64_t turn;
    struct recording *now; /* it is measured or captured */
    bool capturing, off;
    bool too_much;           /* now uploads more than can have places */
    size_t read_at, kept_at; /* next free bytes of now's places */
    char *places;            /* on the device, handed out from the start */
    size_t places_at;
    int resets;
    char *mirror; /* what is kept of now, until it goes up */
    size_t mirror_bytes;
    struct kept kept[KEPT_MAX];
    int kepts;
    struct kern_recordings told;
    struct merr why;
};

/* --- life --------------------------------------------------------------------------------------------------------- */

struct records *records_new(void)
{
    struct records *g = calloc(1, sizeof(*g));

    if (g)
        g->told.why = g->why.text;
    return g;
}

static void recording_clear(struct recording *v)
{
    if (v->graph)
        (void)cudaGraphExecDestroy(v->graph); /* one that runs ends first */
    free(v->key);
    *v = (struct recording){.key = NULL};
}

void records_free(struct records *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n; i++)
        recording_clear(&g->v[i]);
    (void)cudaFree(g->places);
    free(g->mirror);
    free(g);
}

void records_forget(struct records *g)
{
    if (!g)
        return;
    assert(!g->capturing);
    for (int i = 0; i < g->n; i++)
        if (&g->v[i] != g->now)
            recording_clear(&g->v[i]); /* its entry is free: an empty key is nobody's */
}

bool record_capturing(const struct records *g)
{
    return g && g->capturing;
}

void record_told(const struct kern_stream *s, struct kern_recordings *ret)
{
    *ret = s->records ? s->records->told : (struct kern_recordings){.why = ""};
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

static bool is_of(const struct recording *v, const struct kern_key *key)
{
    return v->key_bytes == key->head_bytes + key->list_bytes && memcmp(v->key, key->head, key->head_bytes) == 0 &&
           (key->list_bytes == 0 || memcmp(v->key + key->head_bytes, key->list, key->list_bytes) == 0);
}

/* The entry to fill: a free one, or that of the recording that was not used for longest. */
static struct recording *entry_for(struct records *g)
{
    struct recording *oldest = &g->v[0];

    if (g->n < RECORDINGS_MAX)
        return &g->v[g->n++];
    for (int i = 1; i < g->n; i++)
        if (g->v[i].used < oldest->used)
            oldest = &g->v[i];
    recording_clear(oldest);
    return oldest;
}

/* The key's recording, perhaps a new one; NULL: it is not to be recorded. */
static struct recording *recording_of(struct records *g, const struct kern_key *key)
{
    size_t bytes = key->head_bytes + key->list_bytes;
    struct recording *v = NULL;
    char *copy;

    for (int i = 0; i < g->n && !v; i++)
        if (g->v[i].key && is_of(&g->v[i], key))
            v = &g->v[i];
    if (!v) {
        copy = bytes <= KEY_BYTES_MAX ? malloc(bytes + 1) : NULL;
        if (!copy)
            return NULL;
        memcpy(copy, key->head, key->head_bytes);
        if (key->list_bytes > 0)
            memcpy(copy + key->head_bytes, key->list, key->list_bytes);
        v = entry_for(g);
        *v = (struct recording){.key = copy, .key_bytes = bytes};
    }
    v->used = ++g->turn;
    return v;
}

/* --- uploads ------------------------------------------------------------------------------------------------------ */

static int too_much(struct merr *err)
{
    return merr_set(err, -EAGAIN, "calls with one key upload more than they did before, or more than %d arrays",
                    READ_MAX);
}

/* What is read again: one place for an address, however many calls name it. Parts of an array that come one after the
 * other, as targets do by rows of logits, are one. */
static int place_read(struct records *g, struct upload *u, struct merr *err)
{
    struct recording *now = g->now;
    size_t at = 0;

    for (int i = 0; i < now->reads; i++) {
        struct upload *v = &now->read[i];
        uintptr_t begin = (uintptr_t)v->host, from = (uintptr_t)u->host;
        bool grows = i + 1 == now->reads && from == begin + v->bytes;

        if (from >= begin && from + u->bytes <= begin + v->bytes + (grows ? u->bytes : 0)) {
            size_t end = at + stream_aligned(v->bytes + (grows ? u->bytes : 0));

            if (g->capturing && end > now->read_bytes)
                return too_much(err);
            v->bytes += grows ? u->bytes : 0;
            g->read_at = end > g->read_at ? end : g->read_at;
            u->device = g->capturing ? now->place + at + (from - begin) : NULL;
            return 0;
        }
        at += stream_aligned(v->bytes);
    }
    g->read_at = at + stream_aligned(u->bytes);
    if (now->reads == READ_MAX || (g->capturing && g->read_at > now->read_bytes))
        return too_much(err);
    u->device = g->capturing ? now->place + at : NULL;
    now->read[now->reads++] = *u;
    return 0;
}

/* What is kept: one place for the same bytes. */
static int place_kept(struct records *g, struct upload *u, struct merr *err)
{
    size_t at = g->kept_at;

    if (!g->capturing) {
        g->kept_at += stream_aligned(u->bytes);
        return 0;
    }
    for (int i = 0; i < g->kepts; i++)
        if (g->kept[i].bytes == u->bytes && memcmp(g->mirror + g->kept[i].at, u->host, u->bytes) == 0) {
            u->device = g->now->place + g->now->read_bytes + g->kept[i].at;
            return 0;
        }
    if (at + stream_aligned(u->bytes) > g->now->kept_bytes)
        return too_much(err);
    memcpy(g->mirror + at, u->host, u->bytes);
    u->device = g->now->place + g->now->read_bytes + at;
    g->kept_at += stream_aligned(u->bytes);
    if (g->kepts < KEPT_MAX)
        g->kept[g->kepts++] = (struct kept){at, u->bytes};
    return 0;
}

int record_upload(struct records *g, struct upload *v, int n, struct merr *err)
{
    int r = 0;

    if (!g || !g->now)
        return 0;
    for (int i = 0; i < n && r == 0; i++)
        if (v[i].bytes > 0)
            r = v[i].kept ? place_kept(g, &v[i], err) : place_read(g, &v[i], err);
    if (g->capturing)
        return r < 0 ? r : 1;
    g->too_much |= r < 0; /* calls that are measured go on */
    return 0;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

static int run(struct records *g, struct recording *v, kern_calls calls, void *arg, struct merr *err)
{
    int r;

    assert(!g->now); /* recordings hold no others */
    g->now = v;
    v->reads = g->kepts = 0;
    g->too_much = false;
    g->read_at = g->kept_at = 0;
    r = calls(arg, err);
    g->now = NULL;
    return r;
}

/* Its calls run as they are from now on. */
static void refuse(struct records *g, struct recording *v, const struct merr *why)
{
    if (v->graph)
        (void)cudaGraphExecDestroy(v->graph);
    v->graph = NULL;
    v->state = REFUSED;
    if (g->told.refused++ == 0)
        g->why = *why;
}

static int measure(struct records *g, struct recording *v, kern_calls calls, void *arg, struct merr *err)
{
    struct merr why;
    int r = run(g, v, calls, arg, err);

    if (r)
        return r;
    v->read_bytes = g->read_at;
    v->kept_bytes = g->kept_at;
    v->state = SEEN;
    if (g->too_much) {
        (void)too_much(&why);
        refuse(g, v, &why);
    }
    return 0;
}

/* Places on the device for v, and for its mirror on the host. */
static int take_places(struct kern_stream *s, struct recording *v, struct merr *err)
{
    struct records *g = s->records;
    size_t bytes = v->read_bytes + v->kept_bytes;
    void *p = g->places;
    cudaError_t e;

    if (bytes > PLACES_BYTES)
        return merr_set(err, -ENOSPC, "its %zu bytes of host arrays are more than the %zu that there is room for",
                        bytes, PLACES_BYTES);
    if (!p) {
        e = cudaMallocAsync(&p, PLACES_BYTES, s->queue);
        if (e != cudaSuccess)
            return cuda_failed(err, (int)e, "no %zu bytes for host arrays of recorded calls", PLACES_BYTES);
        g->places = p;
    }
    if (g->mirror_bytes < v->kept_bytes) {
        p = realloc(g->mirror, v->kept_bytes);
        if (!p)
            return merr_set(err, -ENOMEM, "no memory for %zu bytes of host arrays", v->kept_bytes);
        g->mirror = p;
        g->mirror_bytes = v->kept_bytes;
    }
    if (bytes > PLACES_BYTES - g->places_at) { /* what still runs there runs before what comes there */
        g->now = v;
        records_forget(g);
        g->now = NULL;
        g->places_at = 0;
        g->off = ++g->resets == RESETS_MAX;
        if (g->off)
            return merr_set(err, -ENOSPC,
                            "room for %zu bytes of host arrays ran out %d times; nothing is recorded any "
                            "more",
                            PLACES_BYTES, RESETS_MAX);
    }
    v->place = g->places + g->places_at;
    return 0;
}

/* The calls' graph; the stream is out of capture when this returns. */
static int capture(struct kern_stream *s, struct recording *v, kern_calls calls, void *arg, struct merr *err)
{
    struct records *g = s->records;
    cudaGraph_t graph = NULL;
    /* of this thread alone: others go on to allocate */
    cudaError_t e = cudaStreamBeginCapture(s->queue, cudaStreamCaptureModeThreadLocal), end;
    int r;

    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "the GPU's stream cannot be captured");
    g->capturing = true;
    r = run(g, v, calls, arg, err);
    g->capturing = false;
    end = cudaStreamEndCapture(s->queue, &graph);
    if (end == cudaSuccess && r == 0)
        end = cudaGraphInstantiateWithFlags(&v->graph, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (r)
        (void)cudaGetLastError();
    return r || end == cudaSuccess ? r : cuda_failed(err, (int)end, "calls cannot be made a graph");
}

static bool record(struct kern_stream *s, struct recording *v, kern_calls calls, void *arg)
{
    struct records *g = s->records;
    struct upload kept = {.bytes = 0};
    struct merr why = {""};
    int r = take_places(s, v, &why);

    if (r == 0)
        r = capture(s, v, calls, arg, &why);
    if (r == 0) {
        kept = (struct upload){.host = g->mirror, .bytes = g->kept_at};
        r = stream_send(s, &kept, 1, v->place + v->read_bytes, &why);
    }
    if (r) {
        refuse(g, v, &why);
        return false;
    }
    g->places_at += v->read_bytes + stream_aligned(kept.bytes);
    g->told.made++;
    v->state = RECORDED;
    return true;
}

static int replay(struct kern_stream *s, struct recording *v, struct merr *err)
{
    cudaError_t e;
    int r = stream_send(s, v->read, v->reads, v->place, err);

    if (r)
        return r;
    e = cudaGraphLaunch(v->graph, s->queue);
    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "the GPU cannot run a graph");
    s->records->told.launched++;
    return 0;
}

int record_calls(struct kern_stream *s, const struct kern_key *key, kern_calls calls, void *arg, struct merr *err)
{
    struct records *g = s->records;
    struct recording *v = g && !g->off ? recording_of(g, key) : NULL;

    if (!v || v->state == REFUSED)
        return calls(arg, err);
    if (v->state == NEW)
        return measure(g, v, calls, arg, err);
    if (v->state == SEEN && !record(s, v, calls, arg))
        return calls(arg, err);
    return replay(s, v, err);
}
