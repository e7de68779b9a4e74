/* test_auth - tokens over a store in memory: who they are, until when, and what is left after a restart */
#include "tests/unit/folder.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "server/control/auth_load.h"
#include "tests/memory/store_memory.h"
#include "tests/unit/fake_clock.h"

#define SECOND INT64_C(1000000)
#define NOW (1700000000 * SECOND)

struct scene {
    struct fake_clock clock;
    struct store_memory *memory;
    struct store_connection *connection;
    struct store_backend backend;
    struct store *store;
    struct auth *auth;
    bool shared;
};

static void boot(struct scene *s)
{
    struct merr err = {""};

    s->connection = store_memory_connect(s->memory, &s->backend);
    if (store_open(&s->backend, &(struct store_cfg){.force = true, .lease_s = STORE_LEASE_S}, &s->store, &err) < 0 ||
        auth_start(top, s->shared, s->store, &s->auth, &err) < 0)
        fail_msg("%s", err.text);
}

static void restart(struct scene *s)
{
    assert_int_equal(auth_keep(s->auth, s->store), 0);
    assert_int_equal(store_commit(s->store, NULL, NULL), 0);
    auth_free(s->auth);
    store_close(s->store);
    store_connection_free(s->connection);
    boot(s);
}

static int start(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->shared = true;
    s->memory = store_memory_new(fake_clock_init(&s->clock, 1000 * SECOND, NOW));
    boot(s);
    return 0;
}

static int stop(void **state)
{
    struct scene *s = *state;

    auth_free(s->auth);
    store_close(s->store);
    store_connection_free(s->connection);
    store_memory_free(s->memory);
    (void)remove(at("token"));
    (void)remove(at("agent-token"));
    free(s);
    return 0;
}

static void make(struct scene *s, const char *user, int64_t expires_us, char token[AUTH_TOKEN_MAX])
{
    struct auth_wanted wanted = {.who.role = ROLE_USER, .expires_us = expires_us};
    json_t *view;

    (void)snprintf(wanted.who.user, sizeof(wanted.who.user), "%s", user);
    assert_int_equal(auth_make(s->auth, chance_real(), &wanted, NOW, token, &view, NULL), 0);
    json_decref(view);
}

static int bind_to(struct scene *s, const char *node, const char *token)
{
    char hash[AUTH_HASH_MAX];

    assert_int_equal(auth_hash(token, hash), 0);
    return auth_bind(s->auth, node, hash, NOW, NULL);
}

static void a_token_is_refused_from_its_expiry_on_also_after_a_restart(void **state)
{
    struct scene *s = *state;
    struct http_identity who;
    char token[AUTH_TOKEN_MAX], lasting[AUTH_TOKEN_MAX];

    make(s, "ann", NOW + 10 * SECOND, token);
    make(s, "bob", 0, lasting);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(auth_look_up(s->auth, token, NOW + 10 * SECOND - 1, &who), HTTP_AUTH_KNOWN);
        assert_string_equal(who.user, "ann");
        assert_int_equal(auth_look_up(s->auth, token, NOW + 10 * SECOND, &who), HTTP_AUTH_EXPIRED);
        assert_int_equal(auth_look_up(s->auth, lasting, NOW + 9999999 * SECOND, &who), HTTP_AUTH_KNOWN);
        restart(s);
    }
}

static const char *last_used(struct scene *s, const char *user)
{
    static char text[64];
    json_t *all = auth_list(s->auth), *one;
    size_t i;

    text[0] = '\0';
    json_array_foreach (all, i, one) {
        const char *used = json_string_value(json_object_get(one, "last_used_at"));

        if (strcmp(json_string_value(json_object_get(one, "user")), user) == 0 && used)
            (void)snprintf(text, sizeof(text), "%s", used);
    }
    json_decref(all);
    return text;
}

