/* cuBLASLt thinks in columns. A row-major matrix [r,c] with stride ld is its column-major [c,r] with the same stride,
 * so C = op(A)·op(B) is asked for as C' = op(B)'·op(A)': B comes first, m and n change places, and what is transposed
 * stays so. A bias of n columns is then one of n rows, which is what it offers. */
#include "worker/engine/kernels/cuda/lt.h"

#include <assert.h>
#include <cublasLt.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compress/cuda/backend_parts.h"
#include "compress/cuda_library.h"

#ifdef CUBLASLT_LIBRARY /* of tests */
static const char *const names[] = {CUBLASLT_LIBRARY, NULL};
#else
#define names cuda_library_blas /* of either major version: what is called here is the same */
#endif

#define WORK_BYTES ((size_t)32 << 20)
#define PLANS_MAX 512 /* shapes that are kept; the oldest goes */
#define ALIGN_MAX 256

/* Every function that is called, of the type its header gives it. */
#define FUNCTIONS(X)                                                                                                   \
    X(cublasLtCreate)                                                                                                  \
    X(cublasLtDestroy)                                                                                                 \
    X(cublasLtGetStatusString)                                                                                         \
    X(cublasLtMatmul)                                                                                                  \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulDescCreate)                                                                                        \
    X(cublasLtMatmulDescDestroy)                                                                                       \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatmulPreferenceCreate)                                                                                  \
    X(cublasLtMatmulPreferenceDestroy)                                                                                 \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    X(cublasLtMatrixLayoutCreate)                                                                                      \
    X(cublasLtMatrixLayoutDestroy)

struct functions {
#define X(name) __typeof__(&(name)) name;
    FUNCTIONS(X)
#undef X
};

struct shape { /* all that a plan depends on; compared as bytes, so it is filled with zeros first */
    int32_t trans_a, trans_b, m, n, k, lda, ldb, ldc, type, c_type, accumulate, bias, onto;
    uint32_t align_a, align_b, align_c, align_bias, align_onto; /* align_onto: of what is added */
};

struct plan {
    struct shape shape;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t first, second, result; /* B, A, C */
    cublasLtMatmulAlgo_t algo;
    bool absent; /* the library has no way */
};

struct lt {
    void *library;
    struct functions f;
    cublasLtHandle_t handle;
    void *work;
    struct plan plan[PLANS_MAX];
    int plans, next; /* next: the one to go when all are taken */
};

