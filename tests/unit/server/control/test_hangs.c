/* Runs that stand still: whom the server names, in what words, and what it does. */
#include "tests/unit/server/control/scene.h"

#define THREE "devices: {min: 3, max: 3}\ncommand: {argv: [x]}\nretry: {max: 3, user: 1}\n"
#define TENSOR 77

static uint64_t begin(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 3), 200);
    job = scene_submit(s, THREE);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    return job;
}

struct told {
    int idle_ms; /* 0: it goes on */
    bool stopped;
    const char *phase, *op; /* op NULL: it waits for nobody */
    int entered, left, peer;
};

static const struct told waits = {6000, false, "forward", "all_reduce", 41, 40, -1};
static const struct told behind = {6000, false, "backward", NULL, 40, 40, -1};

static json_t *rank_json(const struct told *t, int rank, int later_ms)
{
    json_t *o = json_pack("{s:i, s:i, s:s, s:i, s:s}", "rank", rank, "slot", rank, "state", "running", "step", 90,
                          "phase", t->phase);

    if (t->idle_ms == 0)
        return o;
    (void)json_object_update_new(o, json_pack("{s:I, s:i, s:b, s:[{s:s, s:i, s:i, s:i, s:i}]}", "idle_us",
                                              (json_int_t)(t->idle_ms + later_ms) * 1000, "gap_us", 2000, "stopped",
                                              t->stopped, "groups", "name", "tp", "key", TENSOR, "entered", t->entered,
                                              "left", t->left, "size", 3));
    if (t->op)
        (void)json_object_update_new(o, json_pack("{s:s, s:i, s:i, s:i}", "op", t->op, "op_key", TENSOR, "op_call",
                                                  t->entered, "op_peer", t->peer));
    return o;
}

static void report(struct scene *s, uint64_t job, const struct told of[3], int later_ms)
{
    json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, "n1", "running", 0);
    json_t *ranks = json_array();

    for (int i = 0; i < 3; i++)
        (void)json_array_append_new(ranks, rank_json(&of[i], i, later_ms));
    (void)json_object_set_new(run, "ranks", ranks);
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
}

static const char *outcome(struct scene *s, uint64_t job)
{
    return json_string_value(json_object_get(scene_entry(s, job)->job.outcome, "message"));
}

static void each_kind_of_hang_is_told_in_its_words(void **state)
{
    const struct {
        struct told of[3];
        int root;
        const char *says;
    } row[] = {
        {{waits, behind, waits},
         1,
         "rank 1 on n1 has not entered all-reduce 41 of 'tp' at step 90 that 2 others wait in; it has been in the "
         "backward pass for 7.0 s"},
        {{waits, waits, {6000, true, "forward", "all_reduce", 41, 40, -1}},
         2,
         "rank 2 on n1: its process has been stopped for 7.0 s, by a signal or a debugger; 2 others wait, rank 0 in "
         "all-reduce 41 of 'tp' at step 90"},
        {{{601000, false, "checkpoint", NULL, 40, 40, -1}, waits, waits},
         0,
         "rank 0 on n1 has been in the checkpoint for 602.0 s, longer than that may take; 2 others wait, rank 1 in "
         "all-reduce 41 of 'tp' at step 90"},
        {{waits, waits, waits},
         0,
         "rank 0 on n1: nothing moves in all-reduce 41 of 'tp' at step 90 for 7.0 s, in which all its ranks are: a "
         "link or a device of ranks 0 on n1, 1 on n1, 2 on n1"},
        {{{6000, false, "forward", "recv", 40, 40, 1},
          {6000, false, "forward", "recv", 40, 40, 2},
          {6000, false, "forward", "recv", 40, 40, 0}},
         0,
         "rank 0 on n1: ranks wait for each other in different operations, this one in a message of rank 1 in 'tp' at "
         "step 90"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        void *one;
        struct scene *s;
        uint64_t job;

        assert_int_equal(scene_start(&one), 0);
        s = one;
        job = begin(s);
        report(s, job, row[i].of, 0);
        assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING); /* once is not enough: it may have been paused */
        report(s, job, row[i].of, 1000);
        assert_int_equal(scene_entry(s, job)->job.state, JOB_RECOVERING);
        assert_string_equal(outcome(s, job), row[i].says);
        assert_int_equal(json_integer_value(json_object_get(scene_entry(s, job)->job.outcome, "rank")), row[i].root);
        assert_true(json_is_null(json_object_get(scene_entry(s, job)->job.outcome, "exit_code")));
        assert_int_equal(scene_entry(s, job)->job.restarts_system, 1);
        assert_int_equal(scene_stop(&one), 0);
    }
}

