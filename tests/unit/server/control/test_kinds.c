/* What runs have shown of jobs that are alike, as the next ones of their kind are shown to the scheduler. */
#include "tests/unit/server/control/scene.h"

#include "scheduler/cluster/learned.h"
#include "server/control/kinds.h"
#include "server/control/learn.h"
#include "server/control/round.h"

#define TRAIN(hidden) MODEL("layers: 2, heads: 2, hidden: " #hidden ", context: 64, vocab: 258")
#define LLAMA(more) MODEL("family: llama, layers: 2, heads: 2, hidden: 16, context: 64, vocab: 258" more)
#define MODEL(fields)                                                                                                  \
    "devices: {min: 1, max: 4}\ntrain: {model: {" fields "}, "                                                         \
    "data: {path: /c}, batch: {sequences: 8}, steps: 1000}\nparallel: {virtual_workers: 4}\n"
#define COMMAND(argv) "name: sweep\ndevices: {min: 1, max: 1}\ncommand: {argv: [" argv "]}\n"

static const struct sched_job *shown(const struct round *r, uint64_t job)
{
    for (size_t i = 0; i < r->in.n_jobs; i++)
        if (r->entries[i]->job.id == job)
            return &r->in.jobs[i];
    fail_msg("job %llu is not shown", (unsigned long long)job);
    return NULL;
}

/* Lines of metrics of the job's run; the first says nothing. */
static void run_steps(struct scene *s, uint64_t job, int lines, double step_ms)
{
    json_auto_t *line = json_pack("{s:f}", "step_ms", step_ms);

    for (int i = 0; i < lines; i++)
        learn_metrics(s->core, scene_entry(s, job), scene_entry(s, job)->job.generation, line);
}

/* The node is heard of meanwhile. */
static void pass(struct scene *s, int seconds)
{
    for (int i = 0; i < seconds; i += 10) {
        scene_wait(s, 10);
        (void)scene_report(s, "n1", NULL, NULL);
    }
}

/* A job has run at four steps a second; nothing is free for those that come after it. */
static uint64_t run_first(struct scene *s, const char *spec)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, spec);
    scene_report_all(s, job, "running", 0);
    run_steps(s, job, 3, 250);
    return job;
}

static void what_one_job_has_shown_is_known_of_the_next_of_its_model(void **state)
{
    struct scene *s = *state;
    uint64_t like, other;
    struct round r;

    (void)run_first(s, TRAIN(16));
    like = scene_submit(s, TRAIN(16));
    other = scene_submit(s, TRAIN(32));
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_int_equal(shown(&r, like)->profile->points[0][0].rate_ups, 4000000);
    assert_int_equal(shown(&r, like)->remaining_us, INT64_C(1000000000)); /* its steps, and what they take is known */
    assert_true(shown(&r, other)->profile->points[0][0].rate_ups != 4000000);
    round_clear(&r);
}

static void what_a_family_s_kinds_have_sets_them_apart(void **state)
{
    static const char *const others[] = {LLAMA(", window: 9"), LLAMA(", qk_norm: true"), LLAMA(", fused: true"),
                                         LLAMA(", head_dim: 4")};
    struct scene *s = *state;
    uint64_t like, other[COUNT(others)];
    struct round r;

    (void)run_first(s, LLAMA(""));
    like = scene_submit(s, LLAMA(""));
    for (size_t i = 0; i < COUNT(others); i++)
        other[i] = scene_submit(s, others[i]);
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_int_equal(shown(&r, like)->profile->points[0][0].rate_ups, 4000000);
    for (size_t i = 0; i < COUNT(others); i++)
        assert_true(shown(&r, other[i])->profile->points[0][0].rate_ups != 4000000);
    round_clear(&r);
}

static void a_command_is_known_by_its_user_its_name_and_its_argv(void **state)
{
    struct scene *s = *state;
    uint64_t like, other;
    struct round r;

    (void)run_first(s, COMMAND("x, --lr, a"));
    like = scene_submit(s, COMMAND("x, --lr, a"));
    other = scene_submit(s, COMMAND("x, --lr, b"));
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_int_equal(shown(&r, like)->profile->points[0][0].rate_ups, 4000000);
    assert_int_equal(shown(&r, other)->profile->points[0][0].rate_ups, 1000000);
    round_clear(&r);
}

