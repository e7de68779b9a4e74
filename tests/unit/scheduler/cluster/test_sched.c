#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"

#define NODES_MAX 32
#define JOBS_MAX 48
#define S INT64_C(1000000)

struct world {
    struct sched_input in;
    struct sched_node nodes[NODES_MAX];
    struct sched_tenant tenants[3];
    struct sched_job jobs[JOBS_MAX];
    struct sched_place places[JOBS_MAX][NODES_MAX];
    struct rates_profile profiles[3];
    uint32_t seed, draws;
};

static uint32_t draw(struct world *w, uint32_t below)
{
    uint32_t key[2] = {w->seed, 99}, ctr[4] = {w->draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static struct world *world_new(uint32_t seed, size_t nodes, size_t jobs)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->seed = seed;
    for (int p = 0; p < 3; p++)
        for (int t = 0; t < 3; t++) {
            w->profiles[p].n[t] = 2;
            w->profiles[p].points[t][0] = (struct rates_point){1, 1000000 + draw(w, 4000000)};
            w->profiles[p].points[t][1] = (struct rates_point){8, w->profiles[p].points[t][0].rate_ups * 6};
        }
    for (size_t i = 0; i < nodes; i++)
        w->nodes[i] = (struct sched_node){.type = (uint8_t)(i % 3), .devices = 8, .leaf = (uint32_t)(i / 6)};
    w->tenants[0] = (struct sched_tenant){.quota = 16, .borrow = -1, .weight_milli = 1000};
    w->tenants[1] = (struct sched_tenant){.quota = 8, .borrow = 16, .weight_milli = 2000};
    w->tenants[2] = (struct sched_tenant){.quota = 0, .borrow = 12, .weight_milli = 500};
    for (size_t i = 0; i < jobs; i++) {
        int32_t min = 1 << draw(w, 4);

        w->jobs[i] = (struct sched_job){
            .id = i + 1,
            .tenant = draw(w, 3),
            .class_ = (enum sched_class)draw(w, 3),
            .submit_us = draw(w, 3600) * S,
            .min = min,
            .max = min << draw(w, 3),
            .workers = draw(w, 2) ? min * 4 : 0,
            .types = 1 + draw(w, 7),
            .hetero_ok = draw(w, 3) == 0,
            .fixed = draw(w, 8) == 0,
            .home = -1,
            .weight_milli = 1000,
            .restart_us = 30 * S,
            .remaining_us = i % 4 == 3 ? -1 : (100 << i % 11) * S,
            .rho_milli = 1000,
            .profile = &w->profiles[draw(w, 3)],
        };
        w->jobs[i].waiting_us = w->jobs[i].changed_us = w->jobs[i].submit_us;
    }
    w->in = (struct sched_input){
        .config = {.now_us = 4000 * S,
                   .round_us = 60 * S,
                   .starve_us = 36000 * S,
                   .grace_us = 30 * S,
                   .hold_us = 120 * S,
                   .las_us = 3600 * S,
                   .mode = SCHED_FULL},
        .nodes = w->nodes,
        .n_nodes = nodes,
        .tenants = w->tenants,
        .n_tenants = 3,
        .jobs = w->jobs,
        .n_jobs = jobs,
    };
    return w;
}

static struct sched_plan decide(const struct world *w)
{
    struct sched_plan p;
    struct merr err;

    if (sched_schedule(&w->in, &p, &err) < 0)
        fail_msg("seed %u: %s", w->seed, err.text);
    return p;
}

/* Whether what must not be touched is on nodes that all stand. */
static bool is_pinned(const struct world *w, const struct sched_job *j)
{
    for (size_t k = 0; k < j->n_places; k++)
        if (j->places[k].devices > w->nodes[j->places[k].node].devices)
            return false;
    return j->fixed && j->n_places > 0;
}

/* Every rule that a plan must keep. */
static void hold(const struct world *w, const struct sched_plan *p)
{
    int32_t node[NODES_MAX] = {0}, spread[NODES_MAX] = {0}, tenant[3] = {0};

    for (size_t i = 0; i < w->in.n_jobs; i++) {
        const struct sched_verdict *v = &p->verdicts[i];
        const struct sched_job *j = &w->jobs[i];
        int32_t n = 0, size = v->shape.n[0] + v->shape.n[1];

        for (size_t k = 0; k < v->n; k++) {
            const struct sched_place *at = &p->places[v->first + k];

            n += at->devices;
            node[at->node] += at->devices;
            spread[at->node] += v->n > 1 && v->shape.type[1] < 0;
            if (!(j->types >> w->nodes[at->node].type & 1))
                fail_msg("seed %u job %zu: on a type that it may not use", w->seed, i);
            if (j->home >= 0 && !j->hetero_ok && w->nodes[at->node].type != j->home)
                fail_msg("seed %u job %zu: changed its type", w->seed, i);
        }
        tenant[j->tenant] += n;
        if (is_pinned(w, j) && v->action != SCHED_KEEP)
            fail_msg("seed %u job %zu: it runs, is fixed and was changed", w->seed, i);
        if (n != size || (n > 0 && (n < j->min || n > j->max)))
            fail_msg("seed %u job %zu: %d devices, shape %d, range %d to %d", w->seed, i, n, size, j->min, j->max);
        if (v->shape.type[1] >= 0 && (!j->hetero_ok || j->workers == 0))
            fail_msg("seed %u job %zu: a mix of types", w->seed, i);
        if (v->shape.type[1] < 0 && n > 0 && v->n > (size_t)(n + 7) / 8)
            fail_msg("seed %u job %zu: %d devices over %zu nodes", w->seed, i, n, v->n);
        if (j->workers > 0 && n > 0) {
            int32_t lie = v->est[0].devices * v->est[0].each - v->est[0].fewer + v->est[1].devices * v->est[1].each -
                          v->est[1].fewer;

            assert_int_equal(lie, j->workers);
        }
    }
    for (size_t i = 0; i < w->in.n_nodes; i++) {
        if (node[i] > w->nodes[i].devices)
            fail_msg("seed %u node %zu: %d of %d devices", w->seed, i, node[i], w->nodes[i].devices);
        if (spread[i] > 1)
            fail_msg("seed %u node %zu: %d jobs that are on other nodes, too", w->seed, i, spread[i]);
    }
    for (int t = 0; t < 3; t++)
        if (w->tenants[t].borrow >= 0 && tenant[t] > w->tenants[t].quota + w->tenants[t].borrow)
            fail_msg("seed %u tenant %d: %d devices", w->seed, t, tenant[t]);
    assert_true(p->dual_u >= p->value_u || w->in.config.policy != SCHED_POLICY_MUSTER ||
                w->in.config.mode == SCHED_FAST);
}

/* Do what the plan says and let time pass. */
static void apply(struct world *w, const struct sched_plan *p, int64_t pass_us)
{
    for (size_t i = 0; i < w->in.n_jobs; i++) {
        const struct sched_verdict *v = &p->verdicts[i];
        struct sched_job *j = &w->jobs[i];

        if (v->action != SCHED_KEEP && v->action != SCHED_WAIT) {
            memcpy(w->places[i], &p->places[v->first], v->n * sizeof(struct sched_place));
            j->restarts += j->home >= 0;
            j->changed_us = w->in.config.now_us;
            j->waiting_us = w->in.config.now_us;
            j->home = v->n > 0 ? v->shape.type[0] : j->home;
        }
        j->places = w->places[i];
        j->n_places = v->n;
        j->attained_us += (v->shape.n[0] + v->shape.n[1]) * pass_us;
    }
    memcpy(w->in.prices, p->prices, sizeof(w->in.prices));
    w->in.config.now_us += pass_us;
}

static void lose_nodes(struct world *w)
{
    for (size_t i = 0; i < w->in.n_nodes; i++)
        w->nodes[i].devices = draw(w, 8) == 0 ? 0 : 8;
}

static void every_plan_keeps_every_rule_while_nodes_come_and_go(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++)
        for (int policy = 0; policy < SCHED_POLICY_MAX; policy++) {
            struct world *w = world_new(seed, 6 + seed % 20, 4 + seed % 40);

            w->in.config.policy = (enum sched_policy)policy;
            for (int round = 0; round < 8; round++) {
                struct sched_plan p;

                w->in.config.mode = round % 3 == 1 ? SCHED_FAST : SCHED_FULL;
                if (round >= 2)
                    lose_nodes(w);
                p = decide(w);
                hold(w, &p);
                apply(w, &p, 90 * S);
                sched_plan_clear(&p);
            }
            free(w);
        }
}

