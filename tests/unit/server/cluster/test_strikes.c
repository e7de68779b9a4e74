#include "tests/unit/test.h"

#include "server/cluster/strikes.h"

#define MINUTE (INT64_C(60) * 1000000)

static void failures_of_several_users_make_a_node_suspected(void **state)
{
    struct strikes s = {.n = 0};

    (void)state;
    assert_false(strikes_add(&s, "ann", 10 * MINUTE));
    assert_false(strikes_add(&s, "bob", 20 * MINUTE));
    assert_true(strikes_add(&s, "ann", 30 * MINUTE));
    assert_true(strikes_add(&s, "ann", 40 * MINUTE));
}

static void one_users_failures_do_not(void **state)
{
    struct strikes s = {.n = 0};

    (void)state;
    for (int i = 1; i < 3 * STRIKES_KEPT; i++)
        assert_false(strikes_add(&s, "ann", i * 2 * MINUTE));
    assert_true(strikes_add(&s, "bob", 3 * STRIKES_KEPT * 2 * MINUTE));
}

static void failures_at_one_time_are_one_incident(void **state)
{
    struct strikes s = {.n = 0};

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_false(strikes_add(&s, i % 2 ? "ann" : "bob", 10 * MINUTE + i * 1000));
    assert_int_equal(s.n, 1);
}

static void failures_of_long_ago_are_forgotten(void **state)
{
    struct strikes s = {.n = 0};

    (void)state;
    assert_false(strikes_add(&s, "ann", 10 * MINUTE));
    assert_false(strikes_add(&s, "bob", 20 * MINUTE));
    assert_false(strikes_add(&s, "ann", 21 * MINUTE + STRIKES_WINDOW_US));
    assert_int_equal(s.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_of_several_users_make_a_node_suspected),
        cmocka_unit_test(one_users_failures_do_not),
        cmocka_unit_test(failures_at_one_time_are_one_incident),
        cmocka_unit_test(failures_of_long_ago_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