static void a_run_of_which_a_rank_goes_on_or_may_still_do_so_is_left_alone(void **state)
{
    const struct told rows[][3] = {
        {{0, false, "forward", NULL, 0, 0, -1}, waits, waits},           /* it goes on */
        {{3000, false, "forward", NULL, 40, 40, -1}, waits, waits},      /* it may */
        {{300000, false, "checkpoint", NULL, 40, 40, -1}, waits, waits}, /* a disk may be slow */
        {{300000, false, "load", NULL, 40, 40, -1}, waits, waits},
    };
    struct scene *s = *state;
    uint64_t job = begin(s);

    for (size_t i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 2; k++)
            report(s, job, rows[i], k * 1000);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
}

static void what_was_told_long_ago_says_nothing(void **state)
{
    const struct told hang[3] = {waits, behind, waits}, two[3] = {waits, {0, false, "forward", NULL, 0, 0, -1}, waits};
    struct scene *s = *state;
    uint64_t job = begin(s);

    report(s, job, hang, 0);
    report(s, job, two, 1000); /* it has gone on since */
    report(s, job, hang, 2000);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    report(s, job, hang, 3000);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RECOVERING);
}

/* Ranks of one role in step 45: the last called a barrier where the others reduced, and all wait for each other. */
static json_t *order_json(int rank, const char *digest)
{
    json_t *o = rank_json(&(struct told){6000, false, "forward", "recv", 40, 40, (rank + 1) % 3}, rank, 0);
    char window[32];

    (void)snprintf(window, sizeof(window), "14000001%s", digest);
    (void)json_object_update_new(
        o, json_pack("{s:i, s:i, s:i, s:s}", "role", 1, "span", 91, "span_ops", 2, "window", window));
    return o;
}

static void report_odd(struct scene *s, uint64_t job, const char *digest)
{
    for (int k = 0; k < 2; k++) {
        json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, "n1", "running", 0);
        json_t *ranks =
            json_pack("[o, o, o]", order_json(0, "14000001"), order_json(1, "14000001"), order_json(2, digest));

        for (size_t i = 0; i < 3; i++)
            (void)json_object_set_new(json_array_get(ranks, i), "idle_us", json_integer(7000000 + k * 1000000));
        (void)json_object_set_new(run, "ranks", ranks);
        assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    }
}

static void a_rank_that_calls_something_else_is_named_with_both_calls_and_tried_once_more(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    const json_t *outcome_of;

    report_odd(s, job, "64000001");
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RECOVERING);
    assert_string_equal(outcome(s, job), "rank 2 on n1 has called something else than its peers: operation 2 of step "
                                         "45 is barrier of 'tp', theirs is all-reduce of 'tp'");
    assert_int_equal(json_integer_value(json_object_get(scene_entry(s, job)->job.outcome, "rank")), 2);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_GO_ON);
    scene_report_all(s, job, "exited", 75);
    scene_wait(s, 4); /* before the node has been silent for long */
    scene_report_all(s, job, "running", 0);
    report_odd(s, job, "14000002");
    outcome_of = scene_entry(s, job)->job.outcome;
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_FAIL);
    assert_string_equal(json_string_value(json_object_get(outcome_of, "class")), "user");
    assert_non_null(strstr(outcome(s, job), "all-reduce of 'tp' of another size, type or root than theirs"));
}

static void a_window_that_is_none_says_nothing(void **state)
{
    static const char *const bad[] = {"zzzzzzzz", "1", "-1234567", "        "};
    struct scene *s = *state;
    uint64_t job = begin(s);

    for (size_t i = 0; i < COUNT(bad) && scene_entry(s, job)->job.state == JOB_RUNNING; i++)
        report_odd(s, job, bad[i]);
    assert_non_null(strstr(outcome(s, job), "ranks wait for each other"));
}

