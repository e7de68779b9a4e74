/* tensor_core - the instructions of tensor cores and what feeds them, one small function each (C++)
 *
 * nvcc gets them as PTX of compute capability 8.0; over the emulation tests/gpu/emulate.cc does what they promise, and
 * tests/gpu/fragments.cu holds either beside the layouts below.
 *
 * A product's operands are spread over the lanes of a warp. With g = lane / 4 and t = lane % 4 a lane holds, of
 *   A (16 rows, 16 columns; pairs of neighbouring columns in a word, the first in its lower half)
 *       a[0] row g, columns 2t, 2t + 1        a[1] row g + 8, columns 2t, 2t + 1
 *       a[2] row g, columns 2t + 8, 2t + 9    a[3] row g + 8, columns 2t + 8, 2t + 9
 *   B (16 rows, 8 columns; pairs of neighbouring rows in a word)
 *       b0 rows 2t, 2t + 1 of column g        b1 rows 2t + 8, 2t + 9 of column g
 *   C (16 rows, 8 columns)
 *       c[0], c[1] row g, columns 2t, 2t + 1  c[2], c[3] row g + 8, columns 2t, 2t + 1
 * So two neighbouring C side by side are an A once they are rounded: a = { C0[0,1], C0[2,3], C1[0,1], C1[2,3] }.
 *
 * load_matrices reads four matrices of 8 rows by 8 bf16: lane i gives the address of row i % 8 of matrix i / 8, each 16
 * bytes on a boundary of 16, and gets in r[m] elements 2t, 2t + 1 of row g of matrix m; transposed, elements g of rows
 * 2t and 2t + 1. All lanes of a warp must come together to either, and to a product.
 *
 * Addresses in shared memory are numbers, as PTX takes them: shared_at().
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_TENSOR_CORE_H
#define MUSTER_WORKER_KERNELS_CUDA_TENSOR_CORE_H

#include <stdint.h>

#include "base/bf16.h"
#include "compress/cuda/launch.h"

#ifdef __CUDACC__

__device__ inline uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* c += a · b */
__device__ inline void product(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void load_matrices(uint32_t row, uint32_t r[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t row, uint32_t r[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* Begin to copy 16 bytes from global memory, or zeros where there is nothing; from may then be anything. Who copies
 * waits for it, and a barrier makes it known to others. */
__device__ inline void copy_16(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ inline void copy_4(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                 : "memory");
}

/* What was begun since the last of these calls is a group. */
__device__ inline void copies_begun()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait for this thread's groups. */
__device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

__device__ inline uint32_t two_bf16(float lower, float upper)
{
    uint32_t r;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(upper), "f"(lower));
    return r;
}

/* 2^x within 2^-22 of it; 0 below 2^-126. */
__device__ inline float power_of_2(float x)
{
    float r;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* What is computed from x is computed here, not once before a loop and kept in registers. */
__device__ inline void compute_here(uint32_t &x)
{
    asm volatile("" : "+r"(x));
}

#else

inline uint32_t shared_at(const void *p)
{
    return (uint32_t)((const unsigned char *)p - emulate_shared());
}

inline void product(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    emulate_product(c, a, b0, b1);
}

inline void load_matrices(uint32_t row, uint32_t r[4])
{
    emulate_load_matrices(row, false, r);
}

inline void load_matrices_transposed(uint32_t row, uint32_t r[4])
{
    emulate_load_matrices(row, true, r);
}

inline void copy_16(uint32_t to, const void *from, bool there)
{
    emulate_copy(to, from, 16, there);
}

inline void copy_4(uint32_t to, const void *from, bool there)
{
    emulate_copy(to, from, 4, there);
}

inline void copies_begun()
{
    emulate_copies_begun();
}

inline void copies_wait()
{
    emulate_copies_wait();
}

inline uint32_t two_bf16(float lower, float upper)
{
    return bf16_from_float(lower) | (uint32_t)bf16_from_float(upper) << 16;
}

inline void compute_here(uint32_t &)
{
}

inline float power_of_2(float x)
{
    return x < -126 ? 0 : exp2f(x);
}

#endif

#endif
