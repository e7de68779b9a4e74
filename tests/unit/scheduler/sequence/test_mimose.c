#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/mimose.h"
#include "scheduler/sequence/plan.h"
#include "scheduler/sequence/workload.h"

#define BLOCKS 24

/* --- the choice ------------------------------------------------------------------------------------------------- */

static void choices_are_the_golden_ones(void **state)
{
    static const double bytes[] = {100, 100, 100, 60, 30};
    static const struct {
        double need;
        const char *taken;
        double left;
    } t[] = {
        {150, "10010", -10}, {95, "10000", -5}, {350, "11110", -10}, {25, "00001", -5},
        {500, "11111", 110}, {0, "00000", 0},   {-5, "00000", -5},   {390, "11111", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        uint8_t got[5];
        double left;
        int n = 0, want = 0;

        n = mimose_choose(bytes, 5, t[i].need, false, got, &left);
        for (int l = 0; l < 5; l++) {
            assert_int_equal(got[l], t[i].taken[l] - '0');
            want += got[l];
        }
        assert_int_equal(n, want);
        assert_true(left == t[i].left);
    }
}

static void the_last_block_is_never_taken_alone(void **state)
{
    static const double bytes[] = {100, 100, 30};
    uint8_t got[3], one;

    (void)state;
    assert_int_equal(mimose_choose(bytes, 3, 25, false, got, NULL), 1);
    assert_int_equal(got[2], 1);
    assert_true(mimose_peak(bytes, 3, got) == 230); /* rebuilt beside all others: nothing saved */
    assert_int_equal(mimose_choose(bytes, 3, 25, true, got, NULL), 1);
    assert_int_equal(got[0], 1);
    assert_true(mimose_peak(bytes, 3, got) == 130);
    assert_int_equal(mimose_choose(bytes, 3, 230, true, got, NULL), 3);
    assert_int_equal(mimose_choose(bytes, 1, 50, true, &one, NULL), 1);
}

static void alike_blocks_go_earliest_first(void **state)
{
    static const double bytes[] = {95, 91, 100, 40}; /* the first three within 10 % */
    uint8_t got[4];

    (void)state;
    (void)mimose_choose(bytes, 4, 90, false, got, NULL);
    assert_int_equal(got[0], 1);
    (void)mimose_choose(bytes, 4, 98, false, got, NULL); /* only the third covers it */
    assert_int_equal(got[2], 1);
    assert_int_equal(got[0], 0);
}

/* The same, replayed action by action. */
static double replay(const double *bytes, int blocks, const uint8_t *checkpoint)
{
    double now = 0, peak = 0;

    for (int l = 0; l < blocks; l++) {
        now += bytes[l];
        peak = fmax(peak, now);
        now -= checkpoint[l] ? bytes[l] : 0;
    }
    for (int l = blocks; l-- > 0;) {
        now += checkpoint[l] ? bytes[l] : 0;
        peak = fmax(peak, now);
        now -= bytes[l];
    }
    assert_true(fabs(now) < 1e-6);
    return peak;
}

static void the_peak_is_that_of_a_replay(void **state)
{
    static const uint64_t seed = 3;
    uint64_t s = seed;

    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 5000; i++) {
        double bytes[40];
        uint8_t choice[40];
        int n = 1 + (int)(seq_random(&s) % 40);

        for (int l = 0; l < n; l++) {
            bytes[l] = 1 + 1000 * seq_random_unit(&s);
            choice[l] = seq_random(&s) & 1;
        }
        assert_true(fabs(mimose_peak(bytes, n, choice) - replay(bytes, n, choice)) < 1e-6);
    }
}

/* --- the estimator ---------------------------------------------------------------------------------------------- */

static double truth(int l, int64_t x)
{
    return 1e6 + (1 + l % 3) * 3e4 * (double)x + (l % 4 == 0 ? 12.0 * (double)x * (double)x : 0);
}

static void a_quadratic_is_found_under_noise(void **state)
{
    static const uint64_t seed = 44;
    uint64_t s = seed;
    double error = 0;
    int n = 0;

    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 200; i++) {
        struct mimose_fit f;
        int64_t x[10];
        double y[10];

        for (int k = 0; k < 10; k++) {
            x[k] = 30 + 50 * k + (int64_t)(seq_random(&s) % 40);
            y[k] = truth(i, x[k]) * (1 + 0.01 * (2 * seq_random_unit(&s) - 1));
        }
        mimose_fit(x, y, 10, &f);
        assert_true(f.fitted);
        for (int64_t at = 40; at <= 480; at += 10, n++)
            error += fabs(mimose_predict(&f, at) / truth(i, at) - 1);
    }
    print_message("mean error %.3f %%\n", 100 * error / n);
    assert_true(error / n < 0.01);
}

