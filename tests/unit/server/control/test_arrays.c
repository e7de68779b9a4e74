/* Arrays: their tasks become jobs in turn, within limits, each once, over restarts, and follow their array. */
#include "tests/unit/server/control/scene.h"

#include "server/control/listing.h"

#define ARRAY(rest)                                                                                                    \
    "{\"name\": \"a-${{index}}\", \"command\": {\"argv\": [\"x\", \"${{index}}\"]}, \"array\": {" rest "}}"
#define TASKS_MAX 1000

struct seen { /* of a run of an array */
    int runs[TASKS_MAX];
    size_t most; /* that ran at one time */
};

static struct array *array_of(struct scene *s, uint64_t job)
{
    struct array *a = array_find(&s->core->arrays, job);

    assert_non_null(a);
    return a;
}

/* Jobs of the array that have devices, as the table knows them. */
static size_t count_live(struct scene *s, uint64_t array)
{
    size_t n = 0;

    for (size_t i = 0; i < s->core->jobs.n_order; i++) {
        const struct entry *e = table_at(&s->core->jobs, i);

        n += e && e->job.array == array && e->job.live;
    }
    return n;
}

static uint64_t task_job(struct scene *s, uint64_t array, int index)
{
    const struct array *a = array_of(s, array);
    ssize_t at = spec_position_of(&a->indices, index);

    assert_true(at >= 0);
    return a->tasks[at].job;
}

/* What a task's job says, by the code of its exit. */
static int no_fault(int index)
{
    (void)index;
    return 0;
}

static int every_third(int index)
{
    return index % 3 == 2;
}

/* Let one task that has devices run and end. False: none has. */
static bool end_one(struct scene *s, uint64_t array, int (*code)(int), struct seen *seen)
{
    size_t live = count_live(s, array);

    assert_int_equal(live, array_of(s, array)->live);
    if (seen && live > seen->most)
        seen->most = live;
    for (size_t i = 0; i < s->core->jobs.n_order; i++) {
        struct entry *e = table_at(&s->core->jobs, i);

        if (!e || e->job.array != array || !e->job.live)
            continue;
        uint64_t job = e->job.id;
        int index = e->job.task_index;

        if (seen)
            seen->runs[index]++;
        scene_report_all(s, job, "running", 0);
        scene_report_all(s, job, "exited", code(index));
        return true;
    }
    return false;
}

/* Let all that can run and end. */
static void end_all(struct scene *s, uint64_t array, int (*code)(int), struct seen *seen)
{
    for (int idle = 0; idle < 3;)
        if (end_one(s, array, code, seen)) {
            idle = 0;
        } else {
            scene_wait(s, 1);
            idle++;
        }
}

static struct scene_answer get(struct scene *s, const char *id)
{
    return scene_call(s, jobs_get, scene_request(id, NULL, NULL), NULL);
}

static const char *state_of(struct scene *s, const char *id)
{
    return json_string_value(json_object_get(get(s, id).body, "state"));
}

static int count_of(struct scene *s, const char *id, const char *state)
{
    return (int)json_integer_value(
        json_object_get(json_object_get(json_object_get(get(s, id).body, "array"), "tasks"), state));
}

/* As routes do, for a job or a task. */
static void act_on(struct core *c, struct call *call)
{
    if (arrays_resolve(c, call))
        jobs_action(c, call);
}

static void get_one(struct core *c, struct call *call)
{
    if (arrays_resolve(c, call))
        jobs_get(c, call);
}

static struct http_req *asking(const char *method, const char *id, const char *action)
{
    struct http_req *r = scene_request(id, NULL, NULL);
    char uri[80];

    (void)snprintf(uri, sizeof(uri), "/v1/jobs/%s%s%s", id, *action ? "/" : "", action);
    free(r->uri);
    r->uri = strdup(uri);
    (void)snprintf(r->method, sizeof(r->method), "%s", method);
    return r;
}

static int act(struct scene *s, const char *id, const char *action)
{
    return scene_call(s, act_on, asking("POST", id, action), NULL).status;
}

static struct scene_answer list(struct scene *s, const char *key, const char *value, const char *state)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);

    if (key)
        r->query = (struct http_fields){.v = {{key, value}, {"state", state}}, .n = state ? 2 : 1};
    return scene_call(s, listing_jobs, r, NULL);
}

