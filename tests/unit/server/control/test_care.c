/* Nodes that are charged, taken out, tested and let back. */
#include "server/control/care.h"

#include "tests/unit/server/control/scene.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"
#define TWO "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\n"

static struct node *node(struct scene *s, const char *name)
{
    struct node *n = cluster_node(&s->core->cluster, name);

    assert_non_null(n);
    return n;
}

/* The nodes from first on up to end, n0, n1, …, of a slot each. */
static void make_nodes(struct scene *s, int first, int end)
{
    char name[8];

    for (int i = first; i < end; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(scene_register(s, name, "a", 1), 200);
    }
}

/* For so long all nodes from n[first] on report once a second, with nothing. */
static void report_for(struct scene *s, int first, int seconds)
{
    for (int t = 0; t < seconds; t++) {
        for (size_t i = (size_t)first; i < s->core->cluster.n_nodes; i++) {
            const struct node *n = s->core->cluster.nodes[i];

            if (n->slots[0].job == 0)
                assert_int_equal(scene_report(s, n->name, json_array(), NULL).status, 200);
        }
        scene_wait(s, 1);
    }
}

static struct scene_answer test_node(struct scene *s, const char *name)
{
    return scene_call(s, nodes_test, scene_request(name, NULL, NULL), NULL);
}

/* The number of the test that the node's agent is told of with its next report, 0: none. */
static int64_t told_test(struct scene *s, const char *name)
{
    struct scene_answer a = scene_report(s, name, json_array(), NULL);

    assert_int_equal(a.status, 200);
    return json_integer_value(json_object_get(a.body, "test"));
}

static void tell_result(struct scene *s, const char *name, int64_t id, bool passed, double memory_gb_s)
{
    json_t *more = json_pack("{s:{s:I, s:b, s:s, s:f}}", "test", "id", (json_int_t)id, "passed", passed, "why",
                             passed ? "" : "its disk fails", "memory_gb_s", memory_gb_s);

    assert_int_equal(scene_report(s, name, json_array(), more).status, 200);
}

static const json_t *view(struct scene *s, const char *name, const char *part)
{
    struct scene_answer a = scene_call(s, nodes_list, scene_request(NULL, NULL, NULL), NULL);
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(a.body, "nodes"), i, one) {
        if (strcmp(json_string_value(json_object_get(one, "id")), name) == 0)
            return json_object_get(one, part);
    }
    fail_msg("no node %s", name);
    return NULL;
}

static const char *says(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text ? text : "";
}

static void a_node_is_taken_out_tested_twice_and_serves_on_probation(void **state)
{
    struct scene *s = *state;
    uint64_t wide, narrow;
    int64_t id;

    make_nodes(s, 0, 3);
    care_accuse(s->core, node(s, "n0"), 1000, "Xid 79: fallen off the bus");
    assert_true(node(s, "n0")->drain);
    scene_turn(s);
    scene_restart(s); /* all of it outlives the server */
    make_nodes(s, 0, 3);
    report_for(s, 0, 3);
    assert_int_equal(node(s, "n0")->health.state, HEALTH_QUARANTINED);
    assert_string_equal(says(view(s, "n0", "health"), "state"), "quarantined");
    assert_non_null(strstr(says(view(s, "n0", "health"), "reason"), "Xid 79: fallen off the bus"));
    assert_non_null(strstr(says(view(s, "n0", "health"), "since"), "2023-11-14T22:13:20"));
    report_for(s, 0, (int)(HEALTH_HOLD_US / SECOND));
    assert_int_equal(node(s, "n0")->health.state, HEALTH_TESTING);
    for (int pass = 0; pass < 2; pass++) {
        assert_true(node(s, "n0")->drain);
        for (int t = 0; (id = told_test(s, "n0")) == 0 && t < 100; t++)
            report_for(s, 0, 1);
        assert_int_not_equal(id, 0);
        tell_result(s, "n0", id, true, 10);
    }
    assert_int_equal(node(s, "n0")->health.state, HEALTH_PROBATION);
    assert_false(node(s, "n0")->drain);
    narrow = scene_submit(s, ONE); /* others first */
    assert_string_not_equal(scene_entry(s, narrow)->job.places[0].node, "n0");
    wide = scene_submit(s, TWO); /* only one that is well is left */
    report_for(s, 0, 3);
    assert_int_equal(scene_entry(s, wide)->job.state, JOB_QUEUED);
    (void)scene_submit(s, ONE);
    narrow = scene_submit(s, ONE); /* a job of one node gets it when there is no other */
    report_for(s, 0, 3);
    assert_string_equal(scene_entry(s, narrow)->job.places[0].node, "n0");
}