static void a_run_that_is_told_to_end_is_not_judged(void **state)
{
    const struct told hang[3] = {waits, behind, waits};
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct http_req *r;
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    r = scene_request(id, NULL, NULL);
    free(r->uri);
    r->uri = strdup("/v1/jobs/j1/suspend");
    assert_int_equal(scene_call(s, jobs_action, r, NULL).status, 202);
    for (int k = 0; k < 3; k++)
        report(s, job, hang, k * 1000);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
}

static void what_no_rank_could_say_is_passed_over(void **state)
{
    struct told absurd[3] = {waits, waits, waits};
    struct scene *s = *state;
    uint64_t job = begin(s);

    for (int i = 0; i < 3; i++)
        absurd[i].peer = 900; /* the run has three ranks */
    for (int k = 0; k < 2; k++)
        report(s, job, absurd, k * 1000);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RECOVERING); /* as a call of all of them */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

struct beats_told {
    int idle_ms; /* 0: it goes on */
    const char *section;
    int limit_ms, step;
};

static void report_beats(struct scene *s, uint64_t job, const struct beats_told of[3], int later_ms)
{
    json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, "n1", "running", 0);
    json_t *ranks = json_array();

    for (int i = 0; i < 3; i++) {
        json_t *o = json_pack("{s:i, s:i, s:s, s:i, s:s}", "rank", i, "slot", i, "state", "running", "step", of[i].step,
                              "phase", "init");

        if (of[i].idle_ms > 0)
            (void)json_object_update_new(o, json_pack("{s:I, s:i, s:b, s:s, s:I}", "idle_us",
                                                      (json_int_t)(of[i].idle_ms + later_ms) * 1000, "gap_us", 200000,
                                                      "beats", true, "section", of[i].section, "allowed_us",
                                                      (json_int_t)of[i].limit_ms * 1000));
        (void)json_array_append_new(ranks, o);
    }
    (void)json_object_set_new(run, "ranks", ranks);
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
}

static void a_command_whose_heartbeat_stands_still_is_named_with_its_section_and_age(void **state)
{
    static const struct {
        struct beats_told of[3];
        const char *says; /* NULL: nothing */
    } row[] = {
        {{{0, "", 0, 90}, {6000, "eval", 3000, 89}, {0, "", 0, 90}},
         "rank 1 on n1 has been in section 'eval' for 7.0 s, which was to take 3.0 s at most; 89 steps are done"},
        {{{0, "", 0, 90}, {0, "", 0, 90}, {31000, "", 0, 88}},
         "rank 2 on n1 has done no step since step 88, for 32.0 s, and is in no section"},
        {{{31000, "", 0, 90}, {31000, "", 0, 90}, {0, "", 0, 90}},
         "ranks 0 on n1, 1 on n1 have done no step since step 90, for 32.0 s, and are in no section"},
        {{{0, "", 0, 90}, {3000, "eval", 3000, 89}, {0, "", 0, 90}}, NULL},
        {{{20000, "", 0, 90}, {20000, "", 0, 90}, {20000, "", 0, 90}}, NULL},
        {{{31000, "", 0, 90}, {31000, "eval", 60000, 90}, {31000, "", 0, 90}}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct scene *s;
        uint64_t job;
        void *one;

        assert_int_equal(scene_start(&one), 0);
        s = one;
        job = begin(s);
        report_beats(s, job, row[i].of, 0);
        assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
        report_beats(s, job, row[i].of, 1000);
        assert_int_equal(scene_entry(s, job)->job.state, row[i].says ? JOB_RECOVERING : JOB_RUNNING);
        if (row[i].says)
            assert_string_equal(outcome(s, job), row[i].says);
        assert_int_equal(scene_stop(&one), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_hang_is_told_in_its_words),
        TEST(a_run_of_which_a_rank_goes_on_or_may_still_do_so_is_left_alone),
        TEST(what_was_told_long_ago_says_nothing),
        TEST(a_rank_that_calls_something_else_is_named_with_both_calls_and_tried_once_more),
        TEST(a_window_that_is_none_says_nothing),
        TEST(a_run_that_is_told_to_end_is_not_judged),
        TEST(what_no_rank_could_say_is_passed_over),
        cmocka_unit_test(a_command_whose_heartbeat_stands_still_is_named_with_its_section_and_age),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