static void each_task_runs_once_and_no_more_than_may_at_one_time(void **state)
{
    struct scene *s = *state;
    struct seen seen = {.most = 0};
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 16), 200);
    job = scene_submit(s, ARRAY("\"index\": \"0-199:2,301\", \"max_running\": 5"));
    scene_turn(s);
    scene_turn(s);
    assert_string_equal(state_of(s, "j1"), "running");
    end_all(s, job, no_fault, &seen);
    assert_int_equal(seen.most, 5);
    for (int i = 0; i < TASKS_MAX; i++)
        assert_int_equal(seen.runs[i], i == 301 || (i < 200 && i % 2 == 0));
    assert_string_equal(state_of(s, "j1"), "succeeded");
    assert_int_equal(count_of(s, "j1", "succeeded"), 101);
}

static void only_a_window_of_tasks_waits_as_jobs(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    (void)scene_submit(s, ARRAY("\"count\": 100000"));
    scene_wait(s, 2);
    assert_in_range(s->core->jobs.n, 3, 3 + ARRAYS_WINDOW); /* the array, two that run, and the window */
    assert_int_equal(count_of(s, "j1", "queued"), 100000 - 2);
    assert_int_equal(json_array_size(json_object_get(list(s, NULL, NULL, NULL).body, "jobs")), 1);
}

static void a_server_that_ends_anywhere_goes_on_with_the_same_tasks(void **state)
{
    struct scene *s = *state;
    struct seen seen = {.most = 0};
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    job = scene_submit(s, ARRAY("\"count\": 300, \"max_running\": 4"));
    for (int i = 0; i < 40; i++) {
        scene_restart(s);
        assert_int_equal(scene_register(s, "n1", "a", 8), 200);
        scene_wait(s, 1);
        assert_in_range(count_live(s, job), 1, 4);
        for (int k = 0; k < i % 7; k++)
            (void)end_one(s, job, no_fault, &seen);
    }
    end_all(s, job, no_fault, &seen);
    assert_true(seen.most <= 4);
    for (int i = 0; i < 300; i++)
        assert_int_equal(seen.runs[i], 1);
    scene_restart(s); /* and what has ended is known still */
    assert_string_equal(state_of(s, "j1"), "succeeded");
    assert_int_equal(count_of(s, "j1", "succeeded"), 300);
}

static void an_array_goes_on_after_failures_and_has_failed(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 30"));
    end_all(s, job, every_third, NULL);
    assert_string_equal(state_of(s, "j1"), "failed");
    assert_int_equal(count_of(s, "j1", "failed"), 10);
    assert_int_equal(count_of(s, "j1", "succeeded"), 20);
    assert_int_equal(json_array_size(json_object_get(list(s, "array", "j1", "failed").body, "jobs")), 10);
}

static void an_array_that_stops_ends_its_other_tasks(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 100, \"on_fail\": \"stop\", \"fail_limit\": 2"));
    end_all(s, job, every_third, NULL);
    scene_wait(s, 1);
    assert_string_equal(state_of(s, "j1"), "failed");
    assert_int_equal(count_of(s, "j1", "failed") + count_of(s, "j1", "succeeded") + count_of(s, "j1", "cancelled"),
                     100);
    assert_in_range(count_of(s, "j1", "failed"), 2, 5); /* those that ran may have failed, too */
    assert_in_range(count_of(s, "j1", "cancelled"), 80, 98);
    assert_int_equal(s->core->jobs.n, 0);
}

static void cancelling_an_array_ends_all_of_it(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 50"));
    scene_wait(s, 1);
    assert_int_equal(act(s, "j1", "cancel"), 202);
    assert_string_equal(state_of(s, "j1"), "cancelled");
    assert_string_equal(scene_order(s, "n1", task_job(s, job, 0)), "stop");
    end_all(s, job, no_fault, NULL);
    assert_int_equal(count_of(s, "j1", "cancelled"), 50);
    assert_int_equal(s->core->jobs.n, 0);
}

