/* The price-based assignment beside the best of all assignments, found by trying them all. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/philox.h"
#include "scheduler/cluster/sched_int.h"

#define JOBS 4
#define S INT64_C(1000000)
#define RUNS 400

struct world {
    struct sched_node nodes[3];
    struct sched_tenant tenants[2];
    struct sched_job jobs[JOBS];
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
    for (int i = 0; i < 3; i++)
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
                                              .starve_us = 100000 * S, .hold_us = 120 * S },
                                  .nodes = w->nodes, .n_nodes = 3, .tenants = w->tenants, .n_tenants = 2,
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

static void small_clusters_are_assigned_within_a_hundredth_of_the_best(void **state)
{
    double sum_best = 0, sum = 0, worst = 1;
    int exact = 0;

    (void)state;
    for (uint32_t run = 0; run < RUNS; run++) {
        struct world w;
        struct round r;
        double best;

        world_init(&w, run);
        assert_int_equal(sched_round_init(&r, &w.in), 0);
        assert_int_equal(candidates_fill(&r), 0);
        best = best_of(&r, 0);
        assert_int_equal(price_choose(&r), 0);
        if (r.value > best + 1e-6 || r.dual < best - 1e-6)
            fail_msg("run %u: %g of %g, bound %g", run, r.value, best, r.dual);
        exact += r.value > best - 1e-6;
        worst = best > 0 && r.value / best < worst ? r.value / best : worst;
        sum += r.value;
        sum_best += best;
        sched_round_clear(&r);
    }
    print_message("%d of %d exact, %.4f of the best in all, worst %.4f\n", exact, RUNS, sum / sum_best, worst);
    assert_true(sum >= 0.99 * sum_best);
    assert_true(worst >= 0.85);
    assert_true(exact >= RUNS * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_clusters_are_assigned_within_a_hundredth_of_the_best),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
