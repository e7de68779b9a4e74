/* Agents that register, fall silent, come back as others or not at all, and what becomes of their nodes' runs. */
#include "tests/unit/server/control/scene.h"

#include "server/control/events.h"
#include "server/control/load.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 5}\n"

/* Register with these members instead of the usual ones. Returns the status. */
static int register_as(struct scene *s, const char *node, int slots, json_t *other)
{
    json_t *all = json_array(), *body;

    for (int i = 0; i < slots; i++)
        (void)json_array_append_new(all, json_pack("{s:i, s:s, s:s}", "slot", i, "kind", "cpu", "class", "a"));
    body = json_pack("{s:s, s:s, s:s, s:o, s:[]}", "node", node, "boot_id", "b1", "incarnation", node, "slots", all,
                     "runs");
    (void)json_object_update(body, other);
    json_decref(other);
    return scene_call(s, agents_register, scene_request(NULL, NULL, NULL), body).status;
}

static struct node *node(struct scene *s, const char *name)
{
    struct node *n = cluster_node(&s->core->cluster, name);

    assert_non_null(n);
    return n;
}

/* A run that the agent has, in this state. */
static json_t *listed(struct scene *s, uint64_t job, const char *node, const char *state)
{
    const struct entry *e = scene_entry(s, job);

    return json_pack("{s:[o]}", "runs", scene_run_of(e, e->job.generation, node, state, 0));
}

static void what_cannot_be_a_node_is_refused_and_nothing_changes(void **state)
{
    static const char *const bad[] = {
        "{\"node\": \"\"}",
        "{\"node\": \"with space\"}",
        "{\"incarnation\": null}",
        "{\"slots\": 7}",
        "{\"slots\": [{\"slot\": 0, \"class\": \"a\"}, {\"slot\": 0, \"class\": \"a\"}]}",
        "{\"slots\": [{\"slot\": -1, \"class\": \"a\"}]}",
        "{\"slots\": [{\"slot\": 0, \"class\": \"no/class\"}]}",
        "{\"nic\": {\"family\": \"token-ring\"}}",
    };
    struct scene *s = *state;

    for (size_t i = 0; i < COUNT(bad); i++)
        if (register_as(s, "n1", 1, json_loads(bad[i], 0, NULL)) != 422)
            fail_msg("%s is taken", bad[i]);
    assert_int_equal(s->core->cluster.n_nodes, 0);
}

static void a_name_is_one_agents_until_that_is_silent(void **state)
{
    struct scene *s = *state;

    assert_int_equal(register_as(s, "n1", 1, json_object()), 200);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s}", "incarnation", "other")), 409);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s, s:s}", "incarnation", "next", "succeeds", "n1")), 200);
    scene_wait(s, 4);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s}", "incarnation", "other")), 200);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s}", "incarnation", "next")), 410); /* is to end */
}

static void a_job_that_the_store_has_not_given_shows_a_loss_or_cannot_be(void **state)
{
    struct scene *s = *state;
    uint64_t most = s->core->jobs.next + ACCEPT_JOBS - 1;
    const struct {
        uint64_t job;
        bool accept;
        int status;
    } rows[] = {{7, false, 503}, {most + 1, true, 422}, {UINT64_C(999999999999999), true, 422},
                {7, true, 200},  {most, true, 200},     {most + 1, true, 422}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "j%llu", (unsigned long long)rows[i].job);
        s->core->cfg.accept_loss = rows[i].accept;
        assert_int_equal(
            register_as(s, "n1", 1, json_pack("{s:[{s:s, s:i, s:[]}]}", "runs", "job", name, "generation", 1, "ranks")),
            rows[i].status);
    }
    assert_int_equal(s->core->jobs.next, most + 1); /* however often they are told */
}

static void a_run_that_its_agent_does_not_know_any_more_is_over(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(register_as(s, "n1", 1, json_object()), 200);
    job = scene_submit(s, ONE);
    assert_int_equal(register_as(s, "n1", 1, json_object()), 200); /* it was not started yet: it still will be */
    assert_int_equal(scene_entry(s, job)->job.restarts_node, 0);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(register_as(s, "n1", 1, listed(s, job, "n1", "running")), 200);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s}", "boot_id", "b2")), 200);
    assert_int_equal(scene_entry(s, job)->job.restarts_node, 1);
    assert_non_null(strstr(json_string_value(json_object_get(scene_entry(s, job)->job.outcome, "message")),
                           "its node was started again"));
}

/* The network delivers a registration once more: runs that have begun since are not in it, and go on. */
static void a_registration_that_comes_late_ends_no_run(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:i}", "seq", 3)), 200);
    job = scene_submit(s, ONE);
    scene_report_all(s, job, "running", 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(register_as(s, "n1", 1, json_pack("{s:i}", "seq", 3)), 409);
        assert_int_equal(register_as(s, "n1", 1, json_pack("{s:i}", "seq", 2)), 409);
        assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
        scene_restart(s);
    }
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:i}", "seq", 9)), 200);
    assert_int_equal(scene_entry(s, job)->job.restarts_node, 1);
}