static void single_tasks_are_cancelled_before_and_after_they_are_jobs(void **state)
{
    struct scene *s = *state;
    struct seen seen = {.most = 0};
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, ARRAY("\"count\": 100, \"max_running\": 2"));
    scene_wait(s, 1);
    assert_int_equal(act(s, "j1.0", "cancel"), 202);
    assert_int_equal(act(s, "j1.99", "cancel"), 202);
    assert_int_equal(act(s, "j1.99", "cancel"), 409);
    assert_int_equal(act(s, "j1.98", "suspend"), 409); /* there is nothing of it yet */
    assert_int_equal(act(s, "j1.100", "cancel"), 404);
    assert_int_equal(act(s, "j2.0.1", "cancel"), 404);
    end_all(s, job, no_fault, &seen);
    assert_int_equal(seen.runs[99], 0);
    assert_string_equal(state_of(s, "j1"), "failed");
    assert_int_equal(count_of(s, "j1", "cancelled"), 2);
    assert_int_equal(count_of(s, "j1", "succeeded"), 98);
}

static void a_task_that_waits_is_shown_as_a_job(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    (void)scene_submit(s, ARRAY("\"search\": {\"method\": \"random\"}, \"count\": 500, \"matrix\": {\"lr\": [1]}"));
    scene_wait(s, 1);
    a = scene_call(s, get_one, asking("GET", "j1.400", ""), NULL);
    assert_int_equal(a.status, 200);
    assert_string_equal(json_string_value(json_object_get(a.body, "id")), "j1.400");
    assert_string_equal(json_string_value(json_object_get(a.body, "state")), "queued");
    a = scene_call(s, get_one, asking("GET", "j1.0", ""), NULL); /* it is a job */
    assert_string_equal(json_string_value(json_object_get(a.body, "id")), "j2");
    assert_string_equal(json_string_value(json_object_get(json_object_get(a.body, "task"), "id")), "j1.0");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json_object_get(a.body, "task"), "params"), "lr")), 1);
    assert_string_equal(json_string_value(json_object_get(a.body, "name")), "a-0");
}

static void tasks_are_listed_by_state_and_page(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    struct scene_answer a;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 3), 200);
    job = scene_submit(s, ARRAY("\"count\": 200, \"max_running\": 3"));
    for (int i = 0; i < 10; i++) {
        scene_wait(s, 1);
        (void)end_one(s, job, no_fault, NULL);
    }
    scene_wait(s, 1);
    assert_int_equal(json_array_size(json_object_get(list(s, "array", "j1", "succeeded").body, "jobs")), 10);
    assert_int_equal(json_array_size(json_object_get(list(s, "array", "j1", "starting").body, "jobs")), 3);
    r = scene_request(NULL, NULL, NULL);
    r->query = (struct http_fields){.v = {{"array", "j1"}, {"limit", "150"}}, .n = 2};
    a = scene_call(s, listing_jobs, r, NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "jobs")), 150);
    for (int i = 0; i < 150; i++)
        assert_int_equal(
            json_integer_value(json_object_get(
                json_object_get(json_array_get(json_object_get(a.body, "jobs"), (size_t)i), "task"), "index")),
            i);
    assert_string_equal(json_string_value(json_object_get(a.body, "next_cursor")), "150");
    assert_int_equal(list(s, "array", "j9", NULL).status, 404);
}

/* The task's run has saved and ended, as it was told to. */
static void drain(struct scene *s, uint64_t job)
{
    json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, "n1", "exited", 0);

    (void)json_object_set_new(json_array_get(json_object_get(run, "ranks"), 0), "cause", json_string("drained"));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
}

static void suspending_and_resuming_an_array_takes_its_tasks_along(void **state)
{
    struct scene *s = *state;
    struct seen seen = {.most = 0};
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 40, \"max_running\": 3"));
    scene_wait(s, 1);
    for (int i = 0; i < 3; i++)
        scene_report_all(s, task_job(s, job, i), "running", 0);
    assert_int_equal(act(s, "j1", "suspend"), 202);
    assert_string_equal(scene_order(s, "n1", task_job(s, job, 0)), "drain");
    drain(s, task_job(s, job, 0));
    assert_int_equal(count_of(s, "j1", "suspended"), 1);
    scene_wait(s, 1);
    assert_int_equal(count_live(s, job), 2);       /* no other begins */
    assert_int_equal(act(s, "j1", "resume"), 202); /* while two are still on their way */
    drain(s, task_job(s, job, 1));
    drain(s, task_job(s, job, 2));
    scene_wait(s, 1);
    assert_int_equal(count_of(s, "j1", "suspended"), 0);
    assert_int_equal(count_live(s, job), 3);
    end_all(s, job, no_fault, &seen);
    assert_true(seen.most <= 3);
    assert_string_equal(state_of(s, "j1"), "succeeded");
}

