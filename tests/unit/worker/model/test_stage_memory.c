/* Whatever is dropped and made again, no bit of loss or gradient changes, and memory stays within its budget. */
#include "tests/unit/worker/tiny.h"

#include <string.h>

#include "worker/engine/model/retain/retain_priv.h"
#include "worker/engine/model/stage_priv.h"

#define ROOM 48
#define SLOTS 2

/* Rows of pairs of micro-batches in flight, of many sizes. */
static const int rows[][SLOTS] = {{5, 48}, {16, 7}, {33, 40}, {48, 48}, {1, 9}, {24, 12}, {40, 5}, {3, 3}, {17, 31}};

/* Loss and gradient of two micro-batches in flight, the second of two documents. */
static double two_micros(const struct tiny *m, struct stage *st, const int n[SLOTS], float *g)
{
    double loss = 0;

    memset(g, 0, m->p.grad_n * sizeof(*g));
    for (int i = 0; i < SLOTS; i++) {
        struct stage_slot *slot = stage_slot(st, i);
        int lengths[2] = {n[i] - n[i] / 3, n[i] / 3};

        stage_slot_layout(st, slot, lengths, lengths[1] > 0 ? 2 : 1);
        for (int r = 0; r < n[i]; r++) {
            slot->tokens[r] = tiny_token(i, r);
            slot->targets[r] = tiny_token(i, r + 1);
        }
        slot->sample[0] = slot->sample[1] = (uint64_t)i;
        assert_int_equal(stage_forward(st, slot, g, 0.1f, NULL), 0);
        loss += slot->loss;
    }
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(stage_backward(st, stage_slot(st, i), g, NULL), 0);
    return loss;
}

static struct stage *stage_of(const struct stage_cfg *cfg)
{
    struct stage *st;

    assert_int_equal(stage_new(cfg, &st, NULL), 0);
    return st;
}

/* Run the pairs so often on both stages. */
static void same_bits(const struct tiny *m, struct stage *a, struct stage *b, int times)
{
    float *want = tiny_gradients(m), *have = tiny_gradients(m);

    for (int i = 0; i < times; i++) {
        double loss = two_micros(m, a, rows[i % (int)COUNT(rows)], want);

        assert_true(two_micros(m, b, rows[i % (int)COUNT(rows)], have) == loss);
        assert_memory_equal(want, have, m->p.grad_n * sizeof(*want));
    }
    free(want);
    free(have);
}

/* Each against one that keeps everything; mimose, which learns, has more micro-batches below. */
static const struct retain_cfg policies[] = {
    {.policy = "none"},           {.policy = "selective"},      {.policy = "selective", .kept = 2},
    {.policy = "full"},           {.policy = "all", .kept = 1}, {.policy = "sqrt", .run = 1},
    {.policy = "sqrt", .run = 2}, {.policy = "sqrt", .run = 3}, {.policy = "sqrt", .run = 4},
    {.policy = "sqrt", .run = 5},
};

static void what_is_dropped_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) { /* family, dropout, type */
        struct tiny m;
        struct stage *all;
        struct stage_cfg cfg;

        tiny_open(&m, i & 1, i & 2 ? 0.3 : 0, i & 4 ? kern_cpu() : kern_plain());
        cfg = tiny_cfg(&m, ROOM, 2, SLOTS);
        cfg.precision.type = i & 4 ? KERN_BF16 : KERN_F32;
        all = stage_of(&cfg);
        for (size_t p = 0; p < COUNT(policies); p++) {
            struct stage_cfg c = cfg;
            struct stage *st;

            c.retain = policies[p];
            st = stage_of(&c);
            same_bits(&m, all, st, 1);
            stage_free(st);
        }
        for (int blocks = 0; blocks <= TINY_LAYERS; blocks += 2) {
            struct stage_cfg c = cfg;
            struct stage *st;

            c.retain.policy = "mimose";
            c.retain.keep_bytes = (size_t)blocks * stage_block_bytes(&c);
            st = stage_of(&c);
            same_bits(&m, all, st, 7);
            stage_free(st);
        }
        stage_free(all);
        tiny_close(&m);
    }
}

/* After the sheltered micro-batches small ones drop nothing and the largest as little as the budget asks for; memory in
 * use is never more than was planned. */
