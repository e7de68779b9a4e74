/* Jobs that come after others, and jobs that are the only one of their name. */
#include "tests/unit/server/control/scene.h"

#include "server/control/records.h"
#include "server/control/retire.h"

static uint64_t after(struct scene *s, const char *list, const char *more)
{
    char spec[512];

    (void)snprintf(spec, sizeof(spec), "{\"command\": {\"argv\": [\"true\"]}, \"after\": [%s]%s}", list, more);
    return scene_try_submit(s, spec);
}

static uint64_t plain(struct scene *s)
{
    return scene_submit(s, "{\"command\": {\"argv\": [\"true\"]}}");
}

static void run(struct scene *s, uint64_t job)
{
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    scene_report_all(s, job, "running", 0);
}

static enum job_state state_of(struct scene *s, uint64_t job, char code[32])
{
    struct entry *e = table_find(&s->core->jobs, job);
    struct merr err = {""};
    enum job_state state;
    struct job j;

    if (e) {
        (void)snprintf(code, 32, "%s", e->job.reason_code);
        return e->job.state;
    }
    assert_int_equal(records_read_job(s->core, job, &j, NULL, &err), 0);
    (void)snprintf(code, 32, "%s", j.reason_code);
    state = j.state;
    job_clear(&j);
    return state;
}

static void a_job_starts_once_the_others_are_as_wanted_and_is_cancelled_where_they_cannot_be(void **state)
{
    static const struct {
        const char *when;
        int code;                    /* with which the other ends */
        enum job_state begins, then; /* of the job: while the other runs, and once it has ended */
    } row[] = {{"ok", 0, JOB_QUEUED, JOB_STARTING},       {"ok", 1, JOB_QUEUED, JOB_CANCELLED},
               {"ended", 0, JOB_QUEUED, JOB_STARTING},    {"ended", 1, JOB_QUEUED, JOB_STARTING},
               {"failed", 1, JOB_QUEUED, JOB_STARTING},   {"failed", 0, JOB_QUEUED, JOB_CANCELLED},
               {"started", 0, JOB_STARTING, JOB_STARTING}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct scene *s;
        char list[64], code[32];
        uint64_t other, job;

        assert_int_equal(scene_start(state), 0);
        s = *state;
        scene_register(s, "n1", "cpu", 4);
        other = plain(s);
        (void)snprintf(list, sizeof(list), "{\"job\": \"j%d\", \"when\": \"%s\"}", (int)other, row[i].when);
        job = after(s, list, "");
        assert_int_not_equal(job, 0);
        assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
        run(s, other);
        scene_turn(s);
        assert_int_equal(scene_entry(s, job)->job.state, row[i].begins);
        scene_report_all(s, other, "exited", row[i].code);
        scene_turn(s);
        scene_turn(s);
        if (state_of(s, job, code) != row[i].then)
            fail_msg("row %zu: %s, %s", i, job_state_name(state_of(s, job, code)), code);
        if (row[i].then == JOB_CANCELLED)
            assert_string_equal(code, "dependency-failed");
        scene_stop(state);
    }
}

static void it_is_named_which_others_a_job_waits_for(void **state)
{
    struct scene *s = *state;
    uint64_t job;
    json_t *reason;

    scene_register(s, "n1", "cpu", 1);
    (void)plain(s);
    (void)plain(s);
    job = after(s, "{\"job\": \"j1\"}, {\"job\": \"j2\", \"when\": \"ended\"}", "");
    scene_turn(s);
    reason = json_object_get(scene_call(s, jobs_get, scene_request("j3", NULL, NULL), NULL).body, "reason");
    assert_int_equal(job, 3);
    assert_string_equal(json_string_value(json_object_get(reason, "code")), "dependency");
    assert_string_equal(json_string_value(json_object_get(reason, "text")),
                        "waits for j1 to succeed, waits for j2 to end");
    assert_string_equal(json_string_value(json_object_get(
                            scene_call(s, jobs_explain, scene_request("j3", NULL, NULL), NULL).body, "summary")),
                        "waits for j1 to succeed, waits for j2 to end");
}

