/* What runs show of how fast a job is, line by line of their metrics. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "server/cluster/pace.h"

struct scene {
    struct job job;
    struct job_place places[4];
    struct pace pace;
};

/* A live run of generation 1 on devices of classes as the text has them, one letter a device. */
static void begin(struct scene *s, const char *classes)
{
    *s = (struct scene){.job = {.live = true, .generation = 1, .n_places = strlen(classes)}};
    s->job.places = s->places;
    for (size_t i = 0; i < s->job.n_places; i++)
        (void)snprintf(s->places[i].class_, sizeof(s->places[i].class_), "%c", classes[i]);
}

static void a_runs_first_line_says_nothing_and_the_others_are_smoothed(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aa");
    pace_learn(&s.pace, &s.job, 1, 1000, 0);
    assert_false(pace_measured(&s.pace));
    pace_learn(&s.pace, &s.job, 1, 100, 0);
    assert_int_equal(s.pace.n_speeds, 1);
    assert_int_equal(s.pace.speeds[0].devices, 2);
    assert_true(s.pace.speeds[0].steps_per_s == 10);
    pace_learn(&s.pace, &s.job, 1, 50, 0);
    assert_true(s.pace.speeds[0].steps_per_s > 10 && s.pace.speeds[0].steps_per_s < 20);
    for (int i = 0; i < 100; i++)
        pace_learn(&s.pace, &s.job, 1, 50, 0);
    assert_true(s.pace.speeds[0].steps_per_s > 19.9);
}

static void lines_of_other_runs_or_without_a_time_say_nothing(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aa");
    s.pace.learned_generation = 1;
    pace_learn(&s.pace, &s.job, 0, 100, 0);
    pace_learn(&s.pace, &s.job, 2, 100, 0);
    pace_learn(&s.pace, &s.job, 1, 0, 0);
    pace_learn(&s.pace, &s.job, 1, -1, 0);
    s.job.live = false;
    pace_learn(&s.pace, &s.job, 1, 100, 0);
    assert_false(pace_measured(&s.pace));
}

static void of_mixed_or_slow_devices_nobody_can_say_whose_speed_it_is(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "ab");
    for (int i = 0; i < 3; i++)
        pace_learn(&s.pace, &s.job, 1, 100, 0);
    assert_false(pace_measured(&s.pace));
    begin(&s, "aa");
    s.pace.on_slow = true;
    for (int i = 0; i < 3; i++)
        pace_learn(&s.pace, &s.job, 1, 100, 0);
    assert_false(pace_measured(&s.pace));
}

static void what_a_change_costs_is_measured_to_the_first_step_after_it(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aa");
    s.pace.rescale_began_us = 1000000;
    pace_learn(&s.pace, &s.job, 1, 100, 5000000);
    assert_int_equal(s.pace.restart_us, 4000000);
    assert_int_equal(s.pace.rescale_began_us, 0);
    s.job.generation = 2; /* one that was no change of devices */
    pace_learn(&s.pace, &s.job, 2, 100, 9000000);
    assert_int_equal(s.pace.restart_us, 4000000);
    s.job.generation = 3;
    s.pace.rescale_began_us = 10000000;
    pace_learn(&s.pace, &s.job, 3, 100, 24000000);
    assert_int_equal(s.pace.restart_us, 7000000); /* 0.7 x 4 s + 0.3 x 14 s */
}

static void each_count_of_a_class_has_its_speed_and_old_ones_make_room(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aaaa");
    for (uint32_t g = 1; g <= 2 * PACE_SPEEDS_MAX; g++) {
        s.job.generation = s.pace.learned_generation = g;
        s.pace.home_class = (uint8_t)g;
        pace_learn(&s.pace, &s.job, g, 100, 0);
        assert_int_equal(s.pace.n_speeds, g < PACE_SPEEDS_MAX ? g : PACE_SPEEDS_MAX);
    }
    s.job.n_places = 3;
    pace_forget(&s.pace, &s.job); /* of three devices nothing is known */
    assert_int_equal(s.pace.n_speeds, PACE_SPEEDS_MAX);
    s.job.n_places = 4;
    pace_forget(&s.pace, &s.job);
    assert_int_equal(s.pace.n_speeds, PACE_SPEEDS_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_runs_first_line_says_nothing_and_the_others_are_smoothed),
        cmocka_unit_test(lines_of_other_runs_or_without_a_time_say_nothing),
        cmocka_unit_test(of_mixed_or_slow_devices_nobody_can_say_whose_speed_it_is),
        cmocka_unit_test(what_a_change_costs_is_measured_to_the_first_step_after_it),
        cmocka_unit_test(each_count_of_a_class_has_its_speed_and_old_ones_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
