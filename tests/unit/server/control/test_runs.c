/* Nodes on which jobs of several users fail. */
#include "tests/unit/server/control/scene.h"

/* A job of this user runs on the node and ends by a fault of that, ten minutes later. */
static void fail_on(struct scene *s, const char *node, const char *user, const char *cause)
{
    uint64_t job = scene_submit(s, "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 0}\n");
    struct entry *e = scene_entry(s, job);
    json_t *run, *rank;

    (void)snprintf(e->job.user, sizeof(e->job.user), "%s", user);
    assert_string_equal(e->job.places[0].node, node);
    assert_int_equal(scene_report(s, node, json_pack("[o]", scene_run_of(e, 1, node, "running", 0)), NULL).status, 200);
    run = scene_run_of(e, 1, node, "exited", 0);
    rank = json_array_get(json_object_get(run, "ranks"), 0);
    (void)json_object_set_new(rank, "exit_code", json_integer(74));
    (void)json_object_set_new(rank, "cause", json_string(cause));
    assert_int_equal(scene_report(s, node, json_pack("[o]", run), NULL).status, 200);
    for (int i = 0; i < 60; i++) {
        scene_wait(s, 10);
        assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 200);
        if (cluster_node(&s->core->cluster, "n2"))
            assert_int_equal(scene_report(s, "n2", json_array(), NULL).status, 200);
    }
}

static const struct node *node(struct scene *s, const char *name)
{
    return cluster_node(&s->core->cluster, name);
}

static void a_node_on_which_jobs_of_several_users_fail_is_drained_until_somebody_has_looked(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    assert_int_equal(scene_register(s, "n2", "b", 4), 200);
    fail_on(s, "n1", "ann", "node");
    fail_on(s, "n1", "bob", "user"); /* says nothing of the node */
    fail_on(s, "n1", "ann", "node");
    assert_false(node(s, "n1")->drain);
    fail_on(s, "n1", "bob", "node");
    assert_true(node(s, "n1")->drain);
    fail_on(s, "n2", "ann", "node"); /* the last one is kept, whatever happens on it */
    fail_on(s, "n2", "bob", "node");
    fail_on(s, "n2", "ann", "node");
    assert_false(node(s, "n2")->drain);
    assert_int_equal(scene_call(s, nodes_undrain, scene_request("n1", NULL, NULL), NULL).status, 202);
    assert_false(node(s, "n1")->drain);
    assert_int_equal(node(s, "n1")->health.n_incidents, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_node_on_which_jobs_of_several_users_fail_is_drained_until_somebody_has_looked,
                                        scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
