#include "tests/unit/test.h"

#include <stdint.h>
#include <string.h>

#include "server/cluster/job_time.h"

#define S INT64_C(1000000)

static void limits_count_the_time_in_which_a_run_was_live(void **state)
{
    static const struct {
        struct job j;
        int64_t now_us, ran_us, left_us, ends_us;
    } row[] = {
        {{.state = JOB_QUEUED}, 50 * S, 0, INT64_MAX, 0},
        {{.state = JOB_QUEUED, .time_s = 60, .ran_us = 20 * S}, 50 * S, 20 * S, 40 * S, 0},
        {{.state = JOB_RUNNING, .live = true, .time_s = 60, .ran_us = 20 * S, .changed_us = 45 * S},
         50 * S,
         25 * S,
         35 * S,
         85 * S},
        {{.state = JOB_RUNNING, .live = true, .ran_us = 20 * S, .changed_us = 45 * S}, 50 * S, 25 * S, INT64_MAX, 0},
        {{.state = JOB_RUNNING, .live = true, .time_s = 1, .changed_us = 45 * S}, 50 * S, 5 * S, -4 * S, 46 * S},
        /* a clock that was set back takes no time away */
        {{.state = JOB_RUNNING, .live = true, .time_s = 60, .ran_us = 20 * S, .changed_us = 45 * S},
         5 * S,
         20 * S,
         40 * S,
         85 * S},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        if (job_time_ran_us(&row[i].j, row[i].now_us) != row[i].ran_us ||
            job_time_left_us(&row[i].j, row[i].now_us) != row[i].left_us ||
            job_time_ends_us(&row[i].j) != row[i].ends_us)
            fail_msg("row %zu", i);
    }
}

static void the_time_in_the_queue_is_of_jobs_that_could_start_and_never_have(void **state)
{
    struct job j = {.state = JOB_QUEUED, .queue_s = 60, .waiting_us = 10 * S};

    (void)state;
    assert_int_equal(job_time_queue_left_us(&j, 30 * S), 40 * S);
    assert_int_equal(job_time_queue_left_us(&j, 90 * S), -20 * S);
    assert_int_equal(job_time_queue_left_us(&j, 5 * S), 60 * S); /* the clock was set back */
    j.generation = 1;
    assert_int_equal(job_time_queue_left_us(&j, 90 * S), INT64_MAX);
    j.generation = 0;
    j.state = JOB_RUNNING;
    assert_int_equal(job_time_queue_left_us(&j, 90 * S), INT64_MAX);
    j.state = JOB_QUEUED;
    j.queue_s = 0;
    assert_int_equal(job_time_queue_left_us(&j, 90 * S), INT64_MAX);
}

static void only_its_time_limit_takes_a_job_out_of_time(void **state)
{
    struct job j = {.state = JOB_FAILED};

    (void)state;
    assert_false(job_time_is_out(&j));
    memcpy(j.reason_code, "time-limit", sizeof("time-limit"));
    assert_true(job_time_is_out(&j));
    j.state = JOB_CANCELLED;
    assert_false(job_time_is_out(&j));
}

static void a_shift_moves_the_moments_that_there_are(void **state)
{
    struct job j = {.waiting_us = 5, .changed_us = 6};

    (void)state;
    job_time_shift(&j, 100);
    assert_int_equal(j.waiting_us, 105);
    assert_int_equal(j.changed_us, 106);
    assert_int_equal(j.retry_us, 0);
    assert_int_equal(j.estimate.made_us, 0);
    assert_int_equal(j.estimate.start_us, 0);
    j.retry_us = 7;
    j.estimate.made_us = 8;
    j.estimate.start_us = 9;
    job_time_shift(&j, 100);
    assert_int_equal(j.retry_us, 107);
    assert_int_equal(j.estimate.made_us, 108);
    assert_int_equal(j.estimate.start_us, 109);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_count_the_time_in_which_a_run_was_live),
        cmocka_unit_test(the_time_in_the_queue_is_of_jobs_that_could_start_and_never_have),
        cmocka_unit_test(only_its_time_limit_takes_a_job_out_of_time),
        cmocka_unit_test(a_shift_moves_the_moments_that_there_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
