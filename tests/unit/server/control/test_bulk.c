/* Many jobs cancelled by one call: those that the selector names, of those that the caller may cancel, and no other. */
#include "tests/unit/server/control/scene.h"

#include "server/control/bulk.h"

#define JOB(name, project)                                                                                             \
    "name: " name "\nproject: " project "\nlabels: {team: nlp}\ndevices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

static struct scene_answer cancel(struct scene *s, const char *user, const char *body)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);
    json_t *doc = json_loads(body, 0, NULL);

    assert_non_null(doc);
    if (user) {
        r->identity = (struct http_identity){.role = ROLE_USER};
        (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    }
    return scene_call(s, bulk_cancel, r, doc);
}

/* The numbers of the jobs of an answer: "5 3". */
static const char *numbers(struct scene_answer a)
{
    static char text[256];
    json_t *job;
    size_t i, n = 0;

    assert_int_equal(a.status, 200);
    text[0] = '\0';
    json_array_foreach (json_object_get(a.body, "jobs"), i, job) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "",
                              json_string_value(json_object_get(job, "id")) + 1);
    }
    return text;
}

static void a_body_that_selects_nothing_or_something_else_is_refused(void **state)
{
    static const char *const rows[] = {
        "{}",
        "{\"selector\": {}}",
        "{\"selector\": \"all\"}",
        "{\"selector\": {\"name\": \"\"}}",
        "{\"selector\": {\"name\": 3}}",
        "{\"selector\": {\"name~\": \"x\"}}",
        "{\"selector\": {\"id\": \"j1\"}}",
        "{\"selector\": {\"state\": \"no-state\"}}",
        "{\"selector\": {\"label\": \"=\"}}",
        "{\"selector\": {\"name\": \"x\"}, \"dry_run\": 1}",
        "{\"selector\": {\"name\": \"x\"}, \"cursor\": \"x9\"}",
        "{\"selector\": {\"name\": \"x\"}, \"force\": true}",
    };
    struct scene *s = *state;

    assert_int_equal(scene_submit(s, JOB("x", "red")), 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        int status = cancel(s, NULL, rows[i]).status;

        if (status != 422)
            fail_msg("%s: %d", rows[i], status);
    }
    assert_int_equal(scene_entry(s, 1)->job.state, JOB_QUEUED);
}

static void what_is_selected_is_cancelled_and_the_rest_goes_on(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_submit(s, JOB("eval-one", "red")), 1);
    assert_int_equal(scene_submit(s, JOB("train", "red")), 2);
    assert_int_equal(scene_submit(s, JOB("eval-two", "blue")), 3);
    assert_string_equal(numbers(cancel(s, NULL, "{\"selector\": {\"name\": \"eval\"}, \"dry_run\": true}")), "3 1");
    assert_int_equal(scene_entry(s, 1)->job.state, JOB_QUEUED);
    assert_string_equal(numbers(cancel(s, NULL, "{\"selector\": {\"name\": \"eval\", \"project\": \"red\"}}")), "1");
    assert_null(table_find(&s->core->jobs, 1)); /* it has ended */
    assert_int_equal(scene_entry(s, 2)->job.state, JOB_QUEUED);
    assert_int_equal(scene_entry(s, 3)->job.state, JOB_QUEUED);
    assert_string_equal(numbers(cancel(s, NULL, "{\"selector\": {\"state\": \"active\"}}")), "3 2");
    assert_string_equal(numbers(cancel(s, NULL, "{\"selector\": {\"state\": \"cancelled\"}}")), "");
}

static void nobody_cancels_the_jobs_of_others_by_any_selector(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_submit(s, JOB("x", "red")), 1);
    assert_string_equal(numbers(cancel(s, "eve", "{\"selector\": {\"state\": \"active\"}}")), "");
    assert_string_equal(numbers(cancel(s, "eve", "{\"selector\": {\"user\": \"ann\"}}")), "");
    assert_int_equal(scene_entry(s, 1)->job.state, JOB_QUEUED);
    assert_string_equal(numbers(cancel(s, "ann", "{\"selector\": {\"label\": \"team=nlp\"}}")), "1");
}

static void more_jobs_than_one_call_takes_come_by_cursors_each_once(void **state)
{
    enum { JOBS = 2300 };
    static bool seen[JOBS + 1];
    struct scene *s = *state;
    const char *cursor;
    char body[128] = "{\"selector\": {\"name\": \"x\"}}";
    int calls = 0;

    s->core->cfg.user.jobs = JOBS;
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(scene_submit(s, JOB("x", "red")), i + 1);
    do {
        struct scene_answer a = cancel(s, NULL, body);
        json_t *job;
        size_t i;

        assert_int_equal(a.status, 200);
        json_array_foreach (json_object_get(a.body, "jobs"), i, job) {
            uint64_t id = job_id_parse(json_string_value(json_object_get(job, "id")));

            assert_true(id > 0 && id <= JOBS && !seen[id]);
            seen[id] = true;
        }
        cursor = json_string_value(json_object_get(a.body, "next_cursor"));
        if (cursor)
            (void)snprintf(body, sizeof(body), "{\"selector\": {\"name\": \"x\"}, \"cursor\": \"%s\"}", cursor);
        calls++;
    } while (cursor);
    assert_true(calls >= 3);
    for (int i = 1; i <= JOBS; i++)
        assert_true(seen[i]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)
    const struct CMUnitTest tests[] = {
        TEST(a_body_that_selects_nothing_or_something_else_is_refused),
        TEST(what_is_selected_is_cancelled_and_the_rest_goes_on),
        TEST(nobody_cancels_the_jobs_of_others_by_any_selector),
        TEST(more_jobs_than_one_call_takes_come_by_cursors_each_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
