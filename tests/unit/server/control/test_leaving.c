#include "tests/unit/server/control/scene.h"

#include "server/control/booking.h"

/* An agent registers a node of one slot that goes at that wall time (0: it stays). */
static int join(struct scene *s, const char *node, int64_t leaves_us, bool leaving)
{
    return scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                      json_pack("{s:s, s:s, s:s, s:s, s:[{s:i, s:s, s:s, s:i, s:i}], s:[], s:I, s:b}", "node", node,
                                "address", "10.0.0.1", "boot_id", "b1", "incarnation", node, "slots", "slot", 0, "kind",
                                "cpu", "class", "cpu", "threads", 1, "memory_mib", 4096, "runs", "leaves_at_us",
                                (json_int_t)leaves_us, "leaving", leaving))
        .status;
}

static int64_t in(struct scene *s, int seconds)
{
    return s->clock.wall_us + seconds * SECOND;
}

static uint64_t submit(struct scene *s, int time_s)
{
    char spec[160], limit[64] = "";

    if (time_s)
        (void)snprintf(limit, sizeof(limit), ", \"limits\": {\"time_s\": %d}", time_s);
    (void)snprintf(spec, sizeof(spec), "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 1}%s}", limit);
    return scene_try_submit(s, spec);
}

static void tell(struct scene *s, const char *node, uint64_t job)
{
    const struct entry *e = job ? scene_entry(s, job) : NULL;

    assert_int_equal(
        scene_report(s, node,
                     e ? json_pack("[o]", scene_run_of(e, e->job.generation, node, "running", 0)) : json_array(), NULL)
            .status,
        200);
}

static bool listed(struct scene *s, const char *node)
{
    return cluster_node(&s->core->cluster, node) != NULL;
}

static void nothing_is_placed_beyond_the_end_that_a_node_s_agent_tells(void **state)
{
    struct scene *s = *state;
    uint64_t fits, beyond;

    assert_int_equal(join(s, "lent", in(s, 1000), false), 200);
    beyond = submit(s, 2000);
    scene_turn(s);
    assert_false(scene_entry(s, beyond)->job.live);
    fits = submit(s, 300);
    scene_turn(s);
    assert_true(scene_entry(s, fits)->job.live);
}

static void the_end_of_a_node_outlives_the_server_and_moves_with_what_its_agent_tells(void **state)
{
    struct scene *s = *state;
    int64_t end = in(s, 1000);
    struct scene_answer a;

    assert_int_equal(join(s, "lent", end, false), 200);
    scene_restart(s);
    assert_int_equal(s->core->bookings.n, 1);
    assert_int_equal(s->core->bookings.v[0].span.from_us, end);
    assert_int_equal(join(s, "lent", end, false), 200);
    assert_int_equal(s->core->bookings.n, 1);
    assert_int_equal(s->core->bookings.v[0].id, 1); /* the same one: nothing is written anew */
    assert_int_equal(join(s, "lent", end + 500 * SECOND, false), 200);
    assert_int_equal(s->core->bookings.n, 1);
    assert_int_equal(s->core->bookings.v[0].span.from_us, end + 500 * SECOND);
    a = scene_call(s, nodes_get, scene_request("lent", NULL, NULL), NULL);
    assert_true(json_is_string(json_object_get(a.body, "leaves_at")));
    assert_int_equal(join(s, "lent", 0, false), 200); /* it stays after all */
    assert_int_equal(s->core->bookings.n, 0);
}

static void a_node_whose_agent_was_told_to_leave_is_drained_by_its_deadline_and_then_gone(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(join(s, "lent", in(s, 7200), false), 200);
    job = submit(s, 0);
    scene_turn(s);
    assert_true(scene_entry(s, job)->job.live);
    tell(s, "lent", job);
    assert_int_equal(join(s, "stays", 0, false), 200);
    assert_int_equal(
        scene_call(
            s, agents_register, scene_request(NULL, NULL, NULL),
            json_pack("{s:s, s:s, s:s, s:s, s:[{s:i, s:s, s:s, s:i, s:i}], s:[o], s:I, s:b}", "node", "lent", "address",
                      "10.0.0.1", "boot_id", "b1", "incarnation", "lent", "slots", "slot", 0, "kind", "cpu", "class",
                      "cpu", "threads", 1, "memory_mib", 4096, "runs",
                      scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, "lent", "running", 0),
                      "leaves_at_us", (json_int_t)in(s, 60), "leaving", true))
            .status,
        200);
    scene_wait(s, 1);
    assert_string_equal(scene_order(s, "lent", job), "drain");
    assert_true(scene_entry(s, job)->run.drain_deadline_us <= s->core->now.mono_us + 60 * SECOND);
    assert_true(listed(s, "lent")); /* while something is on it */
    assert_int_equal(
        scene_report(s, "lent",
                     json_pack("[o]", scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, "lent",
                                                   "exited", 0)),
                     NULL)
            .status,
        200);
    scene_wait(s, 1);
    assert_true(listed(s, "lent")); /* its logs may come yet */
    tell(s, "lent", 0);
    scene_wait(s, 1);
    assert_false(listed(s, "lent"));
    assert_int_equal(s->core->bookings.n, 0);
    assert_int_equal(join(s, "lent", in(s, 60), true), 410); /* so its agent ends */
}

static void a_node_that_fell_silent_is_gone_once_it_is_lost_and_its_end_has_come(void **state)
{
    struct scene *s = *state;

    assert_int_equal(join(s, "lent", in(s, 400), false), 200);
    scene_wait(s, 200);
    assert_true(listed(s, "lent")); /* lost, but it may come back */
    scene_wait(s, 210);
    assert_false(listed(s, "lent"));
    assert_int_equal(s->core->bookings.n, 0);
}

static void an_end_beyond_all_calendars_is_none(void **state)
{
    struct scene *s = *state;

    assert_int_equal(join(s, "lent", INT64_MAX, false), 200);
    assert_int_equal(s->core->bookings.n, 0);
    assert_int_equal(join(s, "past", 1, true), 200); /* and one that is past has come */
    scene_wait(s, 1);
    assert_false(listed(s, "past"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_placed_beyond_the_end_that_a_node_s_agent_tells, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(the_end_of_a_node_outlives_the_server_and_moves_with_what_its_agent_tells,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_node_whose_agent_was_told_to_leave_is_drained_by_its_deadline_and_then_gone,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_node_that_fell_silent_is_gone_once_it_is_lost_and_its_end_has_come,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(an_end_beyond_all_calendars_is_none, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
