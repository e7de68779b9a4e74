/* cuda_backend - the code for GPUs: a library of its own, loaded when it is first asked for
 *
 * The same installation runs on nodes with and without a GPU, and where it was built without nvcc. The library is
 * muster-cuda.so in ../lib/muster beside the program's folder, or the file that MUSTER_CUDA_BACKEND names. It is never
 * unloaded. Loading it takes neither a driver nor a GPU: its calls say so when there is none.
 */
#ifndef MUSTER_COMPRESS_CUDA_BACKEND_H
#define MUSTER_COMPRESS_CUDA_BACKEND_H

#include <stddef.h>

#include "compress/codec_cuda.h"
#include "compress/device.h"

#define CUDA_BACKEND_VERSION 7
#define CUDA_BACKEND_SYMBOL "muster_cuda_backend"

struct kern_ops; /* worker/engine/kernels/kernels.h */
struct kern_stream;

struct cuda_backend {
    unsigned version;
    size_t codecs_bytes, kernels_bytes, device_bytes; /* of the tables: what was built from other headers is refused */
    const struct codec_cuda *codecs;
    const struct kern_ops *kernels;
    void *(*native_stream)(struct kern_stream *s); /* the cudaStream_t, for calls of codecs */
};

typedef const struct cuda_backend *(*cuda_backend_fn)(void);

/* The backend, which lives for ever. Any thread may ask. kernels_bytes: sizeof(struct kern_ops), or 0 for whoever will
 * not use them.
 *
 *   -ENOENT  there is none in this installation
 *   -EIO     it cannot be loaded, or is of another version of Muster; err says what is wrong with which file
 */
int cuda_backend_open(size_t kernels_bytes, const struct cuda_backend **ret, struct merr *err);

#endif