static void the_last_use_is_told_to_a_minute_and_stored_each_ten_minutes_at_most(void **state)
{
    struct scene *s = *state;
    struct http_identity who;
    char token[AUTH_TOKEN_MAX];
    int writes = 0;

    make(s, "ann", 0, token);
    assert_string_equal(last_used(s, "ann"), "");
    assert_int_equal(auth_keep(s->auth, s->store), 0);
    assert_int_equal(store_commit(s->store, NULL, NULL), 0);
    for (int second = 0; second < 3600; second++) { /* used each second for an hour */
        assert_int_equal(auth_look_up(s->auth, token, NOW + second * SECOND, &who), HTTP_AUTH_KNOWN);
        auth_keep_used(s->auth);
        assert_int_equal(auth_keep(s->auth, s->store), 0);
        writes += !store_batch_empty(s->store);
        assert_int_equal(store_commit(s->store, NULL, NULL), 0);
    }
    assert_in_range(writes, 5, 7);
    assert_string_equal(last_used(s, "ann"), "2023-11-14T23:12:20.000Z");
    restart(s);
    assert_string_equal(last_used(s, "ann"), "2023-11-14T23:03:20.000Z"); /* as it was stored last */
}

static void a_token_of_a_node_takes_the_place_of_the_one_before(void **state)
{
    struct scene *s = *state;
    struct http_identity who;
    char other[AUTH_TOKEN_MAX];

    assert_int_equal(bind_to(s, "n1", "mst_one"), 0);
    assert_int_equal(bind_to(s, "n2", "mst_two"), 0);
    assert_int_equal(bind_to(s, "n1", "mst_three"), 1);
    assert_int_equal(bind_to(s, "n3", "mst_two"), -EEXIST); /* nobody takes another's, */
    make(s, "ann", 0, other);
    assert_int_equal(bind_to(s, "n3", other), -EEXIST); /* nor a person's */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(auth_look_up(s->auth, "mst_one", NOW, &who), HTTP_AUTH_UNKNOWN);
        assert_int_equal(auth_look_up(s->auth, "mst_three", NOW, &who), HTTP_AUTH_KNOWN);
        assert_int_equal(who.role, ROLE_AGENT);
        assert_string_equal(who.node, "n1");
        assert_int_equal(auth_agent_may(s->auth, &who, "n1"), AGENT_MAY);
        assert_int_equal(auth_agent_may(s->auth, &who, "n2"), AGENT_OTHER_NODE);
        restart(s);
    }
    assert_int_equal(auth_revoke_node(s->auth, "n1"), 1);
    assert_int_equal(auth_look_up(s->auth, "mst_three", NOW, &who), HTTP_AUTH_UNKNOWN);
    assert_int_equal(auth_look_up(s->auth, "mst_two", NOW, &who), HTTP_AUTH_KNOWN);
}

static void the_shared_token_speaks_for_no_node_that_is_enrolled_nor_where_many_share_a_server(void **state)
{
    struct scene *s = *state;
    const struct http_identity shared = {.role = ROLE_AGENT, .user = "agent"};

    assert_int_equal(auth_agent_may(s->auth, &shared, "n1"), AGENT_MAY);
    assert_int_equal(bind_to(s, "n1", "mst_one"), 0);
    assert_int_equal(auth_agent_may(s->auth, &shared, "n1"), AGENT_ENROLLED);
    assert_int_equal(auth_agent_may(s->auth, &shared, "n2"), AGENT_MAY);
    s->shared = false;
    restart(s);
    assert_int_equal(auth_agent_may(s->auth, &shared, "n1"), AGENT_NOT_SHARED);
    assert_int_equal(auth_agent_may(s->auth, &shared, "n2"), AGENT_NOT_SHARED);
    assert_int_equal(remove(at("agent-token")), 0);
    restart(s);
    assert_int_not_equal(access(at("agent-token"), F_OK), 0); /* it is not made where nobody may use it */
}

static void thousands_of_tokens_are_found_each(void **state)
{
    struct scene *s = *state;
    struct http_identity who;
    char name[32];

    for (int i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(bind_to(s, name, name), 0);
    }
    for (int i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(auth_look_up(s->auth, name, NOW, &who), HTTP_AUTH_KNOWN);
        assert_string_equal(who.node, name);
    }
    assert_int_equal(auth_look_up(s->auth, "n3000", NOW, &who), HTTP_AUTH_UNKNOWN);
}

int main(void)
{
#define WITH_STORE(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        WITH_STORE(a_token_is_refused_from_its_expiry_on_also_after_a_restart),
        WITH_STORE(the_last_use_is_told_to_a_minute_and_stored_each_ten_minutes_at_most),
        WITH_STORE(a_token_of_a_node_takes_the_place_of_the_one_before),
        WITH_STORE(the_shared_token_speaks_for_no_node_that_is_enrolled_nor_where_many_share_a_server),
        WITH_STORE(thousands_of_tokens_are_found_each),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
