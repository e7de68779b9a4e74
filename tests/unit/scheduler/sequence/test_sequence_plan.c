#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/plan.h"
#include "scheduler/sequence/workload.h"

#define MANY 200

static const struct seq_model small = {.hidden = 896, .kv_hidden = 128, .layers = 24};
static const struct seq_model large = {.hidden = 3584, .kv_hidden = 512, .layers = 28};

static unsigned long instances(unsigned long usual)
{
    return getenv("MUSTER_TEST_LONG") ? 10000 : usual; /* batches, each under ten policies */
}

/* The published example of global scheduling, weights S·(S + 64). */
static void global_scheduling_gives_the_golden_plan(void **state)
{
    static const int64_t tokens[] = {5, 8, 12, 20, 33, 47, 60, 90, 150, 210, 7, 9};
    static const struct {
        uint32_t seq;
        int rank, degree;
    } first[] = {{10, 0, 1}, {11, 1, 1}, {4, 2, 1}, {9, 0, 4}};
    struct seq_config c = {.policy = SEQ_SKRULL,
                           .replicas = 2,
                           .ranks = 4,
                           .capacity = 100,
                           .exact_shares = 1,
                           .cost = {.lin_s = 64, .quad_s = 1}};
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)};
    struct seq_plan p;

    (void)state;
    assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
    assert_int_equal(p.micros, 1);
    assert_int_equal(p.micro[0].n, 4);
    for (size_t k = 0; k < 4; k++) {
        assert_int_equal(p.pieces[k].seq, first[k].seq);
        assert_int_equal(p.pieces[k].rank, first[k].rank);
        assert_int_equal(p.pieces[k].degree, first[k].degree);
    }
    assert_int_equal(p.micro[1].n, 8);
    for (size_t k = 4; k < 12; k++)
        assert_int_equal(p.pieces[k].degree, 4);
    assert_int_equal(seq_plan_check(&p, &b, NULL), 0);
    seq_plan_clear(&p);
}