static void few_sizes_give_the_envelope(void **state)
{
    static const int64_t x[] = {100, 100, 200, 200};
    static const double y[] = {1e9, 1.1e9, 2e9, 2.2e9}, wild[] = {1e9, 9e9, 2e9, 1e9};
    static const int64_t many[] = {100, 150, 200, 250};
    struct mimose_fit f;

    (void)state;
    mimose_fit(x, y, 4, &f);
    assert_false(f.fitted);
    assert_true(mimose_predict(&f, 50) == 2.2e9);
    assert_true(mimose_predict(&f, 400) == 4 * 2.2e9); /* as fast as anything grows */
    mimose_fit(many, wild, 4, &f);                     /* no quadratic: off by more than 10 % */
    assert_false(f.fitted);
    assert_true(mimose_predict(&f, 200) == 9e9);
    assert_true(mimose_predict_safe(&f, 200) > 9e9);
}

static void predictions_are_never_negative(void **state)
{
    static const int64_t x[] = {100, 200, 300, 400};
    static const double y[] = {0, 0, 1e6, 4e6};
    struct mimose_fit f;

    (void)state;
    mimose_fit(x, y, 4, &f);
    for (int64_t at = 1; at < 500; at++)
        assert_true(mimose_predict(&f, at) >= 0);
}

/* --- the model -------------------------------------------------------------------------------------------------- */

static double whole_of(int64_t x)
{
    double sum = 5e5 * (double)x;

    for (int l = 0; l < BLOCKS; l++)
        sum += truth(l, x);
    return sum;
}

static void teach(struct mimose *m, int64_t step)
{
    for (int i = 1; i <= 10; i++) {
        double bytes[BLOCKS];

        for (int l = 0; l < BLOCKS; l++)
            bytes[l] = truth(l, step * i);
        assert_int_equal(mimose_ready(m), 0);
        assert_int_equal(mimose_sample(m, step * i, bytes, whole_of(step * i), NULL), 0);
    }
    assert_true(mimose_ready(m));
}

static void every_plan_keeps_its_budget_over_all_sizes(void **state)
{
    static const double share[] = {0.15, 0.3, 0.5, 0.6, 0.8, 1.2};
    int64_t most = 1024;

    (void)state;
    for (size_t i = 0; i < COUNT(share); i++) {
        double fixed = 1e8, budget = fixed + share[i] * whole_of(most);
        struct mimose *m;
        int before = 0;

        assert_int_equal(mimose_new(BLOCKS, budget, fixed, &m, NULL), 0);
        teach(m, 64);
        for (int64_t x = 1; x <= most; x++) {
            double bytes[BLOCKS], rest = whole_of(x), peak;
            struct mimose_plan p;

            for (int l = 0; l < BLOCKS; l++)
                rest -= bytes[l] = truth(l, x);
            assert_int_equal(mimose_plan(m, x, &p, NULL), 0);
            assert_false(p.sheltered);
            peak = replay(bytes, BLOCKS, p.checkpoint) + rest + fixed;
            if (p.reachable)
                assert_true(p.peak_bytes <= budget && peak <= budget);
            else
                assert_int_equal(p.checkpointed, BLOCKS);
            if (whole_of(mimose_quantise(x)) * 1.05 + fixed < budget)
                assert_int_equal(p.checkpointed, 0);   /* nothing is recomputed for nothing */
            assert_true(p.checkpointed >= before - 2); /* more for larger inputs, but for the choice of other sizes */
            before = p.checkpointed;
        }
        assert_true(share[i] < 0.2 || share[i] > 1 || before > 0);
        mimose_free(m);
    }
}

static void until_it_has_learned_everything_is_checkpointed(void **state)
{
    struct mimose_plan p;
    struct mimose *m;

    (void)state;
    assert_int_equal(mimose_new(BLOCKS, 1e9, 0, &m, NULL), 0);
    assert_int_equal(mimose_plan(m, 100, &p, NULL), 0);
    assert_true(p.sheltered && p.checkpointed == BLOCKS);
    for (int l = 0; l < BLOCKS; l++)
        assert_int_equal(p.checkpoint[l], 1);
    for (int i = 0; i < MIMOSE_SAMPLES_MAX; i++) { /* one size only: the envelope, in the end */
        double bytes[BLOCKS] = {0};

        assert_int_equal(mimose_ready(m), 0);
        assert_int_equal(mimose_sample(m, 100, bytes, 0, NULL), 0);
    }
    assert_true(mimose_ready(m));
    mimose_free(m);
}

