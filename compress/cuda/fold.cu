/* Sums of vectors in their order: what members of a group have, after it has come to one of them. */
#include <stdint.h>

#include "compress/cuda/launch.h"
#include "compress/cuda/queue.h"

#define THREADS 256
#define BLOCKS_MAX 4096 /* the rest in turns */

/* The maximum of anything and a NaN is a NaN. */
template <typename T> static __device__ T folded(T a, T b, bool max)
{
    return max ? (a > b || a != a ? a : b) : (T)(a + b);
}

template <typename T> static __global__ void fold(struct device_fold f)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < f.count; i += step) {
        T sum = T();

        for (int v = 0; v < f.n; v++) {
            const T *from = (const T *)(v == f.index ? f.own : (const char *)f.rest + (size_t)v * f.stride);

            sum = v == 0 ? from[i] : folded(sum, from[i], f.max);
        }
        ((T *)f.out)[i] = sum;
    }
}

int launch_fold(void *stream, const struct device_fold *f)
{
    const size_t needed = (f->count + THREADS - 1) / THREADS;
    const unsigned blocks = needed == 0 ? 1 : needed < BLOCKS_MAX ? (unsigned)needed : BLOCKS_MAX;

    switch (f->type) {
    case DEVICE_U8:
        LAUNCH(fold<uint8_t>, blocks, THREADS, 0, stream, *f);
        break;
    case DEVICE_I64: /* as unsigned numbers sums wrap; the largest is found of signed ones */
        if (f->max)
            LAUNCH(fold<int64_t>, blocks, THREADS, 0, stream, *f);
        else
            LAUNCH(fold<uint64_t>, blocks, THREADS, 0, stream, *f);
        break;
    case DEVICE_F32:
        LAUNCH(fold<float>, blocks, THREADS, 0, stream, *f);
        break;
    case DEVICE_F64:
        LAUNCH(fold<double>, blocks, THREADS, 0, stream, *f);
        break;
    }
    return cudaGetLastError();
}
