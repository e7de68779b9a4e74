/* test_contact - nodes that fall silent about a run that failed on them, before anybody can know that they are gone */
#include "tests/unit/server/control/scene.h"

#include <signal.h>

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 5}\n"

/* Seconds in which these nodes' agents report that they run nothing, and no others do. */
static void speak(struct scene *s, const char *const *nodes, size_t n, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        scene_wait(s, 1);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(scene_report(s, nodes[k], json_array(), NULL).status, 200);
    }
}

static const char *place_of(struct scene *s, uint64_t job)
{
    const struct entry *e = scene_entry(s, job);

    return e->job.live ? e->job.places[0].node : "";
}

static void a_job_starts_on_a_node_that_speaks_where_another_is_silent(void **state)
{
    struct scene *s = *state;
    uint64_t first, second;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    speak(s, (const char *[]){"n2"}, 1, 4);
    assert_int_equal(cluster_node(&s->core->cluster, "n1")->contact, NODE_READY); /* nobody has said otherwise */
    first = scene_submit(s, ONE);
    scene_turn(s);
    assert_string_equal(place_of(s, first), "n2");
    second = scene_submit(s, ONE); /* nothing else is there */
    scene_turn(s);
    assert_string_equal(place_of(s, second), "n1");
}

/* The job has failed on n1 and starts there again, as a node that died a moment ago looks well. */
static uint64_t fail_and_start(struct scene *s)
{
    uint64_t job = scene_submit(s, ONE);
    json_t *run;

    scene_turn(s);
    scene_report_all(s, job, "running", 0);
    run = scene_run_of(scene_entry(s, job), 1, "n1", "exited", 0);
    (void)json_object_set_new(json_array_get(json_object_get(run, "ranks"), 0), "signal", json_integer(SIGKILL));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    for (int i = 0; i < 100 && scene_entry(s, job)->job.generation < 2; i++)
        speak(s, (const char *[]){"n1"}, 1, 1);
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    assert_string_equal(place_of(s, job), "n1");
    return job;
}

static void a_run_where_the_last_one_failed_does_not_wait_long_for_a_silent_node(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = fail_and_start(s);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    speak(s, (const char *[]){"n2"}, 1, 6);
    assert_false(scene_entry(s, job)->job.live);
    assert_int_equal(cluster_node(&s->core->cluster, "n1")->contact, NODE_UNKNOWN);
    for (int i = 0; i < 100 && scene_entry(s, job)->job.generation < 3; i++) /* a back-off */
        speak(s, (const char *[]){"n2"}, 1, 1);
    assert_int_equal(scene_entry(s, job)->job.generation, 3);
    assert_string_equal(place_of(s, job), "n2");
}

static void a_run_that_has_begun_or_has_not_failed_there_is_left_alone(void **state)
{
    struct scene *s = *state;
    uint64_t job, other;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = fail_and_start(s);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    other = scene_submit(s, ONE);
    scene_turn(s);
    assert_string_equal(place_of(s, other), "n2");
    speak(s, NULL, 0, 20);
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    assert_int_equal(scene_entry(s, other)->job.generation, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)

/* Its store did not answer, or its machine stood still. */
static void a_server_that_stood_still_itself_takes_nobody_for_silent(void **state)
{
    struct scene *s = *state;
    const struct node *n;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    n = cluster_node(&s->core->cluster, "n1");
    scene_wait(s, 2);
    fake_clock_pass(&s->clock, 3600 * SECOND);
    scene_wait(s, 1);
    assert_int_equal(n->contact, NODE_READY);
    scene_wait(s, s->core->cfg.unknown_after_s);
    assert_int_equal(n->contact, NODE_UNKNOWN);
    scene_wait(s, s->core->cfg.lost_after_s);
    assert_int_equal(n->contact, NODE_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_starts_on_a_node_that_speaks_where_another_is_silent),
        TEST(a_run_where_the_last_one_failed_does_not_wait_long_for_a_silent_node),
        TEST(a_run_that_has_begun_or_has_not_failed_there_is_left_alone),
        TEST(a_server_that_stood_still_itself_takes_nobody_for_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
