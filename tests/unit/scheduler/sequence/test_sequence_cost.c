#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/cost.h"
#include "scheduler/sequence/workload.h"

static const struct seq_model small = {.hidden = 896, .kv_hidden = 128, .layers = 24};

static void pieces_of_a_sequence_cost_what_it_costs(void **state)
{
    struct seq_cost c;
    double whole, sum = 0;

    (void)state;
    seq_cost_reference(&c, &small);
    whole = seq_time_peak(&c, 0, 10000);
    for (int64_t at = 0; at < 10000; at += 1250)
        sum += seq_time_peak(&c, at, 1250);
    assert_true(fabs(sum / whole - 1) < 1e-12);
    assert_true(fabs(whole * 400e12 / (3 * 24 * ((20 * 896.0 * 896 + 4 * 896 * 128) * 10000 + 4 * 896 * 1e8)) - 1) <
                1e-12);
    assert_true(seq_time(&c, 0, 0, 8) == 0);
    assert_true(fabs(seq_time(&c, 0, 256, 1) / seq_time_peak(&c, 0, 256) - 2) < 1e-12);
    assert_true(seq_time_comm(&c, 0) == 0);
    assert_true(fabs(seq_time_comm(&c, 1024) - 3 * 24 * (50e-6 + 6.3e-6 * 4 * 128 * 1024 / 1048576)) < 1e-12);
}

static void sharing_costs_what_each_rank_moves(void **state)
{
    struct seq_cost c = {.lin_s = 3, .copy_token_s = 0.5};

    (void)state;
    assert_true(seq_time(&c, 0, 100, 1) == 300);
    assert_true(seq_time(&c, 0, 100, 2) == 150 + 50);
    assert_true(seq_time(&c, 0, 100, 4) == 75 + 50);
    assert_true(seq_time_peak(&c, 0, 100) == 300);
}

static void shards_are_whole_zigzag_pieces(void **state)
{
    static const struct {
        int64_t tokens;
        int ranks, exact;
        int64_t units;
    } t[] = {
        {1, 4, 0, 8},
        {8, 4, 0, 8},
        {9, 4, 0, 16},
        {9, 4, 1, 9},
        {9, 1, 0, 9},
        {0, 4, 0, 0},
        {26624 * 8, 8, 0, 26624 * 8},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(seq_shard_units(t[i].tokens, t[i].ranks, t[i].exact), t[i].units);
}

static void the_generator_is_the_normative_one(void **state)
{
    uint64_t s = 1, u = 1;

    (void)state;
    assert_true(seq_random(&s) == 0x910a2dec89025cc1u);
    assert_true(seq_random(&s) == 0xbeeb8da1658eec67u);
    assert_true(fabs(seq_random_unit(&u) - 0.56656) < 1e-5);
    assert_true(fabs(seq_random_unit(&u) - 0.74578) < 1e-5);
    assert_true(fabs(seq_random_unit(&u) - 0.97100) < 1e-5);
}

static void lengths_are_the_published_ones(void **state)
{
    static const struct {
        const char *name;
        int64_t first[8];
        double mean;
    } t[] = {
        {"lmsys", {239, 562, 3174, 133, 133, 610, 1097, 194}, 600},
        {"chatqa2", {11961, 18168, 30725, 8994, 8992, 18908, 24695, 10807}, 11437},
        {"wiki-en", {442, 848, 6549, 286, 286, 931, 1844, 377}, 1114},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        const struct seq_workload *w = seq_workload_find(t[i].name, NULL);
        int64_t v[8];

        assert_non_null(w);
        assert_int_equal(seq_workload_draw(w, 1, 0, v, 8), 0);
        for (int k = 0; k < 8; k++)
            assert_true(llabs(v[k] - t[i].first[k]) <= 1);
    }
}

static void means_are_near_the_published_ones(void **state)
{
    static const struct {
        const char *name;
        double mean, within;
    } t[] = {
        {"wiki-cn", 558, 0.05}, {"chatqa2", 11437, 0.02},   {"lmsys-cf", 470, 0.2},
        {"webdoc", 1718, 0.06}, {"llama3-mix", 1009, 0.05},
    };
    enum { N = 200000 };
    int64_t *v = malloc(N * sizeof(v[0]));

    (void)state;
    assert_non_null(v);
    for (size_t i = 0; i < COUNT(t); i++) {
        double sum = 0;

        (void)seq_workload_draw(seq_workload_find(t[i].name, NULL), 5, 0, v, N);
        for (int k = 0; k < N; k++)
            sum += (double)v[k] / N;
        if (fabs(sum / t[i].mean - 1) > t[i].within)
            fail_msg("%s: mean %.1f, want %.1f", t[i].name, sum, t[i].mean);
    }
    free(v);
}

static void long_ones_are_cut_and_counted(void **state)
{
    const struct seq_workload *w = seq_workload_find("chatqa2", NULL);
    int64_t v[256], u[256];
    size_t cut, over = 0;

    (void)state;
    assert_int_equal(seq_workload_draw(w, 3, 0, u, 256), 0);
    cut = seq_workload_draw(w, 3, 10000, v, 256);
    for (int i = 0; i < 256; i++) {
        over += u[i] > 10000;
        assert_int_equal(v[i], u[i] > 10000 ? 10000 : u[i]);
    }
    assert_int_equal(cut, over);
}

static void an_unknown_workload_names_those_there_are(void **state)
{
    struct merr err;

    (void)state;
    assert_null(seq_workload_find("wiki", &err));
    assert_non_null(strstr(err.text, "'wiki'"));
    assert_non_null(strstr(err.text, "chatqa2"));
}

static void every_share_has_a_length_within_its_knots(void **state)
{
    (void)state;
    for (size_t i = 0; i < seq_workloads_n; i++) {
        const struct seq_workload *w = &seq_workloads[i];
        int64_t before = 0;

        assert_true(w->knots[0].share == 0 && w->knots[w->n - 1].share == 1);
        for (int k = 0; k < 4096; k++) {
            int64_t s = seq_workload_length(w, k / 4096.0);

            assert_true(s >= before && s >= w->knots[0].tokens && s < w->knots[w->n - 1].tokens);
            before = s;
        }
        assert_true(seq_workload_length(w, 1 - 0x1p-53) < w->knots[w->n - 1].tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_a_sequence_cost_what_it_costs),
        cmocka_unit_test(sharing_costs_what_each_rank_moves),
        cmocka_unit_test(shards_are_whole_zigzag_pieces),
        cmocka_unit_test(the_generator_is_the_normative_one),
        cmocka_unit_test(lengths_are_the_published_ones),
        cmocka_unit_test(means_are_near_the_published_ones),
        cmocka_unit_test(long_ones_are_cut_and_counted),
        cmocka_unit_test(an_unknown_workload_names_those_there_are),
        cmocka_unit_test(every_share_has_a_length_within_its_knots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
