/* Time limits: what they count, when they warn and end, and who may change them. */
#include "tests/unit/server/control/scene.h"

#include "server/control/records.h"

static const char *const limited =
    "{\"command\": {\"argv\": [\"true\"]}, \"limits\": {\"time_s\": 600, \"warn_s\": 60}}";

static uint64_t start(struct scene *s, const char *spec)
{
    uint64_t job = scene_submit(s, spec);

    scene_turn(s);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    return job;
}

/* The agent is heard of, so that its node is not lost, for so many seconds. */
static void run_on(struct scene *s, uint64_t job, int seconds)
{
    for (int i = 0; i < seconds / 10; i++) {
        scene_wait(s, 10);
        if (table_find(&s->core->jobs, job) && scene_entry(s, job)->job.live)
            scene_report_all(s, job, "running", 0);
    }
}

/* The agent drains the run: its ranks end, having saved. */
static void drained(struct scene *s, uint64_t job)
{
    struct entry *e = scene_entry(s, job);
    json_t *run = scene_run_of(e, e->job.generation, "n1", "exited", 0), *rank;
    size_t i;

    json_array_foreach (json_object_get(run, "ranks"), i, rank) {
        (void)json_object_set_new(rank, "cause", json_string("drained"));
    }
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
}

static struct http_req *request_of(const char *id, const char *action, const char *user)
{
    struct http_req *r = scene_request(id, NULL, NULL);
    char path[64];

    free(r->uri);
    (void)snprintf(path, sizeof(path), "/v1/jobs/%s%s%s", id, *action ? "/" : "", action);
    r->uri = strdup(path);
    (void)snprintf(r->method, sizeof(r->method), "%s", *action ? "POST" : "PATCH");
    if (user) {
        r->identity.role = ROLE_USER;
        (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    }
    return r;
}

static int patch(struct scene *s, const char *user, int time_s)
{
    return scene_call(s, jobs_patch, request_of("j1", "", user), json_pack("{s:{s:i}}", "limits", "time_s", time_s))
        .status;
}

static int resume(struct scene *s, int more_s)
{
    return scene_call(s, jobs_action, request_of("j1", "resume", NULL),
                      more_s > 0 ? json_pack("{s:{s:i}}", "limits", "more_s", more_s) : NULL)
        .status;
}

static struct job ended_job(struct scene *s, uint64_t job)
{
    struct merr err = {""};
    struct job j;

    assert_null(table_find(&s->core->jobs, job));
    assert_int_equal(records_read_job(s->core, job, &j, NULL, &err), 0);
    return j;
}

static void a_job_is_warned_told_to_save_and_drained_when_its_time_is_up(void **state)
{
    struct scene *s = *state;
    uint64_t job;
    struct job j;

    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    run_on(s, job, 530);
    assert_string_equal(scene_order(s, "n1", job), "run");
    assert_int_equal(scene_entry(s, job)->job.warned_s, 0);
    run_on(s, job, 20);
    assert_string_equal(scene_order(s, "n1", job), "save");
    assert_string_equal(scene_entry(s, job)->job.reason_code, "time-warning");
    run_on(s, job, 30);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_GO_ON);
    run_on(s, job, 40);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_TIME_UP);
    assert_string_equal(scene_order(s, "n1", job), "drain");
    drained(s, job);
    scene_turn(s);
    j = ended_job(s, job);
    assert_int_equal(j.state, JOB_FAILED);
    assert_string_equal(j.reason_code, "time-limit");
    assert_string_equal(json_string_value(json_object_get(j.outcome, "class")), "user");
    job_clear(&j);
}

static void one_that_does_not_end_in_the_grace_is_stopped(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    run_on(s, job, 620);
    assert_string_equal(scene_order(s, "n1", job), "drain");
    run_on(s, job, 130);
    assert_string_equal(scene_order(s, "n1", job), "stop");
}

