/* The report of predictions: planned steps held against measured ones. */
#include "tests/unit/server/control/scene.h"

#include <math.h>

#include "server/control/learn.h"
#include "server/control/predictions.h"

static const char train[] =
    "devices: {min: 2, max: 2}\ntrain:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: "
    "256}\n  data: {path: /c.txt, tokenizer: bytes}\n  batch: {sequences: 8, micro: 1}\n  steps: 100\n"
    "parallel: {tp: 1, virtual_workers: 4}\n";

static json_t *report(struct scene *s)
{
    return scene_call(s, predictions_report, scene_request(NULL, NULL, NULL), NULL).body;
}

static double planned_ms(struct scene *s, uint64_t job)
{
    return json_number_value(json_object_get(scene_entry(s, job)->job.plan, "step_ms"));
}

/* Steps of the job's run that take so many times as long as was planned. */
static void run_steps(struct scene *s, uint64_t job, double times)
{
    json_auto_t *line = json_pack("{s:f}", "step_ms", times * planned_ms(s, job));

    for (int i = 0; i < 3; i++)
        learn_metrics(s->core, scene_entry(s, job), scene_entry(s, job)->job.generation, line);
}

static uint64_t begin(struct scene *s)
{
    uint64_t job = scene_submit(s, train);

    scene_turn(s);
    assert_true(scene_entry(s, job)->job.live && planned_ms(s, job) > 0);
    scene_report_all(s, job, "running", 0);
    return job;
}

static void an_attempt_counts_by_class_and_kind_once_it_is_over(void **state)
{
    struct scene *s = *state;
    json_t *row, *worst;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "fast", 2), 200);
    job = begin(s);
    run_steps(s, job, 2);
    assert_int_equal(json_array_size(json_object_get(report(s), "predictions")), 0);
    scene_report_all(s, job, "exited", 0);
    row = json_array_get(json_object_get(report(s), "predictions"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "class")), "fast");
    assert_string_equal(json_string_value(json_object_get(row, "kind")), "gpt2 f32");
    assert_string_equal(json_string_value(json_object_get(row, "rates")), "assumed");
    assert_int_equal(json_integer_value(json_object_get(row, "count")), 1);
    assert_true(fabs(json_number_value(json_object_get(row, "mean_error_percent")) - 50) < 0.1);
    assert_true(fabs(json_number_value(json_object_get(row, "bias_percent")) + 50) < 0.1);
    worst = json_array_get(json_object_get(report(s), "worst"), 0);
    assert_string_equal(json_string_value(json_object_get(worst, "job")), "j1");
    assert_int_equal(json_integer_value(json_object_get(worst, "attempt")), 1);
}

static void an_attempt_without_measured_steps_does_not_count(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "fast", 2), 200);
    job = begin(s);
    scene_report_all(s, job, "exited", 0);
    assert_int_equal(json_array_size(json_object_get(report(s), "predictions")), 0);
}

static void the_five_worst_are_told_the_worst_first_and_p90_is_one_of_them(void **state)
{
    static const double times[] = {1.1, 2, 1.5, 10, 1.2, 4, 1.3, 1.4, 1.05, 1.6};
    struct scene *s = *state;
    json_t *row, *worst, *all;
    double before = 1e9;

    assert_int_equal(scene_register(s, "n1", "fast", 2), 200);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint64_t job = begin(s);

        run_steps(s, job, times[i]);
        scene_report_all(s, job, "exited", 0);
        scene_turn(s);
    }
    all = report(s);
    row = json_array_get(json_object_get(all, "predictions"), 0);
    worst = json_object_get(all, "worst");
    assert_int_equal(json_integer_value(json_object_get(row, "count")), 10);
    assert_int_equal(json_array_size(worst), 5);
    for (size_t i = 0; i < 5; i++) {
        double error = fabs(json_number_value(json_object_get(json_array_get(worst, i), "error_percent")));

        assert_true(error <= before);
        if (i == 1) /* one in ten is worse */
            assert_true(fabs(json_number_value(json_object_get(row, "p90_error_percent")) - error) < 1e-6);
        before = error;
    }
}

static void the_report_outlives_the_server(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "fast", 2), 200);
    job = begin(s);
    run_steps(s, job, 3);
    scene_report_all(s, job, "exited", 0);
    scene_wait(s, 20); /* it is kept every ten seconds */
    scene_restart(s);
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(json_object_get(report(s), "predictions"), 0), "count")), 1);
    assert_int_equal(json_array_size(json_object_get(report(s), "worst")), 1);
}

static void a_record_that_cannot_be_read_is_dropped(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"class\": \"a\", \"kind\": \"b\", \"count\": 1, \"past\": []}",
                                      "{\"class\": \"a\", \"kind\": \"b\", \"count\": 1, \"past\": [[1, 1, 0, 5]]}",
                                      "{\"class\": \"a\", \"kind\": \"b\", \"count\": -1, \"past\": [[1, 1, 5, 5]]}"};
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        store_put(s->store, STORE_PREDICTIONS, "a/b/assumed", bad[i]);
        scene_turn(s);
        scene_restart(s);
        assert_int_equal(json_array_size(json_object_get(report(s), "predictions")), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)
    const struct CMUnitTest tests[] = {
        TEST(an_attempt_counts_by_class_and_kind_once_it_is_over),
        TEST(an_attempt_without_measured_steps_does_not_count),
        TEST(the_five_worst_are_told_the_worst_first_and_p90_is_one_of_them),
        TEST(the_report_outlives_the_server),
        TEST(a_record_that_cannot_be_read_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
