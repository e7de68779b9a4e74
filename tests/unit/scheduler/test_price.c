/* Full rounds on small clusters beside the best of all assignments, found by trying them all. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched_int.h"

#define JOBS 6
#define NODES 3
#define S INT64_C(1000000)
#define RUNS 400
#define HELD 0.004 /* what runs changes for more than this share */

struct world {
    struct sched_node nodes[NODES];
    struct sched_tenant tenants[2];
    struct sched_job jobs[JOBS];
    struct sched_place places[JOBS][NODES];
    struct rates_profile profiles[2];
    struct sched_input in;
    uint32_t seed, draws;
};

static uint32_t draw(struct world *w, uint32_t below)
{
    uint32_t key[2] = { w->seed, 5 }, ctr[4] = { w->draws++, 0, 0, 0 }, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static void world_init(struct world *w, uint32_t seed)
{
    *w = (struct world){ .seed = seed };
    for (int p = 0; p < 2; p++)
        for (int t = 0; t < 2; t++) {
            w->profiles[p].n[t] = 2;
            w->profiles[p].points[t][0] = (struct rates_point){ 1, 1000000 + draw(w, 4000000) };
            w->profiles[p].points[t][1] = (struct rates_point){ 4, w->profiles[p].points[t][0].rate_ups * 3 };
        }
    for (int i = 0; i < NODES; i++)
        w->nodes[i] = (struct sched_node){ .type = (uint8_t)(i % 2), .devices = 1 + (int32_t)draw(w, 4) };
    w->tenants[0] = (struct sched_tenant){ .borrow = -1, .weight_milli = 1000 };
    w->tenants[1] = (struct sched_tenant){ .borrow = (int32_t)draw(w, 5), .weight_milli = 1000 };
    for (size_t i = 0; i < JOBS; i++) {
        int32_t min = 1 + (int32_t)draw(w, 3);

        w->jobs[i] = (struct sched_job){ .id = i + 1, .tenant = draw(w, 2), .submit_us = draw(w, 3600) * S, .min = min,
                                         .max = min + (int32_t)draw(w, 4), .types = 1 + draw(w, 3), .home = -1,
                                         .weight_milli = 250 << draw(w, 5), .restart_us = 30 * S, .rho_milli = 1000,
                                         .profile = &w->profiles[draw(w, 2)] };
    }
    w->in = (struct sched_input){ .config = { .mode = SCHED_FULL, .now_us = 4000 * S, .round_us = 60 * S,
                                              .starve_us = 100000 * S, .hold_us = 120 * S,
                                              .grace_us = 30 * S },
                                  .nodes = w->nodes, .n_nodes = NODES, .tenants = w->tenants, .n_tenants = 2,
                                  .jobs = w->jobs, .n_jobs = JOBS };
}

/* The worth of the best assignment of jobs from i on to what the first have left. */
static double best_of(struct round *r, size_t i)
{
    struct rjob *j = &r->jobs[i];
    double best;

    if (i == r->n_jobs)
        return 0;
    best = best_of(r, i + 1);
    for (int c = 0; c < j->n; c++)
        if (choice_fits(r, j, c)) {
            double v;

            choice_set(r, j, c);
            v = cand_of(r, j, c)->utility + best_of(r, i + 1);
            choice_set(r, j, NONE);
            best = v > best ? v : best;
        }
    return best;
}

struct tally {
    double sum, sum_best, worst; /* share of the best */
    int exact, rounds;
};

/* A round of the jobs that are there, up to the assignment. */
static void weigh(struct world *w, const char *when, struct tally *t)
{
    struct round r;
    double best;

    assert_int_equal(sched_round_init(&r, &w->in), 0);
    assert_int_equal(candidates_fill(&r), 0);
    best = best_of(&r, 0);
    assert_int_equal(price_choose(&r), 0);
    if (r.value > best + 1e-6 || r.dual < best - 1e-6 || r.value < best * (1 - HELD) - 1e-6)
        fail_msg("seed %u, %s: %g of %g, bound %g", w->seed, when, r.value, best, r.dual);
    t->exact += r.value > best - 1e-6;
    t->worst = best > 0 && r.value / best < t->worst ? r.value / best : t->worst;
    t->sum += r.value;
    t->sum_best += best;
    t->rounds++;
    sched_round_clear(&r);
}

/* Carry a whole round out. */
static void carry_out(struct world *w)
{
    struct sched_plan p;
    struct merr err;

    assert_int_equal(sched_schedule(&w->in, &p, &err), 0);
    assert_true(p.value_u <= p.dual_u + 1);
    for (size_t i = 0; i < w->in.n_jobs; i++) {
        const struct sched_verdict *v = &p.verdicts[i];

        if (v->action == SCHED_KEEP || v->action == SCHED_WAIT)
            continue;
        if (v->n > 0)
            memcpy(w->places[i], &p.places[v->first], v->n * sizeof(w->places[i][0]));
        w->jobs[i].places = w->places[i];
        w->jobs[i].n_places = v->n;
        w->jobs[i].changed_us = w->in.config.now_us;
        w->jobs[i].home = v->n > 0 ? v->shape.type[0] : w->jobs[i].home;
    }
    memcpy(w->in.prices, p.prices, sizeof(p.prices));
    sched_plan_clear(&p);
}

static void small_clusters_are_assigned_as_well_as_can_be(void **state)
{
    struct tally t = { .worst = 1 };

    (void)state;
    for (uint32_t seed = 0; seed < RUNS; seed++) {
        struct world w;

        world_init(&w, seed);
        w.in.n_jobs = JOBS / 2;
        weigh(&w, "before any job runs", &t);
        carry_out(&w);
        w.in.n_jobs = JOBS; /* the others arrive */
        w.in.config.now_us += 300 * S;
        weigh(&w, "while some run", &t);
    }
    print_message("seeds 0 to %d: %d of %d rounds exact, %.5f of the best in all, worst %.5f\n", RUNS - 1, t.exact,
                  t.rounds, t.sum / t.sum_best, t.worst);
    assert_true(t.sum >= 0.9999 * t.sum_best);
}

static void what_a_job_finds_no_room_for_goes_to_the_others(void **state)
{
    struct rates_profile linear = { .points[0] = { { 1, 1000000 }, { 4, 4000000 } }, .n = { 2 } };
    struct sched_tenant tenant = { .borrow = -1, .weight_milli = 1000 };
    struct sched_node nodes[] = { { .devices = 4 }, { .devices = 4 } };
    struct sched_place at[] = { { 0, 1 }, { 1, 1 } };
    struct sched_job jobs[4];
    struct sched_input in = { .config = { .mode = SCHED_FULL, .now_us = 1000 * S, .round_us = 60 * S,
                                          .starve_us = 100000 * S },
                              .nodes = nodes, .n_nodes = 2, .tenants = &tenant, .n_tenants = 1, .jobs = jobs,
                              .n_jobs = 4 };
    struct sched_plan p;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        jobs[i] = (struct sched_job){ .id = i + 1, .min = 1, .max = 4, .types = 1, .home = -1, .weight_milli = 1000,
                                      .rho_milli = 1000, .profile = &linear };
    for (size_t i = 0; i < 2; i++) { /* one on each node that stays: no four devices lie side by side */
        jobs[i].max = 1;
        jobs[i].fixed = true;
        jobs[i].home = 0;
        jobs[i].places = &at[i];
        jobs[i].n_places = 1;
    }
    jobs[2].weight_milli = 100000; /* would have four of the six that are free */
    assert_int_equal(sched_schedule(&in, &p, &err), 0);
    assert_int_equal(p.verdicts[2].shape.n[0], 3);
    assert_int_equal(p.verdicts[3].shape.n[0], 3);
    sched_plan_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_clusters_are_assigned_as_well_as_can_be),
        cmocka_unit_test(what_a_job_finds_no_room_for_goes_to_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
