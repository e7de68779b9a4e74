/* tile - the innermost part of a matrix product: a few rows by a few columns, their sums held in registers
 *
 * Operands come packed: of A, panels of `rows` rows, depth by depth; of B, panels of `columns` columns likewise. Each
 * sum is taken in ascending depth, so a result's bits depend on its depth alone, not on how the rest is cut.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_TILE_H
#define MUSTER_WORKER_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/engine/kernels/kernels.h"

#define TILE_SLACK 8        /* floats that pack may write past a panel's end */
#define TILE_FLOATS_MAX 384 /* of any tile */

struct cpu_tile {
    int rows, columns;

    /* Lines (rows of A or columns of B) 0 .. lines-1 in panels of `width` lines, panel i at to + i·apart: there
     * [depth][width], absent lines 0. turned: line i is x[i·ld ..], else step p is x[p·ld ..]. bf16 is widened. */
    void (*pack)(enum kern_type type, const void *x, size_t ld, bool turned, int width, int lines, int depth, float *to,
                 size_t apart);

    /* c[rows, columns] = the product of two panels, or added to c. */
    void (*multiply)(int depth, const float *a, const float *b, float *c, size_t ldc, bool add);

    /* The same for 1 .. `rows` rows of an A that is not packed: row i, step p of its depth is a[i·row + p·step], and
     * row or step is 1. */
    void (*multiply_lying)(int rows, int depth, const float *a, size_t row, size_t step, const float *b, float *c,
                           size_t ldc, bool add);
};

#ifdef __x86_64__
extern const struct cpu_tile cpu_tile_avx2;   /* only where the processor has AVX2 and FMA */
extern const struct cpu_tile cpu_tile_avx512; /* only where it has AVX-512 F, BW, DQ and VL */
#endif

#endif