/* Columns B1, B3, B4, DACP and sweep of the comparison in docs/sequence.md, one setting a row. */
static void scores_are_those_of_the_reference(void **state)
{
    static const enum seq_policy policy[] = {SEQ_STATIC, SEQ_PACK, SEQ_PACK_LPT, SEQ_SKRULL, SEQ_SWEEP};
    static const struct {
        const char *set;
        int is_large, ranks, replicas, block;
        double bound_ms, rho[5];
    } t[] = {
        {"wiki-cn", 0, 8, 4, 64, 30, {29.7, 3.65, 3.37, 2.75, 1.31}},
        {"lmsys", 0, 8, 4, 64, 33, {29.7, 3.64, 3.35, 2.51, 1.30}},
        {"chatqa2", 0, 8, 4, 64, 1487, {1.90, 1.43, 1.25, 1.28, 1.23}},
        {"wiki-cn", 1, 8, 4, 64, 294, {7.36, 4.69, 4.48, 2.42, 1.48}},
        {"lmsys", 1, 8, 4, 64, 302, {7.43, 4.73, 4.49, 2.50, 1.47}},
        {"chatqa2", 1, 16, 2, 40, 3445, {1.67, 1.54, 1.43, 1.41, 1.38}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        for (size_t k = 0; k < COUNT(policy); k++) {
            struct seq_config c = {.policy = policy[k],
                                   .replicas = t[i].replicas,
                                   .ranks = t[i].ranks,
                                   .capacity = t[i].is_large ? 13 * 1024 : 26 * 1024};
            int64_t tokens[256];
            struct seq_batch b = {.tokens = tokens, .n = (size_t)(t[i].replicas * t[i].block)};
            double rho = 0, bound_ms = 0;

            seq_cost_reference(&c.cost, t[i].is_large ? &large : &small);
            for (uint64_t seed = 1000; seed < 1012; seed++) {
                struct seq_plan p;

                (void)seq_workload_draw(seq_workload_find(t[i].set, NULL), seed, c.capacity * c.ranks, tokens, b.n);
                assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
                rho += p.score.rho_plain / 12;
                bound_ms += 1e3 * p.bounds.plain_s / 12;
                seq_plan_clear(&p);
            }
            if (fabs(bound_ms / t[i].bound_ms - 1) > 0.02)
                fail_msg("%s: bound of %.1f ms, want %.0f", t[i].set, bound_ms, t[i].bound_ms);
            if (rho > 1.01 * t[i].rho[k] || (policy[k] != SEQ_SWEEP && rho < 0.99 * t[i].rho[k]))
                fail_msg("%s %s: score %.3f, want %.2f", t[i].set, seq_policy_name(policy[k]), rho, t[i].rho[k]);
        }
}

static size_t draw(struct seq_config *c, int64_t *tokens, uint64_t *s)
{
    const struct seq_workload *w = &seq_workloads[seq_random(s) % seq_workloads_n];
    size_t n = 1 + seq_random(s) % MANY;
    int64_t round;

    *c = (struct seq_config){.replicas = 1 + (int)(seq_random(s) % 5),
                             .ranks = 1 + (int)(seq_random(s) % 9),
                             .capacity = 512 + (int64_t)(seq_random(s) % 26000),
                             .micro = (int)(seq_random(s) % 5),
                             .seed = seq_random(s),
                             .keep_chunks = (int)(seq_random(s) % 4)};
    round = c->ranks > 1 ? 2 * c->ranks : 1;
    if (seq_random(s) & 1) {
        int64_t most = c->capacity * c->ranks / (c->keep_chunks ? c->keep_chunks : 1) / round;

        c->chunk_tokens = round * (1 + (int64_t)(seq_random(s) % (uint64_t)most));
    }
    seq_cost_reference(&c->cost, seq_random(s) & 1 ? &small : &large);
    (void)seq_workload_draw(w, seq_random(s), seq_longest(c), tokens, n);
    return n;
}

static void every_policy_places_every_token_once_and_beats_no_bound(void **state)
{
    static const uint64_t seed = 4242;
    unsigned long n = instances(400);
    uint64_t s = seed;
    int64_t tokens[MANY];

    (void)state;
    print_message("seed %llu, %lu instances\n", (unsigned long long)seed, n);
    for (unsigned long i = 0; i < n; i++) {
        struct seq_config c;
        struct seq_batch b = {.tokens = tokens};

        b.n = draw(&c, tokens, &s);
        for (int policy = 0; policy < SEQ_POLICIES; policy++) {
            struct seq_plan p, q;
            struct merr err = {{0}};

            c.policy = (enum seq_policy)policy;
            if (c.policy == SEQ_CHUNK && c.capacity * c.ranks / 3 < 2 * c.ranks)
                continue;
            if (seq_plan_make(&c, &b, &p, &err) || seq_plan_check(&p, &b, &err))
                fail_msg("instance %lu, %s: %s", i, seq_policy_name(c.policy), err.text);
            assert_true(p.score.peak_share <= 1 && p.score.rho >= 1 - 1e-12);
            assert_true(p.score.replica_imbalance >= 1 - 1e-12 && p.score.rank_imbalance >= 1 - 1e-12);
            assert_true(p.score.padding_share >= 0 && p.score.padding_share < 1);
            assert_int_equal(seq_plan_make(&c, &b, &q, &err), 0); /* the same again */
            assert_int_equal(q.n_pieces, p.n_pieces);
            assert_memory_equal(q.pieces, p.pieces, p.n_pieces * sizeof(p.pieces[0]));
            assert_true(q.score.step_s == p.score.step_s);
            seq_plan_clear(&p);
            seq_plan_clear(&q);
        }
    }
}

/* Every micro-batch has a longer part and a shorter one, and shares nothing: neither rank gets all the longer ones. */
static void ranks_that_do_not_meet_are_evened_out(void **state)
{
    static const int64_t tokens[] = {60, 40, 60, 40, 60, 40, 60, 40};
    struct seq_config c = {
        .policy = SEQ_SWEEP, .replicas = 1, .ranks = 2, .capacity = 60, .cost = {.lin_s = 1, .copy_token_s = 1}};
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)};
    int64_t all[2] = {0, 0};
    struct seq_plan p;

    (void)state;
    assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
    assert_int_equal(seq_plan_check(&p, &b, NULL), 0);
    assert_true(p.score.sharded_share == 0);
    for (int64_t k = 0; k < p.micros; k++)
        for (int r = 0; r < 2; r++)
            all[r] += p.rank_tokens[2 * k + r];
    assert_int_equal(all[0], 200);
    assert_int_equal(all[1], 200);
    seq_plan_clear(&p);
}

/* One sequence fills a micro-batch; the others, of which no rank holds two and a half, balance whole. */
static void long_sequences_leave_the_short_ones_to_other_micro_batches(void **state)
{
    static const int64_t tokens[] = {200, 50, 50, 50, 50, 25, 25, 25, 25};
    struct seq_config c = {.policy = SEQ_SWEEP,
                           .replicas = 1,
                           .ranks = 2,
                           .capacity = 100,
                           .cost = {.lin_s = 1, .quad_s = 0.01, .copy_token_s = 0.01, .micro_s = 1}};
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)};
    struct seq_plan p;

    (void)state;
    assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
    assert_true(fabs(p.score.sharded_share - 200.0 / 500) < 1e-12);
    assert_true(p.score.rank_imbalance < 1.15);
    seq_plan_clear(&p);
}

