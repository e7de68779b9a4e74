/* kernels - the arithmetic of the training engine behind one table: CPU now, CUDA beside it
 *
 * The model calls nothing but this table and never looks behind a pointer that came from mem_alloc. All
 * matrices are row-major. Every call is queued on a stream and may return before it has run (the CPU's
 * stream runs it at once); stream_sync waits. Nothing allocates in a steady step: workspace belongs to the
 * stream and grows only when a larger shape comes by. The same call with the same input gives the same bits,
 * whatever the thread count. Formulas: papers/training-engine.md sections 3, 5, 7, 10, 11.
 *
 * A call's `type` says what its void pointers hold: f32, or bf16 as it goes into and comes out of matrix products.
 * Float pointers are f32 always: the residual stream, statistics, losses, gradients of weights, master weights. All
 * sums are made in f32; a bf16 result is rounded once, to the nearest, ties to even.
 *
 * Calls return 0 or a negative errno: -ENOMEM, -EIO (the device failed), with words in err.
 */
#ifndef MUSTER_WORKER_KERNELS_KERNELS_H
#define MUSTER_WORKER_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "compress/device.h"

struct kern_stream;

enum kern_type { KERN_F32, KERN_BF16 };

static inline size_t kern_size(enum kern_type t)
{
    return t == KERN_BF16 ? sizeof(uint16_t) : sizeof(float);
}

enum kern_epilogue {
    KERN_PLAIN,
    KERN_BIAS,      /* C += bias[n] */
    KERN_BIAS_GELU, /* aux = C + bias (kept for backward), C = gelu_forward(aux), bit for bit */
};

/* C[m,n] = op(A)[m,k] · op(B)[k,n], or added to C when accumulate. lda, ldb, ldc: row strides, elements. */
struct kern_gemm {
    enum kern_type type;   /* of A and B */
    enum kern_type c_type; /* of C and aux; f32 with accumulate or when A and B are */
    bool trans_a, trans_b; /* A is stored [k,m]; B is stored [n,k] */
    int m, n, k;
    const void *a;
    int lda;
    const void *b;
    int ldb;
    void *c;
    int ldc;
    bool accumulate;
    enum kern_epilogue epilogue; /* only without accumulate */
    const float *bias;           /* [n] */
    const float *onto; /* C += onto [m,n], stride ldc, another array than C; f32 C, KERN_PLAIN or KERN_BIAS, without
                          accumulate; NULL: nothing */
    void *aux;         /* [m,n], stride ldc */
    bool b_is_weight;  /* B stays the same for many calls: a packed copy may be kept, see weights_changed */
};

/* Causal attention over packed documents. Rows of qkv hold q (heads·dim), k (kv_heads·dim), v (kv_heads·dim)
 * side by side, row stride ld. Document d is rows cu[d] .. cu[d+1]-1. */
struct kern_attention {
    enum kern_type type;
    int tokens, heads, kv_heads, dim, ld;
    const int32_t *cu; /* host memory, docs + 1 entries from 0 to tokens */
    int docs;
    float scale;
    const void *qkv;
    void *out;  /* [tokens, heads·dim] */
    float *lse; /* [tokens, heads]: log-sum-exp of each row, written by forward, read by backward */
    /* dropout of the probabilities; p = 0: none */
    float dropout;
    uint32_t drop_threshold;   /* p · 2^32 */
    const uint32_t *drop_keys; /* [heads][2], one Philox key a (global) head */
    const uint64_t *samples;   /* [docs]: sample number of each document, host memory */
    int window; /* above 0: a row looks at no more than its own key and the window - 1 before it; ops.parts */
    /* Pieces of documents: with kv, keys and values are not those of qkv, of which then only the queries are read. Row
     * r of piece d is row past[d] + r of its document, whose rows of keys and values (2·kv_heads·dim, no gaps) stand in
     * kv from kv_at[d] on, at least past[d] + the piece's length of them. Pieces may share a document. */
    const void *kv;
    int kv_rows;                 /* of all documents */
    const int32_t *past, *kv_at; /* [docs], host memory */
    /* With ops.parts kv may hold a part of a document's keys: kv_len[d] rows of it (0: none) from row kv_first[d] on.
     * NULL: from its first row to the piece's last. Of a row that sees none of them out is 0 and lse -inf. Backward
     * then takes the out and lse of all parts together, and gives this one's share of dqkv. */
    const int32_t *kv_first, *kv_len; /* [docs], host memory */
    /* backward only */
    const void *dout; /* [tokens, heads·dim] */
    void *dqkv;       /* as qkv, overwritten; with kv only its queries' part */
    float *dkv;       /* as kv, in f32: grows */
};