static void tasks_that_come_back_wait_for_room_in_their_array(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    job = scene_submit(s, ARRAY("\"count\": 40, \"max_running\": 2"));
    scene_wait(s, 1);
    scene_report_all(s, task_job(s, job, 0), "running", 0);
    assert_int_equal(act(s, "j1.0", "suspend"), 202);
    drain(s, task_job(s, job, 0));
    scene_wait(s, 1); /* another has its place */
    assert_int_equal(count_live(s, job), 2);
    assert_int_equal(act(s, "j1.0", "resume"), 202);
    scene_wait(s, 2);
    assert_int_equal(count_live(s, job), 2);
    assert_string_equal(explain_code_name(scene_entry(s, task_job(s, job, 0))->wait.code), "array-max-running");
    assert_true(end_one(s, job, no_fault, NULL));
    scene_wait(s, 1);
    assert_true(scene_entry(s, task_job(s, job, 0))->job.live); /* and it comes before new ones */
}

/* The simulator found tasks that had no limit any more once somebody had changed the priority of their array. */
static void a_change_of_an_array_leaves_the_time_limits_of_its_tasks(void **state)
{
    struct scene *s = *state;
    const struct entry *e;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    job = scene_submit(s, "{\"name\": \"a\", \"command\": {\"argv\": [\"x\"]}, \"limits\": {\"time_s\": 100}, "
                          "\"array\": {\"count\": 4, \"max_running\": 2}}");
    scene_wait(s, 1);
    assert_int_equal(
        scene_call(s, jobs_patch, scene_request("j1", NULL, NULL), json_pack("{s:i}", "priority", 80)).status, 200);
    scene_wait(s, 1);
    e = scene_entry(s, task_job(s, job, 0));
    assert_int_equal(e->job.priority, 80);
    assert_int_equal(e->job.time_s, 100);
    scene_report_all(s, task_job(s, job, 0), "running", 0);
    scene_wait(s, 102);
    assert_int_equal(scene_entry(s, task_job(s, job, 0))->job.intent, JOB_TIME_UP);
}

static void priority_and_the_most_that_run_can_be_changed(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    job = scene_submit(s, ARRAY("\"count\": 40, \"max_running\": 2"));
    scene_wait(s, 1);
    assert_int_equal(count_live(s, job), 2);
    assert_int_equal(scene_call(s, jobs_patch, scene_request("j1", NULL, NULL),
                                json_pack("{s:i, s:{s:i}}", "priority", 80, "array", "max_running", 6))
                         .status,
                     200);
    scene_wait(s, 1);
    assert_int_equal(count_live(s, job), 6);
    assert_int_equal(scene_entry(s, task_job(s, job, 0))->job.priority, 80);
    assert_int_equal(scene_entry(s, task_job(s, job, 5))->job.priority, 80);
    scene_restart(s);
    assert_int_equal(array_of(s, job)->max_running, 6);
    assert_int_equal(
        scene_call(s, jobs_patch, scene_request("j1", NULL, NULL), json_pack("{s:{s:i}}", "array", "max_running", 0))
            .status,
        422);
    assert_int_equal(
        scene_call(s, jobs_patch, scene_request("j1", NULL, NULL), json_pack("{s:{s:i}}", "devices", "max", 2)).status,
        422);
}

static void tasks_that_failed_are_tried_again_as_an_array(void **state)
{
    struct scene *s = *state;
    struct seen seen = {.most = 0};
    uint64_t job, again;
    struct scene_answer a;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 12"));
    a = scene_call(s, jobs_retry, scene_request("j1", NULL, NULL), NULL);
    assert_int_equal(a.status, 409); /* none has */
    end_all(s, job, every_third, NULL);
    a = scene_call(s, jobs_retry, scene_request("j1", NULL, NULL), NULL);
    assert_int_equal(a.status, 201);
    again = job_id_parse(json_string_value(json_object_get(a.body, "id")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(a.body, "array"), "count")), 4);
    end_all(s, again, no_fault, &seen);
    for (int i = 0; i < 12; i++)
        assert_int_equal(seen.runs[i], i % 3 == 2);
}

