/* Layouts: when waiting jobs are planned anew, what a run's first plan settles, and what runs teach of classes. */
#include "tests/unit/server/control/scene.h"

#include <errno.h>
#include <math.h>

#include "server/control/plans.h"

#define TRAIN                                                                                                          \
    "train:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: 256}\n"                      \
    "  data: {path: /c.txt, tokenizer: bytes}\n  batch: {sequences: 8, micro: 1}\n  steps: 100\n"
#define OPEN "devices: {min: 1, max: 4}\n" TRAIN "parallel: auto\n"
#define CLOSED "devices: {min: 2, max: 2}\n" TRAIN "parallel: {tp: 2, virtual_workers: 4}\n"

static struct job_spec *spec_of(const char *text)
{
    struct job_spec *spec = NULL;
    struct faults faults = {.n = 0};

    if (spec_from_text(text, strlen(text), &spec, &faults) < 0)
        fail_msg("%s: %s", faults.v[0].pointer, faults.v[0].message);
    return spec;
}

static void without_nodes_there_is_nothing_to_plan_for(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, OPEN);
    struct job_spec *spec = spec_of(OPEN);
    struct merr err = {""};

    assert_true(scene_entry(s, job)->plan.open);
    assert_int_equal(plans_prepare(s->core, scene_entry(s, job), spec, &err), -EAGAIN);
    assert_int_equal(scene_entry(s, job)->plan.planned_for, 0);
    spec_free(spec);
}

static void a_waiting_job_is_planned_anew_when_nodes_have_changed_and_not_else(void **state)
{
    struct scene *s = *state;
    uint64_t job, sites;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    (void)scene_submit(s, "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"); /* has the device */
    job = scene_submit(s, OPEN);
    scene_turn(s);
    sites = s->core->cluster.sites;
    assert_int_equal(scene_entry(s, job)->plan.planned_for, sites);
    assert_int_equal(scene_register(s, "n1", "a", 2), 200); /* it offers more now */
    assert_true(s->core->cluster.sites > sites);
    scene_turn(s);
    assert_int_equal(s->core->dispatch.planned_sites, s->core->cluster.sites);
    sites = s->core->cluster.sites;
    assert_int_equal(scene_report(s, "n1", json_array(), NULL).status, 200);
    scene_turn(s);
    assert_int_equal(s->core->cluster.sites, sites);
}

static void many_that_wait_are_planned_over_several_rounds(void **state)
{
    struct scene *s = *state;
    uint64_t jobs[40];
    size_t planned = 0;

    for (size_t i = 0; i < COUNT(jobs); i++)
        jobs[i] = scene_submit(s, OPEN);
    assert_int_equal(scene_register(s, "n1", "a", 1), 200); /* for one of them */
    for (size_t i = 0; i < COUNT(jobs); i++)
        planned += scene_entry(s, jobs[i])->plan.planned_for > 0;
    assert_int_equal(planned, 16);
    assert_true(s->core->schedule_wanted);
    for (int i = 0; i < 4; i++)
        scene_turn(s);
    for (size_t i = 0; i < COUNT(jobs); i++)
        assert_true(scene_entry(s, jobs[i])->plan.planned_for > 0);
    assert_int_equal(s->core->dispatch.planned_sites, s->core->cluster.sites);
}

static void what_the_first_run_settles_stays(void **state)
{
    struct scene *s = *state;
    struct layout first;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, OPEN);
    first = scene_entry(s, job)->job.layout;
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_non_null(scene_entry(s, job)->job.plan);
    assert_int_equal(first.world, scene_entry(s, job)->job.n_places);
    scene_restart(s);
    assert_int_equal(scene_entry(s, job)->plan.facts.tp, first.tp);
    assert_int_equal(scene_entry(s, job)->plan.facts.pp, first.pp);
}

