/* Memory of the kernel tables on the processor. That it comes zeroed and aligned: test_kernels.c. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/engine/kernels/host.h"

static size_t resident_pages(void *p, size_t bytes)
{
    static unsigned char there[(64 << 20) / 4096];
    size_t n = 0;

    assert_int_equal(mincore(p, bytes, there), 0);
    for (size_t i = 0; i < bytes / 4096; i++)
        n += there[i] & 1;
    return n;
}

static void large_memory_takes_its_pages_when_it_is_written(void **state)
{
    enum { BYTES = 64 << 20, PAGE = 4096 };
    void *p;

    (void)state;
    assert_int_equal(sysconf(_SC_PAGESIZE), PAGE);
    assert_int_equal(host_alloc(BYTES, &p, NULL), 0);
    assert_int_equal((uintptr_t)p % PAGE, 0);
    assert_true(resident_pages(p, BYTES) < BYTES / PAGE / 8);
    host_free(p);
}

static void populated_memory_has_its_pages_and_keeps_its_bytes(void **state)
{
    enum { BYTES = 8 << 20, PAGE = 4096 };
    struct merr err;
    char *p;
    void *v;

    (void)state;
    assert_int_equal(host_alloc(BYTES, &v, &err), 0);
    p = v;
    p[BYTES / 2] = 7;
    host_populate(p, 0);
    host_populate(p + 1, BYTES - 1);
    assert_int_equal(p[BYTES / 2], 7);
    assert_int_equal(p[0], 0);
    assert_int_equal(resident_pages(p, BYTES), BYTES / PAGE);
    host_free(p);
}

static void more_than_there_is_names_the_bytes_and_leaves_the_result(void **state)
{
    struct merr err = {""};
    void *p = NULL;

    (void)state;
    assert_int_equal(host_alloc(SIZE_MAX - 1, &p, &err), -ENOMEM);
    assert_non_null(strstr(err.text, "bytes of tensors"));
    assert_null(p);
    host_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_memory_takes_its_pages_when_it_is_written),
        cmocka_unit_test(populated_memory_has_its_pages_and_keeps_its_bytes),
        cmocka_unit_test(more_than_there_is_names_the_bytes_and_leaves_the_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
