/* device - functions that the processor and a GPU compute alike, written once
 *
 * Such a function is small, has no state and calls nothing but its like. C and C++ compilers see an ordinary inline
 * function, nvcc one for both sides. Its arithmetic must not be contracted where bits matter.
 */
#ifndef MUSTER_BASE_DEVICE_H
#define MUSTER_BASE_DEVICE_H

#ifdef __CUDACC__
#define DEVICE_INLINE static __host__ __device__ inline
#else
#define DEVICE_INLINE static inline
#endif

#endif
