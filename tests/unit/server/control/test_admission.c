/* Who may have which jobs: members and ceilings of projects, what one user may have, and what is kept for admins. */
#include "tests/unit/server/control/scene.h"

#include "server/control/admission.h"
#include "server/control/events.h"
#include "server/control/timeline.h"

#define JOB(project, priority, devices)                                                                                \
    "project: " project "\npriority: " #priority "\ndevices: {min: " #devices ", max: " #devices                       \
    "}\ncommand: {argv: [x]}\n"

static struct http_req *request_of(const char *user, enum http_role role, const char *a, const char *b)
{
    struct http_req *r = scene_request(a, b, NULL);

    r->identity.role = role;
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    return r;
}

/* Submit as somebody. The status, with the words of a refusal in *ret_detail (NULL: not wanted). */
static int submit(struct scene *s, const char *user, enum http_role role, const char *spec, const char **ret_detail)
{
    static json_t *last;
    struct http_req *r = request_of(user, role, NULL, NULL);
    struct call *call = call_new(r, scene_run);
    struct faults faults = {.n = 0};
    json_t *full;
    int status;

    assert_int_equal(spec_from_text(spec, strlen(spec), &call->spec, &faults), 0);
    full = spec_to_json(call->spec);
    call->text = json_dumps(full, JSON_COMPACT);
    json_decref(full);
    scene_runs = jobs_submit;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    json_decref(last);
    last = json_loads(r->out, 0, NULL);
    if (ret_detail)
        *ret_detail = json_string_value(json_object_get(last, "detail"));
    status = r->status;
    http_req_unref(r);
    return status;
}

static void put(struct scene *s, const char *project, const char *body)
{
    assert_int_equal(
        scene_call(s, projects_put, request_of("root", ROLE_ADMIN, project, NULL), json_loads(body, 0, NULL)).status,
        200);
}

static void a_user_who_is_no_member_submits_nothing_into_prod(void **state)
{
    struct scene *s = *state;
    const char *detail;

    put(s, "prod", "{\"members\": {\"ann\": \"member\", \"max\": \"manager\"}}");
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 50, 1), &detail), 403);
    assert_non_null(strstr(detail, "'eve' is no member of project 'prod'"));
    assert_int_equal(submit(s, "ann", ROLE_USER, JOB("prod", 50, 1), NULL), 201);
    assert_int_equal(submit(s, "root", ROLE_ADMIN, JOB("prod", 50, 1), NULL), 201);
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("default", 50, 1), NULL), 201); /* which is everyone's */
    put(s, "prod", "{\"quota\": 8}");                                                /* members stay */
    scene_restart(s);
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 50, 1), NULL), 403);
    put(s, "prod", "{\"members\": null}");
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 50, 1), NULL), 201);
}

static void a_ceiling_is_told_with_its_number(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    const char *detail;

    put(s, "prod", "{\"max_priority\": 60, \"max_devices_per_user\": 4, \"max_queued\": 2}");
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 100, 1), &detail), 422);
    assert_non_null(strstr(detail, "priority 100 is over 60"));
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 60, 5), &detail), 422);
    assert_non_null(strstr(detail, "5 devices are over 4"));
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 60, 4), NULL), 201);
    r = request_of("eve", ROLE_USER, "j1", NULL); /* nor does a change get over it */
    assert_int_equal(scene_call(s, jobs_patch, r, json_pack("{s:i}", "priority", 61)).status, 422);
    r = request_of("root", ROLE_ADMIN, "j1", NULL);
    assert_int_equal(scene_call(s, jobs_patch, r, json_pack("{s:i}", "priority", 100)).status, 200);
    r = request_of("eve", ROLE_USER, "j1", NULL); /* one that was given more may get less of it */
    assert_int_equal(scene_call(s, jobs_patch, r, json_pack("{s:i}", "priority", 90)).status, 200);
    assert_int_equal(submit(s, "bob", ROLE_USER, JOB("prod", 50, 1), NULL), 201);
    assert_int_equal(submit(s, "bob", ROLE_USER, JOB("prod", 50, 1), &detail), 429);
    assert_non_null(strstr(detail, "2 jobs of project 'prod' are queued"));
}

static int call_member(struct scene *s, scene_fn *fn, const char *by, const char *user, const char *role)
{
    return scene_call(s, fn, request_of(by, ROLE_USER, "prod", user), role ? json_pack("{s:s}", "role", role) : NULL)
        .status;
}

