#include "worker/engine/kernels/cuda/stream.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compress/cuda/backend_parts.h"
#include "compress/cuda/wait.h"
#include "worker/engine/kernels/cuda/dnn.h"
#include "worker/engine/kernels/cuda/lt.h"
#include "worker/engine/kernels/cuda/record.h"

#define RING_HALF_BYTES ((size_t)1 << 20) /* at first */
#define ALIGN ((size_t)256)

size_t stream_aligned(size_t n)
{
    return (n + ALIGN - 1) & ~(ALIGN - 1);
}

/* Room for growth: half as much again, so that a shape that creeps up does not ask each time. */
static size_t grown(size_t bytes)
{
    return stream_aligned(bytes + bytes / 2);
}

int stream_sync(struct kern_stream *s, struct merr *err)
{
    return wait_stream(s->queue, s->device, WAIT_KERNELS_US, err);
}

int stream_calm(struct kern_stream *s)
{
    if (wait_lost())
        return -ETIMEDOUT;
    return wait_stream(s->queue, s->device, DEVICE_CALM_US, NULL) == -ETIMEDOUT ? -ETIMEDOUT : 0;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* In the stream's order: cudaFree would wait for all that the GPU does, also for another GPU's half of a message. */
int stream_work(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    void *p = NULL;
    cudaError_t e;

    if (bytes > s->work.bytes) {
        if (record_capturing(s->records))
            return merr_set(err, -EAGAIN, "calls with one key take more workspace than they did before");
        records_forget(s->records);
        if (s->work.p)
            (void)cudaFreeAsync(s->work.p, s->queue);
        s->work = (struct room){.p = NULL};
        e = cudaMallocAsync(&p, grown(bytes), s->queue);
        if (e != cudaSuccess)
            return cuda_failed(err, (int)e, "no %zu bytes of workspace on the GPU", grown(bytes));
        s->work = (struct room){.p = p, .bytes = grown(bytes)};
    }
    *ret = s->work.p;
    return 0;
}

int stream_counts(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    if (bytes > s->counts.bytes) {
        void *p = realloc(s->counts.p, grown(bytes));

        if (!p)
            return merr_set(err, -ENOMEM, "no memory for %zu bytes of counts", bytes);
        s->counts = (struct room){.p = p, .bytes = grown(bytes)};
    }
    *ret = s->counts.p;
    return 0;
}

/* --- host arrays -------------------------------------------------------------------------------------------------- */

static void ring_clear(struct upload_ring *g)
{
    (void)cudaFreeHost(g->pinned);
    (void)cudaFree(g->device);
    for (int i = 0; i < 2; i++)
        if (g->done[i])
            (void)cudaEventDestroy(g->done[i]);
    *g = (struct upload_ring){.pinned = NULL};
}

static int ring_init(struct upload_ring *g, size_t half_bytes, struct merr *err)
{
    void *pinned = NULL, *device = NULL;
    cudaError_t e = cudaHostAlloc(&pinned, 2 * half_bytes, cudaHostAllocDefault);

    if (e == cudaSuccess)
        e = cudaMalloc(&device, 2 * half_bytes);
    *g = (struct upload_ring){.pinned = pinned, .device = device, .half_bytes = half_bytes};
    for (int i = 0; i < 2 && e == cudaSuccess; i++) {
        cudaEvent_t event = NULL;

        e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        g->done[i] = event;
    }
    if (e == cudaSuccess)
        return 0;
    ring_clear(g);
    return cuda_failed(err, (int)e, "no %zu bytes for host arrays on their way to the GPU", 2 * half_bytes);
}

static int ring_grow(struct kern_stream *s, size_t bytes, struct merr *err)
{
    int r = stream_sync(s, err);

    if (r)
        return r;
    ring_clear(&s->ring);
    return ring_init(&s->ring, grown(bytes), err);
}

/* Make place for bytes, not across the halves. What was queued with the half that is left may still run; it has, when
 * we come back to it. */
static int ring_turn(struct kern_stream *s, size_t bytes, struct merr *err)
{
    struct upload_ring *g = &s->ring;
    size_t half = g->at / g->half_bytes, end = (half + 1) * g->half_bytes;
    cudaError_t e;
    int r;

    assert(half < 2 && bytes < g->half_bytes);
    if (bytes < end - g->at) /* less: at itself stays in its half */
        return 0;
    e = cudaEventRecord(g->done[half], s->queue);
    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "the GPU failed while it took host arrays");
    /* of the last time we left it; at once if never */
    r = wait_event(g->done[1 - half], s->device, WAIT_KERNELS_US, err);
    if (r == 0)
        g->at = (1 - half) * g->half_bytes;
    return r;
}

