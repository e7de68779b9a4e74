/* A sequence in pieces, one after the other in little memory, gives the loss and the gradient of the whole sequence. */
#include "tests/unit/worker/tiny.h"

#include <string.h>

#include "scheduler/sequence/chunk.h"

#define LENGTH 50 /* of sequence 0 */
#define PIECE 8
#define SHORT 13  /* of sequence 1 */

/* Sums of f32 in another order; the terms are of the size of the largest gradient. */
#define TOLERANCE 1e-5

enum mistake { NONE, ASCENDING, POSITIONS_RESTART, GRADIENTS_LEFT, NO_PAST };

static void fill(struct stage_slot *slot, int sequence, int from, int all)
{
    for (int r = 0; r < slot->rows; r++) {
        slot->tokens[r] = tiny_token(sequence, from + r);
        slot->targets[r] = from + r < all - 1 ? tiny_token(sequence, from + r + 1) : -1;
    }
    slot->sample[0] = (uint64_t)sequence;
}

/* Each sequence whole, in a slot of its own. */
static double whole(const struct tiny *m, const struct stage_cfg *like, float *g)
{
    static const int length[] = {LENGTH, SHORT};
    struct stage_cfg cfg = *like;
    struct stage *st;
    double loss = 0;

    cfg.length = LENGTH;
    cfg.slots = 1;
    cfg.bodies = cfg.stores = 0;
    assert_int_equal(stage_new(&cfg, &st, NULL), 0);
    for (int s = 0; s < 2; s++) {
        struct stage_slot *slot = stage_slot(st, 0);

        stage_slot_layout(st, slot, &length[s], 1);
        fill(slot, s, 0, length[s]);
        assert_int_equal(stage_forward(st, slot, g, 0.02f, NULL), 0);
        assert_int_equal(stage_backward(st, slot, g, NULL), 0);
        loss += slot->loss;
    }
    stage_free(st);
    (void)m;
    return loss;
}

/* A trace of chunk.h for a sequence in pieces: what forward is to drop comes as data, what is made again by itself. */
static double group(struct stage *st, int sequence, int length, int size, int keep, enum mistake mistake, float *g)
{
    struct chunk_action trace[3 * LENGTH];
    int n = (length + size - 1) / size;
    size_t actions = chunk_trace(n, keep, trace);
    double loss = 0;

    for (size_t i = 0; i < actions; i++) {
        bool back = trace[i].step == CHUNK_BACKWARD;
        int index = back && mistake == ASCENDING ? n - 1 - trace[i].index : trace[i].index, past = index * size;
        struct stage_slot *slot = stage_slot(st, index);
        struct stage_piece p = {.tokens = length - past < size ? length - past : size, .past = past,
                                .store = sequence, .last = index == n - 1,
                                .drop = trace[i].step == CHUNK_FORWARD_DROP};

        if (back) {
            if (mistake == GRADIENTS_LEFT)
                slot->piece.last = index == 0;
            assert_int_equal(stage_backward(st, slot, g, NULL), 0);
        } else if (trace[i].step != CHUNK_FORWARD_AGAIN) {
            stage_slot_piece(st, slot, &p);
            fill(slot, sequence, past, length);
            for (int r = 0; r < slot->rows && mistake == POSITIONS_RESTART; r++)
                slot->position[r] = r;
            if (mistake == NO_PAST)
                slot->piece.past = 0;
            assert_int_equal(stage_forward(st, slot, g, 0.02f, NULL), 0);
            loss += slot->loss;
        }
    }
    return loss;
}

static struct stage *in_pieces(const struct stage_cfg *cfg, int size, int keep)
{
    struct stage_cfg c = *cfg;
    struct stage *st;

    c.length = size;
    c.slots = (LENGTH + size - 1) / size;
    c.bodies = keep;
    c.stores = 2;
    c.store_tokens = LENGTH;
    assert_int_equal(stage_new(&c, &st, NULL), 0);
    return st;
}