static void the_same_snapshot_in_any_order_gives_the_same_bytes(void **state)
{
    (void)state;
    for (uint32_t seed = 100; seed < 130; seed++) {
        struct world *w = world_new(seed, 12, 30);
        struct buf one, two;
        struct sched_plan p;

        buf_init(&one, 1 << 20);
        buf_init(&two, 1 << 20);
        p = decide(w);
        apply(w, &p, 600 * S);
        sched_plan_clear(&p);
        p = decide(w);
        assert_int_equal(sched_plan_print(&w->in, &p, &one), 0);
        sched_plan_clear(&p);
        for (size_t i = w->in.n_jobs - 1; i > 0; i--) {
            size_t k = draw(w, (uint32_t)i + 1);
            struct sched_job t = w->jobs[i];

            w->jobs[i] = w->jobs[k];
            w->jobs[k] = t;
        }
        p = decide(w);
        assert_int_equal(sched_plan_print(&w->in, &p, &two), 0);
        if (strcmp(buf_text(&one), buf_text(&two)) != 0)
            fail_msg("seed %u: another plan for the same jobs", seed);
        sched_plan_clear(&p);
        buf_clear(&one);
        buf_clear(&two);
        free(w);
    }
}

/* What rounds remember of one another speeds them up and changes no byte. */
static void a_cache_of_earlier_rounds_changes_no_plan(void **state)
{
    (void)state;
    for (uint32_t seed = 200; seed < 220; seed++) {
        struct world *w = world_new(seed, 6 + seed % 10, 30);
        struct sched_cache *cache = sched_cache_new();

        for (int round = 0; round < 8; round++) {
            struct buf with, without;
            struct sched_plan p;

            buf_init(&with, 1 << 20);
            buf_init(&without, 1 << 20);
            w->in.config.mode = round % 3 == 1 ? SCHED_FAST : SCHED_FULL;
            if (round % 3 == 2)
                lose_nodes(w);
            w->in.cache = cache;
            p = decide(w);
            assert_int_equal(sched_plan_print(&w->in, &p, &with), 0);
            sched_plan_clear(&p);
            w->in.cache = NULL;
            p = decide(w);
            assert_int_equal(sched_plan_print(&w->in, &p, &without), 0);
            if (strcmp(buf_text(&with), buf_text(&without)) != 0)
                fail_msg("seed %u, round %d: another plan with a cache", seed, round);
            apply(w, &p, 90 * S);
            sched_plan_clear(&p);
            buf_clear(&with);
            buf_clear(&without);
        }
        sched_cache_free(cache);
        free(w);
    }
}

