#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/place.h"
#include "scheduler/sequence/workload.h"

#define S SEQ_SHARD
#define MANY 300 /* sequences of the largest random group */

/* The weights of the golden vectors: S·(S + 64). */
static const struct seq_cost golden_cost = {.lin_s = 64, .quad_s = 1};
static const struct seq_model small = {.hidden = 896, .kv_hidden = 128, .layers = 24};
static const struct seq_model large = {.hidden = 3584, .kv_hidden = 512, .layers = 28};

static unsigned long instances(unsigned long usual)
{
    return getenv("MUSTER_TEST_LONG") ? 100000 : usual;
}

static int golden_place(const int64_t *tokens, size_t n, enum seq_placer placer, int16_t *place, struct seq_placed *p)
{
    struct seq_group g = {tokens, n, 4, 100, 1, &golden_cost};

    return seq_place(&g, placer, place, p);
}

static const struct golden {
    size_t n;
    int64_t tokens[8];
    int16_t published[8], corrected[8];
    double published_peak; /* percent of the capacity */
    double peak;
    size_t rollbacks;
} golden[] = {
    {4, {10, 20, 30, 40}, {0, 1, 2, 3}, {0, 1, 2, 3}, 40, 40, 0},
    {7, {5, 10, 15, 20, 25, 30, 120}, {0, 1, 2, 3, 0, 1, S}, {0, 1, 2, 3, 0, 1, S}, 70, 70, 0},
    {8, {10, 20, 30, 40, 50, 60, 70, 80}, {0, 1, S, 3, 0, 1, 2, S}, {0, S, S, S, S, S, S, S}, 107.5, 97.5, 6},
    {5, {60, 60, 60, 60, 100}, {0, 1, 2, 3, S}, {0, 1, 2, 3, S}, 85, 85, 0},
    {5, {60, 80, 80, 80, 80}, {0, 1, 2, 3, S}, {0, 1, 2, 3, S}, 100, 100, 0},
    {5, {30, 90, 90, 90, 90}, {0, S, S, S, S}, {S, S, S, S, S}, 120, 97.5, 4},
    {7, {25, 35, 35, 45, 55, 65, 95}, {S, S, 2, 3, 0, 1, S}, {S, S, S, S, S, S, S}, 103.8, 88.8, 6},
};

static void dacp_gives_the_golden_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(golden); i++) {
        const struct golden *t = &golden[i];
        struct seq_placed p;
        int16_t place[8];

        assert_int_equal(golden_place(t->tokens, t->n, SEQ_PLACE_DACP, place, &p), 0);
        assert_memory_equal(place, t->corrected, t->n * sizeof(place[0]));
        assert_int_equal(p.rollbacks, t->rollbacks);
        assert_true(fabs((double)p.peak_units / 4 - t->peak) < 0.06);
        assert_true(p.peak_units <= 400);
    }
}

static void the_published_roll_back_overfills_a_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(golden); i++) {
        const struct golden *t = &golden[i];
        struct seq_placed p;
        int16_t place[8];

        assert_int_equal(golden_place(t->tokens, t->n, SEQ_PLACE_PUBLISHED, place, &p), 0);
        assert_memory_equal(place, t->published, t->n * sizeof(place[0]));
        assert_true(fabs((double)p.peak_units / 4 - t->published_peak) < 0.06);
        assert_int_equal(p.peak_units > 400, t->published_peak > 100);
    }
}

static void loads_are_the_golden_ones(void **state)
{
    static const double want[4] = {8090, 9080, 6705, 7200};
    struct seq_group g = {golden[1].tokens, 7, 4, 100, 1, &golden_cost};
    double load[4];
    int64_t units[4];

    (void)state;
    (void)seq_place_measure(&g, golden[1].corrected, load, units);
    for (int r = 0; r < 4; r++)
        assert_true(fabs(load[r] - want[r]) < 1e-9);
    g = (struct seq_group){golden[3].tokens, 5, 4, 100, 1, &golden_cost};
    (void)seq_place_measure(&g, golden[3].corrected, load, units);
    for (int r = 0; r < 4; r++) {
        assert_true(fabs(load[r] - 11540) < 1e-9);
        assert_int_equal(units[r], 4 * 85);
    }
}

