/* When a process on a GPU is of no job here, and when it only seems so. */
#include "tests/unit/test.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "worker/agent/strangers.h"

#define S INT64_C(1000000)

static struct nvml_sample sample(int64_t taken_us, pid_t pid)
{
    return (struct nvml_sample){.taken_us = taken_us, .n_processes = pid != 0, .process = {pid}};
}

static pid_t find(struct strangers *v, bool in_use, int64_t taken_us, pid_t pid, int64_t now_us)
{
    struct nvml_sample s = sample(taken_us, pid);

    return strangers_find(v, &s, in_use, 0, now_us);
}

static void a_stranger_is_one_that_two_samples_show(void **state)
{
    struct strangers v = {.in_use = false};

    (void)state;
    assert_int_equal(find(&v, false, 1 * S, 4711, 1 * S), 0);
    assert_int_equal(find(&v, false, 1 * S, 4711, 2 * S), 0); /* the same sample */
    assert_int_equal(find(&v, false, 2 * S, 4711, 2 * S), 4711);
    assert_int_equal(find(&v, false, 3 * S, 4711, 3 * S), 4711);
    assert_int_equal(find(&v, false, 4 * S, 0, 4 * S), 0);
    assert_int_equal(find(&v, false, 5 * S, 4711, 5 * S), 0);
}

static void a_rank_that_has_just_ended_is_none(void **state)
{
    struct strangers v = {.in_use = false};

    (void)state;
    assert_int_equal(find(&v, true, 0, 0, 1 * S), 0);
    assert_int_equal(find(&v, false, 1 * S, 77, 2 * S), 0); /* taken while the rank ran */
    assert_int_equal(find(&v, false, 1 * S, 77, 3 * S), 0);
    assert_int_equal(find(&v, false, 3 * S, 77, 3 * S), 0); /* the driver still lists it */
    assert_int_equal(find(&v, false, 4 * S, 0, 4 * S), 0);
}

static void a_ranks_child_has_some_seconds_to_end(void **state)
{
    struct strangers v = {.in_use = false};

    (void)state;
    assert_int_equal(find(&v, true, 1 * S, 77, 1 * S), 0);
    for (int i = 2; i < 7; i++)
        assert_int_equal(find(&v, false, i * S, 77, i * S), 0);
    assert_int_equal(find(&v, false, 8 * S, 77, 8 * S), 0);
    assert_int_equal(find(&v, false, 9 * S, 77, 9 * S), 77);
}

static void a_program_that_waits_for_its_rank_and_the_server_of_mps_are_none(void **state)
{
    struct strangers v = {.in_use = false};
    struct nvml_sample s = sample(1 * S, 5);

    (void)state;
    assert_int_equal(strangers_find(&v, &s, false, 1, 1 * S), 0);
    s.taken_us = 2 * S;
    assert_int_equal(strangers_find(&v, &s, false, 1, 2 * S), 0);
    assert_int_equal(prctl(PR_SET_NAME, "nvidia-cuda-mps-server"), 0);
    for (int i = 3; i < 6; i++)
        assert_int_equal(find(&v, false, i * S, getpid(), i * S), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_is_one_that_two_samples_show),
        cmocka_unit_test(a_rank_that_has_just_ended_is_none),
        cmocka_unit_test(a_ranks_child_has_some_seconds_to_end),
        cmocka_unit_test(a_program_that_waits_for_its_rank_and_the_server_of_mps_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