static void with_nothing_new_the_second_plan_is_the_first(void **state)
{
    (void)state;
    for (uint32_t seed = 200; seed < 240; seed++) {
        struct world *w = world_new(seed, 24, 16);
        struct sched_plan p;

        for (size_t i = 0; i < w->in.n_jobs; i++)
            w->jobs[i].max = w->jobs[i].min; /* no reason to grow with age */
        p = decide(w);
        apply(w, &p, 120 * S + 1);
        sched_plan_clear(&p);
        for (int round = 0; round < 4; round++) {
            p = decide(w);
            if (p.n_order != 0)
                fail_msg("seed %u round %d: %zu jobs changed", seed, round, p.n_order);
            apply(w, &p, 60 * S);
            sched_plan_clear(&p);
        }
        free(w);
    }
}

static void a_guarantee_within_its_quota_takes_from_the_opportunistic(void **state)
{
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world *w = world_new(5, 2, 3);
        struct sched_plan p;

        (void)state;
        for (int i = 0; i < 3; i++) {
            w->jobs[i].min = w->jobs[i].max = 8;
            w->jobs[i].types = 3;
            w->jobs[i].workers = 0;
            w->jobs[i].fixed = w->jobs[i].hetero_ok = false;
            w->jobs[i].tenant = 0;
            w->jobs[i].class_ = i < 2 ? SCHED_OPPORTUNISTIC : SCHED_GUARANTEED;
        }
        w->in.n_jobs = 2;
        p = decide(w);
        assert_int_equal(p.n_order, 2);
        apply(w, &p, 60 * S);
        sched_plan_clear(&p);
        w->in.n_jobs = 3;
        w->in.config.mode = (enum sched_mode)mode;
        p = decide(w);
        assert_int_equal(p.verdicts[2].action, SCHED_START);
        assert_int_equal(p.n_order, 2);
        assert_int_equal(p.verdicts[p.order[0]].action, SCHED_STOP); /* before the start */
        assert_int_equal(p.verdicts[p.order[0]].reason, SCHED_RECLAIMED);
        assert_int_equal(p.verdicts[p.order[0]].deadline_us, w->in.config.now_us + 30 * S);
        sched_plan_clear(&p);
        w->jobs[2].class_ = SCHED_ELASTIC; /* nothing is owed to it: in a fast round it waits */
        w->in.config.mode = SCHED_FAST;
        p = decide(w);
        assert_int_equal(p.verdicts[2].action, SCHED_WAIT);
        assert_int_equal(p.verdicts[2].reason, SCHED_BUSY);
        sched_plan_clear(&p);
        free(w);
    }
}

