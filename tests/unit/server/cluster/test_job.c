#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/philox.h"
#include "server/cluster/job.h"
#include "server/cluster/job_time.h"

static const char *const minimal = "{\"command\":{\"argv\":[\"true\"]},\"devices\":{\"min\":2,\"max\":4},"
                                   "\"retry\":{\"max\":2,\"user\":1}}";

static struct job_spec *spec_new(void)
{
    struct faults f = {.n = 0};
    struct job_spec *spec = NULL;

    assert_int_equal(spec_from_text(minimal, strlen(minimal), &spec, &f), 0);
    faults_clear(&f);
    return spec;
}

static void start(struct job *j)
{
    struct job_spec *spec = spec_new();

    job_init(j, 7, spec, "ann", 1000);
    spec_free(spec);
}

static const struct job_place places[2] = {{"n1", "cpu", "127.0.0.1", 0, 5}, {"n1", "cpu", "127.0.0.1", 3, 2}};

static enum act_class fails_as = ACT_CRASH; /* what CAUSE_FAULT is of */

/* Let a cause happen; its event is appended to log (may be NULL). Returns what job_transition says. */
static int happen(struct job *j, struct job_cause cause, int64_t now_us, json_t *log)
{
    json_t *event = NULL, *outcome = json_pack("{s:s, s:s}", "class", "system", "message", "rank 1 is gone");
    struct merr err = {""};
    struct act_incident incident = {.class_ = fails_as, .step = -1};
    int r;

    cause.incident = &incident;
    cause.outcome = outcome;
    cause.actor = "test";
    cause.text = "because";
    cause.places = places;
    cause.n_places = 2;
    cause.layout = (struct layout){1, 1, 1, 2, 2};
    cause.master_port = 29500;
    r = job_transition(j, &cause, now_us, &event, &err);
    json_decref(outcome);
    if (r < 0) {
        assert_true(err.text[0] != '\0');
        assert_null(event);
        return r;
    }
    assert_int_equal(job_apply(j, event), 0);
    if (log)
        (void)json_array_append(log, event);
    json_decref(event);
    return 0;
}

static int simply(struct job *j, enum job_cause_kind kind, json_t *log)
{
    return happen(
        j, (struct job_cause){.kind = kind, .class_ = JOB_CLASS_SYSTEM, .code = "x", .priority = 9, .min = 1, .max = 3},
        INT64_C(1) << 60, log);
}

static void a_job_runs_and_succeeds(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    assert_int_equal(j.state, JOB_QUEUED);
    assert_true(job_waits(&j));
    assert_int_equal(simply(&j, CAUSE_ASSIGNED, NULL), 0);
    assert_int_equal(j.state, JOB_STARTING);
    assert_int_equal(j.generation, 1);
    assert_int_equal(j.n_places, 2);
    assert_string_equal(job_order(&j), "run");
    assert_int_equal(simply(&j, CAUSE_STARTED, NULL), 0);
    assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_OVER, .all_done = true}, 5000, NULL), 0);
    assert_int_equal(j.state, JOB_SUCCEEDED);
    assert_int_equal(j.finished_us, 5000);
    assert_int_equal(j.n_places, 0);
    assert_string_equal(json_string_value(json_object_get(j.outcome, "class")), "done");
    job_clear(&j);
}