int stream_upload(struct kern_stream *s, struct upload *v, int n, struct merr *err)
{
    int r = record_upload(s->records, v, n, err);

    assert(n <= UPLOAD_PIECES);
    return r == 0 ? stream_send(s, v, n, NULL, err) : r < 0 ? r : 0;
}

int stream_send(struct kern_stream *s, struct upload *v, int n, char *to, struct merr *err)
{
    struct upload_ring *g = &s->ring;
    size_t bytes = 0, from;
    cudaError_t e;
    int r;

    for (int i = 0; i < n; i++)
        bytes += stream_aligned(v[i].bytes);
    if (bytes == 0)
        return 0;
    if (bytes >= g->half_bytes) {
        r = ring_grow(s, bytes, err);
        if (r)
            return r;
    }
    r = ring_turn(s, bytes, err);
    if (r)
        return r;
    from = g->at;
    if (!to)
        to = g->device + from;
    for (int i = 0; i < n; i++) {
        if (v[i].bytes > 0)
            memcpy(g->pinned + g->at, v[i].host, v[i].bytes);
        v[i].device = to + (g->at - from);
        g->at += stream_aligned(v[i].bytes);
    }
    e = cudaMemcpyAsync(to, g->pinned + from, bytes, cudaMemcpyHostToDevice, s->queue);
    return e == cudaSuccess ? 0 : cuda_failed(err, (int)e, "cannot copy host arrays to the GPU");
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* The host reads tensors of several ranks where they lie, whatever else the GPU does. */
static int check_shares(int device, struct merr *err)
{
    int shares = 0;
    cudaError_t e = cudaDeviceGetAttribute(&shares, cudaDevAttrConcurrentManagedAccess, device);

    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "cannot use GPU %d", device);
    return shares ? 0
                  : merr_set(err, -ENODEV,
                             "GPU %d does not let the processor at its memory while it computes (so "
                             "it is under WSL and with some virtual GPUs): use the whole GPU on Linux",
                             device);
}

int stream_new(const struct kern_cfg *cfg, struct kern_stream **ret, struct merr *err)
{
    struct kern_stream *s = calloc(1, sizeof(*s));
    cudaStream_t queue = NULL;
    cudaError_t e;
    int shared = 0, r;

    if (!s)
        return merr_set(err, -ENOMEM, "no memory for a kernel stream");
    r = cfg->apart ? 0 : check_shares(cfg->device, err);
    if (r < 0) {
        free(s);
        return r;
    }
    s->device = cfg->device;
    s->apart = cfg->apart;
    s->attention.off = cfg->own;
    s->attention.needed = cfg->library_needed;
    e = cudaSetDevice(cfg->device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, cfg->device);
    s->shared_most = (size_t)shared;
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        free(s);
        return cuda_failed(err, (int)e, "cannot use GPU %d", cfg->device);
    }
    s->queue = queue;
    s->records = cfg->record ? records_new() : NULL;
    r = cfg->record && !s->records ? merr_set(err, -ENOMEM, "no memory for recorded calls")
                                   : ring_init(&s->ring, RING_HALF_BYTES, err);
    if (r) {
        stream_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

void stream_free(struct kern_stream *s)
{
    int saved = errno;

    if (!s)
        return;
    if (stream_calm(s) < 0) /* what a hung GPU may touch yet ends with the process */
        return;
    records_free(s->records);
    lt_free(s->lt);
    dnn_free(s->attention.dnn);
    ring_clear(&s->ring);
    (void)cudaFree(s->work.p);
    (void)cudaFree(s->turns.p);
    free(s->counts.p);
    (void)cudaStreamDestroy(s->queue);
    free(s);
    errno = saved;
}
