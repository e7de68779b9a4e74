/* Tokens that admins make and revoke: what may be asked for, what is told, and what never is. */
#include "tests/unit/server/control/scene.h"

#include "base/clock.h"
#include "server/control/auth_load.h"
#include "server/control/tokens.h"
#include "tests/unit/folder.h"

static struct auth *auth;

static int start(void **state)
{
    struct merr err = {""};
    int r = scene_start(state);
    struct scene *s = *state;

    if (r == 0 && auth_start(top, true, s->store, &auth, &err) < 0)
        fail_msg("%s", err.text);
    s->core->cfg.auth = auth;
    return r;
}

static int stop(void **state)
{
    int r = scene_stop(state);

    auth_free(auth);
    return r;
}

static struct scene_answer create(struct scene *s, const char *body)
{
    json_t *doc = json_loads(body, 0, NULL);

    assert_non_null(doc);
    return scene_call(s, tokens_create, scene_request(NULL, NULL, NULL), doc);
}

/* Wall time of the scene and so many seconds, as people write it. */
static const char *in_s(struct scene *s, int64_t seconds)
{
    static char text[40];

    clock_rfc3339(s->clock.wall_us + seconds * SECOND, text);
    return text;
}

static void what_is_no_token_to_make_is_refused_by_its_field(void **state)
{
    static const struct {
        const char *body, *code;
    } rows[] = {
        {"{}", "user-invalid"},
        {"{\"user\": \"\"}", "user-invalid"},
        {"{\"user\": 5}", "user-invalid"},
        {"{\"user\": \"a b\"}", "user-invalid"},
        {"{\"user\": \"a/b\"}", "user-invalid"},
        {"{\"user\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", "user-invalid"},
        {"{\"user\": \"ann\", \"role\": \"agent\"}", "role-invalid"},
        {"{\"user\": \"ann\", \"role\": \"none\"}", "role-invalid"},
        {"{\"user\": \"ann\", \"role\": 7}", "role-invalid"},
        {"{\"user\": \"ann\", \"rights\": \"all\"}", "unknown-field"},
        {"{\"user\": \"ann\", \"expires_at\": \"tomorrow\"}", "expiry-invalid"},
        {"{\"user\": \"ann\", \"expires_at\": 1700000099}", "expiry-invalid"},
        {"{\"user\": \"ann\", \"expires_at\": \"2001-01-01T00:00:00Z\"}", "expiry-invalid"},
        {"{\"user\": \"ann\", \"expires_at\": \"2999-01-01T00:00:00Z\"}", "expiry-invalid"},
        {"{\"user\": \"ann\", \"unix_user\": \"root\"}", "unix-user-invalid"},
        {"{\"user\": \"ann\", \"unix_user\": \"\"}", "unix-user-invalid"},
        {"{\"user\": \"ann\", \"unix_user\": \"-rf\"}", "unix-user-invalid"},
        {"{\"user\": \"ann\", \"unix_user\": \"0\"}", "unix-user-invalid"},
        {"{\"user\": \"ann\", \"unix_user\": \"a:b\"}", "unix-user-invalid"},
        {"{\"user\": \"ann\", \"unix_user\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", "unix-user-invalid"},
    };
    struct scene *s = *state;
    size_t before = json_array_size(
        json_object_get(scene_call(s, tokens_list, scene_request(NULL, NULL, NULL), NULL).body, "tokens"));

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct scene_answer a = create(s, rows[i].body);

        if (a.status != 422 || !strstr(json_string_value(json_object_get(a.body, "type")), rows[i].code))
            fail_msg("%s: %d %s", rows[i].body, a.status, json_string_value(json_object_get(a.body, "type")));
    }
    assert_int_equal(json_array_size(json_object_get(
                         scene_call(s, tokens_list, scene_request(NULL, NULL, NULL), NULL).body, "tokens")),
                     before);
}