static void each_cause_fits_some_states_and_is_refused_in_the_others(void **state)
{
    static const struct {
        enum job_cause_kind before[5]; /* ended by CAUSE_CHANGE */
        enum job_cause_kind cause;
        int want;
        enum job_state then;
        const char *order; /* NULL: not looked at */
    } row[] = {
        {{CAUSE_CHANGE}, CAUSE_STARTED, -EPROTO, JOB_QUEUED, NULL},
        {{CAUSE_CHANGE}, CAUSE_OVER, -EPROTO, JOB_QUEUED, NULL},
        {{CAUSE_CHANGE}, CAUSE_FAULT, -EPROTO, JOB_QUEUED, NULL},
        {{CAUSE_CHANGE}, CAUSE_CANCEL, 0, JOB_CANCELLED, NULL},
        {{CAUSE_CHANGE}, CAUSE_SUSPEND, 0, JOB_SUSPENDED, NULL},
        {{CAUSE_CHANGE}, CAUSE_RESUME, -EALREADY, JOB_QUEUED, NULL},
        {{CAUSE_CHANGE}, CAUSE_REQUEUE, -EALREADY, JOB_QUEUED, NULL},
        {{CAUSE_CHANGE}, CAUSE_REFUSED, 0, JOB_FAILED, NULL},
        {{CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_REFUSED, 0, JOB_FAILED, NULL},
        {{CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_REFUSED, -EPROTO, JOB_CANCELLED, NULL},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_REFUSED, 0, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_REFUSED, 0, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_REFUSED, CAUSE_CHANGE}, CAUSE_REFUSED, -EALREADY, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_REFUSED, CAUSE_CHANGE}, CAUSE_OVER, 0, JOB_FAILED, NULL},
        {{CAUSE_ASSIGNED, CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_REFUSED, -EALREADY, JOB_STARTING, "stop"},
        {{CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_RESUME, 0, JOB_QUEUED, NULL},
        {{CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_SUSPEND, -EALREADY, JOB_SUSPENDED, NULL},
        {{CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_ASSIGNED, -EPROTO, JOB_SUSPENDED, NULL},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_ASSIGNED, -EPROTO, JOB_STARTING, "run"},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_CANCEL, 0, JOB_STARTING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_SUSPEND, 0, JOB_STARTING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_REQUEUE, 0, JOB_STARTING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_FAULT, 0, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_CANCEL, -EALREADY, JOB_STARTING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_FAULT, -EPROTO, JOB_STARTING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_OVER, 0, JOB_CANCELLED, NULL},
        {{CAUSE_ASSIGNED, CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_OVER, 0, JOB_SUSPENDED, NULL},
        {{CAUSE_ASSIGNED, CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_RESUME, -EPROTO, JOB_STARTING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_SUSPEND, CAUSE_CHANGE}, CAUSE_CANCEL, 0, JOB_STARTING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_REQUEUE, CAUSE_CHANGE}, CAUSE_OVER, 0, JOB_QUEUED, NULL},
        {{CAUSE_CHANGE}, CAUSE_RESCALE, -EALREADY, JOB_QUEUED, NULL},
        {{CAUSE_ASSIGNED, CAUSE_CHANGE}, CAUSE_RESCALE, 0, JOB_RESCALING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_STARTED, CAUSE_CHANGE}, CAUSE_RESCALE, 0, JOB_RESCALING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_RESCALE, CAUSE_CHANGE}, CAUSE_RESCALE, -EALREADY, JOB_RESCALING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_RESCALE, CAUSE_CHANGE}, CAUSE_STARTED, -EPROTO, JOB_RESCALING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_RESCALE, CAUSE_CHANGE}, CAUSE_CANCEL, 0, JOB_RESCALING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_RESCALE, CAUSE_CHANGE}, CAUSE_SUSPEND, 0, JOB_RESCALING, "drain"},
        {{CAUSE_ASSIGNED, CAUSE_RESCALE, CAUSE_CHANGE}, CAUSE_FAULT, 0, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_RESCALE, CAUSE_CHANGE}, CAUSE_OVER, 0, JOB_RESCALING, NULL},
        {{CAUSE_ASSIGNED, CAUSE_FAULT, CAUSE_CHANGE}, CAUSE_FAULT, -EPROTO, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_FAULT, CAUSE_CHANGE}, CAUSE_ASSIGNED, -EPROTO, JOB_RECOVERING, "stop"},
        {{CAUSE_ASSIGNED, CAUSE_FAULT, CAUSE_CHANGE}, CAUSE_OVER, 0, JOB_RECOVERING, NULL},
        {{CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_CANCEL, -EPROTO, JOB_CANCELLED, NULL},
        {{CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_RESUME, -EPROTO, JOB_CANCELLED, NULL},
        {{CAUSE_CANCEL, CAUSE_CHANGE}, CAUSE_CHANGE, -EPROTO, JOB_CANCELLED, NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct job j;

        start(&j);
        for (int k = 0; row[i].before[k] != CAUSE_CHANGE; k++)
            assert_int_equal(simply(&j, row[i].before[k], NULL), 0);
        if (simply(&j, row[i].cause, NULL) != row[i].want || j.state != row[i].then)
            fail_msg("row %zu: state %s", i, job_state_name(j.state));
        if (row[i].order)
            assert_string_equal(job_order(&j), row[i].order);
        job_clear(&j);
    }
}

static void a_rescaled_job_waits_for_its_next_run_and_its_device_time_adds_up(void **state)
{
    struct job j;

    (void)state;
    start(&j);
    for (int run = 0; run < 3; run++) {
        int64_t at = 1000000 * (run + 1);

        assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_ASSIGNED}, at, NULL), 0);
        assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_STARTED}, at + 1, NULL), 0);
        assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_RESCALE}, at + 2, NULL), 0);
        assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_OVER}, at + 10, NULL), 0);
        assert_true(job_waits(&j));
        assert_int_equal(j.state, JOB_RESCALING);
        assert_int_equal(j.rescales, run + 1);
        assert_int_equal(j.device_us, (run + 1) * 20); /* two devices, ten microseconds */
        assert_int_equal(j.waiting_us, at + 10);
        assert_string_equal(j.home, "cpu");
    }
    assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_CANCEL}, 9000000, NULL), 0);
    assert_int_equal(j.state, JOB_CANCELLED);
    job_clear(&j);
}

