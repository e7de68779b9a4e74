#include "worker/engine/kernels/cpu/native.h"

#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 64 /* a training step has some twenty shapes of tiles, and as many at their edges */

/* The interface that makes products changed with version 3: there bf16 is widened instead. */
#if defined(__x86_64__) && DNNL_VERSION_MAJOR == 2

struct made {
    struct native_product key;
    uint64_t used; /* 0: free */
    dnnl_primitive_t product;
    dnnl_memory_t a, b, c;
};

struct native {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t clock;
    struct made made[KEPT];
};

bool native_here(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

int native_new(struct native **ret, struct merr *err)
{
    struct native *t = calloc(1, sizeof(*t));

    if (!t || dnnl_engine_create(&t->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags) != dnnl_success) {
        native_free(t);
        return merr_set(err, -ENOMEM, "no memory for oneDNN's products of bf16");
    }
    *ret = t;
    return 0;
}

static void forget(struct made *p)
{
    if (p->a)
        (void)dnnl_memory_destroy(p->a);
    if (p->b)
        (void)dnnl_memory_destroy(p->b);
    if (p->c)
        (void)dnnl_memory_destroy(p->c);
    if (p->product)
        (void)dnnl_primitive_destroy(p->product);
    *p = (struct made){.used = 0};
}

void native_free(struct native *t)
{
    int saved = errno;

    for (int i = 0; t && i < KEPT; i++)
        forget(&t->made[i]);
    if (t && t->stream)
        (void)dnnl_stream_destroy(t->stream);
    if (t && t->engine)
        (void)dnnl_engine_destroy(t->engine);
    free(t);
    errno = saved;
}

static int code_of(dnnl_status_t st)
{
    return st == dnnl_success ? 0 : st == dnnl_out_of_memory ? -ENOMEM : st == dnnl_unimplemented ? -ENOTSUP : -EIO;
}

/* A matrix [rows, cols], or stored [cols, rows]. */
static dnnl_status_t describe(dnnl_memory_desc_t *ret, int rows, int cols, enum kern_type type, bool turned, int ld)
{
    const dnnl_dims_t dims = {rows, cols}, strides = {turned ? 1 : ld, turned ? ld : 1};

    return dnnl_memory_desc_init_by_strides(ret, 2, dims, type == KERN_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

static dnnl_status_t make_product(struct native *t, const struct native_product *p, const dnnl_memory_desc_t md[3],
                                  dnnl_primitive_t *ret)
{
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]);

    if (st == dnnl_success)
        st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success && p->accumulate)
        st = dnnl_post_ops_create(&sum);
    if (st == dnnl_success && p->accumulate)
        st = dnnl_post_ops_append_sum(sum, 1.0f);
    if (st == dnnl_success && p->accumulate)
        st = dnnl_primitive_attr_set_post_ops(attr, sum);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(&pd, &desc, attr, t->engine, NULL);
    if (st == dnnl_success)
        st = dnnl_primitive_create(ret, pd);
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_post_ops_destroy(sum);
    (void)dnnl_primitive_attr_destroy(attr);
    return st;
}

static int make(struct native *t, const struct native_product *p, struct made *ret)
{
    dnnl_memory_desc_t md[3];
    dnnl_status_t st = describe(&md[0], p->m, p->k, p->type, p->trans_a, p->lda);

    if (st == dnnl_success)
        st = describe(&md[1], p->k, p->n, p->type, p->trans_b, p->ldb);
    if (st == dnnl_success)
        st = describe(&md[2], p->m, p->n, KERN_F32, false, p->ldc);
    if (st == dnnl_success)
        st = make_product(t, p, md, &ret->product);
    if (st == dnnl_success)
        st = dnnl_memory_create(&ret->a, &md[0], t->engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success)
        st = dnnl_memory_create(&ret->b, &md[1], t->engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success)
        st = dnnl_memory_create(&ret->c, &md[2], t->engine, DNNL_MEMORY_NONE);
    if (st != dnnl_success)
        forget(ret);
    return code_of(st);
}

static bool same(const struct native_product *x, const struct native_product *y)
{
    return x->type == y->type && x->trans_a == y->trans_a && x->trans_b == y->trans_b &&
           x->accumulate == y->accumulate && x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda &&
           x->ldb == y->ldb && x->ldc == y->ldc;
}

static int find(struct native *t, const struct native_product *p, struct made **ret)
{
    struct made *oldest = &t->made[0];
    int rc;

    for (int i = 0; i < KEPT; i++) {
        if (t->made[i].used > 0 && same(&t->made[i].key, p)) {
            *ret = &t->made[i];
            return 0;
        }
        if (t->made[i].used < oldest->used)
            oldest = &t->made[i];
    }
    forget(oldest);
    rc = make(t, p, oldest);
    if (rc == 0)
        oldest->key = *p;
    *ret = oldest;
    return rc;
}

int native_run(struct native *t, const struct native_product *p, const void *a, const void *b, float *c)
{
    struct made *made;
    dnnl_status_t st;
    int rc = find(t, p, &made);

    if (rc < 0)
        return rc;
    made->used = ++t->clock;

    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, made->a}, {DNNL_ARG_WEIGHTS, made->b}, {DNNL_ARG_DST, made->c}};

    st = dnnl_memory_set_data_handle(made->a, (void *)a);
    if (st == dnnl_success)
        st = dnnl_memory_set_data_handle(made->b, (void *)b);
    if (st == dnnl_success)
        st = dnnl_memory_set_data_handle(made->c, c);
    if (st == dnnl_success)
        st = dnnl_primitive_execute(made->product, t->stream, 3, args);
    if (st == dnnl_success)
        st = dnnl_stream_wait(t->stream);
    return code_of(st);
}

#else

bool native_here(void)
{
    return false;
}

int native_new(struct native **ret, struct merr *err)
{
    (void)ret;
    return merr_set(err, -ENOTSUP, "this build has no products of bf16");
}

void native_free(struct native *t)
{
    (void)t;
}

int native_run(struct native *t, const struct native_product *p, const void *a, const void *b, float *c)
{
    (void)t;
    (void)p;
    (void)a;
    (void)b;
    (void)c;
    return -ENOTSUP;
}

#endif
