/* backend_parts - what the parts of the CUDA backend share: errors, and where its tables are */
#ifndef MUSTER_COMPRESS_CUDA_BACKEND_PARTS_H
#define MUSTER_COMPRESS_CUDA_BACKEND_PARTS_H

#include "compress/codec_cuda.h"
#include "compress/device.h"

extern const struct codec_cuda codec_cuda_ops;
extern const struct device_ops device_cuda_ops;

/* Words for a cudaError_t: what was tried, and what CUDA says. Clears CUDA's own memory of the error. Returns -ENOMEM
 * or -ENODEV where it is that, else -EIO. */
int cuda_failed(struct merr *err, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
