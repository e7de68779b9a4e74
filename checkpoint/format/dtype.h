/* dtype - sizes, names and conversions of element types */
#ifndef MUSTER_CHECKPOINT_FORMAT_DTYPE_H
#define MUSTER_CHECKPOINT_FORMAT_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"

#define MCK_DTYPES 17
#define MCK_ROLES 9

/* Bytes of an element; 0 for a number that is no dtype. */
size_t dtype_size(int dtype);

/* Bytes of the numbers that an element is made of, whose bytes codecs put side by side: two in a complex one. And: are
 * they floats that shrink by it? */
size_t dtype_part_size(int dtype);
int dtype_is_float(int dtype);

/* "f32", "bf16", ...; "?" for none. And back: the dtype, or -EINVAL. */
const char *dtype_name(int dtype);
int dtype_parse(const char *name);

/* "master", "weight", ...; "?" for none. */
const char *role_name(int role);

/* Is there a conversion (equal types included)? Only among f32, bf16 and f16. */
int dtype_converts(int from, int to);

/* Convert n elements, rounding to nearest even. NaN stays NaN. dtype_converts(from, to) must hold; the memory must
 * not overlap; neither side need be aligned. */
void dtype_convert(int from, int to, const void *src, void *dst, size_t n);

#endif