static void a_test_that_fails_or_is_not_answered_keeps_the_node_out(void **state)
{
    struct scene *s = *state;

    make_nodes(s, 0, 4);
    care_accuse(s->core, node(s, "n0"), 1000, "x");
    care_accuse(s->core, node(s, "n1"), 1000, "x");
    report_for(s, 0, (int)(HEALTH_HOLD_US / SECOND) + 5);
    tell_result(s, "n0", told_test(s, "n0"), false, 10);
    assert_int_equal(node(s, "n0")->health.state, HEALTH_REPAIR);
    assert_string_equal(says(view(s, "n0", "health"), "reason"), "it failed its test: its disk fails");
    report_for(s, 0, 200);
    assert_int_equal(node(s, "n1")->health.state, HEALTH_REPAIR);
    assert_non_null(strstr(node(s, "n1")->health.reason, "did not tell of the test in time"));
    report_for(s, 0, 7200);
    assert_true(node(s, "n0")->drain && node(s, "n1")->drain);
    assert_int_equal(scene_call(s, nodes_undrain, scene_request("n0", NULL, NULL), NULL).status, 202);
    assert_int_equal(node(s, "n0")->health.state, HEALTH_WELL);
    assert_false(node(s, "n0")->drain);
}

/* Row 49 of the fault catalogue: a rack goes down. Its nodes are suspect, none is charged or quarantined, and the job
 * goes on where there is room. */
static void nodes_that_go_silent_together_are_suspect_and_not_quarantined(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    make_nodes(s, 0, 4); /* the rack */
    job = scene_submit(s, TWO "retry: {max: 9}\n");
    scene_report_all(s, job, "running", 0);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n0");
    make_nodes(s, 4, 8);
    report_for(s, 4, s->cfg.lost_after_s + 5);
    for (int i = 0; i < 4; i++) {
        const struct node *n = s->core->cluster.nodes[i];

        assert_int_equal(n->contact, NODE_LOST);
        assert_int_equal(n->health.state, HEALTH_SUSPECT);
        assert_string_equal(n->health.reason, "it went silent together with 3 others: look at what they share");
        assert_int_equal(n->health.n_incidents, 0);
    }
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    assert_true(strcmp(scene_entry(s, job)->job.places[0].node, "n4") >= 0);
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(node(s, "n1")->health.state, HEALTH_WELL); /* it is back, and nothing is held against it */
}

static void nodes_of_which_a_new_server_has_never_heard_have_not_gone_silent_together(void **state)
{
    struct scene *s = *state;

    make_nodes(s, 0, 4);
    scene_restart(s);
    make_nodes(s, 4, 5);
    report_for(s, 4, s->cfg.lost_after_s + 5);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(s->core->cluster.nodes[i]->contact, NODE_LOST);
        assert_int_equal(s->core->cluster.nodes[i]->health.state, HEALTH_WELL);
    }
}

static void a_node_that_is_lost_alone_is_charged(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    make_nodes(s, 0, 1);
    job = scene_submit(s, ONE "retry: {max: 9}\n");
    scene_report_all(s, job, "running", 0);
    make_nodes(s, 1, 4);
    report_for(s, 1, s->cfg.lost_after_s + 5);
    assert_int_equal(node(s, "n0")->contact, NODE_LOST);
    assert_int_equal(node(s, "n0")->health.n_incidents, 1);
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
}

