/* Where NVIDIA's libraries are looked for: a library of ours stands for one, in each of the places. */
#include "tests/unit/test.h"

#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compress/cuda_library.h"

#define NAME "libmuster-test-of-search.so"

static char folder[] = "/tmp/muster-test-search.XXXXXX";

/* A library that is there for certain, under our name in that folder of the test's. */
static void put(const char *in, const char *name)
{
    char path[512];
    Dl_info about;

    assert_int_not_equal(dladdr((void *)(uintptr_t)&cmocka_set_message_output, &about), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, in, name);
    for (char *slash = strchr(path + sizeof(folder), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    assert_int_equal(symlink(about.dli_fname, path), 0);
}

static void found(const char *const *names, const char *in)
{
    char where[PATH_MAX];
    struct merr err = {""};
    void *library = cuda_library_open(names, where, &err);

    assert_string_equal(err.text, "");
    assert_non_null(library);
    assert_non_null(strstr(where, in));
    (void)dlclose(library);
}

static void libraries_are_found_in_the_toolkit_and_among_pythons_packages(void **state)
{
    static const char *const names[] = {NAME ".13", NAME ".12", NULL};
    char value[256];
    struct merr err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)unsetenv("CUDA_HOME");
    assert_null(cuda_library_open(names, NULL, &err));
    assert_non_null(strstr(err.text, NAME ".13 or " NAME ".12 is not found: not by the loader, in $CUDA_HOME"));
    put("venv/lib/python3.11/site-packages/nvidia/cublas/lib", NAME ".12");
    (void)snprintf(value, sizeof(value), "%s/venv/bin/python3", folder);
    assert_int_equal(setenv("MUSTER_CUDA_PYTHON", value, 1), 0);
    found(names, "nvidia/cublas/lib/" NAME ".12");
    put("toolkit/targets/x86_64-linux/lib", NAME ".12");
    (void)snprintf(value, sizeof(value), "%s/toolkit", folder);
    assert_int_equal(setenv("CUDA_HOME", value, 1), 0);
    found(names, "toolkit/targets/x86_64-linux/lib/" NAME ".12");
    put("toolkit/lib64", NAME ".13"); /* the newer one comes first, wherever it is */
    found(names, "toolkit/lib64/" NAME ".13");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int clear(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libraries_are_found_in_the_toolkit_and_among_pythons_packages),
    };

    return cmocka_run_group_tests(tests, NULL, clear);
}
