/* The table of routes: who may come in by which, and what a handler refuses before the core hears of it. */
#include "tests/unit/server/control/scene.h"

#include "server/control/auth_load.h"
#include "server/control/queries.h"
#include "server/control/routes.h"
#include "tests/unit/folder.h"

static struct routes_arg arg;
static struct scene *scene;

static int start_with(void **state, bool shared)
{
    struct merr err = {""};
    int r = scene_start(state);

    scene = *state;
    arg = (struct routes_arg){.core = scene->core, .store = scene->store, .stats = scene->stats};
    if (r == 0 && auth_start(top, shared, scene->store, &arg.auth, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static int start(void **state)
{
    return start_with(state, true);
}

static int start_enrolled(void **state)
{
    return start_with(state, false);
}

static int stop(void **state)
{
    int r = scene_stop(state);

    auth_free(arg.auth);
    return r;
}

static bool is(const struct http_route *r, const char *method, const char *pattern)
{
    return strcmp(r->method, method) == 0 && strcmp(r->pattern, pattern) == 0;
}

static const struct http_route *route(const char *method, const char *pattern)
{
    for (size_t i = 0; i < routes_count; i++)
        if (is(&routes_table[i], method, pattern))
            return &routes_table[i];
    fail_msg("there is no route %s %s", method, pattern);
    return NULL;
}

static void each_route_is_there_once_and_no_change_is_open_to_everybody(void **state)
{
    (void)state;
    for (size_t i = 0; i < routes_count; i++) {
        const struct http_route *r = &routes_table[i];
        bool of_agents = strncmp(r->pattern, "/v1/agents/", 11) == 0;
        bool asks = strcmp(r->method, "GET") == 0 || is(r, "POST", "/v1/cluster/what-if"); /* which changes nothing */
        int parts = 0;

        for (size_t k = 0; k < i; k++)
            assert_false(is(&routes_table[k], r->method, r->pattern));
        for (const char *p = r->pattern; (p = strchr(p, '{')); p++)
            parts++;
        assert_true(parts <= HTTP_PARAMS_MAX);
        assert_non_null(r->handler);
        if (is(r, "POST", "/v1/agents/join") || is(r, "GET", "/v1/exec/{session}")) { /* by a code that they check */
            assert_int_equal(r->role, ROLE_NONE);
            continue;
        }
        if (of_agents != (r->role == ROLE_AGENT) || (!asks && r->role < ROLE_USER) ||
            (strncmp(r->pattern, "/v1/", 4) == 0 && r->role < ROLE_VIEWER))
            fail_msg("%s %s is open to %s", r->method, r->pattern, http_role_name(r->role));
    }
}

/* The handler's answer to that body; its code is looked for in *ret_text, good until the next call. 0: it was handed
 * on. */
static int ask(const struct http_route *route, struct http_req *r, const char *body, char ret_text[512])
{
    int status;

    buf_init(&r->body, 1 << 20);
    (void)buf_addstr(&r->body, body);
    route->handler(&arg, r);
    status = r->status;
    (void)snprintf(ret_text, 512, "%s", r->out ? r->out : "");
    http_req_unref(r);
    return status;
}

static struct http_req *by_agent(const char *bound, const char *node)
{
    struct http_req *r = scene_request(node, "j1", "1");

    r->identity = (struct http_identity){.role = ROLE_AGENT};
    (void)snprintf(r->identity.node, sizeof(r->identity.node), "%s", bound);
    return r;
}

/* All that is an agent's: each names the node, in its path or, at its registration, in its body. */
static void each_route_of_agents_refuses(const char *bound, const char *node, const char *code)
{
    char text[512], body[80];
    size_t n = 0;

    (void)snprintf(body, sizeof(body), "{\"node\": \"%s\"}", node);
    for (size_t i = 0; i < routes_count; i++) {
        if (routes_table[i].role != ROLE_AGENT)
            continue;
        n++;
        if (ask(&routes_table[i], by_agent(bound, node), body, text) != 403 || !strstr(text, code))
            fail_msg("%s %s: %s", routes_table[i].method, routes_table[i].pattern, text);
    }
    assert_true(n >= 7);
}

static void no_agent_speaks_for_another_node_by_any_route(void **state)
{
    (void)state;
    each_route_of_agents_refuses("n1", "n2", "other-node");
    each_route_of_agents_refuses("n1", "n", "other-node");
    each_route_of_agents_refuses("n1", "", "other-node");
}

static void the_shared_token_does_not_speak_for_a_node_that_has_its_own(void **state)
{
    static const char hash[] = "0123456789012345678901234567890123456789012345678901234567890123";

    (void)state;
    assert_int_equal(auth_bind(arg.auth, "n1", hash, scene->clock.wall_us, NULL), 0);
    each_route_of_agents_refuses("", "n1", "agent-enrolled");
}

static void where_each_agent_has_its_own_token_the_shared_one_opens_nothing(void **state)
{
    (void)state;
    each_route_of_agents_refuses("", "n1", "agent-not-enrolled");
}

static void a_body_that_is_no_json_object_is_refused_by_each_route_that_reads_one(void **state)
{
    static const char *const readers[][2] = {
        {"POST", "/v1/jobs"},
        {"POST", "/v1/jobs:cancel"},
        {"PATCH", "/v1/jobs/{id}"},
        {"PUT", "/v1/projects/{name}"},
        {"PUT", "/v1/projects/{name}/members/{user}"},
        {"PUT", "/v1/secrets/{name}"},
        {"POST", "/v1/tokens"},
        {"POST", "/v1/agents/join"},
        {"POST", "/v1/agents/register"},
        {"POST", "/v1/agents/{node}/certificate"},
        {"POST", "/v1/agents/{node}/report"},
        {"POST", "/v1/agents/{node}/evidence"},
    };
    static const struct {
        const char *body;
        int status;
    } bodies[] = {{"", 422}, {"[1]", 422}, {"7", 400}, {"{", 400}, {"{\"a\": 1, \"a\": 2}", 400}, {"{} {}", 400}};
    char text[512];

    (void)state;
    for (size_t i = 0; i < COUNT(readers); i++)
        for (size_t k = 0; k < COUNT(bodies); k++) {
            int status = ask(route(readers[i][0], readers[i][1]), by_agent("n1", "n1"), bodies[k].body, text);

            if (status != bodies[k].status)
                fail_msg("%s %s with '%s': %d %s", readers[i][0], readers[i][1], bodies[k].body, status, text);
        }
}

static void all_faults_of_a_spec_come_in_one_answer(void **state)
{
    char text[512];

    (void)state;
    assert_int_equal(ask(route("POST", "/v1/jobs"), scene_request(NULL, NULL, NULL),
                         "{\"name\": \"\", \"devices\": {\"min\": 0}, \"colour\": \"red\"}", text),
                     422);
    assert_non_null(strstr(text, "faults"));
}

static void the_probes_answer_and_say_what_waits(void **state)
{
    char text[512];

    (void)state;
    assert_int_equal(ask(route("GET", "/healthz"), scene_request(NULL, NULL, NULL), "", text), 200);
    assert_int_equal(ask(route("GET", "/readyz"), scene_request(NULL, NULL, NULL), "", text), 200);
    assert_non_null(strstr(text, "ready"));
}

static void parameters_are_taken_within_their_bounds_by_the_routes_that_know_them(void **state)
{
    static const struct {
        const char *method, *pattern, *name, *value;
        bool good;
    } rows[] = {
        {"GET", "/v1/jobs", "limit", "1", true},
        {"GET", "/v1/jobs", "limit", "1000", true},
        {"GET", "/v1/jobs", "limit", "0", false},
        {"GET", "/v1/jobs", "limit", "1001", false},
        {"GET", "/v1/jobs", "name~", "anything at all", true},
        {"GET", "/v1/jobs", "name", "x", false},
        {"GET", "/v1/jobs", "wait", "1", false},
        {"POST", "/v1/jobs", "dry_run", "1", true},
        {"POST", "/v1/jobs", "dry_run", "true", false},
        {"GET", "/v1/jobs/{id}/logs", "rank", "-1", false},
        {"GET", "/v1/jobs/{id}/logs", "generation", "0", false},
        {"GET", "/v1/jobs/{id}/logs", "offset", "9223372036854775807", true},
        {"GET", "/v1/jobs/{id}/logs", "offset", "9223372036854775808", false},
        {"GET", "/v1/jobs/{id}/metrics", "points", "1000001", false},
        {"GET", "/v1/agents/{node}/assignments", "wait", "60", true},
        {"GET", "/v1/agents/{node}/assignments", "wait", "61", false},
        {"POST", "/v1/nodes/{id}/drain", "deadline_s", "0", false},
        {"POST", "/v1/nodes/{id}/drain", "deadline_s", "86400", true},
        {"GET", "/v1/jobs/{id}", "limit", "5", false},
        {"GET", "/healthz", "verbose", "1", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct http_fields given = {.n = 1, .v = {{.name = rows[i].name, .value = rows[i].value}}};
        char why[256] = "";

        if (query_ok(route(rows[i].method, rows[i].pattern)->query, &given, why, sizeof(why)) != rows[i].good)
            fail_msg("%s %s?%s=%s: %s", rows[i].method, rows[i].pattern, rows[i].name, rows[i].value, why);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_route_is_there_once_and_no_change_is_open_to_everybody),
        TEST(no_agent_speaks_for_another_node_by_any_route),
        TEST(the_shared_token_does_not_speak_for_a_node_that_has_its_own),
        cmocka_unit_test_setup_teardown(where_each_agent_has_its_own_token_the_shared_one_opens_nothing, start_enrolled,
                                        stop),
        TEST(a_body_that_is_no_json_object_is_refused_by_each_route_that_reads_one),
        TEST(all_faults_of_a_spec_come_in_one_answer),
        TEST(the_probes_answer_and_say_what_waits),
        cmocka_unit_test(parameters_are_taken_within_their_bounds_by_the_routes_that_know_them),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