static void time_adds_up_over_runs_and_waiting_and_suspension_do_not_count(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    run_on(s, job, 300);
    assert_int_equal(scene_call(s, jobs_action, request_of("j1", "suspend", NULL), NULL).status, 202);
    drained(s, job);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_SUSPENDED);
    for (int i = 0; i < 50; i++) { /* its node is heard of meanwhile */
        scene_wait(s, 20);
        assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 200);
    }
    assert_in_range(scene_entry(s, job)->job.ran_us, 300 * SECOND, 301 * SECOND);
    assert_int_equal(resume(s, 0), 202);
    scene_turn(s);
    scene_report_all(s, job, "running", 0);
    run_on(s, job, 220);
    assert_int_equal(scene_entry(s, job)->job.warned_s, 0);
    run_on(s, job, 100);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_TIME_UP);
}

static void a_clock_that_is_set_ends_no_job_and_spares_none(void **state)
{
    for (int by = -1; by <= 1; by += 2) {
        struct scene *s;
        uint64_t job;

        assert_int_equal(scene_start(state), 0);
        s = *state;
        scene_register(s, "n1", "cpu", 1);
        job = start(s, limited);
        run_on(s, job, 100);
        s->clock.wall_us += by * 86400 * SECOND;
        scene_turn(s);
        run_on(s, job, 300);
        assert_int_equal(scene_entry(s, job)->job.intent, JOB_GO_ON);
        assert_int_equal(scene_entry(s, job)->job.warned_s, 0);
        run_on(s, job, 220);
        assert_int_equal(scene_entry(s, job)->job.intent, JOB_TIME_UP);
        scene_stop(state);
    }
}

static void the_warning_is_given_once_also_by_a_server_that_starts_after_it(void **state)
{
    struct scene *s = *state;
    uint64_t job, version;
    json_t *slot, *run;

    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    run_on(s, job, 550);
    version = scene_entry(s, job)->job.version;
    scene_restart(s);
    slot = json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", 0, "kind", "cpu", "class", "cpu", "threads", 1, "memory_mib",
                     4096);
    run = scene_run_of(scene_entry(s, job), 1, "n1", "running", 0);
    assert_int_equal(scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                                json_pack("{s:s, s:s, s:s, s:s, s:[o], s:[o]}", "node", "n1", "address", "10.0.0.1",
                                          "boot_id", "b1", "incarnation", "n1", "slots", slot, "runs", run))
                         .status,
                     200);
    run_on(s, job, 30);
    assert_int_equal(scene_entry(s, job)->job.version, version);
    run_on(s, job, 40);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_TIME_UP);
}

static void who_waits_too_long_for_its_first_devices_is_cancelled(void **state)
{
    struct scene *s = *state;
    const char *spec = "{\"command\": {\"argv\": [\"true\"]}, \"limits\": {\"queue_s\": 100}}";
    uint64_t holder, job;
    struct job j;

    scene_register(s, "n1", "cpu", 1);
    holder = start(s, spec);
    job = scene_submit(s, spec);
    run_on(s, holder, 90);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    run_on(s, holder, 20);
    j = ended_job(s, job);
    assert_int_equal(j.state, JOB_CANCELLED);
    assert_string_equal(j.reason_code, "queue-limit");
    job_clear(&j);
    assert_int_equal(scene_entry(s, holder)->job.state, JOB_RUNNING); /* it has had its devices */
}

static void with_more_time_a_job_that_ran_out_of_it_goes_on_under_its_number(void **state)
{
    struct scene *s = *state;
    uint64_t job, failed;

    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    run_on(s, job, 620);
    drained(s, job);
    scene_turn(s);
    failed = s->core->jobs.ended[JOB_FAILED - JOB_SUCCEEDED];
    assert_int_equal(failed, 1);
    assert_int_equal(resume(s, 0), 409);
    scene_restart(s); /* it comes back from the store alone */
    scene_register(s, "n1", "cpu", 1);
    assert_int_equal(resume(s, 300), 202);
    scene_turn(s);
    assert_int_equal(s->core->jobs.ended[JOB_FAILED - JOB_SUCCEEDED], 0);
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_in_range(scene_entry(s, job)->job.time_s, 900, 930);
    assert_null(scene_entry(s, job)->job.outcome);
    scene_restart(s); /* as is known after a restart */
    scene_register(s, "n1", "cpu", 1);
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    scene_report_all(s, job, "running", 0);
    run_on(s, job, 320);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_TIME_UP);
    drained(s, job);
    scene_turn(s);
    assert_null(table_find(&s->core->jobs, job));
    assert_int_equal(s->core->jobs.ended[JOB_FAILED - JOB_SUCCEEDED], 1);
    assert_int_equal(s->core->jobs.catalog.n_ended, 1);
}

