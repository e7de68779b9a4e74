#include "compress/cuda_backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "lib/muster/muster-cuda.so"

/* Where the library is: ../lib/muster beside the folder of the program. */
static int find(char *path, size_t size, struct merr *err)
{
    const char *named = getenv("MUSTER_CUDA_BACKEND");
    char exe[PATH_MAX];
    ssize_t n;
    int len;

    if (named) {
        len = snprintf(path, size, "%s", named);
        return len >= 0 && (size_t)len < size ? 0 : merr_set(err, -EIO, "MUSTER_CUDA_BACKEND is too long a path");
    }
    n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n < 0)
        return merr_errno(err, -EIO, "cannot tell where this program is");
    exe[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');

        if (slash)
            *slash = '\0';
    }
    len = snprintf(path, size, "%s/" FILE_NAME, exe);
    return len >= 0 && (size_t)len < size ? 0 : merr_set(err, -EIO, "the path of '" FILE_NAME "' is too long");
}

int cuda_backend_open(size_t kernels_bytes, const struct cuda_backend **ret, struct merr *err)
{
    const struct cuda_backend *b;
    char path[PATH_MAX + sizeof(FILE_NAME)];
    cuda_backend_fn fn;
    void *library;
    int r = find(path, sizeof(path), err);

    if (r)
        return r;
    if (access(path, F_OK) < 0)
        return merr_set(err, -ENOENT, "no code for GPUs here: there is no '%s'; build Muster where nvcc is found",
                        path);
    /* A kernel that is loaded when it is first started may wait for all that runs, and what runs may wait for another
     * GPU, where the same happens. */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    /* With fewer hardware queues than streams, what waits for another GPU may hold up what that one waits for. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return merr_set(err, -EIO, "cannot load the code for GPUs: %s", dlerror());
    fn = (cuda_backend_fn)dlsym(library, CUDA_BACKEND_SYMBOL);
    b = fn ? fn() : NULL;
    if (!b || b->version != CUDA_BACKEND_VERSION || b->codecs_bytes != sizeof(struct codec_cuda) ||
        b->device_bytes != sizeof(struct device_ops) || (kernels_bytes && b->kernels_bytes != kernels_bytes)) {
        (void)dlclose(library);
        return merr_set(err, -EIO, "'%s' is of another version of Muster; install both from one build", path);
    }
    *ret = b; /* the library stays: whoever asks again gets the same one */
    return 0;
}
