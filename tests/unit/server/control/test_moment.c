/* The two clocks of a turn. */
#include "tests/unit/test.h"

#include "server/control/moment.h"

static void a_deadline_is_the_same_moment_on_both_clocks(void **state)
{
    static const struct moment now = {.mono_us = 1000, .wall_us = 50000};
    static const struct {
        int64_t mono_us, wall_us;
    } table[] = {{0, 0}, {1000, 50000}, {1, 49001}, {2000, 51000}};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(moment_wall_of(&now, table[i].mono_us), table[i].wall_us);
        assert_int_equal(moment_mono_of(&now, table[i].wall_us), table[i].mono_us);
    }
    assert_int_equal(moment_mono_of(&now, 49000), 1); /* long past: still a deadline, and 0 would be none */
    assert_int_equal(moment_mono_of(&now, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_deadline_is_the_same_moment_on_both_clocks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