static int failed(const struct lt *t, cublasStatus_t status, const char *what, struct merr *err)
{
    return merr_set(err, status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO, "%s: %s", what,
                    t->f.cublasLtGetStatusString(status));
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static int load(struct lt *t, struct merr *err)
{
    char where[PATH_MAX];

    t->library = cuda_library_open(names, where, err);
    if (!t->library)
        return merr_prefix(err, -ENOENT, "matrix products on a GPU take cuBLASLt");
#define X(name)                                                                                                        \
    *(void **)&t->f.name = dlsym(t->library, #name);                                                                   \
    if (!t->f.name)                                                                                                    \
        return merr_set(err, -EIO, "'%s' has no " #name "; it is of another version", where);
    FUNCTIONS(X)
#undef X
    return 0;
}

int lt_new(struct lt **ret, struct merr *err)
{
    struct lt *t = calloc(1, sizeof(*t));
    cublasStatus_t status;
    cudaError_t e;
    int r;

    if (!t)
        return merr_set(err, -ENOMEM, "no memory for matrix products");
    r = load(t, err);
    if (r == 0) {
        status = t->f.cublasLtCreate(&t->handle);
        r = status == CUBLAS_STATUS_SUCCESS ? 0 : failed(t, status, "cannot start cuBLASLt", err);
    }
    if (r == 0) {
        e = cudaMalloc(&t->work, WORK_BYTES);
        r = e == cudaSuccess ? 0 : cuda_failed(err, (int)e, "no workspace for matrix products");
    }
    if (r) {
        lt_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

static void plan_clear(const struct lt *t, struct plan *p)
{
    if (p->op)
        (void)t->f.cublasLtMatmulDescDestroy(p->op);
    if (p->first)
        (void)t->f.cublasLtMatrixLayoutDestroy(p->first);
    if (p->second)
        (void)t->f.cublasLtMatrixLayoutDestroy(p->second);
    if (p->result)
        (void)t->f.cublasLtMatrixLayoutDestroy(p->result);
    memset(p, 0, sizeof(*p));
}

void lt_free(struct lt *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->plans; i++)
        plan_clear(t, &t->plan[i]);
    (void)cudaFree(t->work);
    if (t->handle)
        (void)t->f.cublasLtDestroy(t->handle);
    if (t->library)
        (void)dlclose(t->library);
    free(t);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static uint32_t alignment(const void *p)
{
    uint32_t a = ALIGN_MAX;

    while ((uintptr_t)p % a)
        a /= 2;
    return a;
}

static struct shape shape_of(const struct kern_gemm *g, const void *bias)
{
    struct shape s;

    memset(&s, 0, sizeof(s));
    s.trans_a = g->trans_a;
    s.trans_b = g->trans_b;
    s.m = g->m;
    s.n = g->n;
    s.k = g->k;
    s.lda = g->lda;
    s.ldb = g->ldb;
    s.ldc = g->ldc;
    s.type = g->type;
    s.c_type = g->c_type;
    s.accumulate = g->accumulate;
    s.bias = bias != NULL;
    s.align_a = alignment(g->a);
    s.align_b = alignment(g->b);
    s.align_c = alignment(g->c);
    s.onto = g->onto != NULL;
    s.align_onto = alignment(g->onto ? (const void *)g->onto : g->c);
    s.align_bias = s.bias ? alignment(bias) : ALIGN_MAX;
    return s;
}

static cudaDataType_t type_of(int type)
{
    return type == KERN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t describe(const struct lt *t, struct plan *p)
{
    const struct shape *s = &p->shape;
    const cublasOperation_t first = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t e = t->f.cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    if (e == CUBLAS_STATUS_SUCCESS && s->bias)
        e = t->f.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof(bias));
    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatrixLayoutCreate(&p->first, type_of(s->type), (uint64_t)(s->trans_b ? s->k : s->n),
                                            (uint64_t)(s->trans_b ? s->n : s->k), s->ldb);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatrixLayoutCreate(&p->second, type_of(s->type), (uint64_t)(s->trans_a ? s->m : s->k),
                                            (uint64_t)(s->trans_a ? s->k : s->m), s->lda);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatrixLayoutCreate(&p->result, type_of(s->c_type), (uint64_t)s->n, (uint64_t)s->m, s->ldc);
    return e;
}

/* The algorithm that the library thinks best for a shape; it looks at the bias's address too. Parts of a sum that is
 * cut along k are added up in f32, never in the type of a bf16 result. */
static cublasStatus_t choose(const struct lt *t, struct plan *p)
{
    const struct shape *s = &p->shape;
    const size_t work = WORK_BYTES;
    const uint32_t parts =
        s->c_type == KERN_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } wish[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof(work)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &parts, sizeof(parts)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &s->align_b, sizeof(s->align_b)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &s->align_a, sizeof(s->align_a)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &s->align_onto, sizeof(s->align_onto)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &s->align_c, sizeof(s->align_c)},
    };
    cublasLtMatmulHeuristicResult_t best;
    cublasLtMatmulPreference_t pref = NULL;
    cublasStatus_t e = t->f.cublasLtMatmulPreferenceCreate(&pref);
    int n = 0;

    for (size_t i = 0; i < sizeof(wish) / sizeof(wish[0]) && e == CUBLAS_STATUS_SUCCESS; i++)
        e = t->f.cublasLtMatmulPreferenceSetAttribute(pref, wish[i].what, wish[i].value, wish[i].bytes);
    memset(&best, 0, sizeof(best));
    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatmulAlgoGetHeuristic(t->handle, p->op, p->first, p->second, p->result, p->result, pref, 1,
                                                &best, &n);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = n > 0 ? best.state : CUBLAS_STATUS_NOT_SUPPORTED;
    p->algo = best.algo;
    if (pref)
        (void)t->f.cublasLtMatmulPreferenceDestroy(pref);
    return e;
}

static cublasStatus_t set_bias(const struct lt *t, const struct plan *p, const void *bias)
{
    return t->f.cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
}

static int no_way(const struct shape *s, struct merr *err)
{
    return merr_set(err, -ENOTSUP, "cuBLASLt has no way for a product of %dx%dx%d numbers%s", s->m, s->n, s->k,
                    s->bias ? " with a bias" : "");
}

static int plan_for(struct lt *t, const struct shape *s, const void *bias, struct plan **ret, struct merr *err)
{
    struct plan fresh;
    cublasStatus_t e;
    int at = t->plans < PLANS_MAX ? t->plans : t->next;

    for (int i = 0; i < t->plans; i++)
        if (memcmp(&t->plan[i].shape, s, sizeof(*s)) == 0) {
            *ret = &t->plan[i];
            return t->plan[i].absent ? no_way(s, err) : 0;
        }
    memset(&fresh, 0, sizeof(fresh));
    fresh.shape = *s;
    e = describe(t, &fresh);
    if (e == CUBLAS_STATUS_SUCCESS && s->bias)
        e = set_bias(t, &fresh, bias);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = choose(t, &fresh);
    fresh.absent = e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE;
    if (e != CUBLAS_STATUS_SUCCESS && !fresh.absent) {
        plan_clear(t, &fresh);
        return failed(t, e, "cuBLASLt cannot plan a matrix product", err);
    }
    if (at < t->plans) {
        plan_clear(t, &t->plan[at]);
        t->next = (t->next + 1) % PLANS_MAX;
    } else {
        t->plans++;
    }
    t->plan[at] = fresh;
    *ret = &t->plan[at];
    return fresh.absent ? no_way(s, err) : 0;
}

int lt_gemm(struct lt *t, void *queue, const struct kern_gemm *g, const void *bias, struct merr *err)
{
    const struct shape s = shape_of(g, bias);
    const float one = 1, add = g->accumulate || g->onto ? 1 : 0;
    const void *added = g->onto ? (const void *)g->onto : g->c;
    struct plan *p = NULL;
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
    int r = plan_for(t, &s, bias, &p, err);

    assert(g->m > 0 && g->n > 0 && g->k > 0);
    assert(!bias || !g->accumulate);
    if (r)
        return r;
    if (s.bias)
        e = set_bias(t, p, bias);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = t->f.cublasLtMatmul(t->handle, p->op, &one, g->b, p->first, g->a, p->second, &add, added, p->result, g->c,
                                p->result, &p->algo, t->work, WORK_BYTES, queue);
    return e == CUBLAS_STATUS_SUCCESS ? 0 : failed(t, e, "a matrix product on the GPU failed", err);
}