/* More than the eight that a job has which leaves nothing open: the batch has 64 sequences and the node 16 devices. */
static void virtual_workers_that_the_first_run_settles_stay(void **state)
{
    struct scene *s = *state;
    uint64_t job;
    const json_t *settled;
    int workers, cp;

    assert_int_equal(scene_register(s, "n1", "a", 16), 200);
    job =
        scene_submit(s, "devices: {min: 1, max: 16}\n"
                        "train:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 1024, vocab: 256}\n"
                        "  data: {path: /c.txt, tokenizer: bytes}\n  batch: {sequences: 64}\n  steps: 100\n"
                        "parallel: {virtual_workers: auto, cp: auto}\n");
    settled = json_object_get(json_object_get(scene_entry(s, job)->job.plan, "settled"), "parallel");
    workers = (int)json_integer_value(json_object_get(settled, "virtual_workers"));
    cp = scene_entry(s, job)->job.layout.cp;
    assert_true(workers > 8);
    assert_int_equal(scene_entry(s, job)->plan.facts.virtual_workers, workers);
    scene_restart(s);
    assert_int_equal(scene_entry(s, job)->plan.facts.virtual_workers, workers);
    assert_int_equal(scene_entry(s, job)->pace.workers, workers);
    assert_int_equal(scene_entry(s, job)->plan.facts.cp, cp);
}

static void a_closed_layout_is_as_its_spec_says(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, CLOSED);
    assert_false(scene_entry(s, job)->plan.open);
    assert_int_equal(scene_entry(s, job)->job.layout.tp, 2);
    assert_int_equal(scene_entry(s, job)->job.layout.dp, 1);
}

static void a_dry_run_says_what_would_be_without_a_job(void **state)
{
    struct scene *s = *state;
    struct job_spec *spec = spec_of(OPEN);
    struct entry *e = entry_new(&s->core->cluster.classes, spec);
    json_t *plan;

    job_init(&e->job, 1, spec, "ann", 1);
    plan = plans_dry(s->core, e, spec);
    assert_true(json_is_null(json_object_get(plan, "fits")));
    assert_non_null(strstr(json_string_value(json_object_get(plan, "why")), "no node"));
    json_decref(plan);
    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    plan = plans_dry(s->core, e, spec);
    assert_true(json_is_true(json_object_get(plan, "fits")));
    assert_int_equal(s->core->jobs.n, 0);
    json_decref(plan);
    entry_free(e);
    spec_free(spec);
}

/* Lines of metrics: the first of a run says nothing. */
static void run_steps(struct scene *s, uint64_t job, int lines, double step_ms)
{
    struct entry *e = scene_entry(s, job);

    for (int i = 0; i < lines; i++) {
        plans_learn(s->core, e, e->job.generation, step_ms);
        (void)pace_learn(&e->pace, &e->job, e->job.generation, step_ms, s->core->now.mono_us);
    }
}

static void runs_teach_how_fast_a_class_is_and_the_next_plan_knows_it(void **state)
{
    struct scene *s = *state;
    double predicted, learned;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, OPEN);
    predicted = scene_entry(s, job)->plan.predicted.step_s * 1e3;
    assert_true(predicted > 0);
    scene_report_all(s, job, "running", 0);
    run_steps(s, job, 1, predicted);
    assert_false(s->core->cluster.classes.learned);
    run_steps(s, job, 400, predicted * 2);
    learned = classes_speed(&s->core->cluster.classes, 0, scene_entry(s, job)->plan.bf16);
    assert_true(learned > 0.2 && learned < 0.9);
    assert_true(scene_entry(s, job)->job.step_ms > 1.9 * predicted);
    scene_wait(s, 11); /* it is put into the store now and then */
    assert_false(s->core->cluster.classes.learned);
    scene_restart(s);
    assert_true(fabs(classes_speed(&s->core->cluster.classes, 0, scene_entry(s, job)->plan.bf16) - learned) < 1e-6);
}

static void lines_of_another_generation_teach_nothing(void **state)
{
    struct scene *s = *state;
    struct entry *e;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, OPEN);
    e = scene_entry(s, job);
    e->pace.learned_generation = 1;
    plans_learn(s->core, e, 2, 100);
    plans_learn(s->core, e, 0, 100);
    plans_learn(s->core, e, 1, 0);
    assert_false(s->core->cluster.classes.learned);
    assert_true(e->job.step_ms == 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_nodes_there_is_nothing_to_plan_for),
        TEST(a_waiting_job_is_planned_anew_when_nodes_have_changed_and_not_else),
        TEST(many_that_wait_are_planned_over_several_rounds),
        TEST(what_the_first_run_settles_stays),
        TEST(virtual_workers_that_the_first_run_settles_stay),
        TEST(a_closed_layout_is_as_its_spec_says),
        TEST(a_dry_run_says_what_would_be_without_a_job),
        TEST(runs_teach_how_fast_a_class_is_and_the_next_plan_knows_it),
        TEST(lines_of_another_generation_teach_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
