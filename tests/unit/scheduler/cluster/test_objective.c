/* What the scheduler aims at beside fairness, and what the published policies do that it is compared with. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "scheduler/cluster/snapshot.h"

#define S INT64_C(1000000)

struct world { /* a fast and a slow type, of a node of four devices each */
    struct sched_node nodes[2];
    struct sched_tenant tenant;
    struct sched_job jobs[8];
    struct sched_place places[8];
    struct rates_profile
        profiles[2]; /* the first runs on both, twice as fast on the fast one; the second does not scale */
    struct sched_input in;
};

static void world_init(struct world *w, enum sched_policy policy, enum sched_objective objective)
{
    memset(w, 0, sizeof(*w));
    w->nodes[0] = (struct sched_node){.type = 0, .devices = 4};
    w->nodes[1] = (struct sched_node){.type = 1, .devices = 4, .leaf = 1};
    w->tenant = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    for (int t = 0; t < 2; t++) {
        w->profiles[0].points[t][0] = (struct rates_point){.count = 1, .rate_ups = 1000000 * (t + 1)};
        w->profiles[1].points[t][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
        w->profiles[1].points[t][1] = (struct rates_point){.count = 4, .rate_ups = 1200000};
        w->profiles[0].n[t] = 1;
        w->profiles[1].n[t] = 2;
    }
    w->in = (struct sched_input){
        .config = {.policy = policy,
                   .objective = objective,
                   .mode = SCHED_FULL,
                   .now_us = 100000 * S,
                   .round_us = 60 * S,
                   .starve_us = 1000000 * S,
                   .las_us = 14400 * S,
                   .hold_us = 120 * S,
                   .spread = true},
        .nodes = w->nodes,
        .n_nodes = 2,
        .tenants = &w->tenant,
        .n_tenants = 1,
        .jobs = w->jobs,
    };
}

static struct sched_job *add(struct world *w, int32_t min, int32_t max, uint32_t types, int64_t remaining_us)
{
    struct sched_job *j = &w->jobs[w->in.n_jobs++];

    *j = (struct sched_job){.id = w->in.n_jobs,
                            .min = min,
                            .max = max,
                            .types = types,
                            .hetero_ok = true,
                            .home = -1,
                            .submit_us = 90000 * S,
                            .waiting_us = 90000 * S,
                            .changed_us = 90000 * S,
                            .weight_milli = 1000,
                            .restart_us = 30 * S,
                            .remaining_us = remaining_us,
                            .rho_milli = 1000,
                            .profile = &w->profiles[0]};
    return j;
}

static void runs(struct world *w, size_t job, uint32_t node, int32_t devices, int64_t changed_us)
{
    w->places[job] = (struct sched_place){.node = node, .devices = devices};
    w->jobs[job].places = &w->places[job];
    w->jobs[job].n_places = 1;
    w->jobs[job].home = (int8_t)w->nodes[node].type;
    w->jobs[job].changed_us = changed_us;
}

static struct sched_plan decide(const struct world *w)
{
    struct sched_plan p;
    struct merr err = {""};

    if (sched_schedule(&w->in, &p, &err) != 0)
        fail_msg("%s", err.text);
    return p;
}

static int32_t devices_of(const struct sched_plan *p, size_t job)
{
    return p->verdicts[job].shape.n[0] + p->verdicts[job].shape.n[1];
}

/* Two gangs for one node: an hour of work, and a day of it that came first. */
static void jct_serves_the_short_job_first_and_makespan_the_long_one(void **state)
{
    static const struct {
        enum sched_objective objective;
        size_t first;
    } row[] = {{SCHED_JCT, 1}, {SCHED_MAKESPAN, 0}};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct world w;
        struct sched_plan p;

        world_init(&w, SCHED_POLICY_MUSTER, row[i].objective);
        add(&w, 4, 4, 1, 4 * 86400 * S);
        add(&w, 4, 4, 1, 4 * 3600 * S);
        p = decide(&w);
        if (p.verdicts[row[i].first].action != SCHED_START || p.verdicts[1 - row[i].first].action != SCHED_WAIT)
            fail_msg("%s: job %zu does not start", sched_objective_names[row[i].objective], row[i].first);
        sched_plan_clear(&p);
    }
}

/* Three jobs of which one gains next to nothing by more devices. */
static void throughput_gives_devices_to_whom_they_make_faster(void **state)
{
    struct world w;
    struct sched_plan p;

    (void)state;
    world_init(&w, SCHED_POLICY_MUSTER, SCHED_THROUGHPUT);
    add(&w, 1, 4, 1, 86400 * S)->profile = &w.profiles[1];
    add(&w, 1, 3, 1, 86400 * S);
    p = decide(&w);
    assert_int_equal(devices_of(&p, 0), 1);
    assert_int_equal(devices_of(&p, 1), 3);
    sched_plan_clear(&p);
}

