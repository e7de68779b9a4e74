/* As much of cuBLASLt as Muster calls, by its published interface: column-major products computed in f32's sums one by
 * one, so that what is asked for can be compared with what was meant. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"

struct op {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

/* tests/gpu/emulate.cc */
void emulate_queue(void *stream, void (*fn)(const void *), const void *data, size_t bytes);

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "a failure";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
    struct op *op = calloc(1, sizeof(*op));

    if (!op || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    op->a = op->b = CUBLAS_OP_N;
    op->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *d = (cublasLtMatmulDesc_t)op;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    struct op *op = (struct op *)d;

    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        memcpy(&op->a, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        memcpy(&op->b, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        memcpy(&op->epilogue, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        memcpy(&op->bias, value, bytes);
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type, uint64_t rows, uint64_t cols,
                                          int64_t ld)
{
    struct layout *y = malloc(sizeof(*y));

    if (!y || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *y = (struct layout){type, rows, cols, ld};
    *l = (cublasLtMatrixLayout_t)y;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void *value,
                                                    size_t bytes)
{
    (void)value;
    return p && bytes == (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4) ? CUBLAS_STATUS_SUCCESS
                                                                                    : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t result, cublasLtMatmulPreference_t p, int n,
                                              cublasLtMatmulHeuristicResult_t *ret, int *ret_n)
{
    const struct op *op = (const struct op *)d;
    const struct layout *x = (const struct layout *)result;

    memset(ret, 0, sizeof(*ret));
    *ret_n = 1;
    if (op->epilogue == CUBLASLT_EPILOGUE_BIAS && getenv("FAKE_LT_NO_BIAS"))
        *ret_n = 0;
    (void)x;
    return h && a && b && c && p && n == 1 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static float element(const struct layout *l, const void *p, uint64_t row, uint64_t col)
{
    uint64_t at = col * (uint64_t)l->ld + row;

    return l->type == CUDA_R_16BF ? bf16_to_float(((const uint16_t *)p)[at]) : ((const float *)p)[at];
}

struct product { /* as it was asked for: what describes it may change until it runs */
    struct op op;
    struct layout x, y, z;
    const void *a, *b, *c;
    void *d;
    float beta;
    uint64_t k;
};

static void multiply(const void *data)
{
    const struct product *p = data;
    const struct layout *z = &p->z;

    for (uint64_t col = 0; col < z->cols; col++)
        for (uint64_t row = 0; row < z->rows; row++) {
            uint64_t at = col * (uint64_t)z->ld + row;
            float sum = 0;

            for (uint64_t i = 0; i < p->k; i++)
                sum += (p->op.a == CUBLAS_OP_T ? element(&p->x, p->a, i, row) : element(&p->x, p->a, row, i)) *
                       (p->op.b == CUBLAS_OP_T ? element(&p->y, p->b, col, i) : element(&p->y, p->b, i, col));
            if (p->beta != 0)
                sum += p->beta * element(z, p->c, row, col);
            if (p->op.epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum += z->type == CUDA_R_16BF ? bf16_to_float(((const uint16_t *)p->op.bias)[row]) /* of D's type */
                                              : ((const float *)p->op.bias)[row];
            if (z->type == CUDA_R_16BF)
                ((uint16_t *)p->d)[at] = bf16_from_float(sum);
            else
                ((float *)p->d)[at] = sum;
        }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *result,
                              cublasLtMatrixLayout_t result_layout, const cublasLtMatmulAlgo_t *algo, void *work,
                              size_t work_bytes, cudaStream_t stream)
{
    const struct op *op = (const struct op *)d;
    const struct layout *x = (const struct layout *)a_layout, *y = (const struct layout *)b_layout;
    const struct layout *z = (const struct layout *)result_layout;
    uint64_t k = op->a == CUBLAS_OP_T ? x->rows : x->cols;
    const struct product p = {*op, *x, *y, *z, a, b, c, result, *(const float *)beta, k};

    if (!h || !algo || !work || work_bytes == 0 || !c || c_layout != result_layout || *(const float *)alpha != 1 ||
        (op->a == CUBLAS_OP_T ? x->cols : x->rows) != z->rows ||
        (op->b == CUBLAS_OP_T ? y->rows : y->cols) != z->cols || (op->b == CUBLAS_OP_T ? y->cols : y->rows) != k)
        return CUBLAS_STATUS_INVALID_VALUE;
    emulate_queue(stream, multiply, &p, sizeof(p));
    return CUBLAS_STATUS_SUCCESS;
}
