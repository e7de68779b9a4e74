/* dnn_graph - attention as a graph of cuDNN's operations, and the plan that its heuristics make of it
 *
 * Forward is the product of queries and keys, scaled, masked, its softmax and the product with the values; backward
 * makes the probabilities again from the kept log-sum-exp. That is how the library's fused engines want it said; names,
 * numbers and layouts are those of the published backend interface of cuDNN 9. All sizes of a shape are upper bounds:
 * how long each document is, and where it begins, are arrays on the device (ragged offsets).
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_DNN_GRAPH_H
#define MUSTER_WORKER_KERNELS_CUDA_DNN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

/* Every function that is called: its type, our name for it, the library's. */
#define DNN_FUNCTIONS(X)                                                                                               \
    X(size_t, version, (void), "cudnnGetVersion")                                                                      \
    X(const char *, error, (int), "cudnnGetErrorString")                                                               \
    X(void, last_error, (char *, size_t), "cudnnGetLastErrorString")                                                   \
    X(int, create, (void **), "cudnnCreate")                                                                           \
    X(int, destroy, (void *), "cudnnDestroy")                                                                          \
    X(int, set_stream, (void *, void *), "cudnnSetStream")                                                             \
    X(int, make, (int, void **), "cudnnBackendCreateDescriptor")                                                       \
    X(int, unmake, (void *), "cudnnBackendDestroyDescriptor")                                                          \
    X(int, finalize, (void *), "cudnnBackendFinalize")                                                                 \
    X(int, set, (void *, int, int, int64_t, const void *), "cudnnBackendSetAttribute")                                 \
    X(int, get, (void *, int, int, int64_t, int64_t *, void *), "cudnnBackendGetAttribute")                            \
    X(int, execute, (void *, void *, void *), "cudnnBackendExecute")

struct dnn_api {
#define X(type, name, args, symbol) type(*name) args;
    DNN_FUNCTIONS(X)
#undef X
};

enum { DNN_SUCCESS = 0, DNN_NOT_SUPPORTED = 3000, DNN_INTERNAL_ERROR = 4000 };

enum dnn_kind { /* of descriptors */
                DNN_POINTWISE = 0,
                DNN_ENGINE = 2,
                DNN_CONFIG = 3,
                DNN_HEURISTIC = 4,
                DNN_PLAN = 5,
                DNN_DO_POINTWISE = 13,
                DNN_GRAPH = 15,
                DNN_PACK = 16,
                DNN_TENSOR = 17,
                DNN_MATMUL = 18,
                DNN_DO_MATMUL = 19,
                DNN_REDUCTION = 21,
                DNN_DO_REDUCTION = 22,
                DNN_DO_RESHAPE = 31,
                DNN_DEVICE = 38,
};

enum dnn_type { /* of attributes */
                DNN_HANDLE = 0,
                DNN_DATA = 1,
                DNN_BOOL = 2,
                DNN_I64 = 3,
                DNN_F64 = 5,
                DNN_POINTER = 6,
                DNN_HEURISTIC_MODE = 8,
                DNN_NOTE = 11,
                DNN_POINTWISE_MODE = 14,
                DNN_DESCRIPTOR = 15,
                DNN_REDUCTION_MODE = 18,
};