/* The breaker: two nodes an hour, or one of 20, and never more than half. */
static void no_more_than_two_nodes_are_taken_out_within_an_hour(void **state)
{
    struct scene *s = *state;

    make_nodes(s, 0, 10);
    care_accuse(s->core, node(s, "n0"), 1000, "x");
    care_accuse(s->core, node(s, "n1"), 1000, "x");
    care_accuse(s->core, node(s, "n2"), 1000, "x");
    assert_true(node(s, "n0")->drain && node(s, "n1")->drain);
    assert_false(node(s, "n2")->drain);
    assert_int_equal(node(s, "n2")->health.state, HEALTH_SUSPECT);
    assert_non_null(strstr(node(s, "n2")->health.reason, "look at what nodes share"));
    report_for(s, 0, 3700);
    care_accuse(s->core, node(s, "n3"), 1000, "x");
    assert_true(node(s, "n3")->drain);
}

static void no_more_than_two_nodes_of_a_rack_are_taken_out_within_an_hour(void **state)
{
    struct scene *s = *state;
    char name[8];

    make_nodes(s, 0, 80); /* of which four may be, without racks */
    for (int i = 0; i < 80; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        (void)snprintf(node(s, name)->rack, sizeof(node(s, name)->rack), "r%d", i / 20);
    }
    care_accuse(s->core, node(s, "n0"), 1000, "x");
    care_accuse(s->core, node(s, "n1"), 1000, "x");
    care_accuse(s->core, node(s, "n2"), 1000, "x");
    assert_true(node(s, "n0")->drain && node(s, "n1")->drain);
    assert_false(node(s, "n2")->drain);
    assert_int_equal(node(s, "n2")->health.state, HEALTH_SUSPECT);
    assert_non_null(strstr(node(s, "n2")->health.reason, "since others of its rack were within the hour: look at"));
    care_accuse(s->core, node(s, "n20"), 1000, "x");
    assert_true(node(s, "n20")->drain); /* of another rack */
}

static void the_rack_of_a_node_is_told_by_its_agent_and_outlives_the_server(void **state)
{
    struct scene *s = *state;
    json_t *body = json_pack("{s:s, s:s, s:s, s:s, s:s, s:[], s:[]}", "node", "n7", "address", "10.0.0.1", "boot_id",
                             "b1", "incarnation", "n7", "rack", "r1", "slots", "runs");

    make_nodes(s, 0, 1);
    assert_int_equal(scene_call(s, agents_register, scene_request(NULL, NULL, NULL), body).status, 200);
    assert_string_equal(node(s, "n0")->rack, "");
    scene_restart(s);
    assert_string_equal(node(s, "n7")->rack, "r1");
}

static void a_test_is_asked_for_once_told_to_the_agent_and_kept(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    int64_t id;

    make_nodes(s, 0, 1);
    assert_int_equal(test_node(s, "nobody").status, 404);
    assert_int_equal(test_node(s, "n0").status, 202);
    a = test_node(s, "n0");
    assert_int_equal(a.status, 409);
    assert_string_equal(says(a.body, "detail"), "a test of node 'n0' is under way");
    id = told_test(s, "n0");
    assert_int_not_equal(id, 0);
    assert_int_equal(json_integer_value(json_object_get(view(s, "n0", "test"), "running")), id);
    tell_result(s, "n0", id - 1, true, 10); /* of another test: nobody asked for it now */
    assert_int_equal(told_test(s, "n0"), id);
    tell_result(s, "n0", id, true, 12.5);
    assert_int_equal(told_test(s, "n0"), 0);
    tell_result(s, "n0", id, false, 1); /* told twice */
    assert_true(json_is_true(json_object_get(view(s, "n0", "test"), "passed")));
    assert_true(json_number_value(json_object_get(view(s, "n0", "test"), "memory_gb_s")) > 12);
    scene_restart(s);
    assert_true(json_is_true(json_object_get(view(s, "n0", "test"), "passed")));
    assert_int_equal(test_node(s, "n0").status, 409); /* it is silent */
    make_nodes(s, 0, 1);
    scene_report_all(s, scene_submit(s, ONE), "running", 0);
    a = test_node(s, "n0");
    assert_int_equal(a.status, 409);
    assert_non_null(strstr(says(a.body, "detail"), "every device of node 'n0' is busy"));
}

