/* launch - starting kernels, from C++
 *
 * nvcc compiles a launch as such. Other C++ compilers take it as a call that runs every thread of every block on the
 * processor (tests/gpu/emulate.h defines what that takes): so each kernel can be tested where there is no GPU.
 */
#ifndef MUSTER_COMPRESS_CUDA_LAUNCH_H
#define MUSTER_COMPRESS_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, threads, shared_bytes, stream, ...)                                                       \
    kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]
#else
#define LAUNCH(kernel, grid, threads, shared_bytes, stream, ...)                                                       \
    emulate_launch(grid, threads, shared_bytes, stream, emulate_call(kernel, __VA_ARGS__))
#define SHARED_BYTES(name) unsigned char *const name = emulate_shared()
#endif

#define ALL_LANES 0xFFFFFFFFu

#endif
