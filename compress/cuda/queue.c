/* device_ops on CUDA: a stream that waits for nobody else's. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/cuda/backend_parts.h"
#include "compress/cuda/queue.h"
#include "compress/cuda/wait.h"

struct device_queue {
    int ordinal;
    cudaStream_t stream;
    struct device_id id;
};

static int told(cudaError_t e, const char *what, struct merr *err)
{
    return e == cudaSuccess ? 0 : cuda_failed(err, (int)e, "%s failed on the GPU", what);
}

/* The current GPU belongs to the thread, and other threads use the queue in their turn. */
static int enter(const struct device_queue *q, struct merr *err)
{
    return told(cudaSetDevice(q->ordinal), "choosing it", err);
}

/* Whether nothing runs any more that could touch memory; else the GPU hangs. */
static bool calm(const struct device_queue *q)
{
    if (wait_lost())
        return false;
    (void)cudaSetDevice(q->ordinal);
    return wait_stream(q->stream, q->ordinal, DEVICE_CALM_US, NULL) != -ETIMEDOUT;
}

/* FNV-1a. */
static uint64_t mixed(uint64_t hash, const void *p, size_t n)
{
    for (const unsigned char *c = p; n > 0; n--, c++)
        hash = (hash ^ *c) * UINT64_C(0x100000001b3);
    return hash;
}

/* Machines have cards in the same places: what tells them apart is new with each start of one. */
static uint64_t card_of(const struct cudaDeviceProp *about)
{
    const int place[] = {about->pciDomainID, about->pciBusID, about->pciDeviceID};
    uint64_t hash = mixed(UINT64_C(0xcbf29ce484222325), place, sizeof(place));
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    char machine[64] = "";

    if (f) {
        hash = mixed(hash, machine, fread(machine, 1, sizeof(machine), f));
        (void)fclose(f);
    }
    return hash;
}

static void queue_close(struct device_queue *q)
{
    int saved = errno;

    if (!q)
        return;
    if (q->stream && !wait_lost()) {
        (void)calm(q);
        (void)cudaStreamDestroy(q->stream); /* which does not wait */
    }
    free(q);
    errno = saved;
}

static int queue_open(int ordinal, struct device_queue **ret, struct merr *err)
{
    struct device_queue *q = calloc(1, sizeof(*q));
    struct cudaDeviceProp about;
    int last = 0, first = 0;
    cudaError_t e;

    if (!q)
        return merr_set(err, -ENOMEM, "no memory for a queue of GPU %d", ordinal);
    q->ordinal = ordinal;
    e = cudaSetDevice(ordinal);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&about, ordinal);
    if (e == cudaSuccess)
        e = cudaDeviceGetStreamPriorityRange(&last, &first);
    if (e == cudaSuccess) /* others wait for what moves bytes: it goes before kernels that have not begun */
        e = cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking, first);
    if (e != cudaSuccess) {
        queue_close(q);
        return cuda_failed(err, (int)e, "cannot use GPU %d", ordinal);
    }
    memcpy(q->id.gpu, &about.uuid, sizeof(q->id.gpu));
    q->id.card = card_of(&about);
    *ret = q;
    return 0;
}

static int queue_room(int ordinal, uint64_t *ret_free, uint64_t *ret_total, struct merr *err)
{
    size_t left = 0, all = 0;
    cudaError_t e = cudaSetDevice(ordinal);

    if (e == cudaSuccess)
        e = cudaMemGetInfo(&left, &all);
    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "cannot use GPU %d", ordinal);
    *ret_free = left;
    *ret_total = all;
    return 0;
}

static int queue_about(int ordinal, struct device_about *ret, struct merr *err)
{
    struct cudaDeviceProp about;
    size_t left = 0, all = 0;
    cudaError_t e = cudaSetDevice(ordinal);

    *ret = (struct device_about){.runtime = CUDART_VERSION};
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&about, ordinal);
    if (e == cudaSuccess)
        e = cudaDriverGetVersion(&ret->driver);
    if (e == cudaSuccess)
        e = cudaMemGetInfo(&left, &all);
    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "cannot use GPU %d", ordinal);
    (void)snprintf(ret->name, sizeof(ret->name), "%.63s", about.name);
    ret->major = about.major;
    ret->minor = about.minor;
    ret->managed = about.concurrentManagedAccess;
    ret->shared = about.sharedMemPerBlockOptin;
    ret->free = left;
    ret->total = all;
    return 0;
}

static void queue_id(const struct device_queue *q, struct device_id *ret)
{
    *ret = q->id;
}

static void *queue_native(const struct device_queue *q)
{
    return q->stream;
}

