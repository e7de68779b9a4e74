/* test_trace - the spans of jobs' lives, and a collector that is slow, refuses or is gone */
#include "tests/unit/server/control/scene.h"

#include "server/control/trace.h"

#define JOB "{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"command\": {\"argv\": [\"x\"]}}"

static struct { /* what was handed to the network */
    uint64_t id;
    char *body; /* owned: the newest */
    char key[64];
    size_t n;
    bool full;
} sent;

static bool send_it(void *self, const struct post_message *m)
{
    (void)self;
    if (sent.full)
        return false;
    free(sent.body);
    sent.body = strndup(m->body, m->len);
    sent.id = m->id;
    sent.n++;
    assert_true(m->trusted);
    assert_string_equal(m->url, "http://collector/v1/traces");
    (void)snprintf(sent.key, sizeof(sent.key), "%s", m->headers[1] ? m->headers[1] : "");
    return true;
}

static int start(void **state)
{
    int r = scene_start(state);
    struct scene *s = *state;

    free(sent.body);
    memset(&sent, 0, sizeof(sent));
    s->cfg.traces =
        (struct otlp_way){.send = send_it, .url = "http://collector/v1/traces", .headers = {"api-key: abc"}};
    scene_restart(s);
    return r;
}

static int stop(void **state)
{
    free(sent.body);
    sent.body = NULL;
    return scene_stop(state);
}

/* The network tells what came of the newest body; a turn hears it. */
static void answer(struct scene *s, int status)
{
    trace_done(s->core, sent.id, status, 3, status ? "" : "nobody is there");
    fake_clock_pass(&s->clock, 1000);
    assert_true(turn_take(s->core, queue_take(&s->core->turn.queue, 16, 0)));
}

/* The span of this name in the newest body; new, NULL: there is none. */
static json_t *span_named(const char *name)
{
    json_auto_t *body = sent.body ? json_loads(sent.body, 0, NULL) : NULL;
    json_t *spans = json_object_get(
        json_array_get(json_object_get(json_array_get(json_object_get(body, "resourceSpans"), 0), "scopeSpans"), 0),
        "spans");
    json_t *span;
    size_t i;

    json_array_foreach (spans, i, span)
        if (strcmp(json_string_value(json_object_get(span, "name")), name) == 0)
            return json_incref(span);
    return NULL;
}

static int64_t ms_of(const json_t *span)
{
    return (strtoll(json_string_value(json_object_get(span, "endTimeUnixNano")), NULL, 10) -
            strtoll(json_string_value(json_object_get(span, "startTimeUnixNano")), NULL, 10)) /
           1000000;
}

static int64_t count_of(struct scene *s, const char *result)
{
    char want[80];
    const char *at;
    struct buf out;
    int64_t n;

    buf_init(&out, 1 << 16);
    trace_print(s->core, &out);
    (void)snprintf(want, sizeof(want), "muster_trace_spans_total{result=\"%s\"} ", result);
    at = strstr(out.data, want);
    assert_non_null(at);
    n = strtoll(at + strlen(want), NULL, 10);
    buf_clear(&out);
    return n;
}

static void tell_a_step(struct scene *s, uint64_t job)
{
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "running", 0)),
                                  json_pack("{s:[{s:s, s:i, s:s}]}", "metrics", "job", id, "generation", 1, "text",
                                            "{\"step\": 1, \"loss\": 2.5}\n"))
                         .status,
                     200);
}

static void each_part_of_a_jobs_life_is_a_span_with_its_length(void **state)
{
    static const struct {
        const char *name;
        int64_t least_ms, most_ms;
    } t[] = {{" /v1/jobs", 0, 0},   {"queue", 5000, 5200},      {"decide", 0, 100},   {"attempt", 6000, 6300},
             {"start", 2000, 2200}, {"first step", 3000, 3300}, {"job", 11000, 11600}};
    struct scene *s = *state;
    uint64_t job;

    sent.full = true; /* until all of it is there */
    job = scene_submit(s, JOB);
    scene_wait(s, 5);
    assert_int_equal(scene_register(s, "n1", "fast", 1), 200);
    scene_turn(s);
    assert_true(scene_entry(s, job)->job.live);
    scene_wait(s, 2);
    scene_report_all(s, job, "running", 0);
    scene_wait(s, 1);
    tell_a_step(s, job);
    tell_a_step(s, job);
    scene_wait(s, 3);
    sent.full = false;
    scene_report_all(s, job, "exited", 0);
    scene_wait(s, 2);
    assert_int_equal(sent.n, 1);
    assert_string_equal(sent.key, "api-key: abc");
    for (size_t i = 0; i < COUNT(t); i++) {
        json_auto_t *span = span_named(t[i].name);

        if (!span)
            fail_msg("no span '%s' in\n%s", t[i].name, sent.body);
        if (ms_of(span) < t[i].least_ms || ms_of(span) > t[i].most_ms)
            fail_msg("'%s' takes %lld ms", t[i].name, (long long)ms_of(span));
    }
    answer(s, 200);
    assert_int_equal(count_of(s, "sent"), COUNT(t));
    assert_int_equal(count_of(s, "dropped"), 0);
    scene_wait(s, 5);
    assert_int_equal(sent.n, 1); /* nothing twice */
}