/* Once the one job runs as planned, it stays. in->jobs is job. */
static void assert_keeps(struct sched_input *in, struct sched_job *job, const struct sched_plan *plan)
{
    struct sched_plan next;

    in->config.mode = SCHED_FULL;
    job->places = plan->places;
    job->n_places = plan->n_places;
    assert_int_equal(sched_schedule(in, &next, NULL), 0);
    assert_int_equal(next.verdicts[0].action, SCHED_KEEP);
    sched_plan_clear(&next);
}

/* Two stages of two devices on three of one type and two of another: two of each, or none where they must not part. */
static void a_pipeline_spans_types_between_its_stages_alone(void **state)
{
    const struct rates_profile p = {.points = {{{4, 4000000}}, {{4, 2000000}}}, .n = {1, 1}};
    const struct sched_node nodes[] = {{.type = 0, .devices = 3}, {.type = 1, .devices = 2}};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};

    (void)state;
    for (int stage = 0; stage <= 2; stage += 2)
        for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
            struct sched_job job = {.id = 1,
                                    .min = 4,
                                    .max = 8,
                                    .replica = 4,
                                    .stage = stage,
                                    .workers = 4,
                                    .types = 3,
                                    .hetero_ok = true,
                                    .home = -1,
                                    .weight_milli = 1000,
                                    .rho_milli = 1000,
                                    .profile = &p};
            struct sched_input in = {
                .config = {.mode = (enum sched_mode)mode, .now_us = S, .round_us = 60 * S, .starve_us = 100000 * S},
                .nodes = nodes,
                .n_nodes = 2,
                .tenants = &tenant,
                .n_tenants = 1,
                .jobs = &job,
                .n_jobs = 1};
            struct sched_plan plan;
            struct sched_shape s;

            assert_int_equal(sched_schedule(&in, &plan, NULL), 0);
            s = plan.verdicts[0].shape;
            if (stage == 0) {
                assert_int_equal(plan.verdicts[0].action, SCHED_WAIT);
            } else {
                assert_int_equal(plan.verdicts[0].action, SCHED_START);
                assert_true(s.type[0] == 0 && s.n[0] == 2 && s.type[1] == 1 && s.n[1] == 2);
                assert_int_equal(s.rate_ups, 2700000); /* nine tenths of the mean */
                assert_keeps(&in, &job, &plan);
            }
            sched_plan_clear(&plan);
        }
}