static void an_objective_is_kept_in_a_snapshot_and_an_unknown_one_refused(void **state)
{
    struct world w;
    struct snapshot s;
    struct merr err;
    struct buf b;
    char *at;

    (void)state;
    buf_init(&b, 1 << 16);
    world_init(&w, SCHED_POLICY_MUSTER, SCHED_MAKESPAN);
    add(&w, 1, 1, 1, 600 * S)->unsure = true;
    w.in.config.power_w = 5000;
    w.in.power_w[1] = 700;
    assert_int_equal(snapshot_print(&w.in, (const char *const[]){"slow", "fast"}, 2, &b), 0);
    assert_int_equal(snapshot_parse(b.data, b.len, &s, &err), 0);
    assert_int_equal(s.in.config.objective, SCHED_MAKESPAN);
    assert_true(s.jobs[0].unsure);
    assert_int_equal(s.in.config.power_w, 5000);
    assert_int_equal(s.in.power_w[1], 700);
    snapshot_clear(&s);
    at = strstr(b.data, "makespan");
    assert_non_null(at);
    memcpy(at, "makestew", 8);
    assert_int_equal(snapshot_parse(b.data, b.len, &s, &err), -EINVAL);
    buf_clear(&b);
}

/* The fast node has come free beside a job that runs on the slow one. */
static void every_policy_that_stops_jobs_leaves_a_slow_class_where_that_pays(void **state)
{
    static const enum sched_policy policy[] = {SCHED_POLICY_MUSTER, SCHED_POLICY_LAS, SCHED_POLICY_MAXMIN,
                                               SCHED_POLICY_SRTF, SCHED_POLICY_SIA};

    (void)state;
    for (size_t i = 0; i < COUNT(policy); i++)
        for (int nearly_done = 0; nearly_done < 2; nearly_done++) {
            struct world w;
            struct sched_plan p;

            world_init(&w, policy[i], SCHED_FAIR);
            add(&w, 4, 4, 3, nearly_done ? 80 * S : 86400 * S); /* at four steps a second: twenty seconds */
            runs(&w, 0, 0, 4, 90000 * S);
            p = decide(&w);
            if (p.verdicts[0].action != (nearly_done ? SCHED_KEEP : SCHED_MOVE))
                fail_msg("%s, %d: %s", sched_policy_name(policy[i]), nearly_done,
                         sched_action_name(p.verdicts[0].action));
            sched_plan_clear(&p);
        }
}

/* Whoever had least is to go first, but not every minute. */
static void policies_for_comparison_leave_jobs_their_devices_for_a_time_slice(void **state)
{
    static const enum sched_policy policy[] = {SCHED_POLICY_LAS, SCHED_POLICY_MAXMIN};

    (void)state;
    for (size_t i = 0; i < COUNT(policy); i++)
        for (int over = 0; over < 2; over++) {
            struct world w;
            struct sched_plan p;

            world_init(&w, policy[i], SCHED_FAIR);
            w.in.n_nodes = 1;
            add(&w, 4, 4, 1, 86400 * S)->attained_us = 90000 * S;
            runs(&w, 0, 0, 4, (over ? 99000 : 99500) * S); /* 25 restarts are 750 s */
            add(&w, 4, 4, 1, 86400 * S);
            p = decide(&w);
            if (p.verdicts[0].action != (over ? SCHED_STOP : SCHED_KEEP))
                fail_msg("%s, %d: %s", sched_policy_name(policy[i]), over, sched_action_name(p.verdicts[0].action));
            sched_plan_clear(&p);
        }
}

static void sia_starts_small_and_doubles_and_pollux_sees_no_types(void **state)
{
    struct world w;
    struct sched_plan p;

    (void)state;
    world_init(&w, SCHED_POLICY_SIA, SCHED_FAIR);
    add(&w, 1, 4, 3, 864000 * S);
    p = decide(&w);
    assert_int_equal(devices_of(&p, 0), 1);
    assert_int_equal(p.verdicts[0].shape.type[0], 1);
    sched_plan_clear(&p);
    runs(&w, 0, 1, 1, 90000 * S);
    p = decide(&w);
    assert_int_equal(devices_of(&p, 0), 2);
    sched_plan_clear(&p);

    world_init(&w, SCHED_POLICY_POLLUX, SCHED_FAIR);
    add(&w, 4, 4, 3, 864000 * S);
    runs(&w, 0, 0, 4, 90000 * S); /* on the slow type, where the fast one is free */
    p = decide(&w);
    assert_int_equal(p.verdicts[0].action, SCHED_KEEP);
    sched_plan_clear(&p);
}