static void a_token_is_told_once_and_is_good_until_it_is_revoked(void **state)
{
    struct scene *s = *state;
    struct http_identity who;
    struct scene_answer a = create(s, "{\"user\": \"eve\", \"role\": \"viewer\", \"unix_user\": \"eve-1\"}");
    char token[AUTH_TOKEN_MAX], id[16], *listed;

    assert_int_equal(a.status, 201);
    (void)snprintf(token, sizeof(token), "%s", json_string_value(json_object_get(a.body, "token")));
    (void)snprintf(id, sizeof(id), "%s", json_string_value(json_object_get(a.body, "id")));
    assert_int_equal(auth_look_up(auth, token, s->clock.wall_us, &who), HTTP_AUTH_KNOWN);
    assert_string_equal(who.user, "eve");
    assert_int_equal(who.role, ROLE_VIEWER);
    assert_string_equal(who.unix_user, "eve-1");
    listed = json_dumps(scene_call(s, tokens_list, scene_request(NULL, NULL, NULL), NULL).body, 0);
    assert_non_null(strstr(listed, id));
    assert_null(strstr(listed, token));
    assert_null(strstr(listed, "mst_"));
    free(listed);
    assert_int_equal(scene_call(s, tokens_revoke, scene_request(id, NULL, NULL), NULL).status, 200);
    assert_int_equal(auth_look_up(auth, token, s->clock.wall_us, &who), HTTP_AUTH_UNKNOWN);
    assert_int_equal(scene_call(s, tokens_revoke, scene_request(id, NULL, NULL), NULL).status, 404);
}

static void a_token_is_good_until_the_very_second_that_it_was_made_for(void **state)
{
    struct scene *s = *state;
    struct http_identity who;
    char body[160], token[AUTH_TOKEN_MAX];
    struct scene_answer a;

    (void)snprintf(body, sizeof(body), "{\"user\": \"eve\", \"expires_at\": \"%s\"}", in_s(s, 60));
    a = create(s, body);
    assert_int_equal(a.status, 201);
    (void)snprintf(token, sizeof(token), "%s", json_string_value(json_object_get(a.body, "token")));
    assert_int_equal(auth_look_up(auth, token, s->clock.wall_us + 58 * SECOND, &who), HTTP_AUTH_KNOWN);
    assert_int_equal(auth_look_up(auth, token, s->clock.wall_us + 61 * SECOND, &who), HTTP_AUTH_EXPIRED);
}

static bool always_fives(void *arg, void *bytes, size_t n)
{
    memset(bytes, 0x55, n);
    return *(bool *)arg;
}

static void a_token_is_what_chance_gives_and_none_is_made_without(void **state)
{
    struct scene *s = *state;
    bool there_is = true;
    struct chance fives = {.draw = always_fives, .arg = &there_is};
    struct scene_answer a;

    s->core->cfg.chance = &fives;
    a = create(s, "{\"user\": \"eve\"}");
    assert_int_equal(a.status, 201);
    assert_string_equal(json_string_value(json_object_get(a.body, "token")),
                        "mst_555555555555555555555555555555555555555555555555");
    there_is = false;
    assert_int_equal(create(s, "{\"user\": \"eve\"}").status, 503);
}

static void the_tokens_of_files_are_not_revoked_here(void **state)
{
    struct scene *s = *state;
    json_t *all = json_object_get(scene_call(s, tokens_list, scene_request(NULL, NULL, NULL), NULL).body, "tokens");
    char id[16];
    struct scene_answer a;

    assert_true(json_array_size(all) > 0);
    (void)snprintf(id, sizeof(id), "%s", json_string_value(json_object_get(json_array_get(all, 0), "id")));
    a = scene_call(s, tokens_revoke, scene_request(id, NULL, NULL), NULL);
    assert_int_equal(a.status, 409);
    assert_non_null(strstr(json_string_value(json_object_get(a.body, "type")), "file-token"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_token_to_make_is_refused_by_its_field),
        TEST(a_token_is_told_once_and_is_good_until_it_is_revoked),
        TEST(a_token_is_good_until_the_very_second_that_it_was_made_for),
        TEST(a_token_is_what_chance_gives_and_none_is_made_without),
        TEST(the_tokens_of_files_are_not_revoked_here),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