enum dnn_attribute {
    DNN_POINTWISE_DOES = 0,
    DNN_POINTWISE_IN = 1, /* the type that it computes in */
    DNN_POINTWISE_AXIS = 9,
    DNN_HEURISTIC_HOW = 200,
    DNN_HEURISTIC_GRAPH = 201,
    DNN_HEURISTIC_RESULTS = 202,
    DNN_HEURISTIC_DEVICE = 204,
    DNN_CONFIG_ENGINE = 300,
    DNN_CONFIG_WORK = 303,
    DNN_PLAN_HANDLE = 400,
    DNN_PLAN_CONFIG = 401,
    DNN_PLAN_WORK = 402,
    DNN_DO_POINTWISE_WHAT = 750,
    DNN_DO_POINTWISE_X = 751,
    DNN_DO_POINTWISE_B = 752,
    DNN_DO_POINTWISE_Y = 753,
    DNN_DO_POINTWISE_T = 758,
    DNN_GRAPH_HANDLE = 800,
    DNN_GRAPH_OPERATIONS = 801,
    DNN_TENSOR_ALIGNMENT = 900,
    DNN_TENSOR_TYPE = 901,
    DNN_TENSOR_SIZES = 902,
    DNN_TENSOR_STRIDES = 903,
    DNN_TENSOR_ID = 906,
    DNN_TENSOR_VIRTUAL = 907,
    DNN_TENSOR_BY_VALUE = 908,
    DNN_TENSOR_RAGGED = 913,
    DNN_PACK_IDS = 1000,
    DNN_PACK_POINTERS = 1001,
    DNN_PACK_WORK = 1003,
    DNN_ENGINE_NOTES = 1303,
    DNN_MATMUL_IN = 1500,
    DNN_MATMUL_PADDING = 1503,
    DNN_DO_MATMUL_A = 1520,
    DNN_DO_MATMUL_B = 1521,
    DNN_DO_MATMUL_C = 1522,
    DNN_DO_MATMUL_WHAT = 1523,
    DNN_DO_MATMUL_M = 1525,
    DNN_DO_MATMUL_N = 1526,
    DNN_DO_MATMUL_K = 1527,
    DNN_REDUCTION_DOES = 1600,
    DNN_REDUCTION_IN = 1601,
    DNN_DO_REDUCTION_X = 1610,
    DNN_DO_REDUCTION_Y = 1611,
    DNN_DO_REDUCTION_WHAT = 1612,
    DNN_DO_RESHAPE_X = 2200,
    DNN_DO_RESHAPE_Y = 2201,
    DNN_DEVICE_JSON = 2702,
};

enum { DNN_FLOAT = 0, DNN_INT32 = 4, DNN_BF16 = 9, DNN_INT64 = 10, DNN_BOOLEAN = 11 }; /* of numbers */
enum { DNN_NONDETERMINISTIC = 4, DNN_NOTES_MAX = 16 };                                 /* notes of an engine */

/* What is given to a plan that runs: tensors on the device, but for the first three, which the host gives by value. */
enum dnn_tensor {
    DNN_SCALE = 1, /* f32 */
    DNN_MASKED,    /* f32: minus infinity */
    DNN_ONE,       /* f32: backward only */
    DNN_Q,
    DNN_K,
    DNN_V,
    DNN_O,
    DNN_LSE,
    DNN_Q_LENGTHS, /* i32: rows of each document; 0 for those that are not there */
    DNN_K_LENGTHS,
    DNN_QKV_AT, /* i64, one more than documents: numbers before each one's first in q, k and v */
    DNN_O_AT,   /* in the output and its gradient */
    DNN_LSE_AT, /* in the log-sum-exp */
    DNN_DO,     /* backward only, all that follow */
    DNN_DQ,
    DNN_DK,
    DNN_DV,
    DNN_SUMS, /* f32, workspace: dnn_sums_bytes() */
    DNN_TENSORS
};

struct dnn_shape { /* all that a plan depends on; compared as bytes, so it is filled with zeros first */
    int32_t heads, kv_heads, dim, ld;
    int32_t docs, rows; /* at most; rows of one document */
    int32_t backward;
};

size_t dnn_sums_bytes(const struct dnn_shape *s);

struct dnn_plan {
    void *plan; /* NULL: none */
    size_t work_bytes;
};

/* The first engine that the heuristics name whose results are always the same and whose workspace is at most work_most.
 * handle: of the GPU that it shall run on; NULL: device describes one, and only the choice is made: the room is told,
 * and there is no plan. Returns 0; -ENOMEM; -ENOTSUP: the library has none, with its words; -EIO: it failed. */
int dnn_plan_new(const struct dnn_api *f, void *handle, void *device, const struct dnn_shape *s, size_t work_most,
                 struct dnn_plan *ret, struct merr *err);
void dnn_plan_clear(const struct dnn_api *f, struct dnn_plan *p);

#endif