static void what_cannot_fit_is_refused(void **state)
{
    static const enum seq_placer placers[] = {SEQ_PLACE_DACP, SEQ_PLACE_ROUND_ROBIN, SEQ_PLACE_SWEEP,
                                              SEQ_PLACE_PUBLISHED};
    int64_t one = 401;
    int16_t place;

    (void)state;
    for (size_t i = 0; i < COUNT(placers); i++) {
        one = 401;
        assert_int_equal(golden_place(&one, 1, placers[i], &place, NULL), -ENOSPC);
        one = 400;
        assert_int_equal(golden_place(&one, 1, placers[i], &place, NULL), 0);
        assert_int_equal(place, SEQ_SHARD);
        assert_int_equal(golden_place(NULL, 0, placers[i], NULL, NULL), 0);
    }
}

/* --- random groups ------------------------------------------------------------------------------------------------ */

struct instance {
    struct seq_group g;
    struct seq_cost cost;
    int64_t tokens[MANY];
    int64_t sum;
};

/* Some too large for their ranks, some far below, most near the limit. */
static void draw(struct instance *in, uint64_t *s, size_t k_max, int n_max, int exact)
{
    double fill = 0.2 + 1.0 * seq_random_unit(s), spread = 1 + 5 * seq_random_unit(s), total = 0, x[MANY];
    size_t n = 1 + seq_random(s) % k_max;
    int ranks = 1 + (int)(seq_random(s) % (uint64_t)n_max);
    int64_t capacity = 64 + (int64_t)(seq_random(s) % 26560);

    for (size_t i = 0; i < n; i++)
        total += x[i] = exp(spread * seq_random_unit(s));
    in->sum = 0;
    for (size_t i = 0; i < n; i++) {
        in->tokens[i] = 1 + (int64_t)(fill * (double)capacity * ranks * x[i] / total);
        in->sum += in->tokens[i];
    }
    seq_cost_reference(&in->cost, seq_random(s) & 1 ? &small : &large);
    in->g = (struct seq_group){in->tokens, n, ranks, capacity, exact, &in->cost};
}

static void check_placed(const struct instance *in, const int16_t *place, const struct seq_placed *p)
{
    int64_t units[SEQ_RANKS_MAX];

    for (size_t i = 0; i < in->g.n; i++)
        assert_true(place[i] == SEQ_SHARD || (place[i] >= 0 && place[i] < in->g.ranks));
    (void)seq_place_measure(&in->g, place, NULL, units);
    for (int r = 0; r < in->g.ranks; r++)
        assert_true(units[r] <= in->g.capacity * in->g.ranks && units[r] <= p->peak_units);
}

static void any_group_that_fits_is_placed_and_never_overfills(void **state)
{
    static const enum seq_placer placers[] = {SEQ_PLACE_DACP, SEQ_PLACE_ROUND_ROBIN, SEQ_PLACE_SWEEP};
    static const uint64_t seed = 20251;
    unsigned long n = instances(4000), worse = 0, compared = 0;
    struct instance in;
    int16_t place[MANY], again[MANY];
    uint64_t s = seed;

    (void)state;
    print_message("seed %llu, %lu instances\n", (unsigned long long)seed, n);
    for (unsigned long i = 0; i < n; i++) {
        struct seq_placed p[3];
        int rc = 0;

        draw(&in, &s, i % 50 ? 40 : MANY, 16, i % 2 == 0);
        for (size_t k = 0; k < COUNT(placers); k++) {
            rc = seq_place(&in.g, placers[k], place, &p[k]);
            if (in.g.exact_shares) /* placed exactly when the tokens fit; whole shares may need a little more */
                assert_int_equal(rc, in.sum <= in.g.capacity * in.g.ranks ? 0 : -ENOSPC);
            if (rc)
                continue;
            check_placed(&in, place, &p[k]);
            assert_int_equal(seq_place(&in.g, placers[k], again, NULL), 0);
            assert_memory_equal(place, again, in.g.n * sizeof(place[0]));
        }
        if (!rc && in.g.exact_shares) {
            compared++;
            worse += p[2].time_s > p[0].time_s * (1 + 1e-12);
        }
    }
    print_message("the sweep was slower than DACP in %lu of %lu\n", worse, compared);
    assert_true(worse * 100 <= compared);
}