static void how_long_a_command_takes_is_known_once_one_of_its_name_is_done(void **state)
{
    struct scene *s = *state;
    uint64_t job, next;
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, COMMAND("x"));
    scene_report_all(s, job, "running", 0);
    next = scene_submit(s, COMMAND("y"));
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_int_equal(shown(&r, next)->remaining_us, -1);
    round_clear(&r);
    pass(s, 90);
    scene_report_all(s, job, "exited", 0);
    next = scene_submit(s, COMMAND("z"));
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_in_range(shown(&r, next)->remaining_us, 85 * SECOND, 95 * SECOND);
    round_clear(&r);
}

static void fairness_is_forecast_for_a_running_job_too(void **state)
{
    struct scene *s = *state;
    uint64_t job = run_first(s, TRAIN(16));
    struct round r;

    pass(s, 500); /* twice as long as all of its work takes, and none of it is done */
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_in_range(shown(&r, job)->rho_milli, 2900, 3100);
    round_clear(&r);
}

static void what_a_change_costs_is_known_of_others(void **state)
{
    struct scene *s = *state;
    uint64_t job = run_first(s, TRAIN(16)), next;
    struct round r;

    kinds_take_restart(s->core, scene_entry(s, job), 42);
    next = scene_submit(s, TRAIN(32));
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_int_equal(shown(&r, next)->restart_us, 42 * SECOND);
    round_clear(&r);
}

static void what_was_learned_outlives_the_server(void **state)
{
    struct scene *s = *state;
    uint64_t like, job = run_first(s, TRAIN(16));
    struct round r;

    kinds_take_restart(s->core, scene_entry(s, job), 42);
    pass(s, 70); /* it is stored now and then */
    scene_restart(s);
    like = scene_submit(s, TRAIN(16));
    assert_int_equal(round_init(s->core, SCHED_FULL, 0, &r), 0);
    assert_int_equal(shown(&r, like)->profile->points[0][0].rate_ups, 4000000);
    assert_int_equal(shown(&r, like)->restart_us, 42 * SECOND);
    round_clear(&r);
}

static void what_cannot_be_read_of_it_is_left_out(void **state)
{
    static const char *const bad[] = {"", "{}", "[1]", "{\"command\": 1}"};
    struct scene *s = *state;
    struct store_rows all;
    struct merr err;

    for (size_t i = 0; i < COUNT(bad); i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "%zu", i + 1);
        store_put(s->store, STORE_KINDS, name, bad[i]);
    }
    scene_restart(s);
    scene_restart(s);
    assert_int_equal(store_read_rows(s->store, STORE_KINDS, &all, &err), 0);
    assert_int_equal(all.n, 0);
    store_rows_clear(&all);
}

static void explain_says_what_each_rate_is_based_on(void **state)
{
    struct scene *s = *state;
    uint64_t job = run_first(s, TRAIN(16));
    json_auto_t *rates = NULL;
    const json_t *one;

    run_steps(s, job, 4, 250);
    rates = kinds_view(s->core, scene_entry(s, job));
    assert_int_equal(json_array_size(rates), 1);
    one = json_array_get(rates, 0);
    assert_string_equal(json_string_value(json_object_get(one, "from")), "measured");
    assert_int_equal(json_integer_value(json_object_get(one, "count")), 6);
    assert_true(json_real_value(json_object_get(one, "steps_per_s")) == 4);
    assert_int_equal(scene_register(s, "n2", "b", 1), 200);
    json_decref(rates);
    rates = kinds_view(s->core, scene_entry(s, job));
    one = json_array_get(rates, 1);
    assert_string_equal(json_string_value(json_object_get(one, "from")), "other classes");
    assert_null(json_object_get(one, "count"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_one_job_has_shown_is_known_of_the_next_of_its_model),
        TEST(what_a_family_s_kinds_have_sets_them_apart),
        TEST(a_command_is_known_by_its_user_its_name_and_its_argv),
        TEST(how_long_a_command_takes_is_known_once_one_of_its_name_is_done),
        TEST(fairness_is_forecast_for_a_running_job_too),
        TEST(what_a_change_costs_is_known_of_others),
        TEST(what_was_learned_outlives_the_server),
        TEST(what_cannot_be_read_of_it_is_left_out),
        TEST(explain_says_what_each_rate_is_based_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
