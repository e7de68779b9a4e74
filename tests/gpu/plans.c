/* Asks the real cuDNN, where it is, which plans it has for attention on a described GPU that need not be there: its
 * heuristics answer, nothing is compiled or run. A libcuda.so.1 that can do nothing must come first among the loader's
 * (fake_driver.c). One line a shape; exit status: 0, 1 when a shape is refused, 77 without the library. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/cuda_library.h"
#include "worker/engine/kernels/cuda/dnn_graph.h"

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(DNN_DO_POINTWISE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(DNN_DO_MATMUL, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(DNN_DO_REDUCTION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(DNN_DO_RESHAPE, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
SAME(DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(DNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(DNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(DNN_DEVICE, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
SAME(DNN_HEURISTIC, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(DNN_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(DNN_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(DNN_REDUCTION_MODE, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(DNN_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
SAME(DNN_HEURISTIC_MODE, CUDNN_TYPE_HEUR_MODE);
SAME(DNN_F64, CUDNN_TYPE_DOUBLE);
SAME(DNN_POINTER, CUDNN_TYPE_VOID_PTR);
SAME(DNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS);
SAME(DNN_HEURISTIC_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(DNN_HEURISTIC_DEVICE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(DNN_CONFIG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(DNN_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(DNN_PLAN_WORK, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(DNN_CONFIG_WORK, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
SAME(DNN_DO_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(DNN_GRAPH_OPERATIONS, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(DNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(DNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES);
SAME(DNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(DNN_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(DNN_TENSOR_RAGGED, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
SAME(DNN_PACK_WORK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(DNN_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(DNN_MATMUL_PADDING, CUDNN_ATTR_MATMUL_PADDING_VALUE);
SAME(DNN_DO_MATMUL_WHAT, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(DNN_DO_MATMUL_M, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
SAME(DNN_DO_MATMUL_K, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC);
SAME(DNN_REDUCTION_IN, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(DNN_DO_REDUCTION_WHAT, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(DNN_DO_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
SAME(DNN_DEVICE_JSON, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
SAME(DNN_BF16, CUDNN_DATA_BFLOAT16);
SAME(DNN_INT64, CUDNN_DATA_INT64);
SAME(DNN_BOOLEAN, CUDNN_DATA_BOOLEAN);
SAME(DNN_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
#endif

/* As an H200 tells of itself, in the words of the library. */
static const char h200[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"deviceVer\":900,\"driverVer\":13000,"
    "\"cudaDeviceId\":0,\"multiProcessorCount\":132,\"regsPerBlock\":65536,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"pciDeviceId\":0,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":150000000000,\"deviceName\":\"NVIDIA H200\"}";

enum { CHARACTERS = 24 };

/* 1: the library is there. */
static int load(struct dnn_api *f)
{
    struct merr err = {""};
    char where[PATH_MAX];
    void *library = cuda_library_open(cuda_library_dnn, where, &err);

    if (!library) {
        (void)printf("%s\n", err.text);
        return 0;
    }
#define X(type, name, args, symbol) *(void **)&f->name = dlsym(library, symbol);
    DNN_FUNCTIONS(X)
#undef X
    (void)printf("cuDNN %zu\n", f->version());
    return 1;
}

static void *describe(const struct dnn_api *f)
{
    void *d = NULL;

    if (f->make(DNN_DEVICE, &d) || f->set(d, DNN_DEVICE_JSON, CHARACTERS, sizeof(h200), h200) || f->finalize(d)) {
        (void)printf("the library does not take the description of a GPU\n");
        exit(1);
    }
    return d;
}

int main(void)
{
    static const struct dnn_shape shapes[] = {
        {.heads = 12, .kv_heads = 12, .dim = 64, .ld = 2304, .docs = 16, .rows = 1024},
        {.heads = 16, .kv_heads = 16, .dim = 64, .ld = 3072, .docs = 16, .rows = 1024},
        {.heads = 32, .kv_heads = 8, .dim = 64, .ld = 3072, .docs = 8, .rows = 1024},
        {.heads = 32, .kv_heads = 8, .dim = 128, .ld = 6144, .docs = 1, .rows = 4096},
        {.heads = 12, .kv_heads = 4, .dim = 96, .ld = 1920, .docs = 64, .rows = 512},
        {.heads = 2, .kv_heads = 1, .dim = 32, .ld = 128, .docs = 1, .rows = 128},
    };
    struct dnn_api f;
    int refused = 0;
    void *gpu;

    if (!load(&f))
        return 77;
    gpu = describe(&f);
    for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct dnn_shape s = shapes[i / 2];
        struct merr err = {""};
        struct dnn_plan plan = {.plan = NULL};
        int r;

        s.backward = (int)(i % 2);
        r = dnn_plan_new(&f, NULL, gpu, &s, (size_t)2 << 30, &plan, &err);
        refused += r < 0;
        (void)printf("%s %d documents of %d, %d/%d heads of %d: %zu MiB %s\n", s.backward ? "backward" : "forward",
                     s.docs, s.rows, s.heads, s.kv_heads, s.dim, plan.work_bytes >> 20, r < 0 ? err.text : "");
    }
    (void)f.unmake(gpu);
    return refused > 0;
}
