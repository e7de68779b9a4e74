/* A sequence in pieces, one after the other in little memory, gives the loss and the gradient of the whole sequence. */
#include "tests/unit/worker/tiny.h"

#include <string.h>

#include "scheduler/plan/schedule.h"
#include "tests/unit/scheduler/chunk_pipe.h"

#define LENGTH 50 /* of sequence 0 */
#define PIECE 8
#define SHORT 13 /* of sequence 1 */

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

    cfg.sizes.length = LENGTH;
    cfg.sizes.slots = 1;
    cfg.sizes.bodies = cfg.sizes.stores = 0;
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
        struct stage_piece p = {.tokens = length - past < size ? length - past : size,
                                .past = past,
                                .store = sequence,
                                .last = index == n - 1,
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

    c.sizes.length = size;
    c.sizes.slots = (LENGTH + size - 1) / size;
    c.sizes.bodies = keep;
    c.sizes.stores = 2;
    c.sizes.store_tokens = LENGTH;
    assert_int_equal(stage_new(&c, &st, NULL), 0);
    return st;
}

static void pieces_give_the_gradient_of_the_whole(void **state)
{
    static const struct {
        int size, keep;
    } cut[] = {{PIECE, 1}, {PIECE, 2}, {PIECE, 7}, {17, 1}, {49, 1}, {LENGTH, 1}};

    (void)state;
    for (int i = 0; i < 12; i++) { /* family, dropout, kernels */
        struct tiny m;
        struct stage_cfg cfg;
        float *want;
        double loss;

        tiny_open(&m, i % 3, i / 3 % 2 ? 0.3 : 0, i >= 6 ? kern_cpu() : kern_plain());
        cfg = tiny_cfg(&m, LENGTH, 1, 1);
        want = tiny_gradients(&m);
        loss = whole(&m, &cfg, want);
        for (size_t c = 0; c < COUNT(cut); c++) {
            struct stage *st = in_pieces(&cfg, cut[c].size, cut[c].keep);
            float *have = tiny_gradients(&m);
            double sum = group(st, 0, LENGTH, cut[c].size, cut[c].keep, NONE, have) +
                         group(st, 1, SHORT, cut[c].size, cut[c].keep, NONE, have);

            assert_true(fabs(sum - loss) < TOLERANCE * loss);
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
    for (int i = 0; i < 12; i++) { /* family, dropout, type */
        struct tiny m;
        struct stage_cfg cfg;
        float *want;

        tiny_open(&m, i % 3, i / 3 % 2 ? 0.3 : 0, kern_cpu());
        cfg = tiny_cfg(&m, LENGTH, 1, 1);
        cfg.precision.type = i >= 6 ? KERN_BF16 : KERN_F32;
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
    for (int family = 0; family < 3; family++) {
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
        cfg.precision.type = KERN_BF16;
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
    cfg.sizes.length = 25;
    cfg.sizes.slots = 4;
    cfg.sizes.stores = 2;
    cfg.sizes.store_tokens = LENGTH;
    assert_int_equal(stage_new(&cfg, &st, NULL), 0);
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < 2; s++) {
            struct stage_slot *slot = stage_slot(st, 2 * i + s);
            struct stage_piece p = {
                .tokens = s ? rows[i][1] : 25, .past = s ? rows[i][0] : 25 * i, .store = s, .last = i == 1};

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

/* --- in a pipeline ------------------------------------------------------------------------------------------- */

#define RANKS 2
#define MICROS 10

/* Two sequences in pieces of PIECE, and a document between them. */
static const int32_t sequence[MICROS] = {0, 0, 0, 0, 0, 0, 0, -1, 1, 1};

struct half { /* a rank with its part of the layers */
    struct params p;
    float *w, *g;
    struct stage *st;
    size_t at; /* next action */
};

static struct stage_piece piece_of(int micro, int keep)
{
    int first = sequence[micro] == 1 ? 8 : 0, n = sequence[micro] == 1 ? 2 : 7, index = micro - first;
    int length = sequence[micro] == 1 ? SHORT : LENGTH;

    return (struct stage_piece){
        .tokens = sequence[micro] < 0 ? 0
                  : index == n - 1    ? length - index * PIECE
                                      : PIECE,
        .past = index * PIECE,
        .store = sequence[micro],
        .last = index == n - 1,
        .drop = sequence[micro] >= 0 && index < n - keep,
    };
}

static void open_half(const struct tiny *m, struct half *h, const struct schedule *s, int rank, int keep)
{
    struct layer_range layers = rank == 0 ? (struct layer_range){0, 3} : (struct layer_range){3, TINY_LAYERS};
    struct stage_cfg cfg = tiny_cfg(m, PIECE, 1, schedule_slots(s, rank, 0));
    bool drop[MICROS];

    for (int i = 0; i < MICROS; i++)
        drop[i] = piece_of(i, keep).drop;
    assert_int_equal(params_init(&h->p, &m->model, &layers, 1, rank == 0, rank == 1, NULL), 0);
    h->w = calloc(h->p.weight_n, sizeof(*h->w));
    h->g = calloc(h->p.grad_n, sizeof(*h->g));
    params_fill(&h->p, 3, 1, h->w);
    cfg.params = &h->p;
    cfg.weights = h->w;
    cfg.part.layers = h->p.chunk[0];
    cfg.part.first = rank == 0;
    cfg.part.last = rank == 1;
    cfg.sizes.bodies = schedule_bodies(s, rank, drop);
    /* what is kept, and what is under way to the rank behind and at work */
    assert_true(cfg.sizes.bodies <= keep + RANKS);
    cfg.sizes.stores = 2;
    cfg.sizes.store_tokens = LENGTH;
    assert_int_equal(stage_new(&cfg, &h->st, NULL), 0);
    h->at = 0;
}

static struct stage_slot *slot_of(struct half *h, const struct schedule *s, int rank, int micro)
{
    return stage_slot(h->st, micro % schedule_slots(s, rank, 0));
}

static void compute(struct half *h, const struct schedule *s, int rank, const struct action *a, int keep)
{
    static const int alone = 5;
    struct stage_slot *slot = slot_of(h, s, rank, a->micro);
    struct stage_piece p = piece_of(a->micro, keep);

    if (a->op == ACT_B) {
        assert_int_equal(stage_backward(h->st, slot, h->g, NULL), 0);
        return;
    }
    if (p.tokens > 0)
        stage_slot_piece(h->st, slot, &p);
    else
        stage_slot_layout(h->st, slot, &alone, 1);
    fill(slot, p.tokens > 0 ? p.store : 2, p.tokens > 0 ? p.past : 0,
         p.tokens == 0  ? alone
         : p.store == 1 ? SHORT
                        : LENGTH);
    assert_int_equal(stage_forward(h->st, slot, h->g, 0.02f, NULL), 0);
}

/* What a schedule says, with channels that hold nothing: a message goes when both ranks stand at it. */
static void run_pipeline(struct half h[RANKS], const struct schedule *s, int keep)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < RANKS; r++) {
            const struct action *a = &s->rank[r].v[h[r].at], *b = &s->rank[1 - r].v[h[1 - r].at];
            struct stage_slot *from, *to;

            if (h[r].at == s->rank[r].n || a->op == ACT_RF || a->op == ACT_RB)
                continue;
            if (a->op == ACT_F || a->op == ACT_B) {
                compute(&h[r], s, r, a, keep);
            } else {
                if (h[1 - r].at == s->rank[1 - r].n || (b->op != ACT_RF && b->op != ACT_RB))
                    continue;
                assert_int_equal(a->micro, b->micro);
                from = slot_of(&h[r], s, r, a->micro);
                to = slot_of(&h[1 - r], s, 1 - r, a->micro);
                memcpy(a->op == ACT_SF ? to->in : to->out, from->out, (size_t)from->rows * 16 * sizeof(float));
                h[1 - r].at++;
            }
            h[r].at++;
            moved = true;
        }
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(h[r].at, s->rank[r].n);
}

/* A rank's gradients are those of one rank alone, but for the order of sums; of the tied embedding each has a part. */
static int compare_half(const struct tiny *m, const float *want, const struct half *h)
{
    int compared = 0;

    for (int j = 0; j < h->p.n; j++)
        for (int i = 0; i < m->p.n; i++) {
            const struct param *q = &h->p.v[j], *o = &m->p.v[i];

            if (q->id != o->id || strcmp(q->name, "wte.weight") == 0)
                continue;
            for (size_t k = 0; k < q->n; k++)
                assert_true(fabs((double)h->g[q->at + k] - (double)want[o->at + k]) < TOLERANCE);
            compared++;
        }
    return compared;
}

static void a_pipeline_of_pieces_gives_the_gradient_of_the_whole(void **state)
{
    (void)state;
    for (int keep = 1; keep <= 3; keep++) {
        struct tiny m;
        struct half h[RANKS];
        struct schedule *s;
        struct stage_cfg cfg;
        struct stage *st;
        float *want;
        static const int alone = 5;

        tiny_open(&m, 0, 0, kern_cpu());
        cfg = tiny_cfg(&m, LENGTH, 1, 1);
        want = tiny_gradients(&m);
        (void)whole(&m, &cfg, want);
        assert_int_equal(stage_new(&cfg, &st, NULL), 0);
        stage_slot_layout(st, stage_slot(st, 0), &alone, 1);
        fill(stage_slot(st, 0), 2, 0, alone);
        assert_int_equal(stage_forward(st, stage_slot(st, 0), want, 0.02f, NULL), 0);
        assert_int_equal(stage_backward(st, stage_slot(st, 0), want, NULL), 0);
        assert_int_equal(schedule_new_pieces(RANKS, MICROS, sequence, &s, NULL), 0);
        for (int r = 0; r < RANKS; r++)
            open_half(&m, &h[r], s, r, keep);
        run_pipeline(h, s, keep);
        assert_int_equal(compare_half(&m, want, &h[0]) + compare_half(&m, want, &h[1]), m.p.n - 1);
        for (int r = 0; r < RANKS; r++) {
            stage_free(h[r].st);
            params_clear(&h[r].p);
            free(h[r].w);
            free(h[r].g);
        }
        schedule_free(s);
        stage_free(st);
        free(want);
        tiny_close(&m);
    }
}

/* --- memory -------------------------------------------------------------------------------------------------- */

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

        cfg.sizes.bodies = 2;
        cfg.sizes.stores = 1;
        cfg.sizes.store_tokens = longest;
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
        cmocka_unit_test(a_pipeline_of_pieces_gives_the_gradient_of_the_whole),
        cmocka_unit_test(memory_follows_the_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
