/* test_span - contexts that can be gone on from and those that cannot; ids; spans as a collector reads them */
#include "server/control/span.h"

#include "tests/unit/test.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/job.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"
#define CONTEXT "00-" TRACE "-" PARENT "-01"

static void a_context_is_read_as_the_recommendation_says(void **state)
{
    static const struct {
        const char *text, *read; /* NULL: it is none */
    } t[] = {
        {CONTEXT, CONTEXT},
        {"00-" TRACE "-" PARENT "-00", "00-" TRACE "-" PARENT "-00"},
        {"00-" TRACE "-" PARENT "-ff", CONTEXT},            /* other flags say nothing to us */
        {"cc-" TRACE "-" PARENT "-01-what-comes", CONTEXT}, /* of a later version */
        {"cc-" TRACE "-" PARENT "-01", CONTEXT},
        {"cc-" TRACE "-" PARENT "-01.more", NULL},
        {CONTEXT "-more", NULL},
        {"ff-" TRACE "-" PARENT "-01", NULL},
        {"00-00000000000000000000000000000000-" PARENT "-01", NULL},
        {"00-" TRACE "-0000000000000000-01", NULL},
        {"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01", NULL},
        {"00-" TRACE "-" PARENT "-0", NULL},
        {"00-" TRACE "-" PARENT, NULL},
        {"00-" TRACE "_" PARENT "-01", NULL},
        {"00-" TRACE "-b7ad6b716920333g-01", NULL},
        {"", NULL},
        {NULL, NULL},
    };
    char ret[PROTOCOL_TRACE_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        memcpy(ret, "untouched", 10);
        if (span_context_read(t[i].text, ret) != (t[i].read != NULL) ||
            strcmp(ret, t[i].read ? t[i].read : "untouched") != 0)
            fail_msg("'%s' is read as '%s'", t[i].text ? t[i].text : "(none)", ret);
    }
    assert_true(span_sampled(CONTEXT));
    assert_false(span_sampled("00-" TRACE "-" PARENT "-00"));
    assert_false(span_sampled(""));
}

static void a_context_of_ones_own_has_no_parent_and_never_a_trace_of_zeros(void **state)
{
    char a[PROTOCOL_TRACE_MAX], b[PROTOCOL_TRACE_MAX], read[PROTOCOL_TRACE_MAX];

    (void)state;
    assert_true(span_context_begin(chance_real(), a));
    assert_true(span_context_begin(chance_real(), b));
    assert_memory_equal(a + 35, "-0000000000000000-01", 21);
    assert_int_not_equal(memcmp(a + 3, b + 3, 32), 0);
    assert_true(span_sampled(a));
    assert_false(span_context_read(a, read)); /* nobody else goes on from it */
}

static json_t *print(const struct job *j, const struct span *s)
{
    char *text = span_print(j, s);
    json_t *o = text ? json_loads(text, 0, NULL) : NULL;

    assert_non_null(o);
    free(text);
    return o;
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static void spans_of_a_job_hang_together_and_attempts_are_linked(void **state)
{
    struct job j = {.id = 7, .trace = CONTEXT, .state = JOB_SUCCEEDED, .name = "a", .user = "ann"};
    struct span s = {
        .part = SPAN_REQUEST, .begin_us = 5, .end_us = 3, .method = "POST", .path = "/v1/jobs", .status = 201};
    json_auto_t *request = print(&j, &s), *job, *queue, *decide, *first, *second, *start, *step;
    char context[PROTOCOL_TRACE_MAX];

    (void)state;
    job = print(&j, &(struct span){.part = SPAN_JOB, .begin_us = 1, .end_us = 2000});
    queue = print(&j, &(struct span){.part = SPAN_QUEUE, .generation = 1});
    decide = print(&j, &(struct span){.part = SPAN_DECIDE, .generation = 1});
    first = print(&j, &(struct span){.part = SPAN_ATTEMPT, .generation = 1, .fault = "rank 0 ended with 1"});
    second = print(&j, &(struct span){.part = SPAN_ATTEMPT, .generation = 2});
    start = print(&j, &(struct span){.part = SPAN_START, .generation = 2});
    step = print(&j, &(struct span){.part = SPAN_FIRST_STEP, .generation = 2});

    assert_string_equal(text_of(request, "traceId"), TRACE);
    assert_string_equal(text_of(request, "parentSpanId"), PARENT);
    assert_string_equal(text_of(request, "name"), "POST /v1/jobs");
    assert_int_equal(json_integer_value(json_object_get(request, "kind")), 2);
    assert_string_equal(text_of(request, "startTimeUnixNano"), "5000");
    assert_string_equal(text_of(request, "endTimeUnixNano"), "5000"); /* never before its begin */
    assert_string_equal(text_of(job, "parentSpanId"), text_of(request, "spanId"));
    assert_string_equal(text_of(job, "endTimeUnixNano"), "2000000");
    assert_string_equal(text_of(queue, "parentSpanId"), text_of(job, "spanId"));
    assert_string_equal(text_of(decide, "parentSpanId"), text_of(queue, "spanId"));
    assert_string_equal(text_of(first, "parentSpanId"), text_of(job, "spanId"));
    assert_null(json_object_get(first, "links"));
    assert_string_equal(text_of(json_object_get(first, "status"), "message"), "rank 0 ended with 1");
    assert_string_equal(text_of(json_array_get(json_object_get(second, "links"), 0), "spanId"),
                        text_of(first, "spanId"));
    assert_null(json_object_get(second, "status"));
    assert_string_equal(text_of(start, "parentSpanId"), text_of(second, "spanId"));
    assert_string_equal(text_of(step, "parentSpanId"), text_of(second, "spanId"));
    assert_string_not_equal(text_of(step, "spanId"), text_of(start, "spanId"));

    span_context_of(&j, 2, context); /* a program's spans lie within its attempt */
    assert_memory_equal(context, "00-" TRACE "-", 36);
    assert_memory_equal(context + 36, text_of(second, "spanId"), 16);
    assert_string_equal(context + 52, "-01");
    span_context_of(&(struct job){.id = 1}, 1, context);
    assert_string_equal(context, "");
}

static void a_task_lies_within_its_array_and_a_job_in_no_callers_trace_is_at_the_top(void **state)
{
    struct job array = {.id = 7, .trace = CONTEXT}, task = {.id = 8, .array = 7, .trace = CONTEXT}, own = {.id = 9};
    json_auto_t *whole = print(&array, &(struct span){.part = SPAN_JOB}),
                *one = print(&task, &(struct span){.part = SPAN_JOB}), *top;

    (void)state;
    assert_string_equal(text_of(one, "parentSpanId"), text_of(whole, "spanId"));
    assert_true(span_context_begin(chance_real(), own.trace));
    top = print(&own, &(struct span){.part = SPAN_REQUEST, .method = "POST", .path = "/v1/jobs"});
    assert_null(json_object_get(top, "parentSpanId"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_is_read_as_the_recommendation_says),
        cmocka_unit_test(a_context_of_ones_own_has_no_parent_and_never_a_trace_of_zeros),
        cmocka_unit_test(spans_of_a_job_hang_together_and_attempts_are_linked),
        cmocka_unit_test(a_task_lies_within_its_array_and_a_job_in_no_callers_trace_is_at_the_top),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