static void pieces_give_the_gradient_of_the_whole(void **state)
{
    static const struct { int size, keep; } cut[] = {{PIECE, 1}, {PIECE, 2}, {PIECE, 7}, {17, 1}, {49, 1}, {LENGTH, 1}};

    (void)state;
    for (int i = 0; i < 8; i++) { /* family, dropout, kernels */
        struct tiny m;
        struct stage_cfg cfg;
        float *want;
        double loss;

        tiny_open(&m, i & 1, i & 2 ? 0.3 : 0, i & 4 ? kern_cpu() : kern_plain());
        cfg = tiny_cfg(&m, LENGTH, 1, 1);
        want = tiny_gradients(&m);
        loss = whole(&m, &cfg, want);
        for (size_t c = 0; c < COUNT(cut); c++) {
            struct stage *st = in_pieces(&cfg, cut[c].size, cut[c].keep);
            float *have = tiny_gradients(&m);
            double sum = group(st, 0, LENGTH, cut[c].size, cut[c].keep, NONE, have) +
                         group(st, 1, SHORT, cut[c].size, cut[c].keep, NONE, have);

            assert_true(fabs(sum - loss) < 1e-5 * loss);
            if (tiny_difference(&m, want, have) > TOLERANCE)
                fail_msg("case %d, pieces of %d, %d kept: off by %g", i, cut[c].size, cut[c].keep,
                         tiny_difference(&m, want, have));
            free(have);
            stage_free(st);
        }
        free(want);
        tiny_close(&m);
    }
}

/* How many are kept changes no bit: what is made again is what was dropped. */
static void keeping_more_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) { /* family, dropout, type */
        struct tiny m;
        struct stage_cfg cfg;
        float *want;

        tiny_open(&m, i & 1, i & 2 ? 0.3 : 0, kern_cpu());
        cfg = tiny_cfg(&m, LENGTH, 1, 1);
        cfg.type = i & 4 ? KERN_BF16 : KERN_F32;
        want = tiny_gradients(&m);
        for (int keep = 1; keep <= 7; keep += 2) {
            struct stage *st = in_pieces(&cfg, PIECE, keep);
            float *have = tiny_gradients(&m);

            for (int times = 0; times < 2; times++) /* the second finds the first one's keys and gradients */
                (void)group(st, 0, LENGTH, PIECE, keep, NONE, keep == 1 ? want : have);
            if (keep > 1)
                assert_memory_equal(want, have, m.p.grad_n * sizeof(*want));
            free(have);
            stage_free(st);
        }
        free(want);
        tiny_close(&m);
    }
}

static void bf16_in_pieces_is_near_f32(void **state)
{
    (void)state;
    for (int family = 0; family < 2; family++) {
        struct tiny m;
        struct stage_cfg cfg;
        struct stage *st;
        float *want, *have;
        double loss;

        tiny_open(&m, family, 0, kern_cpu());
        cfg = tiny_cfg(&m, LENGTH, 1, 1);
        want = tiny_gradients(&m);
        have = tiny_gradients(&m);
        loss = whole(&m, &cfg, want);
        cfg.type = KERN_BF16;
        st = in_pieces(&cfg, PIECE, 2);
        assert_true(fabs(group(st, 0, LENGTH, PIECE, 2, NONE, have) + group(st, 1, SHORT, PIECE, 2, NONE, have) -
                         loss) < 5e-3 * loss);
        assert_true(tiny_difference(&m, want, have) < 0.03);
        free(want);
        free(have);
        stage_free(st);
        tiny_close(&m);
    }
}

static void mistakes_with_pieces_are_seen(void **state)
{
    struct tiny m;
    struct stage_cfg cfg;
    float *want;

    (void)state;
    tiny_open(&m, 0, 0, kern_plain());
    cfg = tiny_cfg(&m, LENGTH, 1, 1);
    want = tiny_gradients(&m);
    (void)whole(&m, &cfg, want);
    for (int mistake = ASCENDING; mistake <= NO_PAST; mistake++) {
        struct stage *st = in_pieces(&cfg, PIECE, 7);
        float *have = tiny_gradients(&m);

        (void)group(st, 0, LENGTH, PIECE, 7, NONE, have); /* so that stores are not fresh */
        memset(have, 0, m.p.grad_n * sizeof(*have));
        (void)group(st, 0, LENGTH, PIECE, 7, (enum mistake)mistake, have);
        (void)group(st, 1, SHORT, PIECE, 7, NONE, have);
        assert_true(tiny_difference(&m, want, have) > 100 * TOLERANCE);
        free(have);
        stage_free(st);
    }
    free(want);
    tiny_close(&m);
}

