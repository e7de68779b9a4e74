/* Ranks that share sequences, each with documents of its own beside them, together find the gradient of all documents
 * alone. */
#include "tests/unit/worker/tiny.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/sequence/zigzag.h"
#include "tests/unit/worker/test_comm_team.inc"

#define SHARED (int)COUNT(shared)
#define OWN 9 /* rows of the document that rank r has whole: so many and r */
#define ROOM 48
#define DOCS 8

/* The longest is more than a rank of two has room for; the shortest leaves most ranks without a row. */
static const int shared[] = {51, 1, 16};

/* bf16: a last bit here and there. */
static const double tolerance[] = {[KERN_F32] = TOLERANCE, [KERN_BF16] = 2e-2};

enum mistake { NONE, NO_MASK, OTHER_SEQUENCE, OTHER_SAMPLE, OTHER_END, POSITIONS_RESTART, OWN_DENOMINATOR, ONE_RANK };

struct run {
    int family;
    double dropout;
    enum kern_type type;
    enum recompute recompute;
    enum cp_mode mode;
    bool split, none_own; /* split: the backward in two parts */
    enum mistake mistake;
};

static int own_rows(const struct run *c, int rank)
{
    return c->none_own ? 0 : OWN + rank;
}

static int all_rows(const struct run *c, int ranks)
{
    int n = 0;

    for (int i = 0; i < SHARED; i++)
        n += shared[i];
    for (int r = 0; r < ranks; r++)
        n += own_rows(c, r);
    return n;
}

/* Rows [from, from + n) of document d, all of them targets. */
static void fill(struct stage_slot *slot, int at, int d, int from, int n)
{
    for (int r = 0; r < n; r++) {
        slot->tokens[at + r] = tiny_token(d, from + r);
        slot->targets[at + r] = tiny_token(d, from + r + 1);
    }
}

static int go(struct stage *st, struct stage_slot *slot, const struct run *c, float weight, float *g, struct merr *err)
{
    int r = stage_forward(st, slot, g, weight, err);

    if (r == 0 && c->split)
        r = stage_backward_input(st, slot, g, err);
    else if (r == 0)
        r = stage_backward(st, slot, g, err);
    return r == 0 && c->split ? stage_backward_weights(st, slot, g, err) : r;
}

/* One document after the other on one rank. */
static double alone(const struct tiny *m, const struct stage_cfg *like, const struct run *c, int ranks, float *g)
{
    struct stage_cfg cfg = *like;
    struct stage *st;
    struct merr err;
    double loss = 0;

    cfg.context = (struct context_cfg){.size = 0};
    cfg.sizes.length = TINY_CONTEXT;
    cfg.sizes.docs = 1;
    if (stage_new(&cfg, &st, NULL) != 0)
        return NAN;
    for (int d = 0; d < SHARED + ranks; d++) {
        struct stage_slot *slot = stage_slot(st, 0);
        int n = d < SHARED ? shared[d] : own_rows(c, d - SHARED);

        if (n == 0)
            continue;
        stage_slot_layout(st, slot, &n, 1);
        slot->sample[0] = 100 + (uint64_t)d;
        fill(slot, 0, d, 0, n);
        if (go(st, slot, c, 1.0f / (float)all_rows(c, ranks), g, &err) != 0)
            return NAN;
        loss += slot->loss;
    }
    stage_free(st);
    (void)m;
    return loss;
}

static void load(struct stage *st, struct stage_slot *slot, const struct run *c, int ranks, int rank)
{
    int own = own_rows(c, rank), doc = 0, at = 0;

    stage_slot_share(st, slot, shared, SHARED, &own, own > 0);
    for (int d = 0; d < SHARED; d++)
        for (int i = 0; i < ZIGZAG_PIECES; i++) {
            struct zigzag z = zigzag_piece(shared[d], ranks, rank, i);

            if (z.tokens == 0)
                continue;
            fill(slot, at, d, (int)z.start, (int)z.tokens);
            slot->sample[doc++] = 100 + (uint64_t)d;
            at += (int)z.tokens;
        }
    for (int d = 0; d < SHARED; d++)
        slot->shared.whole_sample[d] = 100 + (uint64_t)d;
    fill(slot, at, SHARED + rank, 0, own);
    slot->sample[doc] = 100 + (uint64_t)(SHARED + rank);
    if (c->mistake == NO_MASK)
        slot->shared.past[0] = shared[0] - (slot->cu[1] - slot->cu[0]);
    if (c->mistake == OTHER_SEQUENCE)
        slot->shared.kv_at[0] += 1;
    if (c->mistake == OTHER_SAMPLE)
        slot->shared.whole_sample[0] += 1;
    if (c->mistake == OTHER_END)
        slot->shared.whole_cu[1] -= 3;
    for (int r = 0; r < slot->rows && c->mistake == POSITIONS_RESTART; r++)
        slot->position[r] = r % TINY_CONTEXT;
}

