/* queue - the kernel of device_ops, for its host code */
#ifndef MUSTER_COMPRESS_CUDA_QUEUE_H
#define MUSTER_COMPRESS_CUDA_QUEUE_H

#include "compress/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queue f on a cudaStream_t. Returns a cudaError_t. */
int launch_fold(void *stream, const struct device_fold *f);

#ifdef __cplusplus
}
#endif

#endif