static void only_a_job_that_its_limit_has_ended_is_given_more_time(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    assert_int_equal(resume(s, 300), 409);
    scene_report_all(s, job, "exited", 0);
    scene_turn(s);
    assert_null(table_find(&s->core->jobs, job));
    assert_int_equal(resume(s, 300), 409);
}

static void the_owner_makes_a_limit_shorter_managers_and_admins_longer_too(void **state)
{
    struct scene *s = *state;
    struct http_req *r = scene_request("default", NULL, NULL);
    uint64_t job;

    assert_int_equal(
        scene_call(s, projects_put, r,
                   json_pack("{s:{s:s, s:s}, s:i}", "members", "ann", "member", "mia", "manager", "max_time_s", 5000))
            .status,
        200);
    scene_register(s, "n1", "cpu", 1);
    job = start(s, limited);
    assert_int_equal(patch(s, "ann", 500), 200);
    assert_int_equal(scene_entry(s, job)->job.time_s, 500);
    assert_int_equal(patch(s, "ann", 501), 403);
    assert_int_equal(patch(s, "ann", 0), 403);
    assert_int_equal(scene_entry(s, job)->job.time_s, 500);
    assert_int_equal(patch(s, "mia", 4000), 200);
    assert_int_equal(patch(s, "mia", 5001), 422);
    assert_int_equal(patch(s, "mia", 0), 422);
    assert_int_equal(patch(s, NULL, 9000), 200);
    assert_int_equal(patch(s, NULL, 0), 200);
    assert_int_equal(scene_entry(s, job)->job.time_s, 0);
    assert_int_equal(patch(s, "ann", 60), 200);
    assert_int_equal(patch(s, NULL, -1), 422);
    run_on(s, job, 70);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_TIME_UP);
}

static void a_project_sets_the_limit_of_jobs_that_name_none_and_the_longest(void **state)
{
    struct scene *s = *state;
    const char *plain = "{\"command\": {\"argv\": [\"true\"]}}";
    struct http_req *r;

    scene_register(s, "n1", "cpu", 1);
    assert_int_equal(scene_entry(s, scene_submit(s, plain))->job.time_s, 0);
    assert_int_equal(
        scene_call(s, projects_put, scene_request("default", NULL, NULL), json_pack("{s:i}", "max_time_s", 3600))
            .status,
        200);
    assert_int_equal(scene_entry(s, scene_submit(s, plain))->job.time_s, 3600);
    assert_int_equal(scene_call(s, projects_put, scene_request("default", NULL, NULL),
                                json_pack("{s:i, s:i}", "max_time_s", 3600, "default_time_s", 600))
                         .status,
                     200);
    assert_int_equal(scene_entry(s, scene_submit(s, plain))->job.time_s, 600);
    assert_int_equal(scene_call(s, projects_put, scene_request("default", NULL, NULL),
                                json_pack("{s:i, s:i}", "max_time_s", 3600, "default_time_s", 3601))
                         .status,
                     422);
    r = scene_request("default", NULL, NULL);
    assert_int_equal(scene_call(s, projects_get, r, NULL).status, 200);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)
    const struct CMUnitTest tests[] = {
        TEST(a_job_is_warned_told_to_save_and_drained_when_its_time_is_up),
        TEST(one_that_does_not_end_in_the_grace_is_stopped),
        TEST(time_adds_up_over_runs_and_waiting_and_suspension_do_not_count),
        cmocka_unit_test(a_clock_that_is_set_ends_no_job_and_spares_none),
        TEST(the_warning_is_given_once_also_by_a_server_that_starts_after_it),
        TEST(who_waits_too_long_for_its_first_devices_is_cancelled),
        TEST(with_more_time_a_job_that_ran_out_of_it_goes_on_under_its_number),
        TEST(only_a_job_that_its_limit_has_ended_is_given_more_time),
        TEST(the_owner_makes_a_limit_shorter_managers_and_admins_longer_too),
        TEST(a_project_sets_the_limit_of_jobs_that_name_none_and_the_longest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