static void a_run_on_a_slot_that_is_not_offered_any_more_is_over(void **state)
{
    struct scene *s = *state;
    uint64_t first, second;

    assert_int_equal(register_as(s, "n1", 2, json_object()), 200);
    first = scene_submit(s, ONE);
    second = scene_submit(s, ONE);
    scene_report_all(s, first, "running", 0);
    scene_report_all(s, second, "running", 0);
    assert_int_equal(
        register_as(s, "n1", 1,
                    json_pack("{s:[o, o]}", "runs", scene_run_of(scene_entry(s, first), 1, "n1", "running", 0),
                              scene_run_of(scene_entry(s, second), 1, "n1", "running", 0))),
        200);
    assert_int_equal(scene_entry(s, first)->job.restarts_node + scene_entry(s, second)->job.restarts_node, 1);
    assert_int_equal(node(s, "n1")->n_slots, 1);
}

static void a_reboot_takes_slow_devices_to_be_well(void **state)
{
    struct scene *s = *state;
    uint64_t events;

    assert_int_equal(register_as(s, "n1", 1, json_object()), 200);
    scene_slot(s, "n1", 0)->slow = (struct slow_device){.slow = true, .ratio = 2};
    assert_int_equal(register_as(s, "n1", 1, json_object()), 200);
    assert_true(scene_slot(s, "n1", 0)->slow.slow);
    events = events_next(s->core);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s}", "boot_id", "b2")), 200);
    assert_false(scene_slot(s, "n1", 0)->slow.slow);
    assert_int_equal(events_next(s->core), events + 1);
    scene_restart(s);
    assert_false(scene_slot(s, "n1", 0)->slow.slow);
}

static void a_node_that_is_silent_is_unknown_then_lost_then_forgotten(void **state)
{
    struct scene *s = *state;

    s->core->cfg.forget_after_s = 60;
    assert_int_equal(register_as(s, "n1", 1, json_object()), 200);
    scene_wait(s, 29);
    assert_int_equal(node(s, "n1")->contact, NODE_READY);
    scene_wait(s, 2);
    assert_int_equal(node(s, "n1")->contact, NODE_UNKNOWN);
    assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 200);
    assert_int_equal(node(s, "n1")->contact, NODE_READY);
    scene_wait(s, 122);
    assert_int_equal(node(s, "n1")->contact, NODE_LOST);
    scene_wait(s, 62);
    assert_int_equal(s->core->cluster.n_nodes, 0);
    scene_restart(s);
    assert_int_equal(s->core->cluster.n_nodes, 0);
    assert_int_equal(register_as(s, "n1", 1, json_object()), 200); /* it may come back */
}

static void a_removed_node_leaves_and_its_agent_is_told_to_end_by_the_next_server_too(void **state)
{
    struct scene *s = *state;

    assert_int_equal(register_as(s, "n1", 1, json_object()), 200);
    assert_int_equal(scene_call(s, nodes_remove, scene_request("n1", NULL, NULL), NULL).status, 409); /* takes work */
    assert_int_equal(scene_call(s, nodes_drain, scene_request("n1", NULL, NULL), NULL).status, 202);
    assert_int_equal(scene_call(s, nodes_remove, scene_request("n1", NULL, NULL), NULL).status, 200);
    assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 404);
    assert_int_equal(register_as(s, "n1", 1, json_object()), 410);
    scene_restart(s);
    assert_int_equal(register_as(s, "n1", 1, json_object()), 410);
    assert_int_equal(register_as(s, "n1", 1, json_pack("{s:s}", "incarnation", "fresh")), 200);
}

/* A class is named by a job before a node has it. */
static void a_job_may_use_a_class_that_comes_later(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, "devices: {min: 1, max: 1, classes: [late]}\ncommand: {argv: [x]}\n");

    assert_int_equal(scene_register(s, "n1", "early", 1), 200);
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    assert_int_equal(scene_register(s, "n2", "late", 1), 200);
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n2");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_cannot_be_a_node_is_refused_and_nothing_changes),
        TEST(a_name_is_one_agents_until_that_is_silent),
        TEST(a_job_that_the_store_has_not_given_shows_a_loss_or_cannot_be),
        TEST(a_run_that_its_agent_does_not_know_any_more_is_over),
        TEST(a_registration_that_comes_late_ends_no_run),
        TEST(a_run_on_a_slot_that_is_not_offered_any_more_is_over),
        TEST(a_reboot_takes_slow_devices_to_be_well),
        TEST(a_node_that_is_silent_is_unknown_then_lost_then_forgotten),
        TEST(a_removed_node_leaves_and_its_agent_is_told_to_end_by_the_next_server_too),
        TEST(a_job_may_use_a_class_that_comes_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