static void a_failed_attempt_is_told_with_its_reason(void **state)
{
    struct scene *s = *state;
    json_auto_t *attempt = NULL, *job = NULL;
    uint64_t id;

    sent.full = true;
    assert_int_equal(scene_register(s, "n1", "fast", 1), 200);
    id = scene_submit(s, "{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"retry\": {\"max\": 0}, "
                         "\"command\": {\"argv\": [\"x\"]}}");
    scene_turn(s);
    scene_report_all(s, id, "running", 0);
    sent.full = false;
    scene_report_all(s, id, "exited", 1);
    scene_wait(s, 2);
    attempt = span_named("attempt");
    job = span_named("job");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(attempt, "status"), "code")), 2);
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(job, "status"), "message")), "rank 0"));
}

static void a_body_is_tried_four_times_and_one_that_is_refused_once(void **state)
{
    static const struct {
        int status, tries;
    } t[] = {{0, 4}, {503, 4}, {429, 4}, {400, 1}, {404, 1}, {302, 1}, {200, 1}};
    static const int pause_s[] = {1, 5, 30};
    struct scene *s = *state;

    for (size_t i = 0; i < COUNT(t); i++) {
        int64_t before = count_of(s, "dropped");
        size_t was;

        (void)scene_submit(s, JOB);
        scene_wait(s, 2);
        was = sent.n;
        for (int k = 1; k < t[i].tries; k++) {
            answer(s, t[i].status);
            scene_wait(s, pause_s[k - 1] - 1);
            assert_int_equal(sent.n, was + (size_t)k - 1);
            scene_wait(s, 2);
            assert_int_equal(sent.n, was + (size_t)k);
        }
        answer(s, t[i].status);
        scene_wait(s, 40);
        assert_int_equal(sent.n, was + (size_t)t[i].tries - 1);
        assert_int_equal(count_of(s, "dropped"), before + (t[i].status != 200));
    }
}

static void an_answer_that_never_comes_holds_nothing_up_for_ever(void **state)
{
    struct scene *s = *state;
    uint64_t first;

    (void)scene_submit(s, JOB);
    scene_wait(s, 2);
    assert_int_equal(sent.n, 1);
    first = sent.id;
    scene_wait(s, 20);
    assert_int_equal(sent.n, 1);
    scene_wait(s, 20);
    assert_int_equal(sent.n, 2);
    trace_done(s->core, first, 200, 3, ""); /* it comes after all: of a body that counts no more */
    assert_true(turn_take(s->core, queue_take(&s->core->turn.queue, 16, 0)));
    assert_int_equal(count_of(s, "sent"), 0);
    answer(s, 200);
    assert_int_equal(count_of(s, "sent"), 1);
}

static void what_waits_for_a_collector_that_is_gone_has_a_limit_and_the_rest_is_counted(void **state)
{
    struct scene *s = *state;
    struct job j = {.id = 1, .trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};

    sent.full = true;
    for (int i = 0; i < TRACE_WAITING + 100; i++)
        trace_first_step(s->core, &j);
    assert_int_equal(count_of(s, "dropped"), 100);
    sent.full = false;
    scene_wait(s, 2);
    for (int i = 0; i < TRACE_WAITING / TRACE_BODY_SPANS; i++) {
        assert_int_equal(sent.n, i + 1);
        answer(s, 200);
        scene_wait(s, 2);
    }
    assert_int_equal(sent.n, TRACE_WAITING / TRACE_BODY_SPANS);
    assert_int_equal(count_of(s, "sent"), TRACE_WAITING);
}

static void a_job_whose_caller_wants_no_record_has_none_and_keeps_its_context(void **state)
{
    struct scene *s = *state;
    struct job j = {.id = 1, .trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"};

    trace_first_step(s->core, &j);
    scene_wait(s, 3);
    assert_int_equal(sent.n, 0);
}

static void a_context_outlives_the_server(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, JOB);
    char context[PROTOCOL_TRACE_MAX];

    memcpy(context, scene_entry(s, job)->job.trace, sizeof(context));
    assert_int_equal(strlen(context), sizeof(context) - 1);
    scene_restart(s);
    assert_string_equal(scene_entry(s, job)->job.trace, context);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_part_of_a_jobs_life_is_a_span_with_its_length),
        TEST(a_failed_attempt_is_told_with_its_reason),
        TEST(a_body_is_tried_four_times_and_one_that_is_refused_once),
        TEST(an_answer_that_never_comes_holds_nothing_up_for_ever),
        TEST(what_waits_for_a_collector_that_is_gone_has_a_limit_and_the_rest_is_counted),
        TEST(a_job_whose_caller_wants_no_record_has_none_and_keeps_its_context),
        TEST(a_context_outlives_the_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
