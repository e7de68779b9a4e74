/* Agents' long-polls: of which agent, when they are answered, and rendezvous keys of a run's own nodes alone. */
#include "tests/unit/server/control/scene.h"

#define TWO "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\n"

static void ask_with(struct http_req *r, const char *name, const char *value)
{
    r->query.v[r->query.n].name = name;
    r->query.v[r->query.n++].value = value;
}

/* A poll that may wait for a minute; held: the test's, to look whether it was answered later. */
static struct scene_answer poll_of(struct scene *s, const char *incarnation, const char *version,
                                   struct http_req **ret_held)
{
    struct http_req *r = scene_request("n1", NULL, NULL);

    if (incarnation)
        ask_with(r, "incarnation", incarnation);
    ask_with(r, "version", version);
    ask_with(r, "wait", "60");
    if (ret_held) {
        atomic_fetch_add(&r->refs, 1);
        *ret_held = r;
    }
    return scene_call(s, polls_assignments, r, NULL);
}

static void only_the_agent_that_registered_hears_of_its_assignments(void **state)
{
    struct scene *s = *state;

    assert_int_equal(poll_of(s, "n1", "0", NULL).status, 404); /* not registered yet */
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(poll_of(s, NULL, "0", NULL).status, 422);
    assert_int_equal(poll_of(s, "", "0", NULL).status, 422);
    assert_int_equal(poll_of(s, "another", "0", NULL).status, 404);
    assert_int_equal(poll_of(s, "n1", "0", NULL).status, 200);
}

static void a_poll_waits_until_the_set_changes_or_its_time_is_over(void **state)
{
    struct scene *s = *state;
    struct http_req *held;
    struct scene_answer a;
    char version[24];
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    a = poll_of(s, "n1", "0", NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "assignments")), 0);
    (void)snprintf(version, sizeof(version), "%lld", (long long)json_integer_value(json_object_get(a.body, "version")));
    assert_int_equal(poll_of(s, "n1", version, &held).status, 0);
    job = scene_submit(s, TWO);
    scene_turn(s);
    assert_int_equal(held->status, 200);
    assert_non_null(strstr(held->out, "\"j1\""));
    http_req_unref(held);
    (void)snprintf(version, sizeof(version), "%llu",
                   (unsigned long long)cluster_node(&s->core->cluster, "n1")->version);
    assert_int_equal(poll_of(s, "n1", version, &held).status, 0);
    for (int i = 0; i < 61; i++) { /* its agent speaks meanwhile, and nothing changes */
        scene_wait(s, 1);
        scene_report_all(s, job, "starting", 0);
    }
    assert_int_equal(held->status, 200);
    http_req_unref(held);
}

static int put_key(struct scene *s, const char *node, const char *incarnation, const char *generation, const char *key,
                   const char *value)
{
    struct http_req *r = scene_request(node, "j1", generation);
    struct call *call;
    int status;

    r->params[3] = key;
    ask_with(r, "incarnation", incarnation);
    call = call_new(r, scene_run);
    assert_non_null(call);
    call->text = strdup(value);
    scene_runs = polls_put_key;
    assert_true(turn_take(s->core, call));
    status = r->status;
    http_req_unref(r);
    return status;
}

static void a_key_is_of_a_rank_of_its_node_in_the_live_run(void **state)
{
    static const struct {
        const char *node, *incarnation, *generation, *key, *value;
        int status;
    } rows[] = {
        {"n1", "n1", "1", "ucx-0", "eA==", 200},   {"n1", "n1", "1", "ucx-0", "eA==", 200}, /* again */
        {"n1", "n2", "1", "ucx-0", "eA==", 404},   {"n3", "n3", "1", "ucx-0", "eA==", 403}, /* has no part in it */
        {"n1", "n1", "1", "ucx-7", "eA==", 403},   {"n1", "n1", "2", "ucx-0", "eA==", 409},
        {"n1", "n1", "1", ".hidden", "eA==", 422}, {"n1", "n1", "0", "ucx-0", "eA==", 409},
    };
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, TWO);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_register(s, "n3", "a", 1), 200);
    for (size_t i = 0; i < COUNT(rows); i++) {
        int status = put_key(s, rows[i].node, rows[i].incarnation, rows[i].generation, rows[i].key, rows[i].value);

        if (status != rows[i].status)
            fail_msg("row %zu is answered %d, not %d", i, status, rows[i].status);
    }
    assert_int_equal(scene_entry(s, job)->run.n_keys, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_the_agent_that_registered_hears_of_its_assignments),
        TEST(a_poll_waits_until_the_set_changes_or_its_time_is_over),
        TEST(a_key_is_of_a_rank_of_its_node_in_the_live_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