static void sizes_round_up_by_a_sixtieth_at_most(void **state)
{
    (void)state;
    assert_int_equal(mimose_quantise(1), 8);
    assert_int_equal(mimose_quantise(8), 8);
    assert_int_equal(mimose_quantise(9), 16);
    for (int64_t x = 1; x < 3000000; x += 1 + x / 77) {
        int64_t key = mimose_quantise(x);

        assert_true(key >= x && (key - x < 8 || (double)(key - x) <= (double)x / 64));
        assert_int_equal(mimose_quantise(key), key);
    }
}

static void plans_are_found_again(void **state)
{
    struct mimose_plan p, q;
    struct mimose *m;
    uint64_t made, found;

    (void)state;
    assert_int_equal(mimose_new(BLOCKS, 0.5 * whole_of(640), 0, &m, NULL), 0);
    teach(m, 64);
    assert_int_equal(mimose_plan(m, 601, &p, NULL), 0);
    assert_false(p.cached);
    assert_int_equal(mimose_plan(m, 603, &q, NULL), 0);
    assert_true(q.cached && q.key == p.key && q.checkpointed == p.checkpointed);
    mimose_counts(m, &made, &found);
    assert_true(made == 1 && found == 1);
    mimose_set_budget(m, whole_of(6400), 0);
    assert_int_equal(mimose_plan(m, 601, &q, NULL), 0);
    assert_true(!q.cached && q.checkpointed == 0);
    for (int64_t x = 1; x < 3 * 8 * MIMOSE_PLANS_MAX; x += 8) /* more sizes than the cache holds */
        assert_int_equal(mimose_plan(m, x, &q, NULL), 0);
    mimose_free(m);
}

static void running_out_of_memory_asks_for_more(void **state)
{
    struct mimose_plan small, large, after;
    struct mimose *m;

    (void)state;
    assert_int_equal(mimose_new(BLOCKS, 0.6 * whole_of(640), 0, &m, NULL), 0);
    teach(m, 64);
    assert_int_equal(mimose_plan(m, 100, &small, NULL), 0);
    assert_int_equal(mimose_plan(m, 600, &large, NULL), 0);
    mimose_overflow(m, 600);
    assert_int_equal(mimose_plan(m, 100, &after, NULL), 0);
    assert_true(after.cached); /* it ran: it stays */
    assert_int_equal(mimose_plan(m, 600, &after, NULL), 0);
    assert_true(!after.cached && after.checkpointed > large.checkpointed);
    mimose_overflow(m, 1);
    assert_int_equal(mimose_plan(m, 100, &after, NULL), 0);
    assert_false(after.cached);
    mimose_free(m);
}

static void a_surprise_drops_the_plans(void **state)
{
    struct mimose_plan p, q;
    struct mimose *m;

    (void)state;
    assert_int_equal(mimose_new(BLOCKS, 0.7 * whole_of(640), 0, &m, NULL), 0);
    assert_false(mimose_observe(m, 600, 1e12)); /* not learned: nothing was promised */
    teach(m, 64);
    assert_int_equal(mimose_plan(m, 600, &p, NULL), 0);
    assert_false(mimose_observe(m, 600, 1.04 * p.peak_bytes));
    assert_true(mimose_observe(m, 600, 1.2 * p.peak_bytes));
    assert_int_equal(mimose_plan(m, 600, &q, NULL), 0);
    assert_true(!q.cached && q.checkpointed > p.checkpointed);
    mimose_free(m);
}

static void what_is_preferred_goes_before_all_else(void **state)
{
    enum { PREFERRED = 5 };
    bool some = false, others = false;
    struct mimose *m;

    (void)state;
    assert_int_equal(mimose_new(BLOCKS, 0.5 * whole_of(640), 0, &m, NULL), 0);
    mimose_prefer(m, PREFERRED);
    teach(m, 64);
    for (int64_t x = 8; x <= 640; x += 8) {
        struct mimose_plan p;
        int first = 0;

        assert_int_equal(mimose_plan(m, x, &p, NULL), 0);
        assert_true(p.reachable);
        for (int l = 0; l < PREFERRED; l++)
            first += p.checkpoint[l];
        assert_true(p.checkpointed == first || first == PREFERRED);
        some = some || (first > 0 && first < PREFERRED);
        others = others || p.checkpointed > first;
    }
    assert_true(some && others);
    mimose_free(m);
}

