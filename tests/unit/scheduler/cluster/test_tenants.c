/* What tenants may hold: limits of those that they are within, limits by type, guarantees by type. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define TYPES 2
#define ANY (-1)

static const struct rates_profile profile = {.points = {{{1, 1000000}, {2, 1900000}, {4, 3600000}, {8, 7000000}},
                                                        {{1, 500000}, {2, 950000}, {4, 1800000}, {8, 3500000}}},
                                             .n = {4, 4}};

struct scene {
    struct sched_node nodes[8];
    struct sched_tenant tenants[5];
    int32_t most[5][RATES_TYPES_MAX], quota[5][RATES_TYPES_MAX];
    struct sched_job jobs[48];
    struct sched_place at[48];
    struct sched_input in;
};

/* Tenants 1 and 2 are within 3, and 3 within 4; nodes of eight devices by turns of type 0 and 1. */
static void fill(struct scene *x, enum sched_mode mode, size_t n_nodes, size_t n_jobs)
{
    *x = (struct scene){.nodes = {{.devices = 0}}};
    for (size_t i = 0; i < n_nodes; i++)
        x->nodes[i] = (struct sched_node){.type = (uint8_t)(i % TYPES), .devices = 8};
    for (size_t t = 0; t < 5; t++) {
        for (int k = 0; k < RATES_TYPES_MAX; k++)
            x->most[t][k] = x->quota[t][k] = ANY;
        x->tenants[t] = (struct sched_tenant){
            .borrow = -1, .weight_milli = 1000, .type_most = x->most[t], .type_quota = x->quota[t]};
    }
    x->tenants[1].within = x->tenants[2].within = 4;
    x->tenants[3].within = 5;
    for (size_t i = 0; i < n_jobs; i++)
        x->jobs[i] = (struct sched_job){.id = i + 1,
                                        .min = 1,
                                        .max = 1,
                                        .types = 3,
                                        .home = -1,
                                        .weight_milli = 1000,
                                        .rho_milli = 1000,
                                        .remaining_us = -1,
                                        .profile = &profile};
    x->in = (struct sched_input){.config = {.mode = mode, .now_us = 100 * S, .round_us = 60 * S, .starve_us = 9999 * S},
                                 .nodes = x->nodes,
                                 .n_nodes = n_nodes,
                                 .tenants = x->tenants,
                                 .n_tenants = 5,
                                 .jobs = x->jobs,
                                 .n_jobs = n_jobs};
}

static struct sched_plan decide(const struct scene *x)
{
    struct sched_plan plan;
    struct merr err = {""};

