/* safetensors - the header of a .safetensors file, from outside, checked
 *
 * The format: an 8-byte little-endian length, that many bytes of JSON naming each tensor's type, shape and byte
 * range, then the bytes; the ranges touch without holes and end at the end of the file.
 */
#ifndef MUSTER_CHECKPOINT_FORMAT_SAFETENSORS_H
#define MUSTER_CHECKPOINT_FORMAT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"

#define SAFETENSORS_HEADER_MAX 100000000u

struct safetensor {
    char *name;
    enum mck_dtype dtype;
    int ndim;
    uint64_t shape[MCK_DIMS_MAX];
    uint64_t begin, end; /* bytes behind the header */
};

struct safetensors {
    struct safetensor *v; /* in the order of their bytes */
    size_t n;
};

/* Parse the JSON header (len bytes, borrowed) of a file with data_len bytes behind it. -EBADMSG names the tensor
 * and what is wrong with it; -ENOTSUP a type or number of dims that Muster does not know. */
int safetensors_parse(const char *json, size_t len, uint64_t data_len, struct safetensors *ret, struct merr *err);
void safetensors_clear(struct safetensors *s);

/* "F32", ... of a dtype; NULL where safetensors has none. */
const char *safetensors_dtype(enum mck_dtype dtype);

#endif