static void a_node_of_half_the_rate_of_its_class_fails_and_an_agent_cannot_send_more_than_is_asked(void **state)
{
    struct scene *s = *state;
    json_t *more;
    char name[8];
    int64_t id;

    make_nodes(s, 0, 5);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(test_node(s, name).status, 202);
        tell_result(s, name, told_test(s, name), true, i == 4 ? 4.9 : 10 + i);
        assert_int_equal(json_is_true(json_object_get(view(s, name, "test"), "passed")), i < 4);
    }
    assert_string_equal(says(view(s, "n4", "test"), "why"), "memory_gb_s is 4.9, and of others of its class 12");
    assert_int_equal(node(s, "n4")->health.state, HEALTH_WELL); /* a person asked, and decides */
    assert_int_equal(test_node(s, "n0").status, 202);
    id = told_test(s, "n0");
    more = json_pack("{s:{s:I, s:b, s:s, s:s, s:f, s:[i]}}", "test", "id", (json_int_t)id, "passed", 1, "memory_gb_s",
                     "fast", "more", "x", "disk_mb_s", -1.0, "list", 1);
    assert_int_equal(scene_report(s, "n0", json_array(), more).status, 200);
    assert_int_equal(json_object_size(view(s, "n0", "test")), 5); /* passed, why, at, id, running */
}

static void say(struct scene *s, const char *name, const char *level, const char *reason)
{
    scene_wait(s, 1);
    assert_int_equal(
        scene_report(s, name, json_array(), json_pack("{s:{s:s, s:s}}", "health", "level", level, "reason", reason))
            .status,
        200);
}

static void checks_keep_work_off_a_node_or_let_its_jobs_leave_until_they_are_well_again(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    make_nodes(s, 0, 1);
    say(s, "n0", "no-work", "its disk is full");
    job = scene_submit(s, ONE);
    report_for(s, 0, 3);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    assert_false(node(s, "n0")->drain);
    assert_string_equal(says(json_object_get(view(s, "n0", "health"), "check"), "reason"), "its disk is full");
    say(s, "n0", "nonsense", "x"); /* changes nothing */
    assert_int_equal(node(s, "n0")->health.check, HEALTH_CHECK_NO_WORK);
    say(s, "n0", "drain", "its fan stands");
    assert_true(node(s, "n0")->drain);
    assert_string_equal(says(view(s, "n0", "health"), "reason"), "its fan stands");
    say(s, "n0", "well", "");
    assert_false(node(s, "n0")->drain);
    report_for(s, 0, 3);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n0");
}

static void who_drains_a_node_says_why(void **state)
{
    struct scene *s = *state;
    struct http_req *r = scene_request("n0", NULL, NULL);

    make_nodes(s, 0, 2);
    r->query = (struct http_fields){.v = {{"reason", "fan"}}, .n = 1};
    assert_int_equal(scene_call(s, nodes_drain, r, NULL).status, 202);
    assert_string_equal(says(view(s, "n0", "health"), "reason"), "user:ann: fan");
    assert_string_equal(says(view(s, "n0", "health"), "state"), "drained");
    report_for(s, 0, 7200);
    scene_restart(s);
    assert_true(node(s, "n0")->drain); /* no test lets it back */
    assert_string_equal(node(s, "n0")->health.reason, "user:ann: fan");
}

