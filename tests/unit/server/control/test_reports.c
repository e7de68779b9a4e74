/* What agents report: taken in once, of the run that is live, and told to those whose run is over. */
#include "server/control/events.h"
#include "server/store/history.h"
#include "tests/unit/server/control/scene.h"

#include "server/control/records.h"

#define TWO "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\nretry: {max: 3, user: 1}\n"

/* Node n1 of two slots, and a job that starts on both. */
static uint64_t begin(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, TWO);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    return job;
}

static json_t *one_run(struct scene *s, uint64_t job, uint32_t generation, const char *state, int code)
{
    return json_pack("[o]", scene_run_of(scene_entry(s, job), generation, "n1", state, code));
}

static void a_job_runs_once_all_of_its_ranks_do(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    json_t *runs = one_run(s, job, 1, "running", 0);

    (void)json_object_set_new(json_array_get(json_object_get(json_array_get(runs, 0), "ranks"), 1), "state",
                              json_string("starting"));
    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_int_equal(scene_report(s, "n1", one_run(s, job, 1, "running", 0), NULL).status, 200);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
}

static void a_report_that_comes_again_changes_nothing(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s), version, events;

    scene_report_all(s, job, "running", 0);
    version = scene_entry(s, job)->job.version;
    events = events_next(s->core);
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "starting", 0); /* one that was under way for longer */
    assert_int_equal(scene_entry(s, job)->job.version, version);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    assert_int_equal(events_next(s->core), events);
}

static void a_job_whose_ranks_all_end_well_has_succeeded_and_its_devices_are_free(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct job ended;

    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
    assert_null(table_find(&s->core->jobs, job));
    assert_int_equal(s->core->jobs.ended[0], 1);
    assert_int_equal(scene_slot(s, "n1", 0)->job, 0);
    assert_int_equal(scene_slot(s, "n1", 1)->job, 0);
    assert_int_equal(records_read_job(s->core, job, &ended, NULL, NULL), 0);
    assert_int_equal(ended.state, JOB_SUCCEEDED);
    job_clear(&ended);
}

static void what_a_job_printed_is_complete_once_its_node_has_forgotten_the_run(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    json_t *run;

    assert_true(reports_more_come(s->core, job));
    scene_report_all(s, job, "running", 0);
    run = scene_run_of(scene_entry(s, job), 1, "n1", "exited", 0);
    assert_int_equal(scene_report(s, "n1", json_pack("[O]", run), NULL).status, 200);
    assert_null(table_find(&s->core->jobs, job)); /* it has ended; the node ships what is left */
    assert_true(reports_more_come(s->core, job));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    assert_true(reports_more_come(s->core, job));
    assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 200);
    assert_false(reports_more_come(s->core, job));
}

static void the_rank_that_failed_first_is_the_cause(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    json_t *runs, *rank;

    scene_report_all(s, job, "running", 0);
    runs = one_run(s, job, 1, "running", 0);
    rank = json_array_get(json_object_get(json_array_get(runs, 0), "ranks"), 1);
    (void)json_object_set_new(rank, "state", json_string("exited"));
    (void)json_object_set_new(rank, "exit_code", json_integer(3));
    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RECOVERING);
    runs = one_run(s, job, 1, "exited", 9); /* what the others then end with says nothing */
    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    assert_int_equal(scene_entry(s, job)->job.generation, 2); /* that one was over, and it starts again */
    assert_int_equal(json_integer_value(json_object_get(scene_entry(s, job)->job.outcome, "rank")), 1);
    assert_int_equal(json_integer_value(json_object_get(scene_entry(s, job)->job.outcome, "exit_code")), 3);
    assert_int_equal(scene_entry(s, job)->job.restarts_user, 1);
}

/* After it has failed once and started again. */
static uint64_t begin_second(struct scene *s)
{
    uint64_t job = begin(s);

    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 3);
    for (int i = 0; i < 600 && scene_entry(s, job)->job.generation == 1; i++) {
        scene_wait(s, 1);
        assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 200);
    }
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    return job;
}

