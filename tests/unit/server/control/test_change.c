/* Jobs change by their events alone: what follows when one cannot. */
#include "tests/unit/server/control/scene.h"

#include "server/cluster/slots.h"
#include "server/control/change.h"

/* The limit of a spec's devices keeps such a job out; here it is let in by hand. */
static void a_job_of_1025_ranks_whose_event_does_not_apply_fails_and_the_server_goes_on(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, "devices: {min: 1024, max: 1024}\ncommand: {argv: [x]}\n"), other;
    struct scene_answer a;
    char id[24], node[8];

    scene_entry(s, job)->job.min = scene_entry(s, job)->job.max = PLAN_RANKS_MAX + 1;
    for (int i = 0; i < 5; i++) {
        (void)snprintf(node, sizeof(node), "n%d", i);
        assert_int_equal(scene_register(s, node, "a", SLOTS_MAX), 200);
    }
    scene_wait(s, 2);
    assert_false(s->fatal);
    assert_null(table_find(&s->core->jobs, job));
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    a = scene_call(s, jobs_get, scene_request(id, NULL, NULL), NULL);
    assert_string_equal(json_string_value(json_object_get(a.body, "state")), "failed");
    assert_string_equal(json_string_value(json_object_get(json_object_get(a.body, "reason"), "code")), "event-refused");
    for (int i = 0; i < SLOTS_MAX; i++)
        assert_int_equal(scene_slot(s, "n0", i)->job, 0);
    scene_restart(s);
    other = scene_submit(s, "devices: {min: 1024, max: 1024}\ncommand: {argv: [x]}\n");
    for (int i = 0; i < 5; i++) {
        (void)snprintf(node, sizeof(node), "n%d", i);
        assert_int_equal(scene_register(s, node, "a", SLOTS_MAX), 200);
    }
    scene_wait(s, 2);
    assert_int_equal(scene_entry(s, other)->job.state, JOB_STARTING);
    assert_int_equal(scene_entry(s, other)->job.n_places, PLAN_RANKS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_of_1025_ranks_whose_event_does_not_apply_fails_and_the_server_goes_on,
                                        scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