    if (sched_schedule(&x->in, &plan, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

/* Devices that the plan gives a tenant and those within it, of a type or of ANY. */
static int32_t given(const struct scene *x, const struct sched_plan *plan, uint32_t tenant, int type)
{
    int32_t n = 0;

    for (size_t i = 0; i < x->in.n_jobs; i++) {
        const struct sched_verdict *v = &plan->verdicts[i];
        bool counts = false;

        for (uint32_t t = x->jobs[i].tenant + 1; t > 0; t = x->tenants[t - 1].within)
            counts = counts || t == tenant + 1;
        for (size_t p = v->first; counts && p < v->first + v->n; p++)
            n += type == ANY || x->nodes[plan->places[p].node].type == type ? plan->places[p].devices : 0;
    }
    return n;
}

static void a_limit_of_a_type_leaves_the_other_types(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct sched_plan plan;
        struct scene x;

        fill(&x, (enum sched_mode)mode, 2, 16);
        for (size_t i = 0; i < 16; i++)
            x.jobs[i].tenant = 1;
        x.most[1][0] = 3;
        plan = decide(&x);
        assert_int_equal(given(&x, &plan, 1, 0), 3);
        assert_int_equal(given(&x, &plan, 1, 1), 8);
        sched_plan_clear(&plan);
        x.most[1][1] = 0; /* nothing of it */
        plan = decide(&x);
        assert_int_equal(given(&x, &plan, 1, ANY), 3);
        for (size_t i = 0; i < 16; i++)
            assert_true(plan.verdicts[i].n > 0 || plan.verdicts[i].reason == SCHED_LIMIT);
        sched_plan_clear(&plan);
    }
}

/* Two projects of a lab together have what the lab may have. */
static void those_within_a_tenant_share_its_limit(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct sched_plan plan;
        struct scene x;

        fill(&x, (enum sched_mode)mode, 2, 16);
        for (uint32_t i = 0; i < 16; i++)
            x.jobs[i].tenant = i < 14 ? 1 + i % 2 : 0;
        x.tenants[3].quota = 2;
        x.tenants[3].borrow = 3;
        plan = decide(&x);
        assert_int_equal(given(&x, &plan, 3, ANY), 5);
        assert_int_equal(given(&x, &plan, 0, ANY), 2); /* others are not held up */
        sched_plan_clear(&plan);
        x.tenants[2].leaving = 4; /* a run of one of them is on its way out */
        plan = decide(&x);
        assert_int_equal(given(&x, &plan, 3, ANY), 1);
        sched_plan_clear(&plan);
    }
}

/* Borrowed devices are taken back: job 1 holds eight of type 0 as its tenant's guest; a guaranteed job of the tenant
 * whose quota they are gets four in a full round, and a second one beyond the quota of that type does not. */
static void a_guarantee_takes_back_devices_of_its_type_alone(void **state)
{
    struct sched_plan plan;
    struct scene x;

    (void)state;
    fill(&x, SCHED_FULL, 1, 3);
    x.jobs[0].min = 1;
    x.jobs[0].max = 8;
    x.jobs[0].workers = 8;
    x.jobs[0].weight_milli = 100000;
    x.at[0] = (struct sched_place){.devices = 8};
    x.jobs[0].places = x.at;
    x.jobs[0].n_places = 1;
    x.jobs[0].home = 0;
    for (size_t i = 1; i < 3; i++) {
        x.jobs[i].tenant = 1;
        x.jobs[i].class_ = SCHED_GUARANTEED;
        x.jobs[i].min = x.jobs[i].max = 4;
        x.jobs[i].weight_milli = 1;
    }
    x.tenants[1].quota = 8;
    x.quota[1][0] = 4;
    plan = decide(&x);
    assert_int_equal(given(&x, &plan, 1, 0), 4);
    assert_int_equal(given(&x, &plan, 0, 0), 4);
    sched_plan_clear(&plan);
    x.quota[1][0] = 0; /* it has none of that type to count on */
    plan = decide(&x);
    assert_int_equal(given(&x, &plan, 1, 0), 0);
    sched_plan_clear(&plan);
}

/* A lab's quota bounds those of its projects; a lab that has none does not. */
static void a_guarantee_counts_on_the_quotas_of_all_that_it_is_within(void **state)
{
    static const struct {
        int32_t lab, want;
    } rows[] = {{8, 8}, {4, 4}, {0, 8}};

    (void)state;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        struct sched_plan plan;
        struct scene x;

        fill(&x, SCHED_FULL, 1, 3);
        x.jobs[0].max = 8;
        x.jobs[0].workers = 8;
        x.jobs[0].weight_milli = 100000;
        x.jobs[0].min = 1;
        x.at[0] = (struct sched_place){.devices = 8};
        x.jobs[0].places = x.at;
        x.jobs[0].n_places = 1;
        x.jobs[0].class_ = SCHED_OPPORTUNISTIC;
        for (uint32_t i = 1; i < 3; i++) {
            x.jobs[i].tenant = i;
            x.jobs[i].class_ = SCHED_GUARANTEED;
            x.jobs[i].min = x.jobs[i].max = 4;
            x.jobs[i].weight_milli = 1;
        }
        x.tenants[1].quota = x.tenants[2].quota = 4;
        x.tenants[3].quota = rows[k].lab;
        plan = decide(&x);
        assert_int_equal(given(&x, &plan, 1, 0) + given(&x, &plan, 2, 0), rows[k].want);
        sched_plan_clear(&plan);
    }
}

static void a_ring_of_tenants_is_refused(void **state)
{
    struct sched_plan plan;
    struct scene x;
    struct merr err = {""};

    (void)state;
    fill(&x, SCHED_FULL, 1, 1);
    x.tenants[4].within = 2; /* 1 in 3 in 4 in 1 */
    assert_int_equal(sched_schedule(&x.in, &plan, &err), -22);
    assert_non_null(strstr(err.text, "tenant 1"));
    x.tenants[4].within = 77;
    assert_int_equal(sched_schedule(&x.in, &plan, &err), -22);
}