static void an_older_generation_changes_nothing_and_is_told_to_stop(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin_second(s), version = scene_entry(s, job)->job.version;
    struct scene_answer a = scene_report(s, "n1", one_run(s, job, 1, "running", 0), NULL);

    assert_int_equal(json_array_size(json_object_get(a.body, "stale")), 1);
    assert_int_equal(json_array_size(json_object_get(a.body, "forget")), 0);
    assert_true(scene_slot(s, "n1", 0)->stale); /* a process is still there */
    assert_int_equal(scene_entry(s, job)->job.version, version);
    a = scene_report(s, "n1", one_run(s, job, 1, "exited", 0), NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "stale")), 0);
    assert_int_equal(json_array_size(json_object_get(a.body, "forget")), 1);
    assert_false(scene_slot(s, "n1", 0)->stale);
    assert_int_equal(scene_entry(s, job)->job.version, version);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
}

static void a_report_of_another_agent_of_that_name_is_refused(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    json_t *body = json_pack("{s:s, s:o}", "incarnation", "other", "runs", one_run(s, job, 1, "running", 0));

    assert_int_equal(scene_call(s, reports_take, scene_request("n1", NULL, NULL), body).status, 404);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
}

/* --- events of runs ---------------------------------------------------------------------------------- */

#define LINE "{\"type\": \"checkpoint\", \"rank\": 0, \"step\": 5}\n"

/* Ship a piece; returns up to where it was acknowledged. */
static int64_t ship(struct scene *s, uint64_t job, int64_t offset, const char *text)
{
    char id[24];
    struct scene_answer a;

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    a = scene_report(s, "n1", json_array(),
                     json_pack("{s:[{s:s, s:i, s:I, s:s}]}", "events", "job", id, "generation", 1, "offset",
                               (json_int_t)offset, "text", text));
    return json_integer_value(
        json_object_get(json_array_get(json_object_get(json_object_get(a.body, "acks"), "events"), 0), "offset"));
}

static void a_flood_of_events_fills_no_turn_and_slows_to_a_trickle(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s), before;
    size_t len = strlen(LINE);
    char *text = malloc(1000 * len + 1);
    int64_t at = 0, was = -1;

    assert_non_null(text);
    for (size_t i = 0; i < 1000; i++)
        memcpy(text + i * len, LINE, len + 1);
    for (int i = 0; i < 100 && at > was; i++) { /* as fast as it is answered */
        was = at;
        before = events_next(s->core);
        at = ship(s, job, at, text);
        assert_true(events_next(s->core) - before <= 32);
    }
    assert_int_equal(at, was); /* none is taken: the agent comes again with its next heartbeat */
    assert_true(at > 1000 * (int64_t)len && at < 1200 * (int64_t)len);
    scene_wait(s, 1);
    assert_true(ship(s, job, at, text) > at);
    free(text);
}

static void events_of_a_run_are_taken_in_once_also_by_the_next_server(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s), before = events_next(s->core);
    int64_t len = (int64_t)strlen(LINE);

    assert_int_equal(ship(s, job, 0, LINE), len);
    assert_int_equal(events_next(s->core), before + 1);
    assert_int_equal(ship(s, job, 0, LINE LINE), len); /* the answer was lost: go on from there */
    assert_int_equal(events_next(s->core), before + 1);
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    before = events_next(s->core);
    assert_int_equal(ship(s, job, 0, LINE), len);
    assert_int_equal(events_next(s->core), before);
    assert_int_equal(ship(s, job, len, LINE), 2 * len);
    assert_int_equal(events_next(s->core), before + 1);
}

/* Of a job and of its user, also when the server starts again and when the job has ended. */
static void the_bytes_of_what_a_job_prints_are_counted(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    (void)scene_report(s, "n1", json_array(),
                       json_pack("{s:[{s:s, s:i, s:i, s:i, s:s}]}", "logs", "job", "j1", "generation", 1, "rank", 0,
                                 "offset", 0, "text", "hello\n"));
    assert_int_equal(catalog_user(&s->core->jobs.catalog, "ann")->shipped, 6);
    scene_report_all(s, job, "running", 0);
    scene_restart(s);
    assert_int_equal(catalog_user(&s->core->jobs.catalog, "ann")->shipped, 6);
    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    scene_report_all(s, job, "exited", 0);
    scene_restart(s);
    assert_int_equal(catalog_user(&s->core->jobs.catalog, "ann")->shipped, 6);
    assert_int_equal(json_integer_value(json_object_get(
                         scene_call(s, jobs_get, scene_request("j1", NULL, NULL), NULL).body, "log_bytes")),
                     6);
}

