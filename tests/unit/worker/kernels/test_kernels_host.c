/* Memory of the kernel tables on the processor. That it comes zeroed and aligned: test_kernels.c. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/engine/kernels/host.h"

static void large_memory_takes_its_pages_when_it_is_written(void **state)
{
    enum { BYTES = 64 << 20, PAGE = 4096 };
    static unsigned char there[BYTES / PAGE];
    size_t resident = 0;
    void *p;

    (void)state;
    assert_int_equal(sysconf(_SC_PAGESIZE), PAGE);
    assert_int_equal(host_alloc(BYTES, &p, NULL), 0);
    assert_int_equal((uintptr_t)p % PAGE, 0);
    assert_int_equal(mincore(p, BYTES, there), 0);
    for (size_t i = 0; i < sizeof(there); i++)
        resident += there[i] & 1;
    assert_true(resident < sizeof(there) / 8);
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
        cmocka_unit_test(more_than_there_is_names_the_bytes_and_leaves_the_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
