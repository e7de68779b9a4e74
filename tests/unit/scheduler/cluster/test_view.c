/* What the scheduler is shown of a job's work. */
#include "tests/unit/test.h"

#include <string.h>

#include "scheduler/cluster/view.h"

#define S INT64_C(1000000)

static struct rates_profile linear = {.points = {{{1, 1000000}}}, .n = {1}};

static struct sched_job job(int32_t min, int32_t max)
{
    return (struct sched_job){
        .id = 1, .submit_us = 0, .min = min, .max = max, .types = 1, .home = -1, .profile = &linear};
}

static void fairness_is_forecast_from_what_is_left_over_the_fair_time(void **state)
{
    struct view_cluster share = {.devices = 8, .jobs = 4}; /* two devices each: two steps a second */
    struct sched_job s = job(1, 8);

    (void)state;
    view_fill(&s, &(struct view_work){.steps_u = 1000 * S, .rated = true}, &share, 0);
    assert_int_equal(s.rho_milli, 1000);
    view_fill(&s, &(struct view_work){.steps_u = 1000 * S, .rated = true}, &share, 500 * S);
    assert_int_equal(s.rho_milli, 2000); /* it has waited as long as its work takes */
    view_fill(&s, &(struct view_work){.steps_u = 1000 * S, .done_u = 1000 * S, .rated = true}, &share, 250 * S);
    assert_int_equal(s.rho_milli, 500);
    assert_int_equal(s.remaining_us, 0);
    view_fill(&s, &(struct view_work){.steps_u = S, .rated = true}, &share, 50000 * S);
    assert_int_equal(s.rho_milli, 4000);
}

static void work_of_unknown_speed_is_not_known_and_weighs_by_its_wait(void **state)
{
    struct view_cluster share = {.devices = 8, .jobs = 4};
    struct sched_place place = {0, 1};
    struct sched_job s = job(1, 8);

    (void)state;
    view_fill(&s, &(struct view_work){.steps_u = 1000 * S}, &share, 300 * S);
    assert_int_equal(s.remaining_us, -1);
    assert_int_equal(s.rho_milli, 1500);
    assert_int_equal(s.restart_us, VIEW_RESTART_US);
    s.places = &place;
    s.n_places = 1;
    view_fill(&s, &(struct view_work){.steps_u = 1000 * S, .restart_s = 30}, &share, 300 * S);
    assert_int_equal(s.rho_milli, 1000);
    assert_int_equal(s.restart_us, 30 * S);
}

static void a_commands_work_is_what_others_of_its_kind_took_or_what_its_limit_leaves(void **state)
{
    struct view_cluster share = {.devices = 8, .jobs = 4};
    struct sched_job s = job(2, 2);

    (void)state;
    s.attained_us = 60 * S;
    view_fill(&s, &(struct view_work){.device_s = 100}, &share, 0);
    assert_int_equal(s.remaining_us, 40 * S); /* devices times seconds, at one a second on each */
    s.limit_us = 10 * S;
    view_fill(&s, &(struct view_work){.device_s = 0}, &share, 0);
    assert_int_equal(s.remaining_us, 20 * S);
    s.limit_us = 0;
    view_fill(&s, &(struct view_work){.device_s = 50}, &share, 0);
    assert_int_equal(s.remaining_us, -1); /* it has taken longer than others: nobody knows */
}

static void the_fair_share_of_a_gang_is_its_minimum_part_of_the_time(void **state)
{
    struct sched_job s = job(4, 4);

    (void)state;
    assert_true(view_share_rate(&s, 1) == 1e6);
    assert_true(view_share_rate(&s, 4) == 4e6);
    assert_true(view_share_rate(&s, 100) == 4e6);
    s.types = 2;
    assert_true(view_share_rate(&s, 4) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fairness_is_forecast_from_what_is_left_over_the_fair_time),
        cmocka_unit_test(work_of_unknown_speed_is_not_known_and_weighs_by_its_wait),
        cmocka_unit_test(a_commands_work_is_what_others_of_its_kind_took_or_what_its_limit_leaves),
        cmocka_unit_test(the_fair_share_of_a_gang_is_its_minimum_part_of_the_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
