/* However the documents of a batch are packed, ordered and padded, the gradient is that of each document alone. */
#include "tests/unit/worker/tiny.h"

#include <string.h>

#define VOCAB 21
#define CONTEXT 16
#define ROOM 40
#define DOCS 5

static const int document[DOCS] = {7, 1, 12, 3, 16};

struct model {
    struct model_cfg model;
    struct params p;
    const struct kern_ops *k;
    struct kern_stream *s;
    struct stage *st;
    float *w;
};

static const struct model_cfg families[] = {
    {.family = &family_gpt2,
     .layers = 2,
     .hidden = 12,
     .heads = 3,
     .ffn = 20,
     .context = CONTEXT,
     .vocab = VOCAB,
     .tied = true,
     .norm_eps = 1e-5,
     .seed = 5},
    {.family = &family_llama,
     .layers = 2,
     .hidden = 16,
     .heads = 4,
     .kv_heads = 2,
     .ffn = 20,
     .context = CONTEXT,
     .vocab = VOCAB,
     .rope = {.theta = 100},
     .norm_eps = 1e-5,
     .seed = 5},
    {.family = &family_llama,
     .layers = 2,
     .hidden = 16,
     .heads = 4,
     .kv_heads = 2,
     .dim = 6,
     .ffn = 20,
     .context = CONTEXT,
     .vocab = VOCAB,
     .qk_norm = true,
     .window = 5,
     .rope = {.theta = 100},
     .norm_eps = 1e-5,
     .seed = 5},
};

static void open_model(struct model *m, const struct model_cfg *c, double dropout, const struct kern_ops *k)
{
    struct kern_cfg kc = {.threads = 1};
    struct stage_cfg sc;

    *m = (struct model){.k = k, .model = *c};
    m->model.dropout = dropout;
    assert_int_equal(model_cut(&m->model, 1, 0, NULL), 0);
    assert_int_equal(m->k->stream_new(&kc, &m->s, NULL), 0);
    assert_int_equal(params_init(&m->p, &m->model, &(struct layer_range){0, 2}, 1, true, true, NULL), 0);
    m->w = calloc(m->p.weight_n, sizeof(float));
    assert_non_null(m->w);
    params_fill(&m->p, 3, 1, m->w);
    sc = (struct stage_cfg){.k = m->k,
                            .stream = m->s,
                            .model = &m->model,
                            .params = &m->p,
                            .weights = m->w,
                            .part = {.layers = m->p.chunk[0], .first = true, .last = true},
                            .sizes = {.micro = 1, .length = ROOM, .docs = DOCS, .slots = 1}};
    assert_int_equal(stage_new(&sc, &m->st, NULL), 0);
}

static void close_model(struct model *m)
{
    stage_free(m->st);
    params_clear(&m->p);
    m->k->stream_free(m->s);
    free(m->w);
}

enum mistake { NONE, NO_MASK, POSITIONS_GO_ON, OWN_DENOMINATOR };

/* One micro-batch of the documents order[0..n), each brought to at least `pad` rows, added to g. */
static double run(struct model *m, const int *order, int n, int pad, enum mistake mistake, float *g)
{
    struct stage_slot *slot = stage_slot(m->st, 0);
    int length[DOCS], all = 0, at = 0, targets = 0;

    for (int d = 0; d < DOCS; d++)
        all += document[d] - 1;
    for (int i = 0; i < n; i++) {
        length[i] = document[order[i]] > pad ? document[order[i]] : pad;
        targets += document[order[i]] - 1;
        slot->sample[i] = 100 + (uint64_t)order[i];
    }
    stage_slot_layout(m->st, slot, length, n);
    for (int i = 0; i < n; at += length[i++])
        for (int r = 0; r < length[i]; r++) {
            int seed = 31 * order[i] + r;

            slot->tokens[at + r] = r < document[order[i]] ? seed * 7 % VOCAB : 0;
            slot->targets[at + r] = r < document[order[i]] - 1 ? (seed + 1) * 7 % VOCAB : -1;
        }
    assert_int_equal(slot->rows, at);
    if (mistake == NO_MASK) {
        slot->docs = 1;
        slot->cu[1] = at;
    }
    for (int r = 0; r < at && mistake == POSITIONS_GO_ON; r++)
        slot->position[r] = r % CONTEXT;
    all = mistake == OWN_DENOMINATOR ? targets : all;
    assert_int_equal(stage_forward(m->st, slot, g, 1.0f / (float)all, NULL), 0);
    assert_int_equal(stage_backward(m->st, slot, g, NULL), 0);
    return slot->loss;
}

