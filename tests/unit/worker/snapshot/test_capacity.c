#include "tests/unit/test.h"

#include "worker/snapshot/capacity.h"

static void this_machine_has_memory(void **state)
{
    struct capacity here;

    (void)state;
    capacity_here(&here);
    assert_true(here.total >= here.free && here.free > 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_has_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