/* Attention of the next rows of one sequence to themselves and to all before them, whose keys and values are kept.
 * qkv as above, in f32; entries past .. past + rows - 1 of the cache are filled by the call, row r looks at
 * past + r + 1. */
struct kern_cached {
    int rows, past, heads, kv_heads, dim, ld;
    float scale;
    int window; /* as above */
    const float *qkv;
    float *keys, *values; /* [at least past + rows, kv_heads·dim] */
    float *out;           /* [rows, heads·dim] */
};

struct kern_dropout { /* y = x · mask / (1-p); counter {column/4, position, sample lo, sample hi}, word column%4 */
    int rows, cols, ld;
    int col0; /* global number of the first column here */
    float p;
    uint32_t threshold; /* p · 2^32: dropped when word < threshold */
    uint32_t key[2];
    const int32_t *position; /* [rows] in its sample, host memory */
    const uint64_t *sample;  /* [rows], host memory */
};

struct kern_adamw_step { /* what changes from step to step for all slices; folded by the caller in double */
    float grad_scale;    /* clip coefficient */
    float lr;
    float inv_bias1, inv_bias2; /* 1/(1-beta^t) */
};

struct kern_adamw { /* one slice */
    size_t n;
    float *w, *m, *v;
    const float *g;
    float beta1, beta2, eps, weight_decay;
    const struct kern_adamw_step *step; /* host memory */
};

struct kern_cfg {
    int threads; /* CPU: threads of this rank, at least 1 */
    int device;  /* CUDA: ordinal */
    bool record; /* CUDA: see kern_recorded() */
    bool apart;  /* CUDA: the host reads and writes tensors by copy() alone */
    bool own;    /* CUDA: attention by our own kernels alone: no document's bits depend on those packed beside it */
    bool library_needed; /* CUDA: attention ends with an error where no library for it can be had */
};

/* What recorded calls depend on: compared byte by byte. */
struct kern_key {
    const void *head, *list; /* list_bytes 0: no list */
    size_t head_bytes, list_bytes;
};

/* Makes calls of a table, on one stream. */
typedef int (*kern_calls)(void *arg, struct merr *err);

struct kern_recordings {     /* of a stream */
    uint64_t made, launched; /* graphs; times that one took the place of its calls */
    uint64_t refused;        /* sets of calls that cannot be recorded */
    const char *why;         /* of the first of those; lives with the stream */
};

struct kern_attention_ways { /* of a stream */
    size_t library;          /* version of the library that attention goes by, as it numbers it; 0: none */
    uint64_t by_library, by_us;
    const char *why; /* there is none, or the first call that suited it did not go by it; lives with the stream */
};

struct kern_ops {
    const char *name;                /* "cpu", "cuda", "plain" */
    const struct device_ops *device; /* for whoever moves bytes from and to its memory; NULL: that is the host's, and
                                        tensors may lie in any memory of the host */
    bool parts;                      /* attention knows windows and parts of keys, and there are head_norm and
                                        attention_merge */

    int (*stream_new)(const struct kern_cfg *cfg, struct kern_stream **ret, struct merr *err);
    void (*stream_free)(struct kern_stream *s);
    int (*stream_sync)(struct kern_stream *s, struct merr *err);

