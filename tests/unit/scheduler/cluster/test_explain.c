#include "tests/unit/test.h"

#include <string.h>

#include "scheduler/cluster/explain.h"

#define S INT64_C(1000000)

struct world {
    struct sched_node nodes[8];
    struct sched_tenant tenants[2];
    struct sched_job jobs[8];
    struct sched_place places[8];
    struct rates_profile profile;
    struct sched_input in;
};

static void world_init(struct world *w, size_t nodes, int32_t devices)
{
    memset(w, 0, sizeof(*w));
    for (size_t i = 0; i < nodes; i++)
        w->nodes[i].devices = devices;
    w->tenants[0] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    w->tenants[1] = (struct sched_tenant){.quota = 1, .weight_milli = 1000};
    for (int t = 0; t < 2; t++) {
        w->profile.points[t][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
        w->profile.n[t] = 1;
    }
    w->in = (struct sched_input){
        .config = {.mode = SCHED_FAST,
                   .now_us = 1000 * S,
                   .round_us = 60 * S,
                   .starve_us = 100000 * S,
                   .hold_us = 120 * S,
                   .spread = true},
        .nodes = w->nodes,
        .n_nodes = nodes,
        .tenants = w->tenants,
        .n_tenants = 2,
        .jobs = w->jobs,
    };
}

/* A job; places: how many devices of node 0 it holds. */
static struct sched_job *add(struct world *w, int32_t min, int32_t max, int32_t holds)
{
    struct sched_job *j = &w->jobs[w->in.n_jobs];

    *j = (struct sched_job){.id = w->in.n_jobs + 1,
                            .min = min,
                            .max = max,
                            .types = 1,
                            .hetero_ok = true,
                            .home = -1,
                            .weight_milli = 1000,
                            .restart_us = 5 * S,
                            .remaining_us = -1,
                            .rho_milli = 1000,
                            .profile = &w->profile};
    if (holds > 0) {
        w->places[w->in.n_jobs] = (struct sched_place){.node = 0, .devices = holds};
        j->places = &w->places[w->in.n_jobs];
        j->n_places = 1;
    }
    w->in.n_jobs++;
    return j;
}

static struct explain_cause why(const struct world *w, size_t job)
{
    struct explain_cause c;
    struct sched_plan plan;
    struct merr err;

    if (sched_schedule(&w->in, &plan, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(explain_job(&w->in, &plan, job, &c), 0);
    sched_plan_clear(&plan);
    return c;
}

static void a_job_that_waits_for_others_names_them_and_when_they_end(void **state)
{
    struct explain_cause c;
    struct world w;
    char text[256];

    (void)state;
    world_init(&w, 1, 4);
    add(&w, 3, 3, 3)->remaining_us = 300 * S; /* at three steps a second: a hundred seconds */
    add(&w, 2, 4, 0);
    w.jobs[0].fixed = true;
    c = why(&w, 1);
    assert_int_equal(c.wait.code, EXPLAIN_INSUFFICIENT);
    assert_int_equal(c.wait.need, 2);
    assert_int_equal(c.wait.free, 1);
    assert_int_equal(c.n_behind, 1);
    assert_int_equal(c.behind[0], 1);
    assert_int_equal(c.forecast.basis, FORECAST_BY_WORK);
    assert_int_equal(c.forecast.start_us, 1100 * S);
    assert_int_equal(c.n_classes, 1);
    assert_int_equal(c.classes[0].total, 4);
    assert_int_equal(c.help[0].kind, EXPLAIN_END_JOB);
    assert_int_equal(c.help[1].kind, EXPLAIN_LOWER_MIN);
    assert_int_equal(c.help[1].n, 1);
    explain_wait_text(&c.wait, text, sizeof(text));
    assert_string_equal(text, "waits for 1 more device: it takes 2 at once and 1 such device is free");
}

/* Whose end helps most is named first, whatever the order of ids. */
static void those_that_hold_most_are_named_first(void **state)
{
    struct explain_cause c;
    struct world w;

    (void)state;
    world_init(&w, 2, 4);
    add(&w, 1, 1, 1)->fixed = true;
    add(&w, 3, 3, 3)->fixed = true;
    add(&w, 2, 2, 2)->fixed = true;
    w.places[1].node = 1;
    add(&w, 4, 4, 0);
    c = why(&w, 3);
    assert_int_equal(c.n_behind, 3);
    assert_int_equal(c.behind[0], 2);
    assert_int_equal(c.behind[1], 3);
    assert_int_equal(c.behind[2], 1);
    assert_int_equal(c.help[0].job, 2);
}

/* What is advised must let it start: not to end another job where the project never may hold as many. */
static void advice_for_what_never_starts_says_by_how_much(void **state)
{
    struct explain_cause c;
    struct world w;
    struct sched_job *j;

    (void)state;
    world_init(&w, 4, 4);
    w.tenants[1].quota = 6;
    w.tenants[1].borrow = 0;
    j = add(&w, 8, 8, 0);
    j->tenant = 1;
    j->replica = 4;
    c = why(&w, 0);
    assert_int_equal(c.wait.code, EXPLAIN_LIMIT);
    assert_int_equal(c.help[0].kind, EXPLAIN_RAISE_QUOTA);
    assert_int_equal(c.help[0].n, 8);
    assert_int_equal(c.help[1].kind, EXPLAIN_LOWER_MIN);
    assert_int_equal(c.help[1].n, 4);
}

static void by_time_limits_it_is_said_when_a_job_starts_whatever_its_work_left(void **state)
{
    struct explain_cause c;
    struct world w;

    (void)state;
    world_init(&w, 1, 4);
    add(&w, 3, 3, 3)->limit_us = 40 * S;
    add(&w, 2, 4, 0);
    w.jobs[0].fixed = true;
    for (int known = 0; known < 2;
         known++) { /* that it would end by its work after a hundred seconds changes nothing */
        w.jobs[0].remaining_us = known ? 300 * S : -1;
        c = why(&w, 1);
        assert_int_equal(c.forecast.basis, FORECAST_BY_LIMITS);
        assert_int_equal(c.forecast.start_us, 1040 * S);
    }
    w.jobs[0].limit_us = 3600 * S;
    c = why(&w, 1);
    assert_int_equal(c.forecast.basis, FORECAST_BY_WORK);
    assert_int_equal(c.forecast.start_us, 1100 * S);
}

static void an_elastic_holder_is_expected_to_give_way(void **state)
{
    struct explain_cause c;
    struct world w;

    (void)state;
    world_init(&w, 1, 4);
    add(&w, 1, 4, 4);
    add(&w, 2, 2, 0);
    c = why(&w, 1);
    assert_int_equal(c.forecast.basis, FORECAST_BY_ROUND);
    assert_int_equal(c.forecast.start_us, 1120 * S);
}

static void each_cause_that_the_cluster_has_is_told_apart(void **state)
{
    static const struct {
        size_t nodes;
        int32_t devices, drained, min, max, replica;
        uint32_t types, tenant;
        enum explain_code want;
        enum explain_help_kind help;
    } row[] = {
        {0, 0, 0, 1, 1, 1, 1, 0, EXPLAIN_NO_NODES, EXPLAIN_ADD_NODE},
        {1, 4, 0, 5, 5, 1, 1, 0, EXPLAIN_TOO_SMALL, EXPLAIN_ADD_NODE},
        {1, 4, 0, 1, 1, 1, 2, 0, EXPLAIN_NO_CLASS, EXPLAIN_ADD_NODE},
        {1, 1, 3, 4, 4, 1, 1, 0, EXPLAIN_DRAINED, EXPLAIN_UNDRAIN},
        {1, 4, 0, 3, 3, 2, 1, 0, EXPLAIN_NO_LAYOUT, EXPLAIN_RAISE_MAX},
        {1, 4, 0, 2, 2, 1, 1, 1, EXPLAIN_LIMIT, EXPLAIN_RAISE_QUOTA},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct explain_cause c;
        struct sched_job *j;
        struct world w;

        world_init(&w, row[i].nodes, row[i].devices);
        w.nodes[0].drained = row[i].drained;
        j = add(&w, row[i].min, row[i].max, 0);
        j->replica = row[i].replica;
        j->types = row[i].types;
        j->tenant = row[i].tenant;
        c = why(&w, 0);
        if (c.wait.code != row[i].want || c.n_help == 0 || c.help[0].kind != row[i].help)
            fail_msg("row %zu: %s", i, explain_code_name(c.wait.code));
    }
}

static void a_job_on_fewer_devices_than_it_could_use_is_shrunk(void **state)
{
    struct explain_cause c;
    struct world w;

    (void)state;
    world_init(&w, 1, 4);
    add(&w, 1, 4, 2);
    add(&w, 2, 2, 2)->fixed = true;
    w.places[1] = (struct sched_place){.node = 0, .devices = 2};
    c = why(&w, 0);
    assert_int_equal(c.wait.code, EXPLAIN_SHRUNK);
    assert_int_equal(c.wait.need, 4);
    assert_int_equal(c.behind[0], 2);
}

/* Two types of a node each; the job began on the first, which another holds. */
static void a_job_that_may_not_change_types_tells_of_the_devices_it_keeps_off(void **state)
{
    static const struct {
        bool hetero_ok;
        int home, elsewhere;
        enum explain_code want;
    } row[] = {
        {false, 0, 4, EXPLAIN_INSUFFICIENT},
        {true, 0, 0, EXPLAIN_ASSIGNED},
        {false, -1, 0, EXPLAIN_ASSIGNED},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct explain_cause c;
        struct sched_job *j;
        char text[256];
        struct world w;

        world_init(&w, 2, 4);
        w.nodes[1].type = 1;
        add(&w, 4, 4, 4)->fixed = true;
        j = add(&w, 2, 2, 0);
        j->types = 3;
        j->home = (int8_t)row[i].home;
        j->hetero_ok = row[i].hetero_ok;
        c = why(&w, 1);
        if (c.wait.code != row[i].want || c.wait.elsewhere != row[i].elsewhere)
            fail_msg("row %zu: %s, %d elsewhere", i, explain_code_name(c.wait.code), c.wait.elsewhere);
        if (row[i].want == EXPLAIN_ASSIGNED)
            continue;
        assert_int_equal(c.n_classes, 1);
        assert_int_equal(c.classes[0].type, 0);
        explain_wait_text(&c.wait, text, sizeof(text));
        assert_string_equal(text, "waits for 2 more devices: it takes 2 at once and no such device is free; 4 of other "
                                  "classes are free, but it stays on the class it began on");
    }
}

static void parts_of_nodes_are_taken_when_nothing_better_is_there(void **state)
{
    struct sched_plan plan;
    struct world w;

    (void)state;
    for (int spread = 0; spread < 2; spread++) {
        world_init(&w, 3, 2);
        w.in.config.spread = spread;
        w.nodes[0].devices = 3;
        add(&w, 6, 6, 0); /* 3 + 2 + 1: no two whole nodes of three */
        assert_int_equal(sched_schedule(&w.in, &plan, NULL), 0);
        assert_int_equal(plan.verdicts[0].action, spread ? SCHED_START : SCHED_WAIT);
        assert_int_equal(plan.verdicts[0].n, spread ? 3 : 0);
        sched_plan_clear(&plan);
    }
}

static void devices_come_in_whole_replicas(void **state)
{
    static const struct {
        int32_t replica, min, max, workers, want;
    } row[] = {{2, 1, 8, 8, 8}, {3, 1, 8, 8, 6}, {3, 4, 8, 8, 6}, {4, 1, 8, 1, 4}, {8, 1, 7, 8, 0}};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct sched_plan plan;
        struct sched_job *j;
        struct world w;

        world_init(&w, 2, 4);
        j = add(&w, row[i].min, row[i].max, 0);
        j->replica = row[i].replica;
        j->workers = row[i].workers;
        assert_int_equal(sched_schedule(&w.in, &plan, NULL), 0);
        if (plan.verdicts[0].shape.n[0] != row[i].want)
            fail_msg("row %zu: %d devices", i, plan.verdicts[0].shape.n[0]);
        sched_plan_clear(&plan);
    }
}

static void who_is_asked_to_have_other_devices_gets_them_in_a_fast_round(void **state)
{
    struct sched_plan plan;
    struct world w;

    (void)state;
    world_init(&w, 1, 4);
    add(&w, 3, 3, 2)->changed_us = 999 * S; /* it asks for three and holds two, since a second */
    assert_int_equal(sched_schedule(&w.in, &plan, NULL), 0);
    assert_int_equal(plan.verdicts[0].action, SCHED_GROW);
    assert_int_equal(plan.verdicts[0].shape.n[0], 3);
    sched_plan_clear(&plan);
}

/* Each kind of cause, and what people read: the limit that is in the way, with its figures. */
static void each_cause_is_told_with_the_figures_of_what_is_in_the_way(void **state)
{
    static const struct {
        struct explain_wait wait;
        const char *text;
    } row[] = {
        {{.code = EXPLAIN_INSUFFICIENT, .need = 4, .free = 1},
         "waits for 3 more devices: it takes 4 at once and 1 such device is free"},
        {{.code = EXPLAIN_INSUFFICIENT, .need = 2, .free = 0, .spare = 1},
         "waits for 2 more devices: it takes 2 at once and no such device is free; 1 is kept as spares"},
        {{.code = EXPLAIN_INSUFFICIENT, .need = 2, .free = 3},
         "takes 2 devices and 3 such devices are free; it waits for the next full round"},
        {{.code = EXPLAIN_BEHIND, .need = 1, .free = 2, .behind = 12},
         "waits behind j12, for which devices are kept: it takes 1 at once and 2 such devices are free; with a time "
         "limit that ends before j12 starts it may have them"},
        {{.code = EXPLAIN_LIMIT, .need = 2, .limit = 8, .held = 7},
         "takes 2 devices; its project, or one that it is within, holds 7 of the 8 that it may"},
        {{.code = EXPLAIN_LIMIT, .need = 9, .limit = 8, .held = 7},
         "takes 9 devices; its project, or one that it is within, may hold 8, so that it never starts"},
        {{.code = EXPLAIN_LIMIT, .need = 2}, "its project holds as many devices as it may; it takes 2"},
        {{.code = EXPLAIN_FRAGMENTED, .need = 4, .free = 5, .side_by_side = 3},
         "5 devices are free, but not 4 side by side; the most on one node are 3"},
        {{.code = EXPLAIN_FRAGMENTED, .need = 16, .free = 24, .side_by_side = 8, .rack = true},
         "24 devices are free, but not 16 within one rack; the most on one node are 8"},
        {{.code = EXPLAIN_DRAINED, .need = 4, .total = 8, .drained = 6},
         "takes 4 devices; of the 8 of its classes 6 are on nodes that are drained"},
        {{.code = EXPLAIN_SPARES, .need = 8, .total = 8, .spare = 2},
         "takes 8 devices; the cluster has 8 of its classes, and keeps 2 of them as spares"},
        {{.code = EXPLAIN_TOO_SMALL, .need = 16, .total = 8}, "takes 16 devices; the cluster has 8 of its classes"},
        {{.code = EXPLAIN_TOO_SMALL, .need = 1, .total = 0}, "takes 1 device; the cluster has 0 of its classes"},
        {{.code = EXPLAIN_NO_LAYOUT, .need = 8, .replica = 4, .most = 6},
         "a replica takes 4 devices, and no whole number of them lies between devices.min and devices.max: the least "
         "is 8, the most that it may have 6"},
        {{.code = EXPLAIN_NO_CLASS}, "no node has devices of the classes it may use"},
        {{.code = EXPLAIN_NO_CLASS, .bound = true, .elsewhere = 4},
         "no node has devices of the class that it began on, and on which it stays; 4 of other classes are free, but "
         "it "
         "stays on the class it began on"},
        {{.code = EXPLAIN_POWER, .need_w = 2800, .drawn_w = 19000, .power_w = 20000},
         "takes 2800 W at least; devices of jobs draw 19000 W of the 20000 W that they may"},
        {{.code = EXPLAIN_BACK_OFF, .until_us = 1700000000 * S},
         "it failed a moment ago and starts again at 2023-11-14T22:13:20.000Z"},
        {{.code = EXPLAIN_RESERVATION, .behind = 3, .until_us = 1700000000 * S},
         "waits for its reservation r3 to begin, at 2023-11-14T22:13:20.000Z"},
        {{.code = EXPLAIN_CLOSING, .need = 2, .until_us = 1700000000 * S},
         "takes 2 devices; those that are free are to be in maintenance, kept for others or gone from "
         "2023-11-14T22:13:20.000Z, before its time limit is over"},
        {{.code = EXPLAIN_SHRUNK, .need = 8, .has = 2},
         "runs on 2 of the 8 devices it could use: no such device is free"},
        {{.code = EXPLAIN_SHRUNK, .need = 8, .has = 2, .free = 3},
         "runs on 2 of the 8 devices it could use: 3 such devices are free; it gets them in a full round, if they gain "
         "more than a restart costs"},
        {{.code = EXPLAIN_MAX_RUNNING, .total = 4}, "its project has 4 jobs running, or about to, as many as it may"},
        {{.code = EXPLAIN_ARRAY, .total = 8}, "its array has 8 tasks running, or about to, as many as it may"},
        {{.code = EXPLAIN_MAX_DEVICES, .need = 4, .total = 6},
         "takes 4 devices; all jobs of its user in the project may hold 6 together"},
        {{.code = EXPLAIN_SINGLETON, .behind = 7}, "waits for j7, which has the same name and user"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        char text[256];

        explain_wait_text(&row[i].wait, text, sizeof(text));
        if (strcmp(text, row[i].text) != 0)
            fail_msg("%s:\n%s", explain_code_name(row[i].wait.code), text);
    }
}

/* The figures come from the round: of the project up the tree, the largest free part of a node, the power drawn. */
static void the_figures_of_a_cause_are_those_of_the_round(void **state)
{
    struct explain_cause c;
    struct world w;

    (void)state;
    world_init(&w, 1, 8); /* the tenant's one of quota 1 is within one of 2 devices, of which one is held */
    w.tenants[0] = (struct sched_tenant){.quota = 2, .weight_milli = 1000};
    w.tenants[1] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000, .within = 1};
    add(&w, 1, 1, 1)->tenant = 1;
    add(&w, 2, 2, 0)->tenant = 1;
    c = why(&w, 1);
    assert_int_equal(c.wait.code, EXPLAIN_LIMIT);
    assert_int_equal(c.wait.limit, 2);
    assert_int_equal(c.wait.held, 1);

    world_init(&w, 2, 2);
    for (uint32_t i = 0; i < 2; i++) {
        add(&w, 1, 1, 1)->fixed = true;
        w.places[i].node = i;
    }
    add(&w, 2, 2, 0);
    w.in.config.spread = false;
    c = why(&w, 2);
    assert_int_equal(c.wait.code, EXPLAIN_FRAGMENTED);
    assert_int_equal(c.wait.free, 2);
    assert_int_equal(c.wait.side_by_side, 1);

    world_init(&w, 1, 4);
    w.in.config.power_w = 1000;
    w.in.power_w[0] = 400;
    add(&w, 1, 1, 1)->fixed = true;
    add(&w, 2, 2, 0);
    c = why(&w, 1);
    assert_int_equal(c.wait.code, EXPLAIN_POWER);
    assert_int_equal(c.wait.drawn_w, 400);
    assert_int_equal(c.wait.need_w, 800);
    assert_int_equal(c.help[0].kind, EXPLAIN_RAISE_POWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_hold_most_are_named_first),
        cmocka_unit_test(advice_for_what_never_starts_says_by_how_much),
        cmocka_unit_test(by_time_limits_it_is_said_when_a_job_starts_whatever_its_work_left),
        cmocka_unit_test(a_job_that_waits_for_others_names_them_and_when_they_end),
        cmocka_unit_test(an_elastic_holder_is_expected_to_give_way),
        cmocka_unit_test(each_cause_is_told_with_the_figures_of_what_is_in_the_way),
        cmocka_unit_test(the_figures_of_a_cause_are_those_of_the_round),
        cmocka_unit_test(each_cause_that_the_cluster_has_is_told_apart),
        cmocka_unit_test(a_job_on_fewer_devices_than_it_could_use_is_shrunk),
        cmocka_unit_test(a_job_that_may_not_change_types_tells_of_the_devices_it_keeps_off),
        cmocka_unit_test(parts_of_nodes_are_taken_when_nothing_better_is_there),
        cmocka_unit_test(devices_come_in_whole_replicas),
        cmocka_unit_test(who_is_asked_to_have_other_devices_gets_them_in_a_fast_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