/* Bytes of all pages of a job's events, each of which is small; and how many events there are. */
static size_t page_through(struct scene *s, const char *job, size_t *ret_n)
{
    char cursor[32] = "0";
    const char *next = cursor;
    size_t all = 0;

    *ret_n = 0;
    while (next) {
        struct http_req *r = scene_request(job, NULL, NULL);
        struct scene_answer a;
        json_t *list;
        size_t bytes = 0;

        r->query.v[0].name = "limit";
        r->query.v[0].value = "1000";
        r->query.v[1].name = "cursor";
        r->query.v[1].value = cursor;
        r->query.n = 2;
        a = scene_call(s, timeline_of_job, r, NULL);
        assert_int_equal(a.status, 200);
        list = json_object_get(a.body, "events");
        for (size_t i = 0; i < json_array_size(list); i++) {
            char *text = json_dumps(json_array_get(list, i), JSON_COMPACT);

            bytes += strlen(text);
            free(text);
        }
        assert_in_range(bytes, 0, 2 << 20);
        *ret_n += json_array_size(list);
        all += bytes;
        next = json_string_value(json_object_get(a.body, "next_cursor"));
        if (next)
            (void)snprintf(cursor, sizeof(cursor), "%s", next);
    }
    return all;
}

/* Ship lines of so many bytes, one a report. Returns where the next begins. */
static int64_t ship_large(struct scene *s, uint64_t job, int64_t at, int n, int bytes)
{
    char *line = malloc((size_t)bytes + 64);

    assert_non_null(line);
    (void)snprintf(line, (size_t)bytes + 64, "{\"type\": \"note\", \"message\": \"%0*d\"}\n", bytes - 32, 7);
    for (int i = 0; i < n; i++) {
        int64_t next = ship(s, job, at, line);

        assert_int_equal(next, at + (int64_t)strlen(line));
        at = next;
    }
    free(line);
    return at;
}

static void five_hundred_events_of_250_kb_leave_little_in_the_store_and_no_large_page(void **state)
{
    struct scene *s = *state;
    static uint16_t bytes[HISTORY_NOTES];
    uint64_t job = begin(s);
    int64_t at = ship_large(s, job, 0, 500, 250000);
    size_t n, sum = 0;
    ssize_t kept = history_read_note_bytes(s->store, job, bytes, HISTORY_NOTES);

    for (ssize_t i = 0; i < kept; i++) {
        assert_in_range(bytes[i], 1, EVENTS_NOTE_BYTES);
        sum += bytes[i];
    }
    assert_int_equal(kept, 500);
    assert_in_range(sum, 1, EVENTS_JOB_BYTES);
    assert_in_range(page_through(s, "j1", &n), 1, 2 * EVENTS_JOB_BYTES);
    assert_in_range(n, 500, 510);
    at = ship_large(s, job, at, 600, 3000); /* as long as may be, they are kept whole: the newest of them */
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    at = ship_large(s, job, at, 100, 3000);
    kept = history_read_note_bytes(s->store, job, bytes, HISTORY_NOTES);
    sum = 0;
    for (ssize_t i = 0; i < kept; i++)
        sum += bytes[i];
    assert_in_range(sum, EVENTS_JOB_BYTES * 9 / 10, EVENTS_JOB_BYTES);
    assert_in_range(page_through(s, "j1", &n), 1, 2 * EVENTS_JOB_BYTES);
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
    (void)ship_large(s, job, at, 400, 3000); /* and after its end */
    kept = history_read_note_bytes(s->store, job, bytes, HISTORY_NOTES);
    sum = 0;
    for (ssize_t i = 0; i < kept; i++)
        sum += bytes[i];
    assert_in_range(sum, 1, 2 * EVENTS_JOB_BYTES);
}

static void a_line_that_is_not_whole_waits_for_its_end(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s), before = events_next(s->core);
    int64_t len = (int64_t)strlen(LINE);

    assert_int_equal(ship(s, job, 0, LINE "{\"type\": \"check"), len);
    assert_int_equal(events_next(s->core), before + 1);
    assert_int_equal(ship(s, job, len, LINE), 2 * len);
    assert_int_equal(events_next(s->core), before + 2);
}

static void what_is_no_event_is_passed_over(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s), before = events_next(s->core);
    static const char junk[] = "no JSON\n[]\n{\"no\": \"type\"}\n\n";

    assert_int_equal(ship(s, job, 0, junk), (int64_t)strlen(junk));
    assert_int_equal(events_next(s->core), before);
}

/* --- metrics ----------------------------------------------------------------------------------------- */

