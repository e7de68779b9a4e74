#include "tests/unit/test.h"

#include "scheduler/plan/split.h"

static void stages_cover_all_layers_and_the_dear_head_gets_fewer(void **state)
{
    static const double head[] = {0, 0.1, 1, 5.4, 100};

    (void)state;
    for (size_t h = 0; h < COUNT(head); h++)
        for (int pp = 1; pp <= 8; pp++)
            for (int layers = pp; layers <= 40; layers++) {
                struct plan_split split = {.layers = layers, .stages = pp, .head_cost = head[h]};
                int at = 0, begin, end, first = 0;

                for (int s = 0; s < pp; s++) {
                    plan_split_layers(&split, s, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end > begin);
                    first = s == 0 ? end - begin : first;
                    at = end;
                }
                assert_int_equal(at, layers);
                assert_true(end - begin <= first + 1);
            }
}

static void stages_get_the_layers_that_are_given(void **state)
{
    static const uint16_t given[] = {3, 1, 2};
    struct plan_split split = {.layers = 6, .stages = 3, .given = given, .head_cost = 100};
    int at = 0, begin, end;

    (void)state;
    for (int s = 0; s < 3; s++) {
        plan_split_layers(&split, s, &begin, &end);
        assert_int_equal(begin, at);
        assert_int_equal(end - begin, given[s]);
        at = end;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_cover_all_layers_and_the_dear_head_gets_fewer),
        cmocka_unit_test(stages_get_the_layers_that_are_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