/* Whole shares round each sequence up by less than two tokens a rank: with so much to spare all fits. */
static void whole_shares_cost_no_more_than_their_rounding(void **state)
{
    static const uint64_t seed = 991;
    unsigned long n = instances(2000), placed = 0;
    struct instance in;
    int16_t place[MANY];
    uint64_t s = seed;

    (void)state;
    print_message("seed %llu, %lu instances\n", (unsigned long long)seed, n);
    for (unsigned long i = 0; i < n; i++) {
        draw(&in, &s, 40, 8, 0);
        if (in.sum + 2 * in.g.ranks * (int64_t)in.g.n > in.g.capacity * in.g.ranks)
            continue;
        placed++;
        assert_int_equal(seq_place(&in.g, SEQ_PLACE_DACP, place, NULL), 0);
        assert_int_equal(seq_place(&in.g, SEQ_PLACE_SWEEP, place, NULL), 0);
    }
    assert_true(placed > n / 4);
}

/* --- the oracle: every placement there is ------------------------------------------------------------------------- */

static double best_of_all(const struct seq_group *g)
{
    int16_t place[8];
    double best = INFINITY;
    unsigned long total = 1;

    for (size_t i = 0; i < g->n; i++)
        total *= (unsigned long)g->ranks + 1;
    for (unsigned long code = 0; code < total; code++) {
        unsigned long c = code;
        struct seq_placed p;

        for (size_t i = 0; i < g->n; i++) {
            place[i] = (int16_t)((int)(c % ((unsigned long)g->ranks + 1)) - 1);
            c /= (unsigned long)g->ranks + 1;
        }
        p = seq_place_measure(g, place, NULL, NULL);
        if (p.peak_units <= g->capacity * g->ranks && p.time_s < best)
            best = p.time_s;
    }
    return best;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void the_sweep_is_near_the_best_of_all_placements(void **state)
{
    static const uint64_t seed = 77;
    enum { RUNS = 500 };
    double ratio[RUNS];
    size_t n = 0;
    struct instance in;
    uint64_t s = seed;

    (void)state;
    while (n < RUNS) {
        struct seq_placed p;
        int16_t place[8];
        double best;

        draw(&in, &s, getenv("MUSTER_TEST_LONG") ? 8 : 7, 3, 0);
        if (in.g.capacity < 2048 || seq_place(&in.g, SEQ_PLACE_SWEEP, place, &p))
            continue;
        best = best_of_all(&in.g);
        assert_true(p.time_s >= best * (1 - 1e-12));
        ratio[n++] = p.time_s / best;
    }
    qsort(ratio, RUNS, sizeof(ratio[0]), by_value);
    print_message("seed %llu: median %.4f, 95 of 100 below %.4f, worst %.4f\n", (unsigned long long)seed,
                  ratio[RUNS / 2], ratio[RUNS * 95 / 100], ratio[RUNS - 1]);
    assert_true(ratio[RUNS / 2] <= 1.001);
    assert_true(ratio[RUNS * 95 / 100] <= 1.05);
    assert_true(ratio[RUNS - 1] <= 1.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dacp_gives_the_golden_vectors),
        cmocka_unit_test(the_published_roll_back_overfills_a_rank),
        cmocka_unit_test(loads_are_the_golden_ones),
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(any_group_that_fits_is_placed_and_never_overfills),
        cmocka_unit_test(whole_shares_cost_no_more_than_their_rounding),
        cmocka_unit_test(the_sweep_is_near_the_best_of_all_placements),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