    /* Device memory, 64-byte aligned, zeroed. */
    int (*mem_alloc)(struct kern_stream *s, size_t bytes, void **ret, struct merr *err);
    void (*mem_free)(struct kern_stream *s, void *p);
    /* Have pages of shared memory now, by all threads, as those of mem_alloc are; its bytes stay. NULL: kernels cannot
     * reach it, or have no threads. */
    void (*mem_touch)(struct kern_stream *s, void *at, size_t bytes);
    int (*copy)(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err); /* any direction */
    /* Rows of some bytes, strides in bytes, within the device. */
    int (*copy_rows)(struct kern_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                     size_t bytes, int rows, struct merr *err);
    int (*fill)(struct kern_stream *s, float *dst, float value, size_t n, struct merr *err);
    int (*to_bf16)(struct kern_stream *s, const float *x, size_t n, void *y, struct merr *err);

    int (*gemm)(struct kern_stream *s, const struct kern_gemm *g, struct merr *err);
    /* The weights in [p, p+bytes) have new values: packed copies are stale. */
    void (*weights_changed)(struct kern_stream *s, const void *p, size_t bytes);

    int (*attention_forward)(struct kern_stream *s, const struct kern_attention *a, struct merr *err);
    int (*attention_backward)(struct kern_stream *s, const struct kern_attention *a, struct merr *err);
    int (*attention_cached)(struct kern_stream *s, const struct kern_cached *a, struct merr *err);
    /* out[rows, heads·dim] and lse[rows, heads], of some keys, become those of these keys and of those that part and
     * part_lse are of. part is of type; lse may be -inf, in both: of no keys. NULL: not built. */
    int (*attention_merge)(struct kern_stream *s, enum kern_type type, float *out, float *lse, const void *part,
                           const float *part_lse, int rows, int heads, int dim, struct merr *err);

    /* y[rows,cols]; mean and rstd [rows] are kept for backward. */
    int (*layernorm_forward)(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma,
                             const float *beta, float eps, int rows, int cols, void *y, float *mean, float *rstd,
                             struct merr *err);
    /* dx = gradient (+ what dx held, when add); dgamma, dbeta accumulate. x, mean, rstd as in forward. */
    int (*layernorm_backward)(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                              const float *mean, const float *rstd, int rows, int cols, float *dx, bool add,
                              float *dgamma, float *dbeta, struct merr *err);
    int (*rmsnorm_forward)(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma, float eps,
                           int rows, int cols, void *y, float *rstd, struct merr *err);
    int (*rmsnorm_backward)(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                            const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma,
                            struct merr *err);

    /* RMSNorm of each head's dim columns, in place: x[rows, heads·dim] with row stride ld, in raw goes what x was
     * [rows, heads·dim], without gaps. NULL: not built. */
    int (*head_norm_forward)(struct kern_stream *s, enum kern_type type, void *x, const float *gamma, float eps,
                             int rows, int heads, int dim, int ld, void *raw, struct merr *err);
    /* dx, row stride ld: the gradient of what came out becomes that of what went in; dgamma[dim] grows. */
    int (*head_norm_backward)(struct kern_stream *s, enum kern_type type, void *dx, const void *raw, const float *gamma,
                              float eps, int rows, int heads, int dim, int ld, float *dgamma, struct merr *err);

    /* Rotate q and k rows in place (rotate-half); inverse for backward. freq [dim/2], position [rows] host memory. */
    int (*rope)(struct kern_stream *s, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                const int32_t *position, const float *freq, bool inverse, struct merr *err);

    /* dx may be dy. */
    int (*gelu_forward)(struct kern_stream *s, enum kern_type type, const void *x, size_t n, void *y, struct merr *err);
    int (*gelu_backward)(struct kern_stream *s, enum kern_type type, const void *x, const void *dy, size_t n, void *dx,
                         struct merr *err);
    /* y = silu(gate) · up, gate and up side by side in rows of 2·cols. */
    int (*swiglu_forward)(struct kern_stream *s, enum kern_type type, const void *gate_up, int rows, int cols, void *y,
                          struct merr *err);
    int (*swiglu_backward)(struct kern_stream *s, enum kern_type type, const void *gate_up, const void *dy, int rows,
                           int cols, void *dgate_up, struct merr *err);

