#include "worker/engine/train/gpu_check.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/merr.h"
#include "compress/cuda_library.h"
#include "worker/engine/kernels/kernels.h"

#define MIB ((uint64_t)1 << 20)

static size_t version_of(void *library, const char *function)
{
    void *f = dlsym(library, function);
    int version = 0;

    if (f && strcmp(function, "ncclGetVersion") == 0) /* the one that puts it into an argument */
        return ((int (*)(int *))f)(&version) == 0 ? (size_t)version : 0;
    return f ? ((size_t(*)(void))f)() : 0;
}

/* function: says its version. False: it is not there. */
static bool say_library(FILE *out, const char *what, const char *const *names, const char *function)
{
    char where[PATH_MAX];
    struct merr err;
    void *library = cuda_library_open(names, where, &err);

    if (!library) {
        (void)fprintf(out, "%-10s %s\n", what, err.text);
        return false;
    }
    (void)fprintf(out, "%-10s %zu, %s\n", what, version_of(library, function), where);
    (void)dlclose(library);
    return true;
}

static void say_device(FILE *out, const struct device_about *a)
{
    (void)fprintf(out, "%-10s CUDA %d.%d\n", "driver", a->driver / 1000, a->driver % 1000 / 10);
    (void)fprintf(out, "%-10s CUDA %d.%d\n", "built with", a->runtime / 1000, a->runtime % 1000 / 10);
    (void)fprintf(out, "%-10s %s, compute capability %d.%d\n", "GPU 0", a->name, a->major, a->minor);
    (void)fprintf(out, "%-10s %llu MiB free of %llu\n", "memory", (unsigned long long)(a->free / MIB),
                  (unsigned long long)(a->total / MIB));
    (void)fprintf(out, "%-10s %llu KiB for a block of threads\n", "shared", (unsigned long long)(a->shared >> 10));
    (void)fprintf(out, "%-10s %s\n", "managed",
                  a->managed ? "the host may touch memory while the GPU computes"
                             : "the host may not touch memory while the GPU computes: ranks must be alone");
}

int gpu_check(FILE *out)
{
    const struct kern_ops *k;
    struct device_about about;
    struct merr err;
    bool there;

    if (kern_find("cuda", &k, &err) < 0 || k->device->about(0, &about, &err) < 0) {
        (void)fprintf(out, "no training on a GPU here: %s\n", err.text);
        return GPU_CHECK_NONE;
    }
    say_device(out, &about);
    there = say_library(out, "cuBLASLt", cuda_library_blas, "cublasLtGetVersion");
    (void)say_library(out, "NCCL", cuda_library_nccl, "ncclGetVersion");
    (void)say_library(out, "cuDNN", cuda_library_dnn, "cudnnGetVersion");
    return there ? 0 : GPU_CHECK_NONE;
}