static void a_manager_says_who_is_in_and_acts_on_all_jobs_of_the_project(void **state)
{
    struct scene *s = *state;
    struct http_req *r;

    put(s, "prod", "{\"members\": {\"max\": \"manager\", \"ann\": \"member\"}}");
    assert_int_equal(call_member(s, projects_put_member, "ann", "eve", "member"), 403);
    assert_int_equal(call_member(s, projects_put_member, "max", "eve", "boss"), 422);
    assert_int_equal(call_member(s, projects_put_member, "max", "eve", "member"), 200);
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 50, 1), NULL), 201);
    assert_int_equal(call_member(s, projects_drop_member, "max", "eve", NULL), 200);
    assert_int_equal(call_member(s, projects_drop_member, "max", "eve", NULL), 404);
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("prod", 50, 1), NULL), 403);
    assert_int_equal(scene_call(s, jobs_get, request_of("ann", ROLE_USER, "j1", NULL), NULL).status, 404);
    r = request_of("max", ROLE_USER, "j1", NULL);
    free(r->uri);
    r->uri = strdup("/v1/jobs/j1/cancel");
    assert_int_equal(scene_call(s, jobs_action, r, NULL).status, 202);
}

static void a_project_is_deleted_once_no_job_of_it_is_active(void **state)
{
    struct scene *s = *state;

    put(s, "prod", "{\"quota\": 4}");
    put(s, "red", "{\"members\": {\"ann\": \"member\"}}");
    assert_int_equal(submit(s, "ann", ROLE_USER, JOB("prod", 50, 1), NULL), 201);
    assert_int_equal(scene_call(s, projects_remove, request_of("root", ROLE_ADMIN, "prod", NULL), NULL).status, 409);
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    scene_report_all(s, 1, "running", 0);
    scene_report_all(s, 1, "exited", 0);
    assert_int_equal(scene_call(s, projects_remove, request_of("root", ROLE_ADMIN, "prod", NULL), NULL).status, 200);
    assert_int_equal(scene_call(s, projects_remove, request_of("root", ROLE_ADMIN, "prod", NULL), NULL).status, 404);
    scene_restart(s);
    assert_int_equal(scene_call(s, projects_get, request_of("root", ROLE_ADMIN, "prod", NULL), NULL).status, 404);
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("red", 50, 1), NULL), 403); /* the others stay */
}

/* --- what runs --------------------------------------------------------------------------------------- */

static void a_project_runs_no_more_jobs_than_it_may(void **state)
{
    struct scene *s = *state;

    put(s, "prod", "{\"max_running\": 2}");
    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    for (int i = 0; i < 4; i++)
        assert_int_equal(submit(s, "ann", ROLE_USER, JOB("prod", 50, 1), NULL), 201);
    assert_int_equal(submit(s, "ann", ROLE_USER, JOB("default", 10, 1), NULL), 201);
    scene_wait(s, 1);
    assert_true(scene_entry(s, 1)->job.live && scene_entry(s, 2)->job.live && scene_entry(s, 5)->job.live);
    assert_false(scene_entry(s, 3)->job.live || scene_entry(s, 4)->job.live);
    assert_int_equal(scene_entry(s, 4)->wait.code, EXPLAIN_MAX_RUNNING);
    scene_report_all(s, 1, "running", 0);
    scene_report_all(s, 1, "exited", 0);
    scene_wait(s, 1);
    assert_true(scene_entry(s, 3)->job.live);
    assert_false(scene_entry(s, 4)->job.live);
}

static void a_user_holds_no_more_devices_of_a_project_than_they_may(void **state)
{
    struct scene *s = *state;

    put(s, "prod", "{\"max_devices_per_user\": 3}");
    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    assert_int_equal(submit(s, "ann", ROLE_USER, JOB("prod", 50, 2), NULL), 201);
    assert_int_equal(submit(s, "ann", ROLE_USER, JOB("prod", 50, 2), NULL), 201);
    assert_int_equal(submit(s, "bob", ROLE_USER, JOB("prod", 50, 2), NULL), 201);
    assert_int_equal(
        submit(s, "eve", ROLE_USER, "project: prod\ndevices: {min: 1, max: 8}\ncommand: {argv: [x]}\n", NULL), 201);
    scene_wait(s, 1);
    assert_int_equal(scene_entry(s, 1)->job.n_places, 2);
    assert_false(scene_entry(s, 2)->job.live);
    assert_int_equal(scene_entry(s, 2)->wait.code, EXPLAIN_MAX_DEVICES);
    assert_int_equal(scene_entry(s, 3)->job.n_places, 2);
    assert_in_range(scene_entry(s, 4)->job.n_places, 1, 3); /* one that could use all grows up to the ceiling */
    scene_wait(s, 20);
    assert_in_range(scene_entry(s, 4)->job.n_places, 1, 3);
}