static uint32_t draw(uint32_t seed, uint32_t *draws, uint32_t below)
{
    uint32_t key[2] = {seed, 7}, ctr[4] = {(*draws)++}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

/* Whatever runs and waits, no plan gives a tenant more than it may have; what ran within its limits goes on. */
static void no_plan_exceeds_a_limit(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 400; seed++) {
        int32_t free[8] = {8, 8, 8, 8, 8, 8, 8, 8};
        struct sched_plan plan;
        struct scene x;
        uint32_t draws = 0;

        fill(&x, seed % 2 ? SCHED_FULL : SCHED_FAST, 2 + seed % 6, 8 + seed % 40);
        for (size_t t = 1; t < 5; t++) {
            x.tenants[t].quota = (int32_t)draw(seed, &draws, 12);
            x.tenants[t].borrow = (int32_t)draw(seed, &draws, 10) - 1;
            for (int k = 0; k < TYPES; k++) {
                x.most[t][k] = (int32_t)draw(seed, &draws, 10) - 1;
                x.quota[t][k] = (int32_t)draw(seed, &draws, 6) - 1;
            }
        }
        for (size_t i = 0; i < x.in.n_jobs; i++) {
            struct sched_job *j = &x.jobs[i];
            uint32_t node = draw(seed, &draws, (uint32_t)x.in.n_nodes);

            j->tenant = draw(seed, &draws, 4);
            j->class_ = (enum sched_class)draw(seed, &draws, 3);
            j->min = 1 + (int32_t)draw(seed, &draws, 6);
            j->max = j->min + (int32_t)draw(seed, &draws, 6);
            j->fixed = draw(seed, &draws, 3) == 0;
            j->hetero_ok = draw(seed, &draws, 3) == 0;
            j->workers = j->hetero_ok ? j->max : 0;
            j->types = 1 + draw(seed, &draws, 3);
            if (draw(seed, &draws, 3) > 0 || free[node] < j->min || !(j->types >> x.nodes[node].type & 1))
                continue;
            free[node] -= j->min;
            x.at[i] = (struct sched_place){.node = node, .devices = j->min};
            j->places = &x.at[i];
            j->n_places = 1;
            j->home = (int8_t)x.nodes[node].type;
        }
        for (uint32_t t = 0; t < 5; t++) { /* what runs is within the limits */
            struct sched_plan now = {.n_verdicts = 0};
            struct sched_verdict v[48] = {{0}};

            now.verdicts = v;
            now.places = x.at;
            for (size_t i = 0; i < x.in.n_jobs; i++)
                v[i] = (struct sched_verdict){.first = i, .n = x.jobs[i].n_places};
            if (x.tenants[t].borrow >= 0 && given(&x, &now, t, ANY) > x.tenants[t].quota + x.tenants[t].borrow)
                x.tenants[t].borrow = given(&x, &now, t, ANY) - x.tenants[t].quota;
            for (int k = 0; k < TYPES; k++)
                if (x.most[t][k] >= 0 && given(&x, &now, t, k) > x.most[t][k])
                    x.most[t][k] = given(&x, &now, t, k);
        }
        plan = decide(&x);
        for (uint32_t t = 0; t < 5; t++) {
            if (x.tenants[t].borrow >= 0 && given(&x, &plan, t, ANY) > x.tenants[t].quota + x.tenants[t].borrow)
                fail_msg("seed %u: tenant %u has %d devices and may have %d", seed, t, given(&x, &plan, t, ANY),
                         x.tenants[t].quota + x.tenants[t].borrow);
            for (int k = 0; k < TYPES; k++)
                if (x.most[t][k] >= 0 && given(&x, &plan, t, k) > x.most[t][k])
                    fail_msg("seed %u: tenant %u has %d devices of type %d and may have %d", seed, t,
                             given(&x, &plan, t, k), k, x.most[t][k]);
        }
        for (size_t i = 0; i < x.in.n_jobs; i++)
            if (x.jobs[i].fixed && x.jobs[i].n_places > 0 && plan.verdicts[i].action != SCHED_KEEP)
                fail_msg("seed %u: job %zu, which is never touched, does not go on", seed, i + 1);
        sched_plan_clear(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_of_a_type_leaves_the_other_types),
        cmocka_unit_test(those_within_a_tenant_share_its_limit),
        cmocka_unit_test(a_guarantee_takes_back_devices_of_its_type_alone),
        cmocka_unit_test(a_guarantee_counts_on_the_quotas_of_all_that_it_is_within),
        cmocka_unit_test(a_ring_of_tenants_is_refused),
        cmocka_unit_test(no_plan_exceeds_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
