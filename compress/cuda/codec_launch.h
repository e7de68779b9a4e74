/* codec_launch - the kernels of codec_call_launch(), one file each
 *
 * Each queues its kernel with so many blocks of threads, at least 1, and returns a cudaError_t.
 */
#ifndef MUSTER_COMPRESS_CUDA_CODEC_LAUNCH_H
#define MUSTER_COMPRESS_CUDA_CODEC_LAUNCH_H

#include "compress/cuda/codec_call.h"

int codec_encode_launch(const struct codec_call *call, unsigned blocks, void *stream);
int codec_decode_launch(const struct codec_call *call, unsigned blocks, void *stream);
int codec_reduce_launch(const struct codec_call *call, unsigned blocks, void *stream);

#endif