static void a_budget_is_kept_and_used(void **state)
{
    struct tiny m;
    struct stage_cfg cfg;
    struct stage *st;
    struct stage_usage u;
    float *g;

    (void)state;
    tiny_open(&m, 0, 0, kern_cpu());
    cfg = tiny_cfg(&m, ROOM, 2, SLOTS);
    cfg.retain.policy = "mimose";
    cfg.retain.keep_bytes = 3 * stage_block_bytes(&cfg) + stage_block_bytes(&cfg) / 8;
    st = stage_of(&cfg);
    g = tiny_gradients(&m);
    for (int i = 0; i < 20; i++) {
        const int *n = rows[i % (int)COUNT(rows)];

        (void)two_micros(&m, st, n, g);
        stage_usage_take(st, &u);
        assert_true(u.peak_bytes <= stage_bytes(&cfg, true));
        assert_int_equal(u.blocks, SLOTS * TINY_LAYERS);
        assert_int_equal(u.lacking, 0);
        if (i < 5)
            assert_int_equal(u.dropped, u.blocks);
        else if (n[0] == ROOM && n[1] == ROOM)
            assert_int_equal(u.dropped, SLOTS); /* the others make norms and activations again */
        else if (n[0] <= 24 && n[1] <= 24)
            assert_int_equal(u.dropped, 0);
    }
    free(g);
    stage_free(st);
    tiny_close(&m);
}

/* The rule for mistakes: blocks that do not fit after all are dropped on the spot, and the next plan asks for less. */
static void a_plan_that_asks_for_too_much_is_corrected(void **state)
{
    struct tiny m;
    struct stage_cfg cfg;
    struct stage *all, *st;
    struct stage_usage u;

    (void)state;
    tiny_open(&m, 1, 0, kern_plain());
    cfg = tiny_cfg(&m, ROOM, 2, SLOTS);
    all = stage_of(&cfg);
    cfg.retain.policy = "mimose";
    cfg.retain.keep_bytes = 2 * stage_block_bytes(&cfg);
    st = stage_of(&cfg);
    same_bits(&m, all, st, 5);
    mimose_set_budget(retain_mimose_model(st->retain), 5.2 * (double)stage_block_bytes(&cfg), 0);
    stage_usage_take(st, &u);
    same_bits(&m, all, st, (int)COUNT(rows));
    stage_usage_take(st, &u);
    assert_true(u.lacking > 0 && u.peak_bytes <= stage_bytes(&cfg, true));
    stage_free(all);
    stage_free(st);
    tiny_close(&m);
}

/* In evaluation nothing is kept, and nothing of it is left behind. */
static void evaluation_keeps_nothing(void **state)
{
    struct tiny m;
    struct stage_cfg cfg;
    struct stage *all, *st;
    struct stage_usage u;

    (void)state;
    tiny_open(&m, 0, 0, kern_plain());
    cfg = tiny_cfg(&m, ROOM, 2, SLOTS);
    all = stage_of(&cfg);
    cfg.retain.policy = "mimose";
    cfg.retain.keep_bytes = 5 * stage_block_bytes(&cfg);
    st = stage_of(&cfg);
    same_bits(&m, all, st, 6);
    stage_usage_take(st, &u);
    assert_int_equal(stage_forward(all, stage_slot(all, 0), NULL, 0, NULL), 0);
    assert_int_equal(stage_forward(st, stage_slot(st, 0), NULL, 0, NULL), 0);
    assert_true(stage_slot(all, 0)->loss == stage_slot(st, 0)->loss);
    stage_usage_take(st, &u);
    assert_int_equal(u.peak_bytes, stage_bytes(&cfg, true) - SLOTS * cfg.retain.keep_bytes);
    stage_free(all);
    stage_free(st);
    tiny_close(&m);
}

/* Memory by policy: all kept, runs, all but inputs dropped. */
static void runs_lie_between_everything_and_nothing(void **state)
{
    struct tiny m;
    struct stage_cfg cfg;
    size_t whole, runs, some;

    (void)state;
    tiny_open(&m, 0, 0, kern_plain());
    cfg = tiny_cfg(&m, 1000, 2, 4);
    whole = stage_bytes(&cfg, true);
    cfg.retain = (struct retain_cfg){.policy = "sqrt", .run = 3};
    runs = stage_bytes(&cfg, true);
    cfg.retain.policy = "mimose";
    some = stage_bytes(&cfg, true);
    assert_true(some < runs && runs < whole);
    cfg.retain.policy = "full";
    assert_int_equal(stage_bytes(&cfg, true), some);
    tiny_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dropped_changes_no_bit),
        cmocka_unit_test(a_budget_is_kept_and_used),
        cmocka_unit_test(a_plan_that_asks_for_too_much_is_corrected),
        cmocka_unit_test(evaluation_keeps_nothing),
        cmocka_unit_test(runs_lie_between_everything_and_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
