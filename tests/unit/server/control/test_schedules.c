/* test_schedules - when jobs are made again, with whose rights, what is left out, and what outlives the server */
#include "tests/unit/server/control/scene.h"

#include "server/control/auth_load.h"
#include "server/control/change.h"
#include "server/control/schedule_calls.h"
#include "server/control/schedules.h"
#include "server/control/tokens.h"
#include "tests/unit/folder.h"

#define SPEC "{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"command\": {\"argv\": [\"x\"]}}"
#define MINUTE 60

static struct auth *auth;
static char token_id[16];

static void know(struct scene *s, const char *user)
{
    struct scene_answer a = scene_call(s, tokens_create, scene_request(NULL, NULL, NULL),
                                       json_pack("{s:s, s:s}", "user", user, "role", "user"));

    assert_int_equal(a.status, 201);
    (void)snprintf(token_id, sizeof(token_id), "%s", json_string_value(json_object_get(a.body, "id")));
}

static int start(void **state)
{
    struct merr err = {""};
    int r = scene_start(state);
    struct scene *s = *state;

    if (r == 0 && auth_start(top, true, s->store, &auth, &err) < 0)
        fail_msg("%s", err.text);
    s->cfg.auth = s->core->cfg.auth = auth;
    know(s, "ann");
    return r;
}

static int stop(void **state)
{
    int r = scene_stop(state);

    auth_free(auth);
    return r;
}

static struct http_req *by(const char *user, enum http_role role, const char *name)
{
    struct http_req *r = scene_request(name, NULL, NULL);

    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    r->identity.role = role;
    return r;
}

/* more is taken over. The status. */
static int add_as(struct scene *s, const char *user, const char *name, const char *cron, json_t *more)
{
    json_t *body = json_pack("{s:s, s:s, s:o}", "name", name, "cron", cron, "spec", json_loads(SPEC, 0, NULL));

    (void)json_object_update(body, more);
    json_decref(more);
    return scene_call(s, schedule_calls_add, by(user, ROLE_USER, NULL), body).status;
}

static int add(struct scene *s, const char *name, const char *cron, json_t *more)
{
    return add_as(s, "ann", name, cron, more);
}

static const struct recurring *of(struct scene *s, const char *name)
{
    const struct recurring *r = schedules_find(s->core, "ann", name);

    assert_non_null(r);
    return r;
}

static void end_job(struct scene *s, uint64_t job)
{
    struct job_cause cause = {
        .kind = CAUSE_CANCEL, .actor = "user:ann", .text = "enough", .class_ = JOB_CLASS_CANCELLED};
    struct merr err;

    assert_int_equal(change_job(s->core, scene_entry(s, job), &cause, &err), 0);
    scene_turn(s);
}

/* The scene's clock begins at 2023-11-14 22:13:20 UTC. */
static void a_job_is_made_at_each_time_with_its_users_name(void **state)
{
    struct scene *s = *state;
    uint64_t first;

    assert_int_equal(add(s, "often", "*/5 * * * *", NULL), 201);
    assert_true(of(s, "often")->next_us == 1700000100 * SECOND); /* 22:15 */
    scene_wait(s, 98);
    assert_int_equal(of(s, "often")->runs, 0);
    scene_wait(s, 3);
    first = of(s, "often")->last_job;
    assert_int_equal(of(s, "often")->runs, 1);
    assert_string_equal(scene_entry(s, first)->job.user, "ann");
    end_job(s, first);
    scene_wait(s, 5 * MINUTE);
    assert_int_equal(of(s, "often")->runs, 2);
    assert_true(of(s, "often")->last_job > first);
    assert_int_equal(of(s, "often")->skipped, 0);
}