/* Four virtual workers on one device and two of another type that is as fast: a third idles, but it takes three. */
static void a_job_that_fits_on_two_types_alone_runs_there_and_stays_though_much_idles(void **state)
{
    const struct rates_profile p = {.points = {{{1, 1000000}}, {{1, 1000000}}}, .n = {1, 1}};
    const struct sched_node nodes[] = {{.type = 0, .devices = 1}, {.type = 1, .devices = 2}};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    struct sched_job job = {.id = 1,
                            .min = 3,
                            .max = 3,
                            .workers = 4,
                            .types = 3,
                            .hetero_ok = true,
                            .home = -1,
                            .weight_milli = 1000,
                            .rho_milli = 1000,
                            .profile = &p};
    struct sched_input in = {.config = {.now_us = S, .round_us = 60 * S, .starve_us = 100000 * S},
                             .nodes = nodes,
                             .n_nodes = 2,
                             .tenants = &tenant,
                             .n_tenants = 1,
                             .jobs = &job,
                             .n_jobs = 1};
    struct sched_plan plan;

    (void)state;
    assert_int_equal(sched_schedule(&in, &plan, NULL), 0);
    assert_int_equal(plan.verdicts[0].action, SCHED_START);
    assert_keeps(&in, &job, &plan);
    sched_plan_clear(&plan);
}

/* A job on one of four devices that makes a step a second on each, and loses 30 s with a change. */
static void who_is_nearly_done_does_not_change_its_devices(void **state)
{
    static const struct {
        int64_t left_s;
        enum sched_action want;
    } row[] = {
        {0, SCHED_KEEP},   {10, SCHED_KEEP},     {30, SCHED_KEEP},
        {400, SCHED_GROW}, {100000, SCHED_GROW}, {-1, SCHED_GROW}, /* not known */
    };
    const struct rates_profile p = {.points = {{{1, 1000000}}}, .n = {1}};
    const struct sched_node node = {.devices = 4};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    const struct sched_place held = {.node = 0, .devices = 1};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct sched_job job = {.id = 1,
                                .min = 1,
                                .max = 4,
                                .types = 1,
                                .home = -1,
                                .weight_milli = 1000,
                                .rho_milli = 1000,
                                .profile = &p,
                                .places = &held,
                                .n_places = 1,
                                .restart_us = 30 * S,
                                .remaining_us = row[i].left_s < 0 ? -1 : row[i].left_s * S};
        struct sched_input in = {
            .config = {.mode = SCHED_FULL, .now_us = 100000 * S, .round_us = 60 * S, .starve_us = 36000 * S},
            .nodes = &node,
            .n_nodes = 1,
            .tenants = &tenant,
            .n_tenants = 1,
            .jobs = &job,
            .n_jobs = 1};
        struct sched_plan plan;

        assert_int_equal(sched_schedule(&in, &plan, NULL), 0);
        if (plan.verdicts[0].action != row[i].want)
            fail_msg("%lld s left: %s", (long long)row[i].left_s, sched_action_name(plan.verdicts[0].action));
        sched_plan_clear(&plan);
    }
}

/* Two jobs for one device, of which the first has had most. */
static void a_time_slice_is_not_taken_from_who_is_done_within_one(void **state)
{
    static const struct {
        int64_t left_s, changed_s;
        enum sched_action want;
    } row[] = {
        {700, 0, SCHED_KEEP},
        {800, 0, SCHED_STOP},
        {-1, 0, SCHED_STOP},
        {800, 99300, SCHED_KEEP},
    };
    const struct rates_profile p = {.points = {{{1, 1000000}}}, .n = {1}};
    const struct sched_node node = {.devices = 1};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    const struct sched_place held = {.node = 0, .devices = 1};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        const struct sched_job one = {.id = 1,
                                      .min = 1,
                                      .max = 1,
                                      .types = 1,
                                      .home = -1,
                                      .weight_milli = 1000,
                                      .rho_milli = 1000,
                                      .profile = &p,
                                      .restart_us = 30 * S,
                                      .remaining_us = row[i].left_s < 0 ? -1 : row[i].left_s * S};
        struct sched_job jobs[2] = {one, one};
        struct sched_input in = {
            .config = {.mode = SCHED_FULL, .now_us = 100000 * S, .round_us = 60 * S, .starve_us = 360000 * S},
            .nodes = &node,
            .n_nodes = 1,
            .tenants = &tenant,
            .n_tenants = 1,
            .jobs = jobs,
            .n_jobs = 2};
        struct sched_plan plan;

        jobs[0].places = &held;
        jobs[0].n_places = 1;
        jobs[0].attained_us = 95000 * S;
        jobs[1].attained_us = 5000 * S;
        jobs[0].changed_us = row[i].changed_s * S;
        jobs[1].id = 2;
        assert_int_equal(sched_schedule(&in, &plan, NULL), 0);
        if (plan.verdicts[0].action != row[i].want)
            fail_msg("row %zu: %s", i, sched_action_name(plan.verdicts[0].action));
        sched_plan_clear(&plan);
    }
}