static void a_line_of_metrics_is_the_jobs_progress(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    (void)scene_report(s, "n1", json_array(),
                       json_pack("{s:[{s:s, s:i, s:s}]}", "metrics", "job", id, "generation", 1, "text",
                                 "{\"step\": 6, \"step_ms\": 20, \"loss\": 2.5}\nno JSON\n"));
    assert_int_equal(json_integer_value(json_object_get(scene_entry(s, job)->job.progress, "step")), 6);
    assert_int_equal(scene_entry(s, job)->progress_of, 1);
}

static void a_line_without_a_loss_leaves_the_last_one(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    const json_t *progress;
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    (void)scene_report(s, "n1", json_array(),
                       json_pack("{s:[{s:s, s:i, s:s}]}", "metrics", "job", id, "generation", 1, "text",
                                 "{\"step\": 6, \"loss\": 2.5}\n{\"step\": 7, \"lr\": 0.1}\n{\"loss\": null}\n"));
    progress = scene_entry(s, job)->job.progress;
    assert_true(json_real_value(json_object_get(progress, "loss")) == 2.5);
    (void)scene_report(s, "n1", json_array(),
                       json_pack("{s:[{s:s, s:i, s:s}]}", "metrics", "job", id, "generation", 1, "text",
                                 "{\"step\": 8, \"loss\": 2.25}\n"));
    progress = scene_entry(s, job)->job.progress;
    assert_true(json_real_value(json_object_get(progress, "loss")) == 2.25);
    assert_int_equal(json_integer_value(json_object_get(progress, "step")), 8);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

static json_t *ended_json(int rank, const char *cause, int signal, int at_ms)
{
    return json_pack("{s:i, s:i, s:s, s:i, s:i, s:s, s:i}", "rank", rank, "slot", rank, "state", "exited", "exit_code",
                     signal ? 128 + signal : 75, "signal", signal, "cause", cause, "at_ms", at_ms);
}

/* Who lost another is never blamed; of those that ended of themselves the earliest is, and all are told. */
static void of_ranks_that_end_together_the_first_of_itself_is_to_blame(void **state)
{
    struct scene *s = *state;
    struct entry *e;
    uint64_t job;
    json_t *run;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, "devices: {min: 4, max: 4}\ncommand: {argv: [x]}\nretry: {max: 3, user: 3}\n");
    scene_report_all(s, job, "running", 0);
    e = scene_entry(s, job);
    run = scene_run_of(e, e->job.generation, "n1", "running", 0);
    (void)json_object_set_new(run, "ranks",
                              json_pack("[o, o, o, o]", ended_json(0, "aborted", 0, 1), ended_json(1, "program", 9, 50),
                                        ended_json(2, "program", 11, 40), ended_json(3, "aborted", 0, 60)));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    e = scene_entry(s, job);
    assert_int_equal(json_integer_value(json_object_get(e->job.outcome, "rank")), 2);
    assert_int_equal(json_integer_value(json_object_get(e->job.outcome, "signal")), 11);
    assert_int_equal(e->job.restarts_system + e->job.restarts_user, 1);
}

/* Four ranks of which each gave up; lost: 1 + the rank that each lost. Returns the job's outcome. */
static const json_t *all_gave_up(struct scene *s, const int lost[4])
{
    json_t *ranks = json_array(), *run;
    struct entry *e;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, "devices: {min: 4, max: 4}\ncommand: {argv: [x]}\nretry: {max: 3, user: 3}\n");
    scene_report_all(s, job, "running", 0);
    for (int i = 0; i < 4; i++) {
        json_t *rank = ended_json(i, "aborted", 0, 10 + i);

        (void)json_object_set_new(rank, "lost", json_integer(lost[i]));
        (void)json_array_append_new(ranks, rank);
    }
    e = scene_entry(s, job);
    run = scene_run_of(e, e->job.generation, "n1", "running", 0);
    (void)json_object_set_new(run, "ranks", ranks);
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    return scene_entry(s, job)->job.outcome;
}

static void where_all_gave_up_the_rank_that_most_lost_is_the_root(void **state)
{
    const json_t *o = all_gave_up(*state, (int[4]){3, 3, 1, 0});

    assert_int_equal(json_integer_value(json_object_get(o, "rank")), 2);
    assert_string_equal(json_string_value(json_object_get(o, "message")),
                        "rank 2 on n1: no rank failed of itself, and 2 of 3 others lost this one");
}