static void a_plan_that_may_not_run_is_refused(void **state)
{
    static const int64_t tokens[] = {100, 200, 300, 4000, 50, 60};
    static const int64_t others[] = {100, 200, 300, 4000, 50, 61};
    struct seq_config c = {.policy = SEQ_SWEEP, .replicas = 2, .ranks = 4, .capacity = 1024};
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)}, o = {.tokens = others, .n = COUNT(others)};
    struct seq_plan p;
    struct seq_piece keep;
    struct merr err;

    (void)state;
    seq_cost_reference(&c.cost, &small);
    assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
    assert_int_equal(seq_plan_check(&p, &b, &err), 0);
    assert_int_equal(seq_plan_check(&p, &o, &err), -ESTALE);
    keep = p.pieces[1];

    p.pieces[1].seq = p.pieces[0].seq; /* one twice, another never */
    assert_int_equal(seq_plan_check(&p, &b, &err), -EINVAL);
    p.pieces[1] = keep;
    p.pieces[1].tokens--; /* a token missing */
    assert_int_equal(seq_plan_check(&p, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "misses 1 token"));
    p.pieces[1] = keep;
    p.pieces[1].seq = 99;
    assert_int_equal(seq_plan_check(&p, &b, &err), -EINVAL);
    p.pieces[1] = keep;
    p.pieces[1].rank = 4;
    p.pieces[1].degree = 1;
    assert_int_equal(seq_plan_check(&p, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not there"));
    p.pieces[1] = keep;
    p.micro[1].first--; /* two micro-batches with one piece in common */
    assert_int_equal(seq_plan_check(&p, &b, &err), -EINVAL);
    p.micro[1].first++;
    for (size_t k = 0; k < p.n_pieces; k++) { /* 4000 tokens on a rank that holds 1024 */
        p.pieces[k].rank = 0;
        p.pieces[k].degree = 1;
    }
    assert_int_equal(seq_plan_check(&p, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "holds 1024"));
    seq_plan_clear(&p);
}

static void bad_input_is_refused_by_name(void **state)
{
    static const struct {
        struct seq_config c;
        int64_t tokens[3], targets;
        int code;
        const char *word;
    } t[] = {
        {{.replicas = 0, .ranks = 1, .capacity = 64}, {1, 1, 1}, 1, -EINVAL, "0 replicas"},
        {{.replicas = 1, .ranks = 1025, .capacity = 64}, {1, 1, 1}, 1, -EINVAL, "1025 ranks"},
        {{.replicas = 1, .ranks = 1, .capacity = 1}, {1, 1, 1}, 1, -EINVAL, "capacity of 1"},
        {{.replicas = 1, .ranks = 1, .capacity = 64, .micro = -1}, {1, 1, 1}, 1, -EINVAL, "-1 sequences"},
        {{.replicas = 1, .ranks = 2, .capacity = 64}, {1, 129, 1}, 1, -E2BIG, "sequence 1 has 129"},
        {{.replicas = 1, .ranks = 2, .capacity = 65}, {1, 2, 129}, 1, -E2BIG, "group holds 128"},
        {{.replicas = 1, .ranks = 1, .capacity = 64}, {0, 1, 1}, 0, -EINVAL, "sequence 0 is empty"},
        {{.replicas = 1, .ranks = 1, .capacity = 64}, {1, 1, 1}, 2, -EINVAL, "2 targets"},
        {{.policy = SEQ_CHUNK, .replicas = 1, .ranks = 2, .capacity = 64, .chunk_tokens = 6},
         {1, 1, 1},
         1,
         -EINVAL,
         "multiple of 4"},
        {{.policy = SEQ_CHUNK, .replicas = 1, .ranks = 1, .capacity = 64, .chunk_tokens = 33, .keep_chunks = 2},
         {1, 1, 1},
         1,
         -EINVAL,
         "2 chunks of 33"},
        {{.policy = SEQ_POLICIES, .replicas = 1, .ranks = 1, .capacity = 64}, {1, 1, 1}, 1, -EINVAL, "no policy"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        int64_t targets[3] = {t[i].targets, 0, 0};
        struct seq_batch b = {.tokens = t[i].tokens, .targets = targets, .n = 3};
        struct seq_plan p = {.n = 77};
        struct merr err;

        assert_int_equal(seq_plan_make(&t[i].c, &b, &p, &err), t[i].code);
        if (!strstr(err.text, t[i].word))
            fail_msg("want '%s' in '%s'", t[i].word, err.text);
        assert_int_equal(p.n, 77);
    }
}

static void names_are_found_and_others_answered_with_all(void **state)
{
    enum seq_policy p = SEQ_PAD;
    struct merr err;

    (void)state;
    for (int i = 0; i < SEQ_POLICIES; i++) {
        assert_int_equal(seq_policy_find(seq_policy_name((enum seq_policy)i), &p, NULL), 0);
        assert_int_equal(p, i);
    }
    assert_int_equal(seq_policy_find("swept", &p, &err), -ENOENT);
    assert_non_null(strstr(err.text, "sweep"));
}

static void replicas_have_equal_numbers_of_micro_batches(void **state)
{
    static const int64_t tokens[] = {5000, 10, 10, 10};
    struct seq_config c = {.replicas = 3, .ranks = 1, .capacity = 5000};
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)};

    (void)state;
    seq_cost_reference(&c.cost, &small);
    for (int policy = 0; policy < SEQ_POLICIES; policy++) {
        struct seq_plan p;
        size_t pieces = 0;

        c.policy = (enum seq_policy)policy;
        assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
        for (int64_t k = 0; k < 3 * p.micros; k++) {
            pieces += p.micro[k].n;
            assert_true(p.micro[k].n || p.micro[k].time_s == c.cost.micro_s); /* without it a bound was beaten */
        }
        assert_int_equal(pieces, p.n_pieces);
        assert_int_equal(seq_plan_check(&p, &b, NULL), 0);
        seq_plan_clear(&p);
    }
}

