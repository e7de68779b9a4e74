/* The snapshot that a round shows the scheduler: which devices count as what, and which jobs are in it. */
#include "tests/unit/server/control/scene.h"

#include "server/control/change.h"
#include "server/control/kinds.h"
#include "server/control/round.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 3, user: 3}\n"
#define TWO "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\n"

/* The row of a class (or its slow slots) of a node; fails where there is none. */
static const struct sched_node *row(const struct round *r, const char *node, uint8_t class_, bool slow)
{
    for (size_t i = 0; i < r->in.n_nodes; i++)
        if (strcmp(r->rows[i].node->name, node) == 0 && r->rows[i].class_ == class_ && r->rows[i].slow == slow)
            return &r->in.nodes[i];
    fail_msg("no row for class %u of %s", class_, node);
    return NULL;
}

static const struct sched_job *shown(const struct round *r, uint64_t job)
{
    for (size_t i = 0; i < r->in.n_jobs; i++)
        if (r->entries[i]->job.id == job)
            return &r->in.jobs[i];
    return NULL;
}

static void take(struct scene *s, struct round *r)
{
    assert_int_equal(round_init(s->core, SCHED_FAST, 0, r), 0);
}

static void each_class_of_a_node_is_a_row_and_so_are_its_slow_slots(void **state)
{
    struct scene *s = *state;
    const char *names[RATES_TYPES_MAX];
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 3), 200);
    assert_int_equal(scene_register(s, "n2", "b", 2), 200);
    scene_slot(s, "n1", 1)->slow = (struct slow_device){.slow = true, .ratio = 1.5, .found_us = 7};
    take(s, &r);
    round_type_names(s->core, &r, names);
    assert_int_equal(r.in.n_nodes, 3);
    assert_int_equal(r.n_types, 2);
    assert_int_equal(row(&r, "n1", 0, false)->devices, 2);
    assert_int_equal(row(&r, "n1", 0, true)->devices, 1);
    assert_int_equal(row(&r, "n1", 0, true)->slow_milli, 1500);
    assert_int_equal(row(&r, "n1", 0, true)->slow_us, 7);
    assert_int_equal(row(&r, "n2", 1, false)->devices, 2);
    assert_string_equal(names[row(&r, "n2", 1, false)->type], "b");
    assert_int_equal(round_type(&r, 1), row(&r, "n2", 1, false)->type);
    assert_int_equal(round_type(&r, 2), -1);
    assert_int_equal(r.in.config.now_us, s->core->now.wall_us);
    round_clear(&r);
}

static void devices_are_there_drained_or_silent(void **state)
{
    struct scene *s = *state;
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    assert_int_equal(scene_register(s, "n2", "a", 2), 200);
    assert_int_equal(scene_register(s, "n3", "a", 2), 200);
    (void)scene_submit(s, ONE); /* on n1 */
    scene_slot(s, "n1", 1)->ill = true;
    cluster_node(&s->core->cluster, "n2")->drain = true;
    cluster_node(&s->core->cluster, "n3")->contact = NODE_UNKNOWN;
    take(s, &r);
    assert_int_equal(row(&r, "n1", 0, false)->devices, 1);
    assert_int_equal(row(&r, "n1", 0, false)->silent, 1);
    assert_int_equal(row(&r, "n2", 0, false)->drained, 2);
    assert_int_equal(row(&r, "n3", 0, false)->silent, 2);
    round_clear(&r);
    cluster_node(&s->core->cluster, "n3")->contact = NODE_LOST;
    take(s, &r);
    assert_int_equal(r.in.n_nodes, 2);
    round_clear(&r);
}

static void jobs_that_hold_devices_go_before_those_that_wait(void **state)
{
    struct scene *s = *state;
    uint64_t holds, waits;
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    holds = scene_submit(s, TWO);
    waits = scene_submit(s, ONE "priority: 90\n");
    take(s, &r);
    assert_int_equal(r.in.n_jobs, 2);
    assert_int_equal(r.entries[0]->job.id, holds);
    assert_int_equal(shown(&r, holds)->n_places, 1);
    assert_int_equal(shown(&r, holds)->places[0].devices, 2);
    assert_true(shown(&r, holds)->fixed);
    assert_int_equal(shown(&r, waits)->n_places, 0);
    assert_false(shown(&r, waits)->fixed);
    assert_true(shown(&r, waits)->weight_milli > shown(&r, holds)->weight_milli);
    round_clear(&r);
}