static void while_the_last_one_has_not_ended_a_time_is_left_out_or_waits_by_the_users_choice(void **state)
{
    struct scene *s = *state;
    uint64_t first;

    assert_int_equal(add(s, "skip", "*/5 * * * *", NULL), 201);
    assert_int_equal(add(s, "queue", "*/5 * * * *", json_pack("{s:s}", "overlap", "queue")), 201);
    scene_wait(s, 2 * MINUTE);
    first = of(s, "skip")->last_job;
    assert_false(scene_entry(s, first)->job.singleton);
    assert_true(scene_entry(s, of(s, "queue")->last_job)->job.singleton);
    scene_wait(s, 10 * MINUTE);
    assert_int_equal(of(s, "skip")->runs, 1);
    assert_int_equal(of(s, "skip")->skipped, 2);
    assert_non_null(strstr(of(s, "skip")->why, "has not ended yet"));
    assert_int_equal(of(s, "queue")->runs, 3);
    end_job(s, first);
    scene_wait(s, 5 * MINUTE);
    assert_int_equal(of(s, "skip")->runs, 2);
    assert_string_equal(of(s, "skip")->why, "");
}

static void what_was_missed_is_made_up_for_once_or_not_at_all(void **state)
{
    struct scene *s = *state;

    assert_int_equal(add(s, "not", "0 * * * *", NULL), 201);
    assert_int_equal(add(s, "once", "0 * * * *", json_pack("{s:s}", "missed", "run-once")), 201);
    scene_halt(s);
    fake_clock_pass(&s->clock, 10 * 3600 * SECOND);
    scene_boot(s);
    scene_turn(s);
    assert_int_equal(of(s, "not")->runs, 0);
    assert_int_equal(of(s, "not")->skipped, 1);
    assert_string_equal(of(s, "not")->why, "no server ran at its time");
    assert_int_equal(of(s, "once")->runs, 1);
    scene_wait(s, 3600);
    assert_int_equal(of(s, "not")->runs, 1); /* and from then on as ever */
}

static void a_schedule_outlives_the_server_and_no_time_is_taken_twice(void **state)
{
    struct scene *s = *state;

    assert_int_equal(add(s, "daily", "@daily",
                         json_pack("{s:s, s:s, s:s}", "timezone", "UTC", "overlap", "queue", "missed", "run-once")),
                     201);
    scene_wait(s, 2 * 3600);
    assert_int_equal(of(s, "daily")->runs, 1);
    scene_restart(s);
    scene_turn(s);
    assert_int_equal(of(s, "daily")->runs, 1);
    assert_string_equal(of(s, "daily")->cron, "@daily");
    assert_true(of(s, "daily")->queue && of(s, "daily")->run_once && !of(s, "daily")->off);
    s->clock.wall_us -= 3 * 3600 * SECOND; /* the clock is put back over midnight */
    scene_wait(s, 2 * 3600);
    assert_int_equal(of(s, "daily")->runs, 1);
}

static void a_user_without_a_token_makes_no_jobs_any_more(void **state)
{
    struct scene *s = *state;

    assert_int_equal(add(s, "often", "*/5 * * * *", NULL), 201);
    assert_int_equal(scene_call(s, tokens_revoke, scene_request(token_id, NULL, NULL), NULL).status, 200);
    scene_wait(s, 2 * MINUTE);
    assert_int_equal(of(s, "often")->runs, 0);
    assert_true(of(s, "often")->off);
    assert_non_null(strstr(of(s, "often")->why, "no token"));
    assert_int_equal(scene_call(s, schedule_calls_run, by("ann", ROLE_USER, "often"), NULL).status, 409);
    know(s, "ann");
    assert_int_equal(
        scene_call(s, schedule_calls_patch, by("ann", ROLE_USER, "often"), json_pack("{s:b}", "enabled", 1)).status,
        200);
    assert_string_equal(of(s, "often")->cron, "*/5 * * * *");
    assert_string_equal(of(s, "often")->zone, "UTC");
    scene_wait(s, 10 * MINUTE);
    assert_int_equal(of(s, "often")->runs, 1);
}

static void ceilings_hold_as_for_what_the_user_submits(void **state)
{
    struct scene *s = *state;

    assert_int_equal(add(s, "often", "*/5 * * * *", json_pack("{s:s}", "overlap", "queue")), 201);
    s->core->cfg.user.jobs = 2;
    scene_wait(s, 20 * MINUTE);
    assert_int_equal(of(s, "often")->runs, 2);
    assert_true(of(s, "often")->skipped >= 2);
    assert_non_null(strstr(of(s, "often")->why, "2"));
}