static void a_chain_of_jobs_falls_in_one_turn(void **state)
{
    struct scene *s = *state;
    char list[32], code[32];

    (void)plain(s);
    for (int i = 1; i < 50; i++) {
        (void)snprintf(list, sizeof(list), "{\"job\": \"j%d\"}", i);
        assert_int_equal(after(s, list, ""), i + 1);
    }
    {
        struct http_req *r = scene_request("j1", NULL, NULL);

        free(r->uri);
        r->uri = strdup("/v1/jobs/j1/cancel");
        assert_int_equal(scene_call(s, jobs_action, r, NULL).status, 202);
    }
    assert_int_equal(s->core->jobs.n, 0);
    assert_int_equal(state_of(s, 50, code), JOB_CANCELLED);
    assert_string_equal(code, "dependency-failed");
}

static void a_job_that_holds_stays_queued_when_it_can_never_start(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    scene_register(s, "n1", "cpu", 1);
    (void)plain(s);
    job = after(s, "{\"job\": \"j1\"}", ", \"on_broken\": \"hold\"");
    run(s, 1);
    scene_report_all(s, 1, "exited", 3);
    scene_wait(s, 5);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    assert_int_equal(scene_entry(s, job)->job.after[0].is, JOB_IS_BROKEN);
}

static void what_was_settled_is_known_after_a_restart_and_when_the_others_are_forgotten(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    scene_register(s, "n1", "cpu", 1);
    (void)plain(s);
    (void)plain(s);
    job = after(s, "{\"job\": \"j1\"}, {\"job\": \"j2\"}", "");
    run(s, 1);
    scene_report_all(s, 1, "exited", 0);
    scene_turn(s);
    assert_true(retire_job(s->core, 1)); /* nothing is known of it any more */
    scene_turn(s);
    assert_null(catalog_find(&s->core->jobs.catalog, 1));
    scene_restart(s);
    assert_int_equal(scene_entry(s, job)->job.after[0].is, JOB_IS_MET);
    assert_int_equal(scene_entry(s, job)->job.after[1].is, JOB_IS_OPEN);
    scene_register(s, "n1", "cpu", 1);
    run(s, 2);
    scene_report_all(s, 2, "exited", 0);
    scene_turn(s);
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
}

static void only_jobs_that_are_known_and_seen_can_be_named(void **state)
{
    struct scene *s = *state;

    (void)plain(s);
    assert_int_equal(after(s, "{\"job\": \"j9\"}", ""), 0);
    assert_non_null(strstr(scene_refusal, "/after/0/job"));
    assert_int_equal(after(s, "{\"job\": \"j2\"}", ""), 0); /* itself */
    assert_int_equal(after(s, "{\"job\": \"j1\"}", ""), 2);
}

static void of_one_name_and_user_one_singleton_runs_at_a_time_in_their_order(void **state)
{
    const char *spec = "{\"name\": \"solo\", \"singleton\": true, \"command\": {\"argv\": [\"true\"]}}";
    struct scene *s = *state;
    uint64_t first, second, third;

    scene_register(s, "n1", "cpu", 4);
    first = scene_submit(s, spec);
    second = scene_submit(s, spec);
    third = scene_submit(s, spec);
    run(s, first);
    scene_wait(s, 2);
    assert_int_equal(scene_entry(s, second)->job.state, JOB_QUEUED);
    assert_int_equal(scene_entry(s, second)->wait.code, EXPLAIN_SINGLETON);
    assert_int_equal(scene_entry(s, second)->wait.behind, first);
    scene_report_all(s, first, "exited", 0);
    scene_wait(s, 2);
    assert_int_equal(scene_entry(s, second)->job.state, JOB_STARTING);
    assert_int_equal(scene_entry(s, third)->job.state, JOB_QUEUED);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_starts_once_the_others_are_as_wanted_and_is_cancelled_where_they_cannot_be),
        TEST(it_is_named_which_others_a_job_waits_for),
        TEST(a_chain_of_jobs_falls_in_one_turn),
        TEST(a_job_that_holds_stays_queued_when_it_can_never_start),
        TEST(what_was_settled_is_known_after_a_restart_and_when_the_others_are_forgotten),
        TEST(only_jobs_that_are_known_and_seen_can_be_named),
        TEST(of_one_name_and_user_one_singleton_runs_at_a_time_in_their_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
