/* emulate - kernels of CUDA as ordinary C++: every thread of a block runs on the processor, in turns (C++)
 *
 * Included before each .cu file by a C++ compiler that is not nvcc, with the toolkit's own headers for types. A thread
 * runs until it waits: for its block or its warp. So a barrier too few shows in one of the two orders in which turns
 * are taken (EMULATE_REVERSE=1 for the other), a barrier that some never reach ends the program, and memory is that of
 * emulate.cc, with pages behind each piece that nobody may touch. One launch at a time; a stream's work is done when it
 * is queued, or with its graph.
 */
#ifndef MUSTER_TESTS_GPU_EMULATE_H
#define MUSTER_TESTS_GPU_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>

#include <cuda_runtime.h>

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ static /* blocks run one after another */

void emulate_launch(dim3 grid, dim3 threads, size_t shared_bytes, void *stream, const std::function<void()> &kernel);

/* A kernel with its arguments as they are now, which is when a launch takes them. */
template <typename... T>
std::function<void()> emulate_call(void (*kernel)(T...), typename std::remove_const<T>::type... arguments)
{
    return [=] { kernel(arguments...); };
}

unsigned char *emulate_shared();
void emulate_wait_block();

/* All lanes give a word and get the words of all. */
void emulate_exchange(uint64_t word, uint64_t all[32]);

/* What worker/engine/kernels/cuda/tensor_core.h promises. Places in shared memory are offsets into it. A copy's place
 * holds NaN from its beginning until the thread that began it has waited for its group: whoever reads too early, or
 * begins to copy where others still read, computes nonsense. Rows of one matrix that lie in the same banks are an
 * error. */
void emulate_product(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
void emulate_load_matrices(uint32_t row, bool transposed, uint32_t r[4]);
void emulate_copy(uint32_t to, const void *from, uint32_t bytes, bool there);
void emulate_copies_begun();
void emulate_copies_wait();

struct emulate_place {
    dim3 thread, block, block_size, grid_size;
};
extern emulate_place emulate_here;
#define threadIdx emulate_here.thread
#define blockIdx emulate_here.block
#define blockDim emulate_here.block_size
#define gridDim emulate_here.grid_size

#define __syncthreads() emulate_wait_block()

template <typename T> T emulate_shuffle(unsigned mask, T x, unsigned lane)
{
    uint64_t word = 0, all[32];

    if (mask != 0xFFFFFFFFu || sizeof(T) > sizeof(word))
        abort();
    memcpy(&word, &x, sizeof(x));
    emulate_exchange(word, all);
    memcpy(&x, &all[lane % 32], sizeof(x));
    return x;
}

template <typename T> T __shfl_xor_sync(unsigned mask, T x, int m)
{
    return emulate_shuffle(mask, x, (threadIdx.x % 32) ^ (unsigned)m);
}

template <typename T> T __shfl_sync(unsigned mask, T x, int lane)
{
    return emulate_shuffle(mask, x, (unsigned)lane);
}

inline int __any_sync(unsigned mask, int x)
{
    uint64_t all[32], any = 0;

    if (mask != 0xFFFFFFFFu)
        abort();
    emulate_exchange(x != 0, all);
    for (uint64_t one : all)
        any |= one;
    return any != 0;
}

inline unsigned atomicOr(unsigned *p, unsigned x)
{
    unsigned old = *p;

    *p |= x;
    return old;
}

inline unsigned long long atomicMin(unsigned long long *p, unsigned long long x)
{
    unsigned long long old = *p;

    if (x < old)
        *p = x;
    return old;
}

#endif
