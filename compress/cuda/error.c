#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>

#include "compress/cuda/backend_parts.h"

int cuda_failed(struct merr *err, int error, const char *fmt, ...)
{
    char what[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    (void)cudaGetLastError();
    switch (error) {
    case cudaErrorMemoryAllocation:
        return merr_set(err, -ENOMEM, "%s: the GPU's memory is full; use a smaller micro-batch or more devices", what);
    case cudaErrorInsufficientDriver:
        return merr_set(err, -ENODEV,
                        "%s: no NVIDIA driver here, or one older than %d, which CUDA %d.%d, with which this was built, "
                        "takes",
                        what, CUDART_VERSION >= 13000 ? 580 : 525, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    case cudaErrorNoDevice:
        return merr_set(err, -ENODEV, "%s: the driver offers no GPU; what does CUDA_VISIBLE_DEVICES say?", what);
    default:
        return merr_set(err, -EIO, "%s: %s", what, cudaGetErrorString((cudaError_t)error));
    }
}