    int (*add)(struct kern_stream *s, float *y, const float *x, size_t n, struct merr *err); /* y += x */
    /* Each row of y += bias. */
    int (*add_bias)(struct kern_stream *s, float *y, const float *bias, int rows, int cols, struct merr *err);
    int (*bias_gradient)(struct kern_stream *s, enum kern_type type, const void *dy, int rows, int cols, int ld,
                         float *db, struct merr *err); /* db += column sums, rows in order */
    int (*dropout)(struct kern_stream *s, const struct kern_dropout *d, const float *x, float *y, struct merr *err);

    /* y[t,:] = table[token[t] - first,:] when first <= token < first + rows, else 0; the table is of type. token: host
     * memory. */
    int (*embedding_forward)(struct kern_stream *s, enum kern_type type, const void *table, int first, int rows,
                             int cols, const int32_t *token, int tokens, float *y, struct merr *err);
    /* dtable[token[t] - first,:] += dy[t,:], in ascending t for each row. */
    int (*embedding_backward)(struct kern_stream *s, const float *dy, int first, int rows, int cols,
                              const int32_t *token, int tokens, float *dtable, struct merr *err);

    /* Cross-entropy over a slice [first, first+cols) of the vocabulary, columns at or past vocab left out; target is
     * host memory: stats[t] = {max, sum exp(z - max), z of the target or 0}. */
    int (*xent_partial)(struct kern_stream *s, const float *logits, int tokens, int cols, int first, int vocab,
                        const int32_t *target, float *stats, struct merr *err);
    /* Combine n slices' stats (member order, [n][tokens][3]); loss[t] in nats, 0 where target < 0; and with dz
     * (which in f32 may be the logits themselves): dz = (softmax - onehot) · weight, 0 where target < 0 or padded. */
    int (*xent_finish)(struct kern_stream *s, const float *logits, const float *stats, int n, int tokens, int cols,
                       int first, int vocab, const int32_t *target, float weight, float *loss, enum kern_type type,
                       void *dz, struct merr *err);

    int (*adamw)(struct kern_stream *s, const struct kern_adamw *a, struct merr *err);
    /* ret[i] = sum of squares of block i of x (block elements each, the last may be short), in double; ret is
     * host memory, and there when this returns. */
    int (*sum_squares)(struct kern_stream *s, const float *x, size_t n, size_t block, double *ret, struct merr *err);

    /* NULL: nothing is recorded here. See kern_recorded(). */
    int (*recorded)(struct kern_stream *s, const struct kern_key *key, kern_calls calls, void *arg, struct merr *err);
    void (*recordings)(const struct kern_stream *s, struct kern_recordings *ret);
    /* NULL: attention has but one way here. */
    void (*attention_ways)(const struct kern_stream *s, struct kern_attention_ways *ret);
};

/* calls(arg), which queues calls of the table; or, where the table records them and has seen the key before, all that
 * they queued then, at once and without them. The bits are the same. The key says everything that calls depend on but
 * what these host arrays hold, which are read again at the addresses that calls named: tokens, targets, positions,
 * samples, and the step of adamw. calls does nothing that matters but to queue: it may run again after it failed. With
 * calls among them that wait, allocate, copy from or to the host, or make an embedding's backward, nothing is recorded.
 * mem_free ends all recordings of its stream. Not within one another. */
int kern_recorded(const struct kern_ops *k, struct kern_stream *s, const struct kern_key *key, kern_calls calls,
                  void *arg, struct merr *err);

/* The plain C twin: one thread, no library, the oracle of the others and the port to any processor. */
const struct kern_ops *kern_plain(void);

/* oneDNN for matrix products, fused vector loops for the rest, on cfg.threads threads. */
const struct kern_ops *kern_cpu(void);

/* The table of a name: "cpu", "plain", "cuda" (loaded when it is first asked for; its stream_new tells whether there is
 * a GPU), or "auto": the CPU's, wherever this runs. 0, or
 *
 *   -EINVAL  there is no such table
 *   -ENOENT  this installation has no code for GPUs; -EIO: what it has cannot be loaded
 */
int kern_find(const char *name, const struct kern_ops **ret, struct merr *err);

#endif
