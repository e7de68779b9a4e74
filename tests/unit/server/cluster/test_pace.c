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

static double speed(struct scene *s, uint32_t generation, double step_ms)
{
    return pace_learn(&s->pace, &s->job, generation, step_ms, 0).steps_per_s;
}

static void a_runs_first_line_says_nothing_and_the_others_how_fast_it_is(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aa");
    assert_true(speed(&s, 1, 1000) == 0);
    assert_true(speed(&s, 1, 100) == 10);
    assert_true(speed(&s, 1, 50) == 20);
}

static void lines_of_other_runs_or_without_a_time_say_nothing(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aa");
    s.pace.learned_generation = 1;
    assert_true(speed(&s, 0, 100) == 0 && speed(&s, 2, 100) == 0 && speed(&s, 1, 0) == 0 && speed(&s, 1, -1) == 0);
    s.job.live = false;
    assert_true(speed(&s, 1, 100) == 0);
}

static void of_mixed_or_slow_devices_nobody_can_say_whose_speed_it_is(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "ab");
    for (int i = 0; i < 3; i++)
        assert_true(speed(&s, 1, 100) == 0);
    begin(&s, "aa");
    s.pace.on_slow = true;
    for (int i = 0; i < 3; i++)
        assert_true(speed(&s, 1, 100) == 0);
}

static void what_a_change_costs_is_measured_to_the_first_step_after_it(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, "aa");
    s.pace.rescale_began_us = 1000000;
    assert_true(pace_learn(&s.pace, &s.job, 1, 100, 5000000).restart_s == 4);
    assert_int_equal(s.pace.restart_us, 4000000);
    assert_int_equal(s.pace.rescale_began_us, 0);
    s.job.generation = 2; /* one that was no change of devices */
    assert_true(pace_learn(&s.pace, &s.job, 2, 100, 9000000).restart_s == 0);
    assert_int_equal(s.pace.restart_us, 4000000);
    s.job.generation = 3;
    s.pace.rescale_began_us = 10000000;
    (void)pace_learn(&s.pace, &s.job, 3, 100, 24000000);
    assert_int_equal(s.pace.restart_us, 7000000); /* 0.7 x 4 s + 0.3 x 14 s */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_runs_first_line_says_nothing_and_the_others_how_fast_it_is),
        cmocka_unit_test(lines_of_other_runs_or_without_a_time_say_nothing),
        cmocka_unit_test(of_mixed_or_slow_devices_nobody_can_say_whose_speed_it_is),
        cmocka_unit_test(what_a_change_costs_is_measured_to_the_first_step_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