/* Two sequences under way at once, and packed documents between them, as in a pipeline. */
static void sequences_in_pieces_do_not_mix(void **state)
{
    static const int rows[2][2] = {{0, 8}, {8, 5}}; /* past and tokens of sequence 1 */
    struct tiny m;
    struct stage_cfg cfg;
    struct stage *st;
    float *want, *have;

    (void)state;
    tiny_open(&m, 1, 0, kern_cpu());
    cfg = tiny_cfg(&m, LENGTH, 1, 1);
    want = tiny_gradients(&m);
    have = tiny_gradients(&m);
    (void)whole(&m, &cfg, want);
    cfg.length = 25;
    cfg.slots = 4;
    cfg.stores = 2;
    cfg.store_tokens = LENGTH;
    assert_int_equal(stage_new(&cfg, &st, NULL), 0);
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < 2; s++) {
            struct stage_slot *slot = stage_slot(st, 2 * i + s);
            struct stage_piece p = {.tokens = s ? rows[i][1] : 25, .past = s ? rows[i][0] : 25 * i, .store = s,
                                    .last = i == 1};

            stage_slot_piece(st, slot, &p);
            fill(slot, s, p.past, s ? SHORT : LENGTH);
            assert_int_equal(stage_forward(st, slot, have, 0.02f, NULL), 0);
        }
    for (int i = 3; i >= 0; i--)
        assert_int_equal(stage_backward(st, stage_slot(st, i), have, NULL), 0);
    assert_true(tiny_difference(&m, want, have) < TOLERANCE);
    free(want);
    free(have);
    stage_free(st);
    tiny_close(&m);
}

/* Memory follows the piece, not the sequence: a longer one costs its keys, values and their gradients, and what goes in
 * and out of the stage. */
static void memory_follows_the_piece(void **state)
{
    struct tiny m;
    size_t bytes[3], all[2];

    (void)state;
    tiny_open(&m, 1, 0, kern_plain());
    for (int i = 0; i < 3; i++) {
        int longest = 1024 << i;
        struct stage_cfg cfg = tiny_cfg(&m, 256, 1, longest / 256);
        struct stage *st;
        struct stage_usage u;

        cfg.bodies = 2;
        cfg.stores = 1;
        cfg.store_tokens = longest;
        assert_int_equal(stage_new(&cfg, &st, NULL), 0);
        stage_usage_take(st, &u); /* what the arena has, counted by itself */
        bytes[i] = u.peak_bytes;
        assert_int_equal(bytes[i], stage_bytes(&cfg, true));
        stage_free(st);
    }
    for (int i = 0; i < 2; i++) {
        struct stage_cfg cfg = tiny_cfg(&m, 1024 << i, 1, 1);

        all[i] = stage_bytes(&cfg, true);
    }
    assert_int_equal(bytes[2] - bytes[1], 2 * (bytes[1] - bytes[0]));
    /* a token: keys, values and gradients of each block, in and out */
    assert_int_equal(bytes[1] - bytes[0], 1024 * sizeof(float) * (TINY_LAYERS * 2 * 2 * 2 * 4 + 2 * 16));
    assert_true((bytes[1] - bytes[0]) * 4 < all[1] - all[0]);
    assert_true(bytes[1] * 2 < all[1]);
    tiny_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_gradient_of_the_whole),
        cmocka_unit_test(keeping_more_changes_no_bit),
        cmocka_unit_test(bf16_in_pieces_is_near_f32),
        cmocka_unit_test(mistakes_with_pieces_are_seen),
        cmocka_unit_test(sequences_in_pieces_do_not_mix),
        cmocka_unit_test(memory_follows_the_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
