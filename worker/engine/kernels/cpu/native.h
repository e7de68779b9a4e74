/* native - matrix products of bf16 by the processor's own instructions (AVX-512-BF16, AMX), through oneDNN
 *
 * One object a thread: what it makes is used by the thread that made it. It keeps the products it was asked for, since
 * making one costs more than running it, and forgets the one unused longest.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_NATIVE_H
#define MUSTER_WORKER_KERNELS_CPU_NATIVE_H

#include <stdbool.h>

#include "base/merr.h"
#include "worker/engine/kernels/kernels.h"

struct native;

struct native_product {  /* C[m,n] = op(A)·op(B) (+ C when accumulate), C in f32; strides as in struct kern_gemm */
    enum kern_type type; /* of A and B */
    bool trans_a, trans_b, accumulate;
    int m, n, k, lda, ldb, ldc;
};

/* Whether this processor and this build have products of bf16. */
bool native_here(void);

int native_new(struct native **ret, struct merr *err);
void native_free(struct native *t);

/* On the calling thread alone. 0, -ENOMEM, -EIO; -ENOTSUP: oneDNN has no such product. */
int native_run(struct native *t, const struct native_product *p, const void *a, const void *b, float *c);

#endif
