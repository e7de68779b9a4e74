/* fp8 - eight-bit floats E4M3 and E5M2, bit for bit as the conversion instructions of processors make them
 *
 *            bits s/e/m  bias  largest  least normal  least  beyond
 *   E4M3     1/4/3       7     448      2^-6          2^-9   no infinity; S.1111.111 is NaN
 *   E5M2     1/5/2       15    57344    2^-14         2^-16  infinity and NaN as IEEE
 *
 * Conversion rounds to nearest, ties to even, and saturates: no finite or infinite number becomes infinity or NaN.
 */
#ifndef MUSTER_COMPRESS_FP8_H
#define MUSTER_COMPRESS_FP8_H

#include <stdint.h>

enum fp8_kind { FP8_E4M3, FP8_E5M2 };

#define FP8_E4M3_MAX 448.0f
#define FP8_E5M2_MAX 57344.0f

uint8_t fp8_encode(float x, enum fp8_kind kind);
float fp8_decode(uint8_t code, enum fp8_kind kind);

#endif
