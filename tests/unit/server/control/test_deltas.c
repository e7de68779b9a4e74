/* "One user against all": ten dashboards read the nodes once, and each change is written out once for all of them. */
#include "server/control/deltas.h"

#include "server/control/events.h"
#include "server/http/http_parse.h"
#include "tests/unit/server/control/scene.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

/* A request with a query (or NULL) and a header (its value NULL: none). */
static struct http_req *request(char *query, const char *name, const char *value)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);

    if (query)
        assert_int_equal(http_query_split(query, &r->query), 0);
    if (value) {
        buf_init(&r->header_text, 256);
        (void)buf_add(&r->header_text, name, strlen(name) + 1);
        (void)buf_add(&r->header_text, value, strlen(value) + 1);
        r->n_headers = 1;
    }
    return r;
}

/* Follow all events, and changes too; the test's to unref. */
static struct http_req *follow(struct scene *s, bool changes)
{
    static char query[2][16];
    struct http_req *r;
    struct call *call;

    (void)snprintf(query[0], sizeof(query[0]), "changes=1");
    r = request(changes ? query[0] : NULL, "Accept", "text/event-stream");
    call = call_new(r, scene_run);
    scene_runs = timeline_of_all;
    assert_true(turn_take(s->core, call));
    scene_wait(s, 1);
    return r;
}

static size_t count(const struct http_req *r, const char *what)
{
    size_t n = 0;

    for (const char *p = strstr(buf_text(&r->stream.queue), what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

static void each_change_of_a_node_is_told_once_to_each_who_follows_changes(void **state)
{
    struct scene *s = *state;
    struct http_req *changes[10], *events;

    for (int i = 0; i < 30; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "n%02d", i);
        assert_int_equal(scene_register(s, name, "cpu", 2), 200);
    }
    for (int i = 0; i < 10; i++)
        changes[i] = follow(s, true);
    events = follow(s, false);
    scene_wait(s, 2);
    assert_int_equal(count(changes[0], "event: view-node"), 0); /* who comes has read the list */
    for (int i = 0; i < 5; i++) {                               /* reports without news */
        assert_int_equal(scene_report(s, "n07", json_array(), NULL).status, 200);
        scene_wait(s, 1);
    }
    assert_int_equal(count(changes[0], "event: view-node"), 0);
    assert_int_equal(scene_call(s, nodes_drain, scene_request("n07", NULL, NULL), NULL).status, 202);
    scene_wait(s, 2);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(count(changes[i], "event: view-node"), 1);
        assert_int_equal(count(changes[i], "\"id\":\"n07\",\"state\":\"drained\""), 1);
        assert_int_equal(count(changes[i], "\"ready\":29"), 1); /* the totals */
        http_req_unref(changes[i]);
    }
    assert_int_equal(count(events, "event: view-"), 0);
    assert_int_equal(count(events, "event: node"), 1);
    http_req_unref(events);
}

static void a_job_is_told_without_its_spec_to_those_who_may_see_it(void **state)
{
    struct scene *s = *state;
    struct http_req *admin = follow(s, true), *bob = request(NULL, "Accept", "text/event-stream");
    static char query[] = "changes=1";

    assert_int_equal(http_query_split(query, &bob->query), 0);
    bob->identity.role = ROLE_USER;
    (void)snprintf(bob->identity.user, sizeof(bob->identity.user), "bob");
    scene_runs = timeline_of_all;
    assert_true(turn_take(s->core, call_new(bob, scene_run)));
    (void)scene_submit(s, ONE); /* ann's */
    assert_int_equal(count(admin, "event: view-job"), 1);
    assert_int_equal(count(admin, "\"spec\""), 0);
    assert_int_equal(count(bob, "event: view-job"), 0);
    http_req_unref(admin);
    http_req_unref(bob);
}

static void of_very_many_jobs_at_once_it_is_told_that_lists_are_to_be_read(void **state)
{
    struct scene *s = *state;
    struct http_req *r;

    for (int i = 0; i < DELTAS_JOBS_MAX + 10; i++)
        (void)scene_submit(s, ONE);
    r = follow(s, true);
    for (int k = 0; k < DELTAS_JOBS_MAX + 10; k += 64) { /* they all start in one round */
        char name[16];

        (void)snprintf(name, sizeof(name), "n%d", k);
        s->core->turn.next_round_us = INT64_MAX;
        assert_int_equal(scene_register(s, name, "cpu", 64), 200);
    }
    s->core->turn.next_round_us = 0;
    scene_turn(s);
    assert_int_equal(count(r, "event: reread"), 1);
    assert_int_equal(count(r, "event: view-job"), DELTAS_JOBS_MAX);
    http_req_unref(r);
}

static void nodes_and_totals_are_304_until_something_changes(void **state)
{
    static scene_fn *const lists[] = {nodes_list, nodes_cluster};
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    for (size_t i = 0; i < COUNT(lists); i++) {
        struct http_req *r = request(NULL, NULL, NULL);
        char etag[40];

        atomic_fetch_add(&r->refs, 1);
        assert_int_equal(scene_call(s, lists[i], r, NULL).status, 200);
        assert_string_equal(r->out_headers[0].name, "ETag");
        (void)snprintf(etag, sizeof(etag), "%s", r->out_headers[0].value);
        http_req_unref(r);
        assert_int_equal(scene_call(s, lists[i], request(NULL, "If-None-Match", etag), NULL).status, 304);
        assert_int_equal(
            scene_call(s, i == 0 ? nodes_drain : nodes_undrain, scene_request("n1", NULL, NULL), NULL).status, 202);
        assert_int_equal(scene_call(s, lists[i], request(NULL, "If-None-Match", etag), NULL).status, 200);
    }
}

static void a_list_read_after_a_change_shows_it(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    a = scene_call(s, nodes_list, scene_request(NULL, NULL, NULL), NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "nodes")), 1);
    assert_int_equal(scene_call(s, nodes_drain, scene_request("n1", NULL, NULL), NULL).status, 202);
    a = scene_call(s, nodes_list, scene_request(NULL, NULL, NULL), NULL);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(a.body, "nodes"), 0), "state")), "drained");
    assert_int_equal(scene_register(s, "n2", "cpu", 2), 200);
    a = scene_call(s, nodes_list, scene_request(NULL, NULL, NULL), NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "nodes")), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)
        TEST(each_change_of_a_node_is_told_once_to_each_who_follows_changes),
        TEST(a_job_is_told_without_its_spec_to_those_who_may_see_it),
        TEST(of_very_many_jobs_at_once_it_is_told_that_lists_are_to_be_read),
        TEST(nodes_and_totals_are_304_until_something_changes),
        TEST(a_list_read_after_a_change_shows_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