static int together(struct comm_world *w, struct stage *st, const struct tiny *m, const struct run *c, float *g,
                    double *ret_loss)
{
    struct comm_group *all = team_all(w, "sum");
    struct stage_slot *slot = stage_slot(st, 0);
    int ranks = comm_size(w), targets = all_rows(c, ranks);

    load(st, slot, c, ranks, comm_rank(w));
    if (c->mistake == OWN_DENOMINATOR)
        targets = slot->rows * ranks;
    GOOD(go(st, slot, c, 1.0f / (float)targets, g, &err));
    *ret_loss = slot->loss;
    if (c->mistake == ONE_RANK)
        return 0;
    GOOD(comm_all_reduce(all, g, m->p.grad_n, COMM_F32, COMM_SUM, &err));
    GOOD(comm_all_reduce(all, ret_loss, 1, COMM_F64, COMM_SUM, &err));
    return 0;
}

static int one_run(struct comm_world *w, const struct run *c)
{
    const struct kern_ops *k = c->type == KERN_BF16 ? kern_cpu() : kern_plain();
    struct comm_group *cp = team_all(w, "cp");
    float *want, *have, *again;
    struct stage_cfg cfg;
    double loss, other, off;
    struct stage *st;
    struct tiny m;

    tiny_open(&m, c->family, c->dropout, k);
    cfg = tiny_cfg(&m, ROOM, DOCS, 1);
    cfg.precision.type = c->type;
    cfg.retain.policy = retain_recompute(c->recompute);
    cfg.split = c->split;
    cfg.context.group = cp;
    cfg.context.size = comm_size(w);
    cfg.context.index = comm_rank(w);
    cfg.context.mode = c->mode;
    want = tiny_gradients(&m);
    have = tiny_gradients(&m);
    again = tiny_gradients(&m);
    loss = alone(&m, &cfg, c, comm_size(w), want);
    GOOD(stage_new(&cfg, &st, &err));
    NEED(together(w, st, &m, c, have, &other) == 0);
    off = tiny_difference(&m, want, have);
    if (c->mistake == NONE) {
        NEED(fabs(other - loss) < tolerance[c->type] * loss);
        NEED(off < tolerance[c->type]);
        NEED(together(w, st, &m, c, again, &other) == 0);
        NEED(memcmp(have, again, m.p.grad_n * sizeof(*have)) == 0);
    } else {
        NEED(off > 100 * tolerance[c->type]);
    }
    stage_free(st);
    tiny_close(&m);
    free(want);
    free(have);
    free(again);
    return 0;
}

static int all_of(struct comm_world *w, const struct run *runs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        NEED(one_run(w, &runs[i]) == 0);
    return 0;
}

static int of_two(struct team *t, struct comm_world *w)
{
    static const struct run runs[] = {
        {.family = 0, .dropout = 0.3},
        {.family = 1, .dropout = 0.3, .recompute = RECOMPUTE_FULL},
        {.family = 1, .recompute = RECOMPUTE_SELECTIVE, .none_own = true},
        {.family = 0, .split = true},
        {.family = 1, .type = KERN_BF16},
        {.family = 2, .dropout = 0.3, .recompute = RECOMPUTE_FULL},
        {.family = 2, .split = true, .type = KERN_BF16},
        {.mode = CP_ULYSSES, .family = 0, .dropout = 0.3, .split = true},
        {.mode = CP_ULYSSES, .family = 2, .dropout = 0.3},
        {.mode = CP_ULYSSES, .family = 1, .dropout = 0.3, .recompute = RECOMPUTE_FULL},
        {.mode = CP_ULYSSES, .family = 1, .recompute = RECOMPUTE_SELECTIVE, .none_own = true},
        {.mode = CP_ULYSSES, .family = 1, .type = KERN_BF16},
    };

    (void)t;
    return all_of(w, runs, COUNT(runs));
}

/* Llama's two heads of keys and values are too few for four ranks. */
static int of_four(struct team *t, struct comm_world *w)
{
    static const struct run runs[] = {
        {.family = 0, .dropout = 0.3},
        {.family = 1, .recompute = RECOMPUTE_FULL},
        {.mode = CP_ULYSSES, .family = 0, .dropout = 0.3},
    };

    (void)t;
    return all_of(w, runs, COUNT(runs));
}

static int wrong_ones(struct team *t, struct comm_world *w)
{
    /* rotated positions are relative: only learned ones notice where a piece begins */
    static const struct run runs[] = {
        {.mistake = NO_MASK},
        {.mistake = OTHER_SEQUENCE},
        {.mistake = POSITIONS_RESTART},
        {.mistake = OWN_DENOMINATOR},
        {.mistake = ONE_RANK},
        {.mode = CP_ULYSSES, .mistake = OTHER_SAMPLE, .dropout = 0.3},
        {.mode = CP_ULYSSES, .mistake = OTHER_END},
    };

    (void)t;
    return all_of(w, runs, COUNT(runs));
}

/* --- what travels meanwhile ---------------------------------------------------------------------------------- */

#define PATIENCE_MS 20000

