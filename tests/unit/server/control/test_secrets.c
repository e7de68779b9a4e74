/* test_secrets - values that are told to nobody but the jobs of their user */
#include "tests/unit/server/control/scene.h"

#include "server/control/sealing.h"
#include "server/control/secrets.h"

#define WITH_SECRET                                                                                                    \
    "{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"command\": {\"argv\": [\"x\"], \"env\": "              \
    "{\"KEY\": {\"secret\": \"key\"}}}}"

static const struct sealing_key key = {"0123456789abcdef"};

static int start(void **state)
{
    int r = scene_start(state);

    ((struct scene *)*state)->core->cfg.secret_key = &key;
    return r;
}

static struct http_req *by(const char *user, const char *name)
{
    struct http_req *r = scene_request(name, NULL, NULL);

    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    return r;
}

static int put(struct scene *s, const char *user, const char *name, const char *value)
{
    return scene_call(s, secrets_put, by(user, name), json_pack("{s:s}", "value", value)).status;
}

static int drop(struct scene *s, const char *user, const char *name)
{
    return scene_call(s, secrets_drop, by(user, name), NULL).status;
}

/* How many the user has; none of the answer's bytes are of this value. */
static size_t count(struct scene *s, const char *user, const char *value)
{
    struct scene_answer a = scene_call(s, secrets_list, by(user, NULL), NULL);
    char *text = json_dumps(a.body, 0);

    assert_int_equal(a.status, 200);
    assert_null(strstr(text, value));
    free(text);
    return json_array_size(json_object_get(a.body, "secrets"));
}

static void a_secret_is_its_users_and_listed_without_its_value(void **state)
{
    struct scene *s = *state;

    assert_int_equal(put(s, "ann", "key", "hunter2"), 201);
    assert_int_equal(put(s, "ann", "key", "hunter3"), 200);
    assert_int_equal(put(s, "bob", "key", "other"), 201);
    for (int i = 0; i < 2; i++) { /* also of the server that follows */
        assert_int_equal(count(s, "ann", "hunter"), 1);
        assert_int_equal(count(s, "bob", "hunter"), 1);
        assert_int_equal(count(s, "carol", "hunter"), 0);
        assert_int_equal(drop(s, "carol", "key"), 404);
        scene_restart(s);
        s->core->cfg.secret_key = &key;
    }
    assert_int_equal(drop(s, "bob", "key"), 200);
    assert_int_equal(count(s, "ann", "hunter"), 1);
    scene_restart(s);
    assert_int_equal(count(s, "bob", "other"), 0);
}

static void names_and_values_that_cannot_be_are_refused(void **state)
{
    struct scene *s = *state;
    char *large = malloc(SECRETS_VALUE_MAX + 2);

    assert_non_null(large);
    memset(large, 'x', SECRETS_VALUE_MAX + 1);
    large[SECRETS_VALUE_MAX + 1] = '\0';
    assert_int_equal(put(s, "ann", "k", large), 422);
    large[SECRETS_VALUE_MAX] = '\0';
    assert_int_equal(put(s, "ann", "k", large), 201);
    free(large);
    assert_int_equal(put(s, "ann", "../k", "v"), 422);
    assert_int_equal(put(s, "ann", "", "v"), 422);
    assert_int_equal(scene_call(s, secrets_put, by("ann", "k"), json_pack("{s:i}", "value", 1)).status, 422);
    assert_int_equal(
        scene_call(s, secrets_put, by("ann", "k"), json_pack("{s:s, s:s}", "value", "v", "more", "v")).status, 422);
    assert_int_equal(
        scene_call(s, secrets_put, by("ann", "k"), json_pack("{s:o}", "value", json_stringn("a\0b", 3))).status, 422);
    s->core->cfg.secret_key = NULL;
    assert_int_equal(put(s, "ann", "other", "v"), 503);
}

static void a_user_has_so_many_and_others_have_room_still(void **state)
{
    struct scene *s = *state;
    char name[16];

    for (int i = 0; i < SECRETS_USER_MAX; i++) {
        (void)snprintf(name, sizeof(name), "k%d", i);
        assert_int_equal(put(s, "ann", name, "v"), 201);
    }
    assert_int_equal(put(s, "ann", "more", "v"), 409);
    assert_int_equal(put(s, "ann", "k7", "w"), 200);
    assert_int_equal(put(s, "bob", "more", "v"), 201);
    assert_int_equal(drop(s, "ann", "k7"), 200);
    assert_int_equal(put(s, "ann", "more", "v"), 201);
}

static void a_secret_stays_while_a_job_of_its_user_names_it(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_try_submit(s, WITH_SECRET), 0); /* there is no such secret yet */
    assert_int_equal(put(s, "ann", "key", "v"), 201);
    assert_int_equal(put(s, "bob", "key", "v"), 201);
    job = scene_submit(s, WITH_SECRET);
    assert_int_equal(drop(s, "ann", "key"), 409);
    assert_int_equal(drop(s, "bob", "key"), 200);
    scene_wait(s, 1);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(drop(s, "ann", "key"), 409);
    scene_report_all(s, job, "exited", 0);
    assert_int_equal(drop(s, "ann", "key"), 200);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, scene_stop)
    const struct CMUnitTest tests[] = {
        TEST(a_secret_is_its_users_and_listed_without_its_value),
        TEST(names_and_values_that_cannot_be_are_refused),
        TEST(a_user_has_so_many_and_others_have_room_still),
        TEST(a_secret_stays_while_a_job_of_its_user_names_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
