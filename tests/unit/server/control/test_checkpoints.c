/* The checkpoints of a job: what the list says of each, who may have what done to one, and by what job. */
#include "server/control/checkpoints.h"
#include "tests/unit/server/control/scene.h"

#define SPEC "devices: {min: 1, max: 1}\nproject: lab\ncommand: {argv: [x]}\n"

/* The job tells of a checkpoint of a step. */
static void tell(struct scene *s, uint64_t job, int64_t *offset, const char *path, int step)
{
    char line[400];
    json_t *events, *runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "running", 0));

    (void)snprintf(line, sizeof(line),
                   "{\"type\":\"checkpoint\",\"rank\":0,\"step\":%d,\"path\":\"%s/step-%08d\",\"stored_bytes\":100}\n",
                   step, path, step);
    events = json_pack("{s:[{s:s, s:i, s:I, s:s}]}", "events", "job", "j1", "generation", 1, "offset",
                       (json_int_t)*offset, "text", line);
    assert_int_equal(scene_report(s, "n1", runs, events).status, 200);
    *offset += (int64_t)strlen(line);
}

/* ann's job runs and has told of steps 10, 20 and 30. */
static uint64_t begin(struct scene *s)
{
    int64_t offset = 0;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, SPEC);
    assert_int_equal(
        scene_report(s, "n1", json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "running", 0)), NULL).status,
        200);
    for (int step = 10; step <= 30; step += 10)
        tell(s, job, &offset, "/jobs/j1/checkpoints", step);
    return job;
}

static struct scene_answer ask(struct scene *s, const char *user, enum http_role role, const char *method,
                               const char *step, const char *verb, json_t *body)
{
    struct http_req *r = scene_request("j1", step, NULL);

    free(r->uri);
    assert_true(asprintf(&r->uri, "/v1/jobs/j1/checkpoints/%s%s%s", step, verb ? "/" : "", verb ? verb : "") > 0);
    (void)snprintf(r->method, sizeof(r->method), "%s", method);
    r->identity.role = role;
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    return scene_call(s, checkpoints_act, r, body);
}

static const char *state_of(const json_t *list, int step)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(list, "checkpoints"), i, one)
        if (json_integer_value(json_object_get(one, "step")) == step)
            return json_string_value(json_object_get(one, "state"));
    return "";
}

static void test_the_list_says_what_lies_on_the_disk(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct scene_answer a;

    spool_memory_set_saved(s->spool, job,
                           json_pack("[{s:i, s:b, s:i, s:i}, {s:i, s:b, s:i, s:i}, {s:i, s:b, s:i, s:i}]", "step", 20,
                                     "complete", 1, "disk_bytes", 60, "files", 2, "step", 30, "complete", 0,
                                     "disk_bytes", 5, "files", 1, "step", 5, "complete", 1, "disk_bytes", 9, "files",
                                     2));
    a = scene_call(s, checkpoints_list, scene_request("j1", NULL, NULL), NULL);
    assert_int_equal(a.status, 200);
    assert_string_equal(state_of(a.body, 10), "removed");
    assert_string_equal(state_of(a.body, 20), "complete");
    assert_string_equal(state_of(a.body, 30), "incomplete");
    assert_string_equal(state_of(a.body, 5), "complete"); /* nobody told of it */
    assert_true(json_is_true(json_object_get(json_array_get(json_object_get(a.body, "checkpoints"), 1), "archived")));
}

static void test_of_a_folder_that_is_not_the_jobs_own_nothing_is_looked_at(void **state)
{
    struct scene *s = *state;
    int64_t offset = 0;
    struct scene_answer a;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    (void)scene_submit(s, SPEC);
    tell(s, 1, &offset, "/jobs/j2/checkpoints", 10);
    a = scene_call(s, checkpoints_list, scene_request("j1", NULL, NULL), NULL);
    assert_string_equal(state_of(a.body, 10), "unknown");
}

static void test_a_job_of_its_user_does_it_whoever_asks(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    const struct entry *e;

    (void)begin(s);
    a = ask(s, "root", ROLE_ADMIN, "POST", "20", "verify", NULL);
    assert_int_equal(a.status, 201);
    assert_string_equal(json_string_value(json_object_get(a.body, "user")), "ann");
    e = scene_entry(s, 2);
    assert_non_null(strstr(e->spec_text, "\"checkpoint\",\"verify\",\"/jobs/j1/checkpoints/step-00000020\""));
    assert_string_equal(e->job.user, "ann");
}

static void test_strangers_do_not_find_it_and_managers_may(void **state)
{
    struct scene *s = *state;

    (void)begin(s);
    assert_int_equal(ask(s, "eve", ROLE_USER, "POST", "20", "verify", NULL).status, 404);
    assert_int_equal(ask(s, "eve", ROLE_USER, "DELETE", "20", NULL, NULL).status, 404);
    assert_int_equal(scene_call(s, projects_put, scene_request("lab", NULL, NULL), json_object()).status / 100, 2);
    assert_int_equal(
        scene_call(s, projects_put_member, scene_request("lab", "eve", NULL), json_pack("{s:s}", "role", "manager"))
                .status /
            100,
        2);
    assert_int_equal(ask(s, "eve", ROLE_USER, "POST", "20", "verify", NULL).status, 201);
}

static void test_what_a_job_would_go_on_from_is_not_deleted_while_it_has_not_ended(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    assert_int_equal(ask(s, "ann", ROLE_USER, "DELETE", "30", NULL, NULL).status, 409);
    assert_int_equal(ask(s, "ann", ROLE_USER, "DELETE", "40", NULL, NULL).status, 409); /* it may be writing it */
    assert_int_equal(ask(s, "ann", ROLE_USER, "DELETE", "20", NULL, NULL).status, 201);
    assert_non_null(strstr(scene_entry(s, 2)->spec_text, "\"delete\",\"/jobs/j1/checkpoints\",\"--step=20\""));
    scene_report_all(s, job, "exited", 0);
    assert_int_equal(ask(s, "ann", ROLE_USER, "DELETE", "30", NULL, NULL).status, 201);
}

static void test_no_path_and_no_word_comes_from_who_asks(void **state)
{
    static const char *const steps[] = {"x", "-1", "1x", "..", "99999999999999999999", ""};
    struct scene *s = *state;

    (void)begin(s);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        assert_int_equal(ask(s, "ann", ROLE_USER, "POST", steps[i], "verify", NULL).status, 404);
    assert_int_equal(ask(s, "ann", ROLE_USER, "POST", "20", "verify", json_pack("{s:s}", "path", "/etc")).status, 422);
    assert_int_equal(ask(s, "ann", ROLE_USER, "POST", "20", "export", json_pack("{s:s}", "dtype", "--x")).status, 422);
    assert_int_equal(ask(s, "ann", ROLE_USER, "POST", "20", "export", json_pack("{s:s}", "dtype", "bf16")).status, 201);
    assert_non_null(strstr(scene_entry(s, 2)->spec_text, "\"/jobs/j1/exports/step-00000020-bf16\",\"--dtype=bf16\""));
    assert_int_equal(ask(s, "ann", ROLE_USER, "POST", "20", "sample", NULL).status, 409); /* a program of its own */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)
        T(test_the_list_says_what_lies_on_the_disk),
        T(test_of_a_folder_that_is_not_the_jobs_own_nothing_is_looked_at),
        T(test_a_job_of_its_user_does_it_whoever_asks),
        T(test_strangers_do_not_find_it_and_managers_may),
        T(test_what_a_job_would_go_on_from_is_not_deleted_while_it_has_not_ended),
        T(test_no_path_and_no_word_comes_from_who_asks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