/* Rank 0 does not begin with its own documents before rank 1 has what rank 0 sent: it must be on its way by then. */
static struct {
    const struct kern_ops *under;
    int ends[2]; /* of a pipe: a byte for each time that rank 1 had something */
    int rank;
    bool back;
} slow;

static int has_it(struct merr *err)
{
    return write(slow.ends[1], "", 1) == 1 ? 0 : merr_set(err, -errno, "rank 1 cannot say what it has");
}

static int other_has_it(struct merr *err)
{
    struct pollfd end = {.fd = slow.ends[0], .events = POLLIN};
    char byte;

    if (poll(&end, 1, PATIENCE_MS) != 1 || read(slow.ends[0], &byte, 1) != 1)
        return merr_set(err, -ETIMEDOUT, "what rank 1 waits for is not sent before rank 0 has done all else");
    return 0;
}

static int slow_forward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    int r = 0;

    if (a->kv && slow.rank == 1) /* the keys of all ranks are here */
        r = has_it(err);
    else if (!a->kv && slow.rank == 0)
        r = other_has_it(err);
    return r == 0 ? slow.under->attention_forward(s, a, err) : r;
}

static int slow_backward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    int r = !a->kv && slow.rank == 0 ? other_has_it(err) : 0;

    return r == 0 ? slow.under->attention_backward(s, a, err) : r;
}

/* A backward adds nothing but what all ranks found of the gradients of keys and values. */
static int slow_add(struct kern_stream *s, float *y, const float *x, size_t n, struct merr *err)
{
    int r = slow.back && slow.rank == 1 ? has_it(err) : 0;

    return r == 0 ? slow.under->add(s, y, x, n, err) : r;
}

static int of_slow_ones(struct team *t, struct comm_world *w)
{
    static const struct run c = {.family = 1};
    struct kern_ops k = *kern_plain();
    struct stage_slot *slot;
    struct stage_cfg cfg;
    struct stage *st;
    struct tiny m;
    float *g;

    (void)t;
    slow.under = kern_plain();
    slow.rank = comm_rank(w);
    k.attention_forward = slow_forward;
    k.attention_backward = slow_backward;
    k.add = slow_add;
    tiny_open(&m, c.family, c.dropout, &k);
    g = tiny_gradients(&m);
    cfg = tiny_cfg(&m, ROOM, DOCS, 1);
    cfg.context.group = team_all(w, "cp");
    cfg.context.size = comm_size(w);
    cfg.context.index = comm_rank(w);
    GOOD(stage_new(&cfg, &st, &err));
    slot = stage_slot(st, 0);
    load(st, slot, &c, comm_size(w), comm_rank(w));
    GOOD(stage_forward(st, slot, g, 0.01f, &err));
    slow.back = true;
    GOOD(stage_backward(st, slot, g, &err));
    stage_free(st);
    tiny_close(&m);
    free(g);
    return 0;
}

static void a_rank_that_is_behind_with_its_own_documents_holds_nobody_up(void **state)
{
    (void)state;
    assert_int_equal(pipe(slow.ends), 0);
    team_run(2, TEAM_SHM, 0, of_slow_ones, NULL);
    assert_int_equal(close(slow.ends[0]), 0);
    assert_int_equal(close(slow.ends[1]), 0);
}

static void ranks_together_find_the_gradient_of_documents_alone(void **state)
{
    (void)state;
    team_run(4, TEAM_SHM, 0, of_four, NULL);
    team_run(2, TEAM_MIXED, 0, of_two, NULL);
}

static void mistakes_in_sharing_are_seen(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, wrong_ones, NULL);
}

static void a_slot_without_a_layout_shares_full_sequences(void **state)
{
    struct tiny m;
    struct stage_cfg cfg;
    struct stage *st;
    struct stage_slot *slot;

    (void)state;
    tiny_open(&m, 0, 0, kern_plain());
    cfg = tiny_cfg(&m, 8, 0, 1);
    cfg.sizes.micro = 2;
    cfg.context.size = 3;
    cfg.context.index = 1;
    assert_int_equal(stage_new(&cfg, &st, NULL), 0);
    slot = stage_slot(st, 0);
    assert_int_equal(slot->rows, 16);
    assert_int_equal(slot->shared.n, 2);
    assert_int_equal(slot->shared.whole_rows, 48);
    assert_int_equal(slot->docs, 4);
    assert_int_equal(slot->position[0], 4);
    assert_int_equal(slot->position[4], 16);
    assert_int_equal(slot->shared.kv_at[3], 24);
    stage_slot_layout(st, slot, &(int){5}, 1);
    assert_int_equal(slot->shared.n, 0);
    assert_int_equal(slot->rows, 5);
    stage_free(st);
    tiny_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_together_find_the_gradient_of_documents_alone),
        cmocka_unit_test(mistakes_in_sharing_are_seen),
        cmocka_unit_test(a_rank_that_is_behind_with_its_own_documents_holds_nobody_up),
        cmocka_unit_test(a_slot_without_a_layout_shares_full_sequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