/* --- one user against all ---------------------------------------------------------------------------- */

static void one_users_jobs_have_a_limit_and_others_submit_on(void **state)
{
    struct scene *s = *state;
    const char *detail;

    s->core->cfg.user.jobs = 5;
    for (int i = 0; i < 5; i++)
        assert_int_equal(submit(s, "eve", ROLE_USER, JOB("default", 50, 1), NULL), 201);
    assert_int_equal(submit(s, "eve", ROLE_USER, JOB("default", 50, 1), &detail), 429);
    assert_non_null(strstr(detail, "user 'eve' has 5 jobs"));
    assert_int_equal(submit(s, "ann", ROLE_USER, JOB("default", 50, 1), NULL), 201);
    assert_int_equal(submit(s, "eve", ROLE_ADMIN, JOB("default", 50, 1), NULL), 201);
}

/* 400 specs of 250 kB. */
static void the_bytes_of_one_users_specs_have_a_limit(void **state)
{
    struct scene *s = *state;
    static char spec[300000];
    size_t n = (size_t)snprintf(spec, sizeof(spec), "{\"command\": {\"argv\": [\"x\"");
    int taken = 0, status;

    for (int i = 0; i < 2; i++)
        n += (size_t)snprintf(spec + n, sizeof(spec) - n, ", \"%0125000d\"", 7);
    (void)snprintf(spec + n, sizeof(spec) - n, "]}}");
    while ((status = submit(s, "eve", ROLE_USER, spec, NULL)) == 201)
        taken++;
    assert_int_equal(status, 429);
    assert_in_range(taken, 40, 41); /* of 10 MiB */
    assert_int_equal(submit(s, "ann", ROLE_USER, spec, NULL), 201);
    assert_in_range(s->core->jobs.catalog.active_bytes, 0, (10 << 20) + 300000);
}

/* Follow all events. The status; 200: it is a stream, which ends with the request. */
static int follow(struct scene *s, const char *user, enum http_role role, struct http_req **ret)
{
    static const char accept[] = "Accept\0text/event-stream";
    struct call *call;

    *ret = request_of(user, role, NULL, NULL);
    buf_init(&(*ret)->header_text, 64);
    (void)buf_add(&(*ret)->header_text, accept, sizeof(accept));
    (*ret)->n_headers = 1;
    call = call_new(*ret, scene_run);
    scene_runs = timeline_of_all;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    return (*ret)->state == HTTP_STREAMING ? 200 : (*ret)->status;
}

/* 4,096 streams of a viewer. */
static void an_admins_stream_is_taken_however_many_a_viewer_follows(void **state)
{
    struct scene *s = *state;
    struct http_req *r[20];
    size_t n = 0;

    while (n < 15 && follow(s, "eve", ROLE_VIEWER, &r[n]) == 200)
        n++;
    assert_int_equal(n, 8);
    assert_int_equal(r[n]->status, 429);
    n++;
    assert_int_equal(follow(s, "bob", ROLE_USER, &r[n++]), 200);
    assert_int_equal(follow(s, "root", ROLE_ADMIN, &r[n++]), 200);
    events_stop(s->core);
    for (size_t i = 0; i < n; i++)
        http_req_unref(r[i]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_user_who_is_no_member_submits_nothing_into_prod),
        TEST(a_ceiling_is_told_with_its_number),
        TEST(a_manager_says_who_is_in_and_acts_on_all_jobs_of_the_project),
        TEST(a_project_is_deleted_once_no_job_of_it_is_active),
        TEST(a_project_runs_no_more_jobs_than_it_may),
        TEST(a_user_holds_no_more_devices_of_a_project_than_they_may),
        TEST(one_users_jobs_have_a_limit_and_others_submit_on),
        TEST(the_bytes_of_one_users_specs_have_a_limit),
        TEST(an_admins_stream_is_taken_however_many_a_viewer_follows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
