/* What ranks that stand still have told: kept apart from the report that told it. */
#include "server/control/stalls.h"

#include "tests/unit/test.h"

static void what_is_kept_outlives_its_report(void **state)
{
    struct report_group *group = calloc(1, sizeof(*group));
    int *steps = calloc(REPORT_STEP_NUMBERS, sizeof(*steps));
    struct report_rank told = {.rank = 1,
                               .step = 90,
                               .stall = {.idle_us = 6000000, .groups = group, .n_groups = 1},
                               .steps = steps,
                               .n_steps = REPORT_STEP_NUMBERS};
    struct job_place places[2] = {{.node = "n1"}, {.node = "n2"}};
    struct stalls *stalls = NULL;
    struct incident_rank *list;

    (void)state;
    group->entered = 41;
    stalls_take(&stalls, 2, &told, 1);
    free(group);
    free(steps);
    list = stalls_list(stalls, places);
    assert_non_null(list);
    assert_string_equal(list[1].node, "n2");
    assert_int_equal(list[1].told.stall.groups[0].entered, 41);
    assert_null(list[1].told.steps); /* they were the report's */
    assert_int_equal(list[1].told.n_steps, 0);
    free(list);
    stalls_free(stalls);
}

static void a_stall_that_goes_on_is_counted_and_one_that_ends_is_forgotten(void **state)
{
    struct report_rank told = {.rank = 0, .stall = {.idle_us = 1000}};
    struct stalls *stalls = NULL;

    (void)state;
    for (unsigned i = 1; i <= 3; i++) {
        stalls_take(&stalls, 1, &told, i);
        assert_int_equal(stalls->of[0].times, i);
        told.stall.idle_us += 1000;
    }
    told.stall.idle_us = 500; /* another one */
    stalls_take(&stalls, 1, &told, 4);
    assert_int_equal(stalls->of[0].times, 1);
    told.stall.idle_us = 0;
    stalls_take(&stalls, 1, &told, 5);
    assert_int_equal(stalls->of[0].times, 0);
    stalls_free(stalls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_outlives_its_report),
        cmocka_unit_test(a_stall_that_goes_on_is_counted_and_one_that_ends_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
