/* stream - a CUDA stream of kernels with what belongs to it: workspace, a way for host arrays, matrix products
 *
 * Used by the thread that made it. Whatever it owns only grows.
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_STREAM_H
#define MUSTER_WORKER_KERNELS_CUDA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/kernels/kernels.h"

#define UPLOAD_PIECES 4
#define TURN_FREQUENCIES 128 /* of heads of at most 256 dimensions */
#define TURN_BYTES_MOST ((size_t)64 << 20)

struct dnn;     /* dnn.h */
struct lt;      /* lt.h */
struct records; /* record.h */

struct room { /* memory that only grows */
    void *p;
    size_t bytes;
};

struct upload_ring { /* host arrays on their way: pinned memory and its image on the device, used half by half */
    char *pinned, *device;
    size_t half_bytes, at; /* at: next free byte, in both halves together */
    void *done[2];         /* events: what was queued with each half has run */
};

struct turn_table { /* cosines and sines of RoPE (launches.h) */
    void *p;        /* NULL: none yet */
    float freq[TURN_FREQUENCIES];
    int half, positions;
};

struct kern_stream {
    int device;
    bool apart;               /* tensors are in memory that is the GPU's alone */
    size_t shared_most;       /* bytes of shared memory that a block of threads may have */
    void *queue;              /* cudaStream_t */
    struct room work, counts; /* on the device; of the host */
    struct upload_ring ring;
    struct turn_table turns;
    struct lt *lt; /* NULL until the first matrix product */
    struct attention_library {
        struct dnn *dnn; /* NULL: none, or it was not looked for yet */
        bool off, needed, tried;
        struct merr why;
        uint64_t by_it, by_us; /* calls */
    } attention;
    struct records *records; /* NULL: calls are not recorded */
};

/* An array of host memory and, after upload, where it is on the device. bytes 0: none. */
struct upload {
    const void *host;
    size_t bytes;
    const void *device;
    bool kept; /* a recording keeps what it holds now; else each replay reads it again */
};

size_t stream_aligned(size_t bytes); /* as far apart as arrays lie on the device */

/* Copy host arrays to the device, for the calls that are queued next and before the following upload. The host's may
 * change as soon as this returns. 0, -ENOMEM, -EIO. */
int stream_upload(struct kern_stream *s, struct upload *v, int n, struct merr *err);

/* The same for any number of arrays, whatever is recorded; to: where they go, one after the other, NULL: a place as
 * above. */
int stream_send(struct kern_stream *s, struct upload *v, int n, char *to, struct merr *err);

/* bytes of workspace on the device: valid for what is queued before the next call of this. 0, -ENOMEM, -EIO. */
int stream_work(struct kern_stream *s, size_t bytes, void **ret, struct merr *err);

/* bytes of host memory, valid until the next call of this. 0, -ENOMEM. */
int stream_counts(struct kern_stream *s, size_t bytes, void **ret, struct merr *err);

int stream_new(const struct kern_cfg *cfg, struct kern_stream **ret, struct merr *err);
void stream_free(struct kern_stream *s);
int stream_sync(struct kern_stream *s, struct merr *err);
int stream_calm(struct kern_stream *s); /* before memory is freed: -ETIMEDOUT: the GPU hangs and may use it yet */

#endif
