/* Jobs that are submitted, submitted again, changed and ended, by their users and by others. */
#include "tests/unit/server/control/scene.h"

#define ONE "{\"devices\": {\"min\": 1, \"max\": 1}, \"command\": {\"argv\": [\"x\"]}, \"name\": \"%s\"}"

static struct http_req *by(const char *user, const char *job, const char *header, const char *value)
{
    struct http_req *r = scene_request(job, NULL, NULL);

    r->identity = (struct http_identity){.role = ROLE_USER, .token = "t2"};
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    if (header) {
        buf_init(&r->header_text, 1000);
        assert_int_equal(buf_add(&r->header_text, header, strlen(header) + 1), 0);
        assert_int_equal(buf_add(&r->header_text, value, strlen(value) + 1), 0);
        r->n_headers = 1;
    }
    return r;
}

/* Submit a job of that name. Returns the status, and the job's number. */
static int submit(struct scene *s, const char *user, const char *key, const char *name, uint64_t *ret_job)
{
    struct http_req *r = by(user, NULL, key ? "Idempotency-Key" : NULL, key);
    struct call *call = call_new(r, scene_run);
    struct faults faults = {.n = 0};
    char body[200];
    json_t *answer, *full;
    int status;

    (void)snprintf(body, sizeof(body), ONE, name);
    assert_int_equal(spec_from_text(body, strlen(body), &call->spec, &faults), 0);
    full = spec_to_json(call->spec);
    call->text = json_dumps(full, JSON_COMPACT);
    json_decref(full);
    call->hash = name[0];
    scene_runs = jobs_submit;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    status = r->status;
    answer = json_loads(r->out, 0, NULL);
    *ret_job = job_id_parse(json_string_value(json_object_get(answer, "id")));
    json_decref(answer);
    http_req_unref(r);
    return status;
}

static void a_submit_with_the_same_key_is_the_same_job(void **state)
{
    struct scene *s = *state;
    uint64_t first, again, other;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(submit(s, "bob", "k", "a", &first), 201);
    assert_int_equal(submit(s, "bob", "k", "a", &again), 200);
    assert_int_equal(again, first);
    assert_int_equal(submit(s, "bob", "k", "b", &other), 409);   /* another body */
    assert_int_equal(submit(s, "carol", "k", "a", &other), 201); /* a user's keys are their own */
    assert_int_not_equal(other, first);
    assert_int_equal(submit(s, "bob", NULL, "a", &other), 201);
    scene_restart(s);
    assert_int_equal(submit(s, "bob", "k", "a", &again), 200);
    assert_int_equal(again, first);
}

static int act(struct scene *s, const char *user, const char *job, const char *action)
{
    struct http_req *r = by(user, job, NULL, NULL);
    char uri[64];

    (void)snprintf(uri, sizeof(uri), "/v1/jobs/%s/%s", job, action);
    free(r->uri);
    r->uri = strdup(uri);
    return scene_call(s, jobs_action, r, NULL).status;
}

static void others_jobs_are_not_there(void **state)
{
    static const char *const acts[] = {"cancel", "suspend", "resume", "checkpoint"};
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(submit(s, "bob", NULL, "a", &job), 201);
    for (size_t i = 0; i < COUNT(acts); i++)
        assert_int_equal(act(s, "carol", "j1", acts[i]), 404);
    assert_int_equal(scene_call(s, jobs_patch, by("carol", "j1", NULL, NULL), json_pack("{s:i}", "priority", 1)).status,
                     404);
    assert_int_equal(scene_call(s, jobs_get, by("carol", "j1", NULL, NULL), NULL).status, 404);
    assert_int_equal(scene_entry(s, job)->job.priority, 50);
    assert_int_equal(act(s, "bob", "j1", "cancel"), 202);
    assert_int_equal(act(s, "bob", "j1", "cancel"), 202); /* is being cancelled already */
}

static void what_has_ended_stays_as_it_ended(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(submit(s, "bob", NULL, "a", &job), 201);
    scene_report_all(s, job, "exited", 0);
    assert_int_equal(act(s, "bob", "j1", "cancel"), 409);
    assert_int_equal(act(s, "bob", "j1", "resume"), 409);
    assert_int_equal(scene_call(s, jobs_patch, by("bob", "j1", NULL, NULL), json_pack("{s:i}", "priority", 1)).status,
                     409);
    assert_int_equal(act(s, "bob", "j99", "cancel"), 404);
}

static void a_change_is_of_the_version_that_was_read(void **state)
{
    static const struct {
        const char *match, *body;
        int status;
    } rows[] = {
        {"\"99\"", "{\"priority\": 60}", 412},
        {"*", "{\"priority\": 60}", 200},
        {NULL, "{\"priority\": 101}", 422},
        {NULL, "{\"priority\": -1}", 422},
        {NULL, "{\"name\": \"x\"}", 422},
        {NULL, "{\"devices\": {\"min\": 2, \"max\": 1}}", 422},
        {NULL, "{\"devices\": {\"min\": 2, \"max\": 2}}", 422}, /* the cluster has one */
        {NULL, "{\"devices\": 7}", 422},
        {NULL, "{\"devices\": {\"max\": 65537}}", 422},
    };
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(submit(s, "bob", NULL, "a", &job), 201);
    for (size_t i = 0; i < COUNT(rows); i++) {
        int status = scene_call(s, jobs_patch, by("bob", "j1", rows[i].match ? "If-Match" : NULL, rows[i].match),
                                json_loads(rows[i].body, 0, NULL))
                         .status;

        if (status != rows[i].status)
            fail_msg("%s is answered %d, not %d", rows[i].body, status, rows[i].status);
    }
    assert_int_equal(scene_entry(s, job)->job.priority, 60);
    assert_int_equal(scene_entry(s, job)->job.max, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_submit_with_the_same_key_is_the_same_job),
        TEST(others_jobs_are_not_there),
        TEST(what_has_ended_stays_as_it_ended),
        TEST(a_change_is_of_the_version_that_was_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