static void where_all_gave_up_two_ranks_that_as_many_lost_are_both_named(void **state)
{
    const json_t *o = all_gave_up(*state, (int[4]){0, 3, 2, 0});

    assert_int_equal(json_integer_value(json_object_get(o, "rank")), 1);
    assert_string_equal(
        json_string_value(json_object_get(o, "message")),
        "rank 1 on n1: no rank failed of itself, and 1 of 3 others lost each of these two: it and rank 2 "
        "on n1");
}

static void one_of_two(struct scene *s, uint64_t job, const char *node, json_t *rank)
{
    json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, node, "running", 0);

    if (rank)
        (void)json_object_set_new(run, "ranks", json_pack("[o]", rank));
    assert_int_equal(scene_report(s, node, json_pack("[o]", run), NULL).status, 200);
}

static void a_rank_that_runs_on_though_another_has_lost_it_is_behind_a_broken_connection(void **state)
{
    struct scene *s = *state;
    json_t *ended = ended_json(1, "aborted", 0, 10);
    uint64_t job;

    (void)json_object_set_new(ended, "lost", json_integer(1));
    (void)json_object_set_new(ended, "slot", json_integer(0));
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    job = scene_submit(s, "devices: {min: 2, max: 2}\ntrain: {model: gpt2-tiny, data: {path: /c}}\n");
    scene_report_all(s, job, "running", 0);
    one_of_two(s, job, "n2", json_deep_copy(ended));
    one_of_two(s, job, "n1", NULL);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING); /* it may be about to end */
    scene_wait(s, 1);
    one_of_two(s, job, "n2", json_deep_copy(ended));
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    one_of_two(s, job, "n1", NULL);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RECOVERING);
    assert_string_equal(json_string_value(json_object_get(scene_entry(s, job)->job.outcome, "message")),
                        "rank 0 on n1: rank 1 on n2 has lost it, and it runs: the connection between these nodes is "
                        "broken");
    assert_string_equal(json_string_value(json_object_get(scene_entry(s, job)->job.outcome, "action")), "elsewhere");
    json_decref(ended);
}

/* Of itself, of a rank that there is not, or of three: nobody is named by what was lost. */
static void where_all_gave_up_nonsense_and_three_that_as_many_lost_name_nobody(void **state)
{
    static const int lost[][4] = {{1, 0, 0, 0}, {0, 5, 2147483647, 0}, {2, 3, 4, 0}};

    for (size_t i = 0; i < COUNT(lost); i++) {
        const json_t *o = all_gave_up(*state, lost[i]);

        assert_string_equal(json_string_value(json_object_get(o, "message")),
                            "rank 0 on n1: its ranks gave up and none told why");
        assert_int_equal(scene_stop(state), 0);
        assert_int_equal(scene_start(state), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_ranks_that_end_together_the_first_of_itself_is_to_blame, scene_start,
                                        scene_stop),
        TEST(where_all_gave_up_the_rank_that_most_lost_is_the_root),
        TEST(where_all_gave_up_two_ranks_that_as_many_lost_are_both_named),
        TEST(a_rank_that_runs_on_though_another_has_lost_it_is_behind_a_broken_connection),
        TEST(where_all_gave_up_nonsense_and_three_that_as_many_lost_name_nobody),
        TEST(a_job_runs_once_all_of_its_ranks_do),
        TEST(a_report_that_comes_again_changes_nothing),
        TEST(a_job_whose_ranks_all_end_well_has_succeeded_and_its_devices_are_free),
        TEST(what_a_job_printed_is_complete_once_its_node_has_forgotten_the_run),
        TEST(the_rank_that_failed_first_is_the_cause),
        TEST(an_older_generation_changes_nothing_and_is_told_to_stop),
        TEST(a_report_of_another_agent_of_that_name_is_refused),
        TEST(a_flood_of_events_fills_no_turn_and_slows_to_a_trickle),
        TEST(events_of_a_run_are_taken_in_once_also_by_the_next_server),
        TEST(the_bytes_of_what_a_job_prints_are_counted),
        TEST(five_hundred_events_of_250_kb_leave_little_in_the_store_and_no_large_page),
        TEST(a_line_that_is_not_whole_waits_for_its_end),
        TEST(what_is_no_event_is_passed_over),
        TEST(a_line_of_metrics_is_the_jobs_progress),
        TEST(a_line_without_a_loss_leaves_the_last_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