static void nobody_sees_or_changes_anothers_and_admins_have_all_by_their_ids(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    assert_int_equal(add(s, "mine", "@daily", NULL), 201);
    assert_int_equal(scene_call(s, schedule_calls_get, by("bob", ROLE_USER, "mine"), NULL).status, 404);
    assert_int_equal(scene_call(s, schedule_calls_get, by("bob", ROLE_USER, of(s, "mine")->id), NULL).status, 404);
    assert_int_equal(scene_call(s, schedule_calls_run, by("bob", ROLE_USER, of(s, "mine")->id), NULL).status, 404);
    assert_int_equal(scene_call(s, schedule_calls_drop, by("bob", ROLE_USER, of(s, "mine")->id), NULL).status, 404);
    a = scene_call(s, schedule_calls_list, by("bob", ROLE_USER, NULL), NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "schedules")), 0);
    a = scene_call(s, schedule_calls_list, by("root", ROLE_ADMIN, NULL), NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "schedules")), 1);
    a = scene_call(s, schedule_calls_drop, by("root", ROLE_ADMIN, of(s, "mine")->id), NULL);
    assert_int_equal(a.status, 200);
    assert_null(schedules_find(s->core, "ann", "mine"));
    scene_restart(s);
    assert_int_equal(s->core->schedules->n, 0);
}

static void what_cannot_be_is_refused_by_its_field(void **state)
{
    static const struct {
        const char *more, *says;
    } t[] = {
        {"{\"cron\": \"61 * * * *\"}", "minute"},
        {"{\"cron\": 5}", "'cron'"},
        {"{\"timezone\": \"Mars/Olympus\"}", "Mars/Olympus"},
        {"{\"timezone\": \"../../etc/passwd\"}", "no name of a time zone"},
        {"{\"overlap\": \"both\"}", "skip or queue"},
        {"{\"missed\": \"all\"}", "skip or run-once"},
        {"{\"name\": \"a b\"}", "'name'"},
        {"{\"name\": \"\"}", "'name'"},
        {"{\"spec\": []}", "'spec'"},
        {"{\"spec\": {\"name\": \"a\"}}", "spec"},
        {"{\"more\": 1}", "'more'"},
    };
    struct scene *s = *state;
    struct scene_answer a;

    for (size_t i = 0; i < COUNT(t); i++) {
        json_t *body = json_pack("{s:s, s:s, s:o}", "name", "a", "cron", "@daily", "spec", json_loads(SPEC, 0, NULL)),
               *more = json_loads(t[i].more, 0, NULL);

        (void)json_object_update(body, more);
        json_decref(more);
        a = scene_call(s, schedule_calls_add, by("ann", ROLE_USER, NULL), body);
        if (a.status != 422 || !strstr(json_string_value(json_object_get(a.body, "detail")), t[i].says))
            fail_msg("%s: %d %s", t[i].more, a.status, json_string_value(json_object_get(a.body, "detail")));
    }
    assert_int_equal(s->core->jobs.n_order, 0);
}

static void schedules_of_a_user_have_a_limit_and_names_are_their_own(void **state)
{
    struct scene *s = *state;
    char name[16];

    for (int i = 0; i < SCHEDULES_USER_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(add(s, name, "@yearly", NULL), 201);
    }
    assert_int_equal(add(s, "more", "@yearly", NULL), 409);
    assert_int_equal(add(s, "n0", "@yearly", NULL), 409);
    assert_int_equal(add_as(s, "bob", "n0", "@yearly", NULL), 201);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)
        TEST(a_job_is_made_at_each_time_with_its_users_name),
        TEST(while_the_last_one_has_not_ended_a_time_is_left_out_or_waits_by_the_users_choice),
        TEST(what_was_missed_is_made_up_for_once_or_not_at_all),
        TEST(a_schedule_outlives_the_server_and_no_time_is_taken_twice),
        TEST(a_user_without_a_token_makes_no_jobs_any_more),
        TEST(ceilings_hold_as_for_what_the_user_submits),
        TEST(nobody_sees_or_changes_anothers_and_admins_have_all_by_their_ids),
        TEST(what_cannot_be_is_refused_by_its_field),
        TEST(schedules_of_a_user_have_a_limit_and_names_are_their_own),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