/* One device, held since a moment ago by a job whose work is long, and one that waits. */
static void a_short_job_that_is_late_need_not_wait_for_the_end_of_a_slice(void **state)
{
    static const struct {
        int64_t left_s, rho_milli;
        enum sched_class class_;
        enum sched_action want;
    } row[] = {
        {700, 2250, SCHED_ELASTIC, SCHED_START},      {700, 2249, SCHED_ELASTIC, SCHED_WAIT},
        {800, 4000, SCHED_ELASTIC, SCHED_WAIT},       {-1, 4000, SCHED_ELASTIC, SCHED_WAIT}, /* -1: not known */
        {700, 4000, SCHED_OPPORTUNISTIC, SCHED_WAIT},
    };
    const struct rates_profile p = {.points = {{{1, 1000000}}}, .n = {1}};
    const struct sched_node node = {.devices = 1};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    const struct sched_place held = {.node = 0, .devices = 1};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        const struct sched_job one = {.id = 1,
                                      .min = 1,
                                      .max = 1,
                                      .types = 1,
                                      .home = -1,
                                      .weight_milli = 1000,
                                      .rho_milli = 1000,
                                      .profile = &p,
                                      .restart_us = 30 * S,
                                      .remaining_us = 50000 * S};
        struct sched_job jobs[2] = {one, one};
        struct sched_input in = {
            .config = {.mode = SCHED_FULL, .now_us = 1000 * S, .round_us = 60 * S, .starve_us = 360000 * S},
            .nodes = &node,
            .n_nodes = 1,
            .tenants = &tenant,
            .n_tenants = 1,
            .jobs = jobs,
            .n_jobs = 2};
        struct sched_plan plan;

        jobs[0].places = &held;
        jobs[0].n_places = 1;
        jobs[0].changed_us = 600 * S; /* a slice is 25 restarts: 750 s */
        jobs[0].attained_us = jobs[1].attained_us = 400 * S;
        jobs[1].id = 2;
        jobs[1].class_ = row[i].class_;
        jobs[1].rho_milli = row[i].rho_milli;
        jobs[1].remaining_us = row[i].left_s < 0 ? -1 : row[i].left_s * S;
        assert_int_equal(sched_schedule(&in, &plan, NULL), 0);
        if (plan.verdicts[1].action != row[i].want)
            fail_msg("row %zu: %s", i, sched_action_name(plan.verdicts[1].action));
        sched_plan_clear(&plan);
    }
}

/* One that starves keeps others from the types that it waits for, but not from one that it may not change to. */
static void a_job_that_starves_for_its_type_leaves_others_the_rest(void **state)
{
    const struct rates_profile p = {.points = {{{1, 1000000}}, {{1, 1000000}}}, .n = {1, 1}};
    const struct sched_node nodes[] = {{.type = 0, .devices = 1}, {.type = 1, .devices = 1}};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    const struct sched_place held = {.node = 0, .devices = 1};

    (void)state;
    for (int hetero = 0; hetero <= 1; hetero++) {
        struct sched_job jobs[3];
        struct sched_input in = {
            .config = {.mode = SCHED_FAST, .now_us = 1000 * S, .round_us = 60 * S, .starve_us = 100 * S},
            .nodes = nodes,
            .n_nodes = 2,
            .tenants = &tenant,
            .n_tenants = 1,
            .jobs = jobs,
            .n_jobs = 3};
        struct sched_plan plan;

        for (uint64_t i = 0; i < 3; i++)
            jobs[i] = (struct sched_job){.id = i + 1,
                                         .min = 1,
                                         .max = 1,
                                         .types = 3,
                                         .home = -1,
                                         .weight_milli = 1000,
                                         .rho_milli = 1000,
                                         .waiting_us = 1000 * S,
                                         .submit_us = 1,
                                         .profile = &p};
        jobs[0].fixed = true;
        jobs[0].places = &held;
        jobs[0].n_places = 1;
        jobs[1].waiting_us = 1;
        jobs[1].home = 0;
        jobs[1].hetero_ok = hetero;
        jobs[2].types = 2;
        assert_int_equal(sched_schedule(&in, &plan, NULL), 0);
        assert_int_equal(plan.verdicts[1].n, hetero);
        assert_int_equal(plan.verdicts[2].n, !hetero);
        sched_plan_clear(&plan);
    }
}