static bool queue_holds(const void *p)
{
    struct cudaPointerAttributes a;

    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
}

static int queue_alloc(struct device_queue *q, enum device_memory kind, size_t bytes, void **ret, struct merr *err)
{
    void *p = NULL;
    cudaError_t e;
    int r = enter(q, err);

    if (r)
        return r;
    e = kind == DEVICE_LOCAL ? cudaMalloc(&p, bytes) : cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
    if (e != cudaSuccess)
        return cuda_failed(err, (int)e, "no %zu bytes %s", bytes, kind == DEVICE_LOCAL ? "on the GPU" : "to be pinned");
    *ret = p;
    return 0;
}

static void queue_free(struct device_queue *q, enum device_memory kind, void *p)
{
    int saved = errno;

    if (p && calm(q))
        (void)(kind == DEVICE_LOCAL ? cudaFree(p) : cudaFreeHost(p));
    errno = saved;
}

static int queue_pin(struct device_queue *q, void *p, size_t bytes, struct merr *err)
{
    cudaError_t e;
    int r = enter(q, err);

    if (r)
        return r;
    e = cudaHostRegister(p, bytes, cudaHostRegisterDefault);
    return e == cudaSuccess ? 0 : cuda_failed(err, (int)e, "cannot pin %zu bytes", bytes);
}

static void queue_unpin(struct device_queue *q, void *p)
{
    if (calm(q))
        (void)cudaHostUnregister(p);
}

static int queue_copy(struct device_queue *q, void *dst, const void *src, size_t bytes, struct merr *err)
{
    int r = enter(q, err);

    if (r || bytes == 0)
        return r;
    return told(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, q->stream), "a copy", err);
}

static int queue_fold(struct device_queue *q, const struct device_fold *f, struct merr *err)
{
    int r = enter(q, err);

    return r ? r : told((cudaError_t)launch_fold(q->stream, f), "a sum of vectors", err);
}

static int queue_done(struct device_queue *q, struct merr *err)
{
    cudaError_t e = cudaStreamQuery(q->stream);

    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    return e == cudaSuccess ? 1 : cuda_failed(err, (int)e, "the GPU failed");
}

static void queue_lose(struct device_queue *q)
{
    (void)q;
    wait_lose();
}

/* --- marks -------------------------------------------------------------------------------------------------------- */

struct device_mark { /* of the GPU that was current when its event was made */
    cudaEvent_t event;
    int ordinal;
};

static int queue_mark_new(struct device_queue *q, struct device_mark **ret, struct merr *err)
{
    struct device_mark *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return merr_set(err, -ENOMEM, "no memory for a mark");
    r = enter(q, err);
    if (r < 0)
        goto fail;
    r = told(cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming), "a mark", err);
    if (r < 0)
        goto fail;
    m->ordinal = q->ordinal;
    *ret = m;
    return 0;
fail:
    free(m);
    return r;
}

static void queue_mark_free(struct device_mark *m)
{
    int saved = errno;

    if (m)
        (void)cudaEventDestroy(m->event);
    free(m);
    errno = saved;
}

static int queue_mark(struct device_queue *q, struct device_mark *m, struct merr *err)
{
    int r = enter(q, err);

    return r ? r : told(cudaEventRecord(m->event, q->stream), "a mark", err);
}

static int queue_follow(struct device_queue *q, struct device_mark *m, struct merr *err)
{
    int r = enter(q, err);

    return r ? r : told(cudaStreamWaitEvent(q->stream, m->event, cudaEventWaitDefault), "a wait for a mark", err);
}

static int queue_reached(struct device_mark *m, struct merr *err)
{
    cudaError_t e = cudaEventQuery(m->event);

    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    return e == cudaSuccess ? 1 : cuda_failed(err, (int)e, "the GPU failed");
}

static int queue_await(struct device_mark *m, int64_t within_us, struct merr *err)
{
    return wait_event(m->event, m->ordinal, within_us, err);
}

const struct device_ops device_cuda_ops = {
    .codecs = &codec_cuda_ops,
    .room = queue_room,
    .about = queue_about,
    .open = queue_open,
    .close = queue_close,
    .id = queue_id,
    .native = queue_native,
    .holds = queue_holds,
    .alloc = queue_alloc,
    .free = queue_free,
    .pin = queue_pin,
    .unpin = queue_unpin,
    .copy = queue_copy,
    .fold = queue_fold,
    .done = queue_done,
    .lose = queue_lose,
    .mark_new = queue_mark_new,
    .mark_free = queue_mark_free,
    .mark = queue_mark,
    .follow = queue_follow,
    .reached = queue_reached,
    .await = queue_await,
};