static void a_job_that_ends_or_backs_off_is_not_in_it(void **state)
{
    struct scene *s = *state;
    uint64_t cancelled, fails;
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 3), 200);
    cancelled = scene_submit(s, ONE);
    fails = scene_submit(s, ONE);
    scene_report_all(s, cancelled, "running", 0);
    scene_report_all(s, fails, "running", 0);
    assert_int_equal(change_job(s->core, scene_entry(s, cancelled),
                                &(struct job_cause){.kind = CAUSE_CANCEL, .actor = "user:ann", .text = "enough"}, NULL),
                     0);
    scene_report_all(s, fails, "exited", 1); /* starts again at once */
    scene_report_all(s, fails, "running", 0);
    scene_report_all(s, fails, "exited", 1); /* and then only after a while */
    take(s, &r);
    assert_null(shown(&r, cancelled));
    assert_null(shown(&r, fails));
    assert_int_equal(scene_entry(s, fails)->wait.code, EXPLAIN_BACK_OFF);
    round_clear(&r);
    fake_clock_pass(&s->clock, 61 * SECOND);
    s->core->now.wall_us += 61 * SECOND;
    take(s, &r);
    assert_non_null(shown(&r, fails));
    round_clear(&r);
}

static void a_target_that_cannot_be_any_more_is_dropped(void **state)
{
    struct scene *s = *state;
    struct entry *e;
    uint64_t job;
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, TWO);
    e = scene_entry(s, scene_submit(s, ONE));
    e->target = calloc(1, sizeof(*e->target));
    e->target[0] = (struct target){.node = cluster_node(&s->core->cluster, "n1"), .n = 1};
    e->n_target = 1;
    scene_slot(s, "n1", 0)->job = 0; /* one is free: then it can be */
    scene_entry(s, job)->job.n_places = 1;
    take(s, &r);
    assert_int_equal(shown(&r, e->job.id)->n_places, 1);
    assert_int_equal(e->n_target, 1);
    round_clear(&r);
    cluster_node(&s->core->cluster, "n1")->drain = true;
    take(s, &r);
    assert_int_equal(e->n_target, 0);
    round_clear(&r);
    scene_entry(s, job)->job.n_places = 2;
}

static void what_runs_have_shown_is_in_the_rates(void **state)
{
    struct scene *s = *state;
    struct rates_point before, after;
    struct round r;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, TWO);
    take(s, &r);
    before = shown(&r, job)->profile->points[0][1];
    round_clear(&r);
    scene_entry(s, job)->job.n_places = 2;
    kinds_take_speed(s->core, scene_entry(s, job), 6);
    scene_entry(s, job)->job.n_places = 0;
    take(s, &r);
    after = shown(&r, job)->profile->points[0][1];
    assert_int_equal(before.count, 2);
    assert_int_equal(before.rate_ups, 2000000); /* the law of commands */
    assert_int_equal(after.rate_ups, 6000000);
    round_clear(&r);
}

/* A node of GPUs; they train only where a kernel is there, so the slots are made after the registration. */
static void register_gpus(struct scene *s, const char *node, const char *class_, int n)
{
    assert_int_equal(scene_register(s, node, class_, n), 200);
    for (int i = 0; i < n; i++)
        (void)snprintf(scene_slot(s, node, i)->kind, sizeof(scene_slot(s, node, i)->kind), "gpu");
}

#define ON_GPUS "devices: {min: 1, max: 1%s}\ntrain: {model: gpt2-tiny, data: {path: /c}}\n%s"

/* On which types a job is shown that began on class "old", of two classes of GPUs and one of processors. */
static uint32_t types_after(struct scene *s, const char *devices, const char *more, bool old_is_gone, bool *ret_mixes)
{
    char spec[256];
    uint32_t types = 0;
    struct round r;
    uint64_t job;

    (void)snprintf(spec, sizeof(spec), ON_GPUS, devices, more);
    job = scene_submit(s, spec); /* no node is there: it waits */
    if (!old_is_gone)
        register_gpus(s, "n1", "old", 1);
    register_gpus(s, "n2", "new", 1);
    assert_int_equal(scene_register(s, "n3", "cpu", 1), 200);
    scene_entry(s, job)->job.state = JOB_QUEUED;
    (void)snprintf(scene_entry(s, job)->job.home, sizeof(scene_entry(s, job)->job.home), "old");
    scene_entry(s, job)->classes = CLASSES_ANY;
    take(s, &r);
    for (size_t t = 0; t < r.n_types && shown(&r, job); t++)
        if (sched_job_types(shown(&r, job)) >> t & 1)
            types |= UINT32_C(1) << (strcmp(s->core->cluster.classes.name[r.classes[t]], "old") == 0   ? 0
                                     : strcmp(s->core->cluster.classes.name[r.classes[t]], "new") == 0 ? 1
                                                                                                       : 2);
    *ret_mixes = shown(&r, job)->hetero_ok;
    round_clear(&r);
    return types;
}

