/* The wall clock is set: what is measured with it goes along, and jobs and nodes notice nothing. */
#include "tests/unit/server/control/scene.h"

#define DAY (86400 * SECOND)

static void a_clock_that_is_set_changes_no_wait_and_no_silence(void **state)
{
    static const int64_t steps[] = {DAY, -DAY, 3600 * SECOND, -2 * SECOND};
    struct scene *s = *state;
    uint64_t runs, waits;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    runs = scene_submit(s, "command: {argv: [x]}\n");
    waits = scene_submit(s, "command: {argv: [x]}\n");
    scene_report_all(s, runs, "running", 0);
    for (size_t i = 0; i < COUNT(steps); i++) {
        int64_t waited = s->core->now.wall_us - scene_entry(s, waits)->job.waiting_us;
        int64_t silent = s->core->now.wall_us - s->core->cluster.nodes[0]->seen_wall_us;

        s->clock.wall_us += steps[i];
        scene_turn(s);
        waited = s->core->now.wall_us - scene_entry(s, waits)->job.waiting_us - waited;
        silent = s->core->now.wall_us - s->core->cluster.nodes[0]->seen_wall_us - silent;
        if (waited < 0 || waited > SECOND || silent < 0 || silent > SECOND)
            fail_msg("set by %lld s: waits %lld us longer, silent %lld us longer", (long long)(steps[i] / SECOND),
                     (long long)waited, (long long)silent);
        assert_int_equal(scene_entry(s, runs)->job.state, JOB_RUNNING);
        assert_int_equal(s->core->cluster.nodes[0]->contact, NODE_READY);
    }
}

static void what_is_less_than_a_second_is_left_alone(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, "command: {argv: [x]}\n");
    int64_t since = scene_entry(s, job)->job.waiting_us;

    s->clock.wall_us += SECOND / 2;
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.waiting_us, since);
    s->clock.wall_us += SECOND; /* and adds up */
    scene_turn(s);
    assert_int_not_equal(scene_entry(s, job)->job.waiting_us, since);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_clock_that_is_set_changes_no_wait_and_no_silence, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(what_is_less_than_a_second_is_left_alone, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