static void a_clock_that_is_set_costs_no_device_time_and_no_waiting(void **state)
{
    const int64_t hour_us = INT64_C(3600000000);
    struct job j;

    (void)state;
    start(&j);
    assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_ASSIGNED}, hour_us, NULL), 0);
    job_time_shift(&j, hour_us);
    assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_RESCALE}, 2 * hour_us + 5, NULL), 0);
    assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_OVER}, 2 * hour_us + 5, NULL), 0);
    assert_int_equal(j.device_us, 10); /* two devices, five microseconds */
    assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_ASSIGNED}, 2 * hour_us, NULL), 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_FAULT}, 9, NULL), 0);
        assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_OVER}, 9, NULL), 0);
        assert_int_equal(j.device_us, 10); /* it ended before it began: nobody saw the clock being set */
        if (k == 0)
            assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_ASSIGNED}, hour_us, NULL), 0);
    }
    assert_in_range(j.retry_us, 9 + 2500000, 9 + 7500000);
    assert_true(job_time_backs_off(&j, 9));
    assert_false(job_time_backs_off(&j, j.retry_us));
    assert_false(job_time_backs_off(&j, 9 - hour_us));
    job_time_shift(&j, -hour_us);
    assert_true(job_time_backs_off(&j, 9 - hour_us));
    job_clear(&j);
}

static void restarts_are_counted_by_class_and_end(void **state)
{
    static const struct {
        enum act_class class_;
        int restarts; /* that the spec allows */
    } row[] = {{ACT_CRASH, 2}, {ACT_DEVICE, 2}, {ACT_USER, 1}};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct job j;
        int64_t now = 1000;

        fails_as = row[i].class_;
        start(&j);
        for (int k = 0; k <= row[i].restarts; k++) {
            assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_ASSIGNED}, now, NULL), 0);
            assert_int_equal(j.generation, k + 1);
            assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_FAULT}, now, NULL), 0);
            assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_OVER}, now, NULL), 0);
            assert_int_equal(j.state, k < row[i].restarts ? JOB_RECOVERING : JOB_FAILED);
            if (k == 1 && row[i].restarts > 1) /* the second restart waits */
                assert_int_equal(happen(&j, (struct job_cause){.kind = CAUSE_ASSIGNED}, now, NULL), -EPROTO);
            now += 100 * 1000000;
        }
        assert_int_equal(j.restarts_user + j.restarts_system + j.restarts_node, row[i].restarts);
        job_clear(&j);
    }
    fails_as = ACT_CRASH;
}