static void training_on_gpus_may_change_their_class_between_runs_but_not_mix(void **state)
{
    bool mixes;

    assert_int_equal(types_after(*state, "", "", false, &mixes), 3); /* and not to processors */
    assert_false(mixes);
}

static void a_job_whose_class_is_gone_goes_on_on_another(void **state)
{
    bool mixes;

    assert_true(types_after(*state, "", "", true, &mixes) & 2);
    assert_false(mixes);
}

static void class_change_never_keeps_a_job_on_its_class(void **state)
{
    bool mixes;

    assert_int_equal(types_after(*state, ", class_change: never", "", false, &mixes), 1);
    assert_false(mixes);
}

static void exact_strict_keeps_a_job_on_its_class_unless_it_says_otherwise(void **state)
{
    bool mixes;

    assert_int_equal(types_after(*state, "", "parallel: {exact: strict}\n", false, &mixes), 1);
}

static void a_project_is_a_tenant_with_its_quota(void **state)
{
    struct scene *s = *state;
    struct round r;
    uint64_t job;

    assert_int_equal(
        scene_call(s, projects_put, scene_request("p", NULL, NULL), json_pack("{s:i, s:i}", "quota", 3, "weight", 2))
            .status,
        200);
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, "project: p\n" ONE);
    take(s, &r);
    assert_int_equal(r.in.n_tenants, 2);
    assert_int_equal(shown(&r, job)->tenant, 1);
    assert_int_equal(r.in.tenants[1].quota, 3);
    assert_int_equal(r.in.tenants[1].weight_milli, 2000);
    round_clear(&r);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

static void an_elastic_command_is_changed_once_a_minute_and_at_once_where_its_owner_wants_others(void **state)
{
    struct scene *s = *state;
    uint64_t job, plain;
    struct round r;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    job = scene_submit(s, "devices: {min: 1, max: 2}\ncommand: {argv: [x], elastic: true}\n");
    plain = scene_submit(s, "devices: {min: 1, max: 2}\ncommand: {argv: [x]}\n");
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, plain, "running", 0);
    take(s, &r);
    assert_int_equal(scene_entry(s, job)->job.n_places, 2);
    assert_true(shown(&r, job)->fixed && shown(&r, plain)->fixed);
    round_clear(&r);
    scene_entry(s, job)->job.max = 1; /* by its owner */
    take(s, &r);
    assert_false(shown(&r, job)->fixed);
    round_clear(&r);
    scene_entry(s, job)->job.max = 2;
    scene_entry(s, job)->job.changed_us -= 61 * SECOND;
    scene_entry(s, plain)->job.changed_us -= 61 * SECOND;
    take(s, &r);
    assert_false(shown(&r, job)->fixed);
    assert_true(shown(&r, plain)->fixed);
    round_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_class_of_a_node_is_a_row_and_so_are_its_slow_slots),
        TEST(devices_are_there_drained_or_silent),
        TEST(jobs_that_hold_devices_go_before_those_that_wait),
        TEST(a_job_that_ends_or_backs_off_is_not_in_it),
        TEST(a_target_that_cannot_be_any_more_is_dropped),
        TEST(what_runs_have_shown_is_in_the_rates),
        TEST(training_on_gpus_may_change_their_class_between_runs_but_not_mix),
        TEST(a_job_whose_class_is_gone_goes_on_on_another),
        TEST(class_change_never_keeps_a_job_on_its_class),
        TEST(exact_strict_keeps_a_job_on_its_class_unless_it_says_otherwise),
        TEST(a_project_is_a_tenant_with_its_quota),
        TEST(an_elastic_command_is_changed_once_a_minute_and_at_once_where_its_owner_wants_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