/* A report with an error of the GPU of slot 0. */
static void tell_error(struct scene *s, const char *name, int code, const char *level, int blame, bool whole)
{
    json_t *gpus =
        json_pack("{s:[{s:i, s:s, s:{s:i, s:s, s:i, s:b, s:s, s:i}}]}", "gpus", "slot", 0, "why", "", "found", "code",
                  code, "level", level, "blame", blame, "node", whole, "what", "Xid of a test", "age_ms", 100);
    const struct slot *slot = scene_slot(s, name, 0);
    json_t *runs = json_array();

    if (slot->job)
        (void)json_array_append_new(runs, scene_run_of(scene_entry(s, slot->job),
                                                       scene_entry(s, slot->job)->job.generation, name, "running", 0));
    assert_int_equal(scene_report(s, name, runs, gpus).status, 200);
}

/* Row 50 of the fault catalogue, as the server acts upon each level. */
static void an_error_of_a_device_is_watched_or_ends_its_run_or_takes_the_node_out(void **state)
{
    struct scene *s = *state;
    struct entry *e;
    uint64_t job;

    make_nodes(s, 0, 4);
    job = scene_submit(s, ONE "retry: {max: 9}\n");
    scene_report_all(s, job, "running", 0);
    e = scene_entry(s, job);
    assert_string_equal(e->job.places[0].node, "n0");
    tell_error(s, "n0", 43, "watch", 0, false);
    assert_int_equal(node(s, "n0")->health.n_incidents, 0);
    assert_int_equal(e->job.state, JOB_RUNNING);
    scene_wait(s, 70);
    tell_error(s, "n0", 48, "stop", 500, false);
    assert_int_equal(e->job.state, JOB_RECOVERING); /* its attempt is ended */
    assert_string_equal(says(e->job.outcome, "class"), "node");
    assert_string_equal(says(e->job.outcome, "action"), "elsewhere");
    assert_non_null(strstr(says(e->job.outcome, "message"), "Xid of a test"));
    assert_false(node(s, "n0")->drain);
    assert_int_equal(node(s, "n0")->health.n_incidents, 1);
    tell_error(s, "n0", 48, "stop", 500, false); /* told for half a minute */
    assert_int_equal(node(s, "n0")->health.n_incidents, 1);
    tell_error(s, "n1", 79, "stop", 1000, true);
    assert_true(node(s, "n1")->drain);
    assert_non_null(strstr(says(view(s, "n1", "health"), "reason"), "device 0: Xid of a test"));
}

static void what_two_jobs_meet_on_a_device_is_the_devices(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    make_nodes(s, 0, 4);
    for (int run = 0; run < 2; run++) {
        job = scene_submit(s, ONE);
        scene_report_all(s, job, "running", 0);
        assert_string_equal(scene_entry(s, job)->job.places[0].node, "n0");
        tell_error(s, "n0", 31, "watch", 100, false);
        scene_wait(s, 7);
        tell_error(s, "n0", 31, "watch", 100, false); /* again by the same job */
        assert_int_equal(node(s, "n0")->drain, run == 1);
        if (run == 0)
            scene_report_all(s, job, "exited", 0);
        scene_wait(s, 7);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_is_taken_out_tested_twice_and_serves_on_probation),
        TEST(a_test_that_fails_or_is_not_answered_keeps_the_node_out),
        TEST(nodes_that_go_silent_together_are_suspect_and_not_quarantined),
        TEST(nodes_of_which_a_new_server_has_never_heard_have_not_gone_silent_together),
        TEST(a_node_that_is_lost_alone_is_charged),
        TEST(no_more_than_two_nodes_are_taken_out_within_an_hour),
        TEST(no_more_than_two_nodes_of_a_rack_are_taken_out_within_an_hour),
        TEST(the_rack_of_a_node_is_told_by_its_agent_and_outlives_the_server),
        TEST(a_test_is_asked_for_once_told_to_the_agent_and_kept),
        TEST(a_node_of_half_the_rate_of_its_class_fails_and_an_agent_cannot_send_more_than_is_asked),
        TEST(checks_keep_work_off_a_node_or_let_its_jobs_leave_until_they_are_well_again),
        TEST(who_drains_a_node_says_why),
        TEST(an_error_of_a_device_is_watched_or_ends_its_run_or_takes_the_node_out),
        TEST(what_two_jobs_meet_on_a_device_is_the_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