static void assert_same(const struct job *a, const struct job *b, unsigned seed)
{
    json_t *x = job_record(a), *y = job_record(b);

    if (!json_equal(x, y)) {
        char *p = json_dumps(x, JSON_INDENT(1)), *q = json_dumps(y, JSON_INDENT(1));

        fail_msg("seed %u: %s\n---\n%s", seed, p, q);
    }
    json_decref(x);
    json_decref(y);
}

static uint32_t draw(unsigned seed, uint32_t at)
{
    uint32_t ctr[4] = {at, 0, 0, 0}, key[2] = {seed, 1}, out[4];

    philox4x32(ctr, key, out);
    return out[0];
}

static void come_after_two(struct job *j)
{
    j->after = calloc(2, sizeof(*j->after));
    assert_non_null(j->after);
    j->after[0] = (struct job_after){.job = 3, .when = JOB_AFTER_OK};
    j->after[1] = (struct job_after){.job = 4, .when = JOB_AFTER_STARTED};
    j->n_after = 2;
}

static void replaying_the_events_of_any_history_gives_its_state(void **state)
{
    unsigned seed = (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    for (unsigned run = 0; run < 400; run++) {
        json_t *log = json_array(), *event, *record;
        struct job j, again, read;
        uint32_t at = run * 1000;
        size_t i;

        start(&j);
        come_after_two(&j);
        for (int k = 0; k < 40; k++) {
            enum job_is others[2] = {(enum job_is)(draw(seed, at++) % 3), (enum job_is)(draw(seed, at++) % 3)};
            struct job_cause cause = {.kind = (enum job_cause_kind)(draw(seed, at++) % (CAUSE_TIME_UP + 1)),
                                      .time_s = (int)(draw(seed, at++) % 4) * 500,
                                      .class_ = JOB_CLASS_USER,
                                      .all_done = draw(seed, at++) % 8 == 0,
                                      .priority = (int)(draw(seed, at++) % 100),
                                      .min = 1,
                                      .max = 5,
                                      .after_is = others};
            struct job before = j;
            json_t *was = job_record(&before), *is;
            int r;

            fails_as = (enum act_class)(draw(seed, at++) % ACT_CLASSES);
            r = happen(&j, cause, (int64_t)(k + 1) * 100 * 1000000, log);

            is = job_record(&j);
            if (r < 0 && !json_equal(was, is)) /* a refusal leaves no trace */
                fail_msg("seed %u: refused and yet changed", seed);
            assert_true(!job_ended(j.state) || !j.live);
            assert_true(j.live == (j.n_places > 0));
            assert_true(!(j.state == JOB_QUEUED || j.state == JOB_SUSPENDED) || !j.live);
            json_decref(was);
            json_decref(is);
        }
        start(&again);
        come_after_two(&again);
        json_array_foreach (log, i, event) {
            assert_int_equal(job_apply(&again, event), 0);
        }
        assert_same(&j, &again, seed);
        record = job_record(&j);
        assert_int_equal(job_from_record(record, &read), 0);
        assert_same(&j, &read, seed);
        json_decref(record);
        json_decref(log);
        job_clear(&j);
        job_clear(&again);
        job_clear(&read);
    }
}

/* Most of a new job's record would be nothing, and it is written at each submit. */
static void a_record_leaves_out_what_is_empty_and_one_that_does_not_is_read_too(void **state)
{
    static const char whole[] =
        "{\"id\":7,\"name\":\"a\",\"project\":\"default\",\"user\":\"ann\",\"kind\":\"train\",\"priority\":50,\"min\":"
        "1,"
        "\"max\":2,\"retry_max\":3,\"retry_user\":0,\"state\":\"queued\",\"intent\":\"go-on\",\"live\":false,"
        "\"generation\":0,\"version\":1,\"restarts_user\":0,\"restarts_system\":0,\"restarts_node\":0,"
        "\"submitted_us\":1000,\"started_us\":0,\"finished_us\":0,\"retry_us\":0,\"assignment\":[],"
        "\"layout\":{\"tp\":0,\"pp\":0,\"cp\":0,\"dp\":0},\"master_port\":0,\"outcome\":null,"
        "\"reason_code\":\"submitted\",\"reason_text\":null,\"progress\":null,\"eval\":null,\"checkpoint\":null,"
        "\"waiting_us\":1000,\"changed_us\":0,\"device_us\":0,\"rescales\":0,\"home\":\"\",\"step_ms\":0.0,"
        "\"drain_by_us\":0,\"moves\":false,\"assigned\":0,\"shipped\":0}";
    json_t *old = json_loads(whole, 0, NULL), *record;
    struct job a, b;
    char *text;

    (void)state;
    assert_int_equal(job_from_record(old, &a), 0);
    assert_int_equal(a.changed_us, 0);
    record = job_record(&a);
    text = json_dumps(record, JSON_COMPACT);
    assert_true(strlen(text) < sizeof(whole) / 2);
    assert_int_equal(job_from_record(record, &b), 0);
    assert_same(&a, &b, 0);
    assert_int_equal(b.submitted_us, 1000);
    assert_int_equal(b.changed_us, 0);
    assert_int_equal(b.retry_max, 3);
    free(text);
    json_decref(old);
    json_decref(record);
    job_clear(&a);
    job_clear(&b);
}

static void a_record_keeps_who_holds_state(void **state)
{
    struct job_holder *h = calloc(2, sizeof(*h));
    struct job j, read;
    json_t *record;

    (void)state;
    start(&j);
    j.moves = true;
    assert_non_null(h);
    h[0] = (struct job_holder){.node = "n1", .address = "10.0.0.1", .done = true, .started = true};
    h[1] = (struct job_holder){.node = "n2", .address = "10.0.0.2", .taken = true};
    job_hold(&j, h, 2);
    record = job_record(&j);
    assert_int_equal(job_from_record(record, &read), 0);
    assert_same(&j, &read, 0);
    assert_true(read.moves);
    assert_int_equal(read.n_holders, 2);
    assert_string_equal(read.holders[0].node, "n1");
    assert_string_equal(read.holders[1].address, "10.0.0.2");
    assert_true(read.holders[0].done && !read.holders[0].taken && !read.holders[0].started);
    assert_true(!read.holders[1].done && read.holders[1].taken);
    json_decref(record);
    job_hold(&read, NULL, 0);
    assert_int_equal(read.n_holders, 0);
    job_clear(&j);
    job_clear(&read);
}

static void an_event_that_does_not_follow_is_refused(void **state)
{
    struct job j;
    json_t *event = json_pack("{s:s, s:s, s:s, s:i, s:{s:s}, s:{s:s}}", "type", "state", "from", "running", "to",
                              "succeeded", "generation", 1, "cause", "code", "x", "data", "intent", "go-on");

    (void)state;
    start(&j);
    assert_int_equal(job_apply(&j, event), -EINVAL);
    assert_int_equal(j.state, JOB_QUEUED);
    json_decref(event);
    job_clear(&j);
}

static void ids_are_read_strictly(void **state)
{
    static const struct {
        const char *text;
        uint64_t id;
    } row[] = {{"j17", 17}, {"j1", 1},  {"17", 0}, {"j0", 0},  {"j", 0},
               {"j-1", 0},  {"j1x", 0}, {"", 0},   {"j01", 0}, {"j9999999999999999999", 0}};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        assert_int_equal(job_id_parse(row[i].text), row[i].id);
    assert_int_equal(job_id_parse(NULL), 0);
}

static void ends_of_ranks_have_classes(void **state)
{
    static const struct {
        enum job_kind kind;
        int code, signal;
        enum exit_cause cause; /* UNTOLD: by an agent of protocol 1 */
        enum act_class class_;
    } row[] = {
        {JOB_TRAIN, 65, 0, EXIT_CAUSE_UNTOLD, ACT_USER},      {JOB_TRAIN, 70, 0, EXIT_CAUSE_UNTOLD, ACT_CRASH},
        {JOB_TRAIN, 74, 0, EXIT_CAUSE_UNTOLD, ACT_DEVICE},    {JOB_TRAIN, 0, 9, EXIT_CAUSE_UNTOLD, ACT_CRASH},
        {JOB_COMMAND, 1, 0, EXIT_CAUSE_UNTOLD, ACT_USER},     {JOB_COMMAND, 139, 11, EXIT_CAUSE_UNTOLD, ACT_USER},
        {JOB_COMMAND, 139, 0, EXIT_CAUSE_PROGRAM, ACT_USER},  {JOB_COMMAND, 137, 9, EXIT_CAUSE_PROGRAM, ACT_CRASH},
        {JOB_COMMAND, 137, 0, EXIT_CAUSE_PROGRAM, ACT_CRASH}, {JOB_COMMAND, 137, 9, EXIT_CAUSE_MEMORY, ACT_USER},
        {JOB_COMMAND, 74, 0, EXIT_CAUSE_UNTOLD, ACT_USER},    {JOB_COMMAND, 74, 0, EXIT_CAUSE_PROGRAM, ACT_USER},
        {JOB_COMMAND, 76, 0, EXIT_CAUSE_PROGRAM, ACT_USER},   {JOB_COMMAND, 74, 0, EXIT_CAUSE_NODE, ACT_DEVICE},
        {JOB_TRAIN, 74, 0, EXIT_CAUSE_PROGRAM, ACT_CRASH},    {JOB_TRAIN, 1, 0, EXIT_CAUSE_USER, ACT_USER},
        {JOB_TRAIN, 139, 11, EXIT_CAUSE_USER, ACT_CRASH},     {JOB_TRAIN, 65, 0, EXIT_CAUSE_NUMBERS, ACT_NUMERIC},
        {JOB_COMMAND, 65, 0, EXIT_CAUSE_NUMBERS, ACT_USER},   {JOB_TRAIN, 74, 0, EXIT_CAUSE_REPLICA, ACT_REPLICA},
        {JOB_COMMAND, 74, 0, EXIT_CAUSE_REPLICA, ACT_DEVICE}};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rank_exit e = exit_settle(
            (struct rank_exit){.status = row[i].code, .signal = row[i].signal, .cause = row[i].cause}, row[i].kind);

        assert_int_equal(job_exit_class(row[i].kind, &e), row[i].class_);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_and_succeeds),
        cmocka_unit_test(each_cause_fits_some_states_and_is_refused_in_the_others),
        cmocka_unit_test(a_rescaled_job_waits_for_its_next_run_and_its_device_time_adds_up),
        cmocka_unit_test(a_clock_that_is_set_costs_no_device_time_and_no_waiting),
        cmocka_unit_test(restarts_are_counted_by_class_and_end),
        cmocka_unit_test(replaying_the_events_of_any_history_gives_its_state),
        cmocka_unit_test(a_record_leaves_out_what_is_empty_and_one_that_does_not_is_read_too),
        cmocka_unit_test(a_record_keeps_who_holds_state),
        cmocka_unit_test(an_event_that_does_not_follow_is_refused),
        cmocka_unit_test(ids_are_read_strictly),
        cmocka_unit_test(ends_of_ranks_have_classes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
