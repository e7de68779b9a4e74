/* block - the products of one block of attention, `rows` queries against `keys` keys, on the calling thread alone
 *
 * By tiles of our own, which leave out what is masked, where right operands were packed, else by oneDNN. Products
 * return 0 or a negative errno.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_BLOCK_H
#define MUSTER_WORKER_KERNELS_CPU_BLOCK_H

#include "worker/engine/kernels/cpu/cpu.h"

struct block_shape {
    int rows, keys, dim;
    int valid; /* row r sees the first valid + r of the keys, */
    int skip;  /* but the first skip + r of them; LOOPS_NO_SKIP: all */
};

/* A right operand: queries or keys or values of one head, as they lie, and packed where tiles want that. */
struct block_right {
    const float *x;
    int ld, n;
    const struct cpu_tile *tile; /* it is packed for; NULL: it is not packed */
    const float *packed;
};

/* Rows of x, [n, dim]. turned: they are the columns of the product. room: n · dim floats, n rounded up to whole tiles,
 * for as long as the result is used; NULL: not worth packing. */
struct block_right block_right(const struct kern_stream *s, bool turned, const float *x, int ld, int n, int dim,
                               float *room);

/* c[rows, keys] = a[rows, dim] · b[keys, dim]', b turned. What a row does not see may be anything, up to whole tiles:
 * ldc has room for CPU_KEYS columns. Here and below b may have more rows than keys or queries count. */
int block_scores(const struct block_shape *x, const float *a, int lda, const struct block_right *b, float *c, int ldc);

/* c[rows, dim] = a[rows, keys] · b[keys, dim], or added; a is 0 where a row does not see. */
int block_values(const struct block_shape *x, const float *a, int lda, const struct block_right *b, bool add, float *c,
                 int ldc);

/* c[keys, dim] += a[rows, keys]' · b[rows, dim]; likewise. */
int block_sums(const struct block_shape *x, const float *a, int lda, const struct block_right *b, float *c, int ldc);

#endif