static void padding_is_counted(void **state)
{
    static const int64_t tokens[] = {10, 20, 30, 40};
    struct seq_config c = {.policy = SEQ_PAD, .replicas = 1, .ranks = 1, .capacity = 100, .micro = 4};
    struct seq_batch b = {.tokens = tokens, .n = 4};
    struct seq_plan p;

    (void)state;
    seq_cost_reference(&c.cost, &small);
    assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
    assert_int_equal(p.micros, 2); /* 3 · 30 fit, 4 · 40 do not */
    assert_int_equal(p.micro[0].padded, 30);
    assert_int_equal(p.micro[1].padded, 0);
    assert_true(fabs(p.score.padding_share - 30.0 / 130) < 1e-12);
    assert_int_equal(p.micro[0].peak_tokens, 90);
    seq_plan_clear(&p);
}

static void a_plan_prints_as_json(void **state)
{
    static const int64_t tokens[] = {7, 1500, 30};
    struct seq_config c = {
        .policy = SEQ_CHUNK, .replicas = 1, .ranks = 2, .capacity = 512, .chunk_tokens = 512, .keep_chunks = 1};
    struct seq_batch b = {.tokens = tokens, .n = 3};
    struct seq_plan p;
    struct buf out;
    int depth = 0;

    (void)state;
    seq_cost_reference(&c.cost, &small);
    assert_int_equal(seq_plan_make(&c, &b, &p, NULL), 0);
    buf_init(&out, 1 << 20);
    seq_plan_print(&p, &out);
    assert_false(buf_failed(&out));
    for (size_t i = 0; i < out.len; i++) {
        depth += out.data[i] == '{' || out.data[i] == '[';
        depth -= out.data[i] == '}' || out.data[i] == ']';
        assert_true(depth > 0 || i + 1 == out.len);
    }
    assert_int_equal(depth, 0);
    assert_non_null(strstr(out.data, "\"policy\":\"chunk\""));
    assert_non_null(strstr(out.data, "\"sequence\":1,\"index\":2,\"of\":3,\"dropped\":false"));
    assert_non_null(strstr(out.data, "{\"sequence\":1,\"start\":1024,\"tokens\":476,\"rank\":0,\"ranks\":2}"));
    assert_null(strstr(out.data, "nan"));
    buf_clear(&out);
    buf_init(&out, 100); /* too small: it says so and keeps what it had */
    seq_plan_print(&p, &out);
    assert_true(buf_failed(&out));
    buf_clear(&out);
    seq_plan_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(global_scheduling_gives_the_golden_plan),
        cmocka_unit_test(scores_are_those_of_the_reference),
        cmocka_unit_test(every_policy_places_every_token_once_and_beats_no_bound),
        cmocka_unit_test(ranks_that_do_not_meet_are_evened_out),
        cmocka_unit_test(long_sequences_leave_the_short_ones_to_other_micro_batches),
        cmocka_unit_test(a_plan_that_may_not_run_is_refused),
        cmocka_unit_test(bad_input_is_refused_by_name),
        cmocka_unit_test(names_are_found_and_others_answered_with_all),
        cmocka_unit_test(replicas_have_equal_numbers_of_micro_batches),
        cmocka_unit_test(padding_is_counted),
        cmocka_unit_test(a_plan_prints_as_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