/* Of three jobs of one kind that nobody has seen run, two are bound to the type that they start on. */
static void a_bound_job_waits_a_few_rounds_for_another_to_show_how_fast_its_kind_is(void **state)
{
    static const struct {
        bool unsure, hetero_ok;
        int home;
        int64_t submitted_s;
        bool waits;
    } row[] = {
        {true, false, -1, 99990, true},   {true, false, -1, 99000, false}, /* for three rounds */
        {true, true, -1, 99990, false},                                    /* it may move later */
        {true, false, 1, 99990, false},                                    /* it is bound already */
        {false, false, -1, 99990, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct world w;
        struct sched_plan p;

        world_init(&w, SCHED_POLICY_MUSTER, SCHED_FAIR);
        for (int k = 0; k < 2; k++) {
            struct sched_job *j = add(&w, 1, 1, 3, 86400 * S);

            j->unsure = row[i].unsure;
            j->hetero_ok = row[i].hetero_ok;
            j->home = (int8_t)row[i].home;
            j->submit_us = row[i].submitted_s * S + k;
        }
        p = decide(&w);
        assert_int_equal(p.verdicts[0].action, SCHED_START); /* the oldest shows it */
        if (p.verdicts[1].action != (row[i].waits ? SCHED_WAIT : SCHED_START))
            fail_msg("row %zu: %s", i, sched_action_name(p.verdicts[1].action));
        sched_plan_clear(&p);
    }
}

/* Devices of 300 and 700 W. */
static void no_more_is_started_than_the_power_cap_lets_draw(void **state)
{
    static const struct {
        enum sched_policy policy;
        int64_t cap_w;
        int32_t min, max;
        int32_t want;          /* watts that are drawn */
        enum sched_reason why; /* of the last job, where it waits */
    } row[] = {
        {SCHED_POLICY_MUSTER, 0, 1, 4, 4000, SCHED_RUNS},     {SCHED_POLICY_MUSTER, 4000, 1, 4, 4000, SCHED_RUNS},
        {SCHED_POLICY_MUSTER, 2500, 4, 4, 1200, SCHED_POWER}, {SCHED_POLICY_MUSTER, 1100, 4, 4, 0, SCHED_POWER},
        {SCHED_POLICY_FIFO, 3000, 4, 4, 2800, SCHED_POWER},   {SCHED_POLICY_MAXMIN, 2700, 4, 4, 1200, SCHED_BUSY},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
            struct world w;
            struct sched_plan p;
            int32_t watts = 0;

            world_init(&w, row[i].policy, SCHED_FAIR);
            w.in.config.mode = (enum sched_mode)mode;
            w.in.config.power_w = row[i].cap_w;
            w.in.power_w[0] = 300;
            w.in.power_w[1] = 700;
            add(&w, row[i].min, row[i].max, row[i].policy == SCHED_POLICY_MUSTER ? 1 : 3, 864000 * S);
            add(&w, row[i].min, row[i].max, row[i].policy == SCHED_POLICY_MUSTER ? 2 : 3, 864000 * S);
            p = decide(&w);
            for (size_t k = 0; k < p.n_places; k++)
                watts += p.places[k].devices * w.in.power_w[w.nodes[p.places[k].node].type];
            if (watts != row[i].want || p.verdicts[1].reason != row[i].why)
                fail_msg("row %zu, mode %d: %d W, %s", i, mode, watts, sched_reason_name(p.verdicts[1].reason));
            sched_plan_clear(&p);
        }
}

/* A cap that came down below what runs takes devices from jobs that can give some. */
static void a_lower_power_cap_shrinks_what_can_shrink(void **state)
{
    struct world w;
    struct sched_plan p;

    (void)state;
    world_init(&w, SCHED_POLICY_MUSTER, SCHED_FAIR);
    w.in.config.power_w = 700;
    w.in.power_w[0] = 300;
    add(&w, 1, 4, 1, 864000 * S);
    runs(&w, 0, 0, 4, 90000 * S);
    p = decide(&w);
    assert_int_equal(p.verdicts[0].action, SCHED_SHRINK);
    assert_int_equal(devices_of(&p, 0), 2);
    sched_plan_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jct_serves_the_short_job_first_and_makespan_the_long_one),
        cmocka_unit_test(throughput_gives_devices_to_whom_they_make_faster),
        cmocka_unit_test(an_objective_is_kept_in_a_snapshot_and_an_unknown_one_refused),
        cmocka_unit_test(every_policy_that_stops_jobs_leaves_a_slow_class_where_that_pays),
        cmocka_unit_test(policies_for_comparison_leave_jobs_their_devices_for_a_time_slice),
        cmocka_unit_test(no_more_is_started_than_the_power_cap_lets_draw),
        cmocka_unit_test(a_lower_power_cap_shrinks_what_can_shrink),
        cmocka_unit_test(sia_starts_small_and_doubles_and_pollux_sees_no_types),
        cmocka_unit_test(a_bound_job_waits_a_few_rounds_for_another_to_show_how_fast_its_kind_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