struct layout {
    int micros;
    struct {
        int n, order[DOCS], pad;
    } micro[DOCS];
};

static const struct layout alone = {5, {{1, {0}, 0}, {1, {1}, 0}, {1, {2}, 0}, {1, {3}, 0}, {1, {4}, 0}}};
static const struct layout layouts[] = {
    {1, {{5, {0, 1, 2, 3, 4}, 0}}},                       /* packed */
    {1, {{5, {4, 2, 0, 3, 1}, 0}}},                       /* sorted */
    {2, {{2, {4, 2}, 0}, {3, {3, 0, 1}, 0}}},             /* over two micro-batches */
    {3, {{2, {0, 1}, 7}, {2, {2, 3}, 12}, {1, {4}, 16}}}, /* padded */
};

static double gradient(struct model *m, const struct layout *l, enum mistake mistake, float **ret)
{
    double loss = 0;

    *ret = calloc(m->p.grad_n, sizeof(float));
    assert_non_null(*ret);
    for (int j = 0; j < l->micros; j++)
        loss += run(m, l->micro[j].order, l->micro[j].n, l->micro[j].pad, mistake, *ret);
    return loss;
}

static void each_layout_gives_the_gradient_of_documents_alone(void **state)
{
    const struct kern_ops *const tables[] = {kern_plain(), kern_cpu()};
    static const double dropouts[] = {0, 0.3};

    (void)state;
    for (size_t t = 0; t < COUNT(tables) * COUNT(families) * COUNT(dropouts); t++) {
        struct model m;
        float *want, *have;
        double loss;

        open_model(&m, &families[t / 2 % COUNT(families)], dropouts[t / 2 / COUNT(families)], tables[t % 2]);
        loss = gradient(&m, &alone, NONE, &want);
        for (size_t l = 0; l < COUNT(layouts); l++) {
            assert_true(fabs(gradient(&m, &layouts[l], NONE, &have) - loss) < TOLERANCE * loss);
            if (relative_difference(want, have, m.p.grad_n) > TOLERANCE)
                fail_msg("kernels %s, family %zu, dropout %g, layout %zu: off by %g", m.k->name,
                         t / 2 % COUNT(families), dropouts[t / 2 / COUNT(families)], l,
                         relative_difference(want, have, m.p.grad_n));
            free(have);
        }
        free(want);
        close_model(&m);
    }
}

static void mistakes_in_packing_are_seen(void **state)
{
    static const enum mistake mistakes[] = {NO_MASK, POSITIONS_GO_ON, OWN_DENOMINATOR};

    (void)state;
    for (size_t i = 0; i < COUNT(mistakes); i++) {
        struct model m;
        float *want, *have;

        /* rotated positions are relative: only learned ones notice where a document begins */
        open_model(&m, &families[0], 0, kern_plain());
        (void)gradient(&m, &alone, NONE, &want);
        (void)gradient(&m, &layouts[2], mistakes[i], &have);
        assert_true(relative_difference(want, have, m.p.grad_n) > 1000 * TOLERANCE);
        free(want);
        free(have);
        close_model(&m);
    }
}

static void a_layout_is_left_again(void **state)
{
    static const int two[] = {3, 4};
    struct model m;
    struct stage_slot *slot;

    (void)state;
    open_model(&m, &families[0], 0, kern_plain());
    slot = stage_slot(m.st, 0);
    assert_int_equal(slot->rows, ROOM);
    stage_slot_layout(m.st, slot, two, 2);
    assert_int_equal(slot->rows, 7);
    assert_int_equal(slot->cu[1], 3);
    assert_int_equal(slot->position[3], 0);
    stage_slot_layout(m.st, slot, NULL, 0);
    assert_int_equal(slot->rows, ROOM);
    assert_int_equal(slot->docs, 1);
    assert_int_equal(slot->position[ROOM - 1], ROOM - 1);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layout_gives_the_gradient_of_documents_alone),
        cmocka_unit_test(mistakes_in_packing_are_seen),
        cmocka_unit_test(a_layout_is_left_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
