/* test_enroll - codes that become tokens of nodes: once, in time, and until they are forgotten */
#include "tests/unit/server/control/scene.h"

#include "server/control/auth_load.h"
#include "server/control/enroll.h"
#include "tests/unit/folder.h"

static struct auth *auth;

/* With tokens, which main.c gives a server. */
static void boot_auth(struct scene *s)
{
    struct merr err = {""};

    if (auth_start(top, false, s->store, &auth, &err) < 0)
        fail_msg("%s", err.text);
    s->core->cfg.auth = auth;
}

static int start(void **state)
{
    int r = scene_start(state);

    boot_auth(*state);
    return r;
}

static int stop(void **state)
{
    int r = scene_stop(state);

    auth_free(auth);
    return r;
}

static void restart(struct scene *s)
{
    scene_restart(s);
    auth_free(auth);
    boot_auth(s);
}

/* A code for a node. */
static const char *code_for(struct scene *s, const char *node)
{
    static char code[AUTH_TOKEN_MAX];
    struct scene_answer a = scene_call(s, enroll_make, scene_request(node, NULL, NULL), NULL);

    assert_int_equal(a.status, 201);
    (void)snprintf(code, sizeof(code), "%s", json_string_value(json_object_get(a.body, "code")));
    return code;
}

/* Trade it for a token, which the agent has made. Returns the status. */
static int trade(struct scene *s, const char *code, const char *token)
{
    return scene_call(s, enroll_join, scene_request(NULL, NULL, NULL),
                      json_pack("{s:s, s:s}", "code", code, "token", token))
        .status;
}

static const char one[] = "mst_111111111111111111111111111111111111111111111111";
static const char two[] = "mst_222222222222222222222222222222222222222222222222";

static const char *node_of(const char *token)
{
    static char node[JOB_NODE_MAX];
    struct http_identity who = {.node = ""};

    if (auth_look_up(auth, token, 1700000000 * SECOND, &who) != HTTP_AUTH_KNOWN)
        return "";
    (void)snprintf(node, sizeof(node), "%s", who.node);
    return node;
}

static void a_code_is_traded_once_and_its_answer_may_be_asked_for_again(void **state)
{
    struct scene *s = *state;
    char code[AUTH_TOKEN_MAX];

    (void)snprintf(code, sizeof(code), "%s", code_for(s, "n1"));
    assert_int_equal(trade(s, "mjc_333333333333333333333333333333333333333333333333", one), 401);
    assert_int_equal(trade(s, code, one), 201);
    assert_string_equal(node_of(one), "n1");
    for (int i = 0; i < 2; i++) { /* also of the server that follows */
        assert_int_equal(trade(s, code, one), 200);
        assert_int_equal(trade(s, code, two), 401);
        assert_string_equal(node_of(two), "");
        restart(s);
    }
}

static void a_code_that_is_not_traded_in_time_is_void(void **state)
{
    struct scene *s = *state;
    char code[AUTH_TOKEN_MAX];

    (void)snprintf(code, sizeof(code), "%s", code_for(s, "n1"));
    fake_clock_pass(&s->clock, AGENT_CODE_S * SECOND);
    scene_turn(s);
    assert_int_equal(trade(s, code, one), 401);
    assert_string_equal(node_of(one), "");
}

static void a_newer_code_and_forgetting_the_node_void_a_code(void **state)
{
    struct scene *s = *state;
    char code[AUTH_TOKEN_MAX];

    (void)snprintf(code, sizeof(code), "%s", code_for(s, "n1"));
    assert_int_equal(trade(s, code_for(s, "n1"), one), 201);
    assert_int_equal(trade(s, code, two), 401);
    (void)snprintf(code, sizeof(code), "%s", code_for(s, "n2"));
    assert_int_equal(scene_call(s, enroll_forget, scene_request("n2", NULL, NULL), NULL).status, 200);
    assert_int_equal(trade(s, code, two), 401);
    assert_int_equal(scene_call(s, enroll_forget, scene_request("n2", NULL, NULL), NULL).status, 404);
}

static void the_token_of_a_node_that_is_forgotten_or_joins_anew_is_good_no_more(void **state)
{
    struct scene *s = *state;

    assert_int_equal(trade(s, code_for(s, "n1"), one), 201);
    assert_int_equal(trade(s, code_for(s, "n1"), two), 201);
    assert_string_equal(node_of(one), "");
    assert_string_equal(node_of(two), "n1");
    restart(s);
    assert_string_equal(node_of(one), "");
    assert_string_equal(node_of(two), "n1");
    assert_int_equal(scene_call(s, enroll_forget, scene_request("n1", NULL, NULL), NULL).status, 200);
    assert_string_equal(node_of(two), "");
    restart(s);
    assert_string_equal(node_of(two), "");
}

static void a_token_that_somebody_has_is_nobody_elses(void **state)
{
    struct scene *s = *state;

    assert_int_equal(trade(s, code_for(s, "n1"), one), 201);
    assert_int_equal(trade(s, code_for(s, "n2"), one), 409);
    assert_string_equal(node_of(one), "n1");
}

static void names_that_no_node_has_and_more_codes_than_there_may_be_are_refused(void **state)
{
    struct scene *s = *state;
    char name[JOB_NODE_MAX];

    assert_int_equal(scene_call(s, enroll_make, scene_request("a node", NULL, NULL), NULL).status, 422);
    for (int i = 0; i < ENROLL_CODES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        (void)code_for(s, name);
    }
    assert_int_equal(scene_call(s, enroll_make, scene_request("more", NULL, NULL), NULL).status, 429);
    (void)code_for(s, "n7"); /* in the place of the one before */
    fake_clock_pass(&s->clock, AGENT_CODE_S * SECOND);
    (void)code_for(s, "more");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(a_code_is_traded_once_and_its_answer_may_be_asked_for_again),
        TEST(a_code_that_is_not_traded_in_time_is_void),
        TEST(a_newer_code_and_forgetting_the_node_void_a_code),
        TEST(the_token_of_a_node_that_is_forgotten_or_joins_anew_is_good_no_more),
        TEST(a_token_that_somebody_has_is_nobody_elses),
        TEST(names_that_no_node_has_and_more_codes_than_there_may_be_are_refused),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