/* Submit as a user who is no admin. Returns the status. */
static int submit_as_user(struct scene *s, const char *spec)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);
    struct call *call = call_new(r, scene_run);
    struct faults faults = {.n = 0};
    int status;

    r->identity.role = ROLE_USER;
    assert_int_equal(spec_from_text(spec, strlen(spec), &call->spec, &faults), 0);
    call->text = strdup(spec);
    scene_runs = jobs_submit;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    status = r->status;
    http_req_unref(r);
    return status;
}

static void arrays_over_a_limit_are_refused(void **state)
{
    struct scene *s = *state;

    s->core->cfg.max_array = 100;
    assert_int_equal(scene_try_submit(s, ARRAY("\"count\": 101")), 0);
    assert_non_null(strstr(scene_refusal, "array-too-large"));
    assert_int_equal(
        scene_call(s, projects_put, scene_request("default", NULL, NULL), json_pack("{s:i}", "max_queued", 50)).status,
        200);
    assert_int_equal(submit_as_user(s, ARRAY("\"count\": 51")), 429);
    assert_int_equal(submit_as_user(s, ARRAY("\"count\": 30")), 201);
    assert_int_equal(submit_as_user(s, ARRAY("\"count\": 30")), 429);
    assert_int_equal(submit_as_user(s, ARRAY("\"count\": 19")), 201); /* an array is a job, too */
    assert_int_equal(submit_as_user(s, "{\"command\": {\"argv\": [\"x\"]}}"), 429);
    assert_int_equal(act(s, "j1", "cancel"), 202);
    assert_int_equal(submit_as_user(s, ARRAY("\"count\": 29")), 201);
    s->core->cfg.user.spec_bytes = 300000;
    s->core->cfg.max_array = 100000;
    s->core->cluster.projects.v[0].max_queued = -1;
    assert_int_equal(submit_as_user(s, ARRAY("\"count\": 100000")), 429); /* what it takes of memory */
}

static void a_task_whose_spec_is_not_taken_fails_alone(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, "{\"name\": \"a${{param.n}}\", \"command\": {\"argv\": [\"x\"]}, \"array\": {\"matrix\": "
                          "{\"n\": [\"x\", \"a b\", \"y\"]}}}");
    end_all(s, job, no_fault, NULL);
    assert_int_equal(count_of(s, "j1", "succeeded"), 2);
    assert_int_equal(count_of(s, "j1", "failed"), 1);
    assert_int_equal(array_of(s, job)->tasks[1].state, ARRAY_FAILED);
}

static void what_is_forgotten_of_an_array_is_all_of_it(void **state)
{
    struct scene *s = *state;
    struct store_rows rows;
    struct merr err;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 200"));
    end_all(s, job, no_fault, NULL);
    assert_int_equal(store_read_rows(s->store, STORE_ARRAYS, &rows, &err), 0);
    assert_int_equal(rows.n, 1 + 2);
    store_rows_clear(&rows);
    s->core->cfg.keep_ended = 0;
    scene_wait(s, 2);
    assert_null(array_find(&s->core->arrays, job));
    assert_int_equal(store_read_rows(s->store, STORE_ARRAYS, &rows, &err), 0);
    assert_int_equal(rows.n, 0);
    store_rows_clear(&rows);
}

static void an_array_whose_record_is_lost_fails_and_no_other_does(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    (void)scene_submit(s, ARRAY("\"count\": 5"));
    (void)scene_submit(s, ARRAY("\"count\": 5"));
    scene_wait(s, 1);
    store_put(s->store, STORE_ARRAYS, "1", "{}");
    scene_wait(s, 1);
    scene_restart(s);
    assert_string_equal(state_of(s, "j1"), "failed");
    assert_string_not_equal(state_of(s, "j2"), "failed");
}

/* --- searches ---------------------------------------------------------------------------------------- */