/* Every rank of every micro-batch of a hundred batches, once a hundred others were seen. */
static void most_plans_of_a_long_run_are_cached(void **state)
{
    static const struct seq_model model = {.hidden = 896, .kv_hidden = 128, .layers = 24};
    struct seq_config c = {.policy = SEQ_SWEEP, .replicas = 4, .ranks = 8, .capacity = 26 * 1024};
    int64_t tokens[256];
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)};
    uint64_t made, found, made_before = 0, found_before = 0;
    struct mimose *m;

    (void)state;
    seq_cost_reference(&c.cost, &model);
    assert_int_equal(mimose_new(BLOCKS, 0.6 * whole_of(26 * 1024), 0, &m, NULL), 0);
    teach(m, 2600);
    for (uint64_t batch = 1; batch <= 200; batch++) {
        struct seq_plan p;

        (void)seq_workload_draw(seq_workload_find("lmsys", NULL), batch, seq_longest(&c), tokens, b.n);
        assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
        for (int64_t k = 0; k < p.micros * c.replicas * c.ranks; k++) {
            struct mimose_plan plan;

            if (p.rank_tokens[k])
                assert_int_equal(mimose_plan(m, p.rank_tokens[k], &plan, NULL), 0);
        }
        seq_plan_clear(&p);
        if (batch == 100)
            mimose_counts(m, &made_before, &found_before);
    }
    mimose_counts(m, &made, &found);
    made -= made_before;
    found -= found_before;
    print_message("%llu made, %llu found\n", (unsigned long long)made, (unsigned long long)found);
    assert_true(10 * found >= 9 * (made + found));
    mimose_free(m);
}

static void what_cannot_be_is_refused(void **state)
{
    double bytes[2] = {1, -1};
    struct mimose_plan p;
    struct mimose *m = NULL;
    struct merr err;

    (void)state;
    assert_int_equal(mimose_new(0, 1, 0, &m, &err), -EINVAL);
    assert_int_equal(mimose_new(MIMOSE_BLOCKS_MAX + 1, 1, 0, &m, &err), -EINVAL);
    assert_int_equal(mimose_new(2, 5, 5, &m, &err), -EINVAL);
    assert_non_null(strstr(err.text, "leaves nothing"));
    assert_int_equal(mimose_new(2, NAN, 5, &m, &err), -EINVAL);
    assert_null(m);
    assert_int_equal(mimose_new(2, 5, 0, &m, &err), 0);
    assert_int_equal(mimose_sample(m, 1, bytes, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "block 1"));
    bytes[1] = 1;
    assert_int_equal(mimose_sample(m, 0, bytes, 1, &err), -EINVAL);
    assert_int_equal(mimose_sample(m, 1, bytes, INFINITY, &err), -EINVAL);
    assert_int_equal(mimose_plan(m, 0, &p, &err), -EINVAL);
    assert_int_equal(mimose_plan(m, MIMOSE_INPUT_MAX + 1, &p, &err), -EINVAL);
    mimose_free(m);
    mimose_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_the_golden_ones),
        cmocka_unit_test(the_last_block_is_never_taken_alone),
        cmocka_unit_test(alike_blocks_go_earliest_first),
        cmocka_unit_test(the_peak_is_that_of_a_replay),
        cmocka_unit_test(a_quadratic_is_found_under_noise),
        cmocka_unit_test(few_sizes_give_the_envelope),
        cmocka_unit_test(predictions_are_never_negative),
        cmocka_unit_test(every_plan_keeps_its_budget_over_all_sizes),
        cmocka_unit_test(until_it_has_learned_everything_is_checkpointed),
        cmocka_unit_test(sizes_round_up_by_a_sixtieth_at_most),
        cmocka_unit_test(plans_are_found_again),
        cmocka_unit_test(running_out_of_memory_asks_for_more),
        cmocka_unit_test(a_surprise_drops_the_plans),
        cmocka_unit_test(what_is_preferred_goes_before_all_else),
        cmocka_unit_test(most_plans_of_a_long_run_are_cached),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
