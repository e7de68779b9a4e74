/* Full rounds on small clusters beside the best of all assignments, on nodes too, found by trying them all. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched_priv.h"

#define JOBS 6
#define NODES 3
#define JOBS_MAX 8
#define NODES_MAX 6
#define S INT64_C(1000000)
#define RUNS 400
#define HELD 0.004 /* what runs changes for more than this share */

struct world {
    struct sched_node nodes[NODES_MAX];
    struct sched_tenant tenants[2];
    struct sched_job jobs[JOBS_MAX];
    struct sched_place places[JOBS_MAX][NODES_MAX];
    struct rates_profile profiles[2];
    struct sched_input in;
    uint32_t seed, draws;
};

static uint32_t draw(struct world *w, uint32_t below)
{
    uint32_t key[2] = {w->seed, 5}, ctr[4] = {w->draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

/* devices: of each node, 0: any number up to four. */
static void world_init(struct world *w, uint32_t seed, int nodes, size_t jobs, int32_t devices)
{
    *w = (struct world){.seed = seed};
    for (int p = 0; p < 2; p++)
        for (int t = 0; t < 2; t++) {
            w->profiles[p].n[t] = 2;
            w->profiles[p].points[t][0] = (struct rates_point){1, 1000000 + draw(w, 4000000)};
            w->profiles[p].points[t][1] = (struct rates_point){4, w->profiles[p].points[t][0].rate_ups * 3};
        }
    for (int i = 0; i < nodes; i++)
        w->nodes[i] =
            (struct sched_node){.type = (uint8_t)(i % 2), .devices = devices > 0 ? devices : 1 + (int32_t)draw(w, 4)};
    w->tenants[0] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    w->tenants[1] = (struct sched_tenant){.borrow = (int32_t)draw(w, 5), .weight_milli = 1000};
    for (size_t i = 0; i < jobs; i++) {
        int32_t min = 1 + (int32_t)draw(w, 3);

        w->jobs[i] = (struct sched_job){.id = i + 1,
                                        .tenant = draw(w, 2),
                                        .submit_us = draw(w, 3600) * S,
                                        .min = min,
                                        .max = min + (int32_t)draw(w, 4),
                                        .types = 1 + draw(w, 3),
                                        .home = -1,
                                        .weight_milli = 250 << draw(w, 5),
                                        .restart_us = 30 * S,
                                        .rho_milli = 1000,
                                        .profile = &w->profiles[draw(w, 2)]};
    }
    w->in = (struct sched_input){.config = {.mode = SCHED_FULL,
                                            .now_us = 4000 * S,
                                            .round_us = 60 * S,
                                            .starve_us = 100000 * S,
                                            .hold_us = 120 * S,
                                            .grace_us = 30 * S},
                                 .nodes = w->nodes,
                                 .n_nodes = (size_t)nodes,
                                 .tenants = w->tenants,
                                 .n_tenants = 2,
                                 .jobs = w->jobs,
                                 .n_jobs = jobs};
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
    struct tally t = {.worst = 1};

    (void)state;
    for (uint32_t seed = 0; seed < RUNS; seed++) {
        struct world w;

        world_init(&w, seed, NODES, JOBS, 0);
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
    struct rates_profile linear = {.points[0] = {{1, 1000000}, {4, 4000000}}, .n = {2}};
    struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    struct sched_node nodes[] = {{.devices = 4}, {.devices = 4}};
    struct sched_place at[] = {{0, 1}, {1, 1}};
    struct sched_job jobs[4];
    struct sched_input in = {
        .config = {.mode = SCHED_FULL, .now_us = 1000 * S, .round_us = 60 * S, .starve_us = 100000 * S},
        .nodes = nodes,
        .n_nodes = 2,
        .tenants = &tenant,
        .n_tenants = 1,
        .jobs = jobs,
        .n_jobs = 4};
    struct sched_plan p;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        jobs[i] = (struct sched_job){.id = i + 1,
                                     .min = 1,
                                     .max = 4,
                                     .types = 1,
                                     .home = -1,
                                     .weight_milli = 1000,
                                     .rho_milli = 1000,
                                     .profile = &linear};
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

/* --- on nodes ------------------------------------------------------------------------------------------------ */

struct pack { /* all assignments, each in all ways to lay it on nodes by the rules of place.c */
    struct round *r;
    int32_t free[NODES_MAX];
    double left[JOBS_MAX + 1]; /* most that jobs from i on are worth */
    double best;
};

static void pack_from(struct pack *p, size_t i, double worth);

/* Lay type k of job i's shape: so many whole nodes and a part of one. */
static void pack_part(struct pack *p, size_t i, const struct sched_shape *s, int k, int32_t whole, int32_t part,
                      double worth)
{
    const struct sched_node *nodes = p->r->in->nodes;
    int32_t size = p->r->node_size[s->type[k]], take = whole > 0 ? size : part;

    for (size_t a = 0; a < p->r->in->n_nodes; a++) {
        if (nodes[a].type != s->type[k] || p->free[a] < take || (whole > 0 && nodes[a].devices != size))
            continue;
        p->free[a] -= take;
        if (whole > 1 || (whole == 1 && part > 0))
            pack_part(p, i, s, k, whole - 1, part, worth);
        else if (k == 0 && s->type[1] >= 0)
            pack_part(p, i, s, 1, s->n[1] / p->r->node_size[s->type[1]], s->n[1] % p->r->node_size[s->type[1]], worth);
        else
            pack_from(p, i + 1, worth);
        p->free[a] += take;
    }
}

static void pack_from(struct pack *p, size_t i, double worth)
{
    struct rjob *j = &p->r->jobs[i];

    p->best = worth > p->best ? worth : p->best;
    if (i == p->r->n_jobs || worth + p->left[i] <= p->best)
        return;
    for (int c = j->n - 1; c >= 0; c--) {
        const struct sched_shape s = cand_of(p->r, j, c)->shape;
        int32_t size = p->r->node_size[s.type[0]];

        if (!choice_fits(p->r, j, c))
            continue;
        choice_set(p->r, j, c);
        pack_part(p, i, &s, 0, s.n[0] / size, s.n[0] % size, worth + cand_of(p->r, j, c)->utility);
        choice_set(p->r, j, NONE);
    }
    pack_from(p, i + 1, worth);
}

static double best_on_nodes(struct round *r)
{
    struct pack p = {.r = r};

    for (size_t i = 0; i < r->in->n_nodes; i++)
        p.free[i] = r->in->nodes[i].devices;
    for (size_t i = r->n_jobs; i-- > 0;) {
        double most = 0;

        for (int c = 0; c < r->jobs[i].n; c++)
            most = cand_of(r, &r->jobs[i], c)->utility > most ? cand_of(r, &r->jobs[i], c)->utility : most;
        p.left[i] = p.left[i + 1] + most;
    }
    pack_from(&p, 0, 0);
    return p.best;
}

static void choices_find_nodes_about_as_well_as_can_be(void **state)
{
    static const struct {
        int nodes, runs;
        size_t jobs;
        int32_t devices;
        double least, all; /* share of the best, of the worst round and of all together */
    } cases[] = {{4, 500, 6, 0, 0.99, 0.9999}, {6, 150, 8, 4, 0.95, 0.999}, {6, 150, 8, 0, 0.85, 0.997}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tally t = {.worst = 1};

        for (uint32_t seed = 0; seed < (uint32_t)cases[i].runs; seed++) {
            double best, worth = 0;
            struct world w;
            struct round r;

            world_init(&w, seed, cases[i].nodes, cases[i].jobs, cases[i].devices);
            assert_int_equal(sched_round_init(&r, &w.in), 0);
            assert_int_equal(candidates_fill(&r), 0);
            best = best_on_nodes(&r);
            assert_int_equal(attempts_choose(&r), 0);
            for (size_t k = 0; k < r.n_jobs; k++)
                worth += r.jobs[k].chosen == NONE ? 0 : cand_of(&r, &r.jobs[k], r.jobs[k].chosen)->utility;
            if (worth > best + 1e-6 || worth < best * cases[i].least - 1e-6)
                fail_msg("%zu jobs on %d nodes, seed %u: %g of %g", cases[i].jobs, cases[i].nodes, seed, worth, best);
            t.exact += worth > best - 1e-6;
            t.worst = best > 0 && worth / best < t.worst ? worth / best : t.worst;
            t.sum += worth;
            t.sum_best += best;
            sched_round_clear(&r);
        }
        print_message("%zu jobs on %d nodes, seeds 0 to %d: %d exact, %.5f of the best in all, worst %.4f\n",
                      cases[i].jobs, cases[i].nodes, cases[i].runs - 1, t.exact, t.sum / t.sum_best, t.worst);
        assert_true(t.sum >= cases[i].all * t.sum_best);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_clusters_are_assigned_as_well_as_can_be),
        cmocka_unit_test(what_a_job_finds_no_room_for_goes_to_the_others),
        cmocka_unit_test(choices_find_nodes_about_as_well_as_can_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
