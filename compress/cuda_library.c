#include "compress/cuda_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOLKIT "{lib64,lib,targets/*/lib}"
#define PACKAGES "{lib,local/lib}/python3*/{site,dist}-packages/nvidia/*/lib"

const char *const cuda_library_blas[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
const char *const cuda_library_nccl[] = {"libnccl.so.2", NULL};
const char *const cuda_library_dnn[] = {"libcudnn.so.9", NULL};

/* From a folder that pattern matches. */
static void *open_in(const char *pattern, const char *name, char where[PATH_MAX])
{
    char path[PATH_MAX];
    void *library = NULL;
    glob_t found;

    if (snprintf(path, sizeof(path), "%s/%s", pattern, name) >= (int)sizeof(path) ||
        glob(path, GLOB_BRACE, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++) {
        library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            (void)snprintf(where, PATH_MAX, "%s", found.gl_pathv[i]);
    }
    globfree(&found);
    return library;
}

/* From the prefix of the Python at that path, PREFIX/bin/python3. */
static void *open_of_python(const char *python, const char *name, char where[PATH_MAX])
{
    char pattern[PATH_MAX];
    const char *bin = strrchr(python, '/');
    size_t n = bin ? (size_t)(bin - python) : 0;

    while (n > 0 && python[n - 1] != '/')
        n--;
    if (n == 0 || snprintf(pattern, sizeof(pattern), "%.*s" PACKAGES, (int)n, python) >= (int)sizeof(pattern))
        return NULL;
    return open_in(pattern, name, where);
}

static void *open_one(const char *name, char where[PATH_MAX])
{
    const char *home = getenv("CUDA_HOME"), *python = getenv("MUSTER_CUDA_PYTHON");
    char pattern[PATH_MAX];
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    if (library)
        (void)snprintf(where, PATH_MAX, "%s", name);
    if (!library && home && snprintf(pattern, sizeof(pattern), "%s/" TOOLKIT, home) < (int)sizeof(pattern))
        library = open_in(pattern, name, where);
    if (!library)
        library = open_in("/usr/local/cuda{,-*}/" TOOLKIT, name, where);
    return library || !python ? library : open_of_python(python, name, where);
}

void *cuda_library_open(const char *const *names, char where[PATH_MAX], struct merr *err)
{
    char all[256] = "", there[PATH_MAX] = "";
    size_t at = 0;

    for (int i = 0; names[i]; i++) {
        void *library = open_one(names[i], where ? where : there);

        if (library)
            return library;
        if (at < sizeof(all))
            at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s", i > 0 ? " or " : "", names[i]);
    }
    (void)merr_set(err, -ENOENT,
                   "%s is not found: not by the loader, in $CUDA_HOME, in /usr/local/cuda*, nor among the packages of "
                   "the Python that MUSTER_CUDA_PYTHON names",
                   all);
    return NULL;
}