static void nobody_waits_for_ever(void **state)
{
    struct world *w = world_new(7, 3, 25);
    bool started[JOBS_MAX] = {false};

    (void)state;
    w->in.config.starve_us = 3600 * S;
    for (size_t i = 0; i < w->in.n_jobs; i++) { /* one asks for a whole node, all others for parts, for ever */
        w->jobs[i].types = 1;
        w->jobs[i].tenant = 0;
        w->jobs[i].class_ = SCHED_ELASTIC;
        w->jobs[i].fixed = false;
        w->jobs[i].min = w->jobs[i].max = i == 24 ? 8 : 1;
        w->jobs[i].workers = 0;
    }
    for (int round = 0; round < 600; round++) {
        struct sched_plan p = decide(w);

        for (size_t i = 0; i < w->in.n_jobs; i++)
            started[i] = started[i] || p.verdicts[i].n > 0;
        apply(w, &p, 60 * S);
        sched_plan_clear(&p);
    }
    for (size_t i = 0; i < w->in.n_jobs; i++)
        if (!started[i])
            fail_msg("job %zu of %zu has waited ten hours", i, w->in.n_jobs);
    free(w);
}

static void bad_snapshots_are_refused_by_name(void **state)
{
    struct world *w = world_new(9, 3, 3);
    struct sched_plan p;
    struct merr err;

    (void)state;
    w->jobs[1].id = 1;
    assert_int_equal(sched_schedule(&w->in, &p, &err), -EINVAL);
    assert_string_equal(err.text, "two jobs have the id 1");
    w->jobs[1].id = 2;
    w->jobs[1].tenant = 9;
    assert_int_equal(sched_schedule(&w->in, &p, &err), -EINVAL);
    w->jobs[1].tenant = 0;
    w->places[0][0] = (struct sched_place){.node = 0, .devices = 9};
    w->jobs[0].places = w->places[0];
    w->jobs[0].n_places = 1;
    assert_int_equal(sched_schedule(&w->in, &p, &err), -EINVAL);
    assert_string_equal(err.text, "node 0: its jobs hold 9 devices of 8");
    free(w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_keeps_every_rule_while_nodes_come_and_go),
        cmocka_unit_test(the_same_snapshot_in_any_order_gives_the_same_bytes),
        cmocka_unit_test(a_cache_of_earlier_rounds_changes_no_plan),
        cmocka_unit_test(with_nothing_new_the_second_plan_is_the_first),
        cmocka_unit_test(a_guarantee_within_its_quota_takes_from_the_opportunistic),
        cmocka_unit_test(a_pipeline_spans_types_between_its_stages_alone),
        cmocka_unit_test(a_job_that_fits_on_two_types_alone_runs_there_and_stays_though_much_idles),
        cmocka_unit_test(who_is_nearly_done_does_not_change_its_devices),
        cmocka_unit_test(a_time_slice_is_not_taken_from_who_is_done_within_one),
        cmocka_unit_test(a_short_job_that_is_late_need_not_wait_for_the_end_of_a_slice),
        cmocka_unit_test(a_job_that_starves_for_its_type_leaves_others_the_rest),
        cmocka_unit_test(nobody_waits_for_ever),
        cmocka_unit_test(bad_snapshots_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