static struct {
    uint64_t job;
    int step;
    double loss;
} measures;

static void measure(struct core *c, struct call *call)
{
    struct entry *e = table_find(&c->jobs, measures.job);
    json_auto_t *line = json_pack("{s:i, s:f}", "step", measures.step, "loss", measures.loss);

    assert_non_null(e);
    json_decref(e->job.progress);
    e->job.progress = json_pack("{s:i}", "step", measures.step);
    arrays_measured(c, e, line);
    call_answer_new(call, 200, NULL);
}

/* A trial that has devices measures what its index says, and is paused, goes on or ends by that. False: none has. */
static bool try_one(struct scene *s, uint64_t array, int steps[], int most)
{
    for (size_t i = 0; i < s->core->jobs.n_order; i++) {
        struct entry *e = table_at(&s->core->jobs, i);
        uint64_t job = e ? e->job.id : 0;

        if (!e || e->job.array != array || !e->job.live)
            continue;
        scene_report_all(s, job, "running", 0);
        while (e->job.intent == JOB_GO_ON && steps[e->job.task_index] < most) {
            measures.job = job;
            measures.step = ++steps[e->job.task_index];
            measures.loss = e->job.task_index + 1.0 / measures.step;
            (void)scene_call(s, measure, scene_request(NULL, NULL, NULL), NULL);
        }
        if (e->job.intent == JOB_SUSPEND)
            drain(s, job);
        else
            scene_report_all(s, job, "exited", 0);
        return true;
    }
    return false;
}

static void a_search_pauses_its_trials_and_lets_the_better_ones_go_on(void **state)
{
    enum { TRIALS = 64, STEPS = 32 };
    struct scene *s = *state;
    int steps[TRIALS] = {0}, all = 0, whole = 0;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, ARRAY("\"count\": 64, \"max_running\": 4, \"search\": {\"method\": \"asha\", "
                                "\"first_steps\": 2, \"reduction\": 4, \"rungs\": 2}"));
    for (int idle = 0, turn = 0; idle < 3; turn++) {
        if (turn % 50 == 25) { /* what trials have come to is known after a restart */
            scene_restart(s);
            assert_int_equal(scene_register(s, "n1", "a", 4), 200);
            scene_wait(s, 1);
        }
        idle = try_one(s, job, steps, STEPS) ? 0 : idle + 1;
        assert_true(count_live(s, job) <= 4);
        scene_wait(s, 1);
    }
    assert_string_equal(state_of(s, "j1"), "succeeded");
    for (int i = 0; i < TRIALS; i++) {
        assert_true(steps[i] == 2 || steps[i] == 8 || steps[i] == STEPS);
        all += steps[i];
        whole += steps[i] == STEPS;
    }
    assert_int_equal(steps[0], STEPS); /* the best of all */
    assert_int_equal(count_of(s, "j1", "succeeded"), whole);
    assert_int_equal(count_of(s, "j1", "cancelled"), TRIALS - whole);
    assert_in_range(whole, TRIALS / 16, TRIALS / 8);
    assert_true(all < TRIALS * STEPS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_task_runs_once_and_no_more_than_may_at_one_time, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(only_a_window_of_tasks_waits_as_jobs, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_server_that_ends_anywhere_goes_on_with_the_same_tasks, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(an_array_goes_on_after_failures_and_has_failed, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(an_array_that_stops_ends_its_other_tasks, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(cancelling_an_array_ends_all_of_it, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(single_tasks_are_cancelled_before_and_after_they_are_jobs, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(a_task_that_waits_is_shown_as_a_job, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(tasks_are_listed_by_state_and_page, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(suspending_and_resuming_an_array_takes_its_tasks_along, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(tasks_that_come_back_wait_for_room_in_their_array, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(priority_and_the_most_that_run_can_be_changed, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_change_of_an_array_leaves_the_time_limits_of_its_tasks, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(tasks_that_failed_are_tried_again_as_an_array, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(arrays_over_a_limit_are_refused, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_task_whose_spec_is_not_taken_fails_alone, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(what_is_forgotten_of_an_array_is_all_of_it, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(an_array_whose_record_is_lost_fails_and_no_other_does, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_search_pauses_its_trials_and_lets_the_better_ones_go_on, scene_start,
                                        scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
