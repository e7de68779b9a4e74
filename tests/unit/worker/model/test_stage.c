/* The model's gradient against differences of its loss, on one rank with the plain kernels. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage.h"

#define MICRO 2
#define LENGTH 5
#define ROWS (MICRO * LENGTH)

struct model {
    struct model_cfg model;
    struct params p;
    const struct kern_ops *k;
    struct kern_stream *s;
    struct stage *st;
    float *w, *g;
    uint16_t *rounded; /* w in bf16 */
};

/* Small models of both families; heads share keys and values in the Llamas. */
static const struct model_cfg gpt2 = {.family = &family_gpt2,
                                      .layers = 2,
                                      .hidden = 12,
                                      .heads = 3,
                                      .ffn = 20,
                                      .context = 8,
                                      .vocab = 21,
                                      .tied = true,
                                      .norm_eps = 1e-5,
                                      .seed = 5};
static const struct model_cfg llama = {.family = &family_llama,
                                       .layers = 2,
                                       .hidden = 16,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .ffn = 20,
                                       .context = 8,
                                       .vocab = 21,
                                       .rope = {.theta = 100},
                                       .norm_eps = 1e-5,
                                       .seed = 5};

static const struct model_cfg normed = {.family = &family_llama, /* as Qwen3, in a window */
                                        .layers = 2,
                                        .hidden = 16,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .dim = 6,
                                        .ffn = 20,
                                        .context = 8,
                                        .vocab = 21,
                                        .qk_norm = true,
                                        .window = 3,
                                        .rope = {.theta = 100},
                                        .norm_eps = 1e-5,
                                        .seed = 5};
static const struct model_cfg fused = {.family = &family_llama, /* as Phi-3 */
                                       .layers = 2,
                                       .hidden = 16,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .ffn = 20,
                                       .context = 8,
                                       .vocab = 21,
                                       .fused = true,
                                       .rope = {.theta = 100},
                                       .norm_eps = 1e-5,
                                       .seed = 5};

static void open_cached(struct model *m, const struct model_cfg *c, double dropout, int length, int cache)
{
    struct kern_cfg kc = {.threads = 1};
    struct stage_cfg sc;

    *m = (struct model){.k = kern_plain(), .model = *c};
    m->model.dropout = dropout;
    assert_int_equal(model_cut(&m->model, 1, 0, NULL), 0);
    assert_int_equal(m->k->stream_new(&kc, &m->s, NULL), 0);
    assert_int_equal(params_init(&m->p, &m->model, &(struct layer_range){0, 2}, 1, true, true, NULL), 0);
    m->w = calloc(m->p.weight_n, sizeof(float));
    m->g = calloc(m->p.grad_n, sizeof(float));
    params_fill(&m->p, 3, 1, m->w);
    for (size_t i = 0; i < m->p.weight_n; i++)
        m->w[i] *= 5;                /* away from the flat start, where differences say little */
    for (int i = 0; i < m->p.n; i++) /* heads' norms alone set how sharp attention is */
        for (size_t j = 0; j < m->p.v[i].n && strstr(m->p.v[i].name, "self_attn.") && m->p.v[i].constant > 0; j++)
            m->w[m->p.v[i].at + j] = 0.5f + 0.2f * (float)j;
    m->rounded = calloc(m->p.weight_n, sizeof(*m->rounded));
    assert_int_equal(m->k->to_bf16(m->s, m->w, m->p.weight_n, m->rounded, NULL), 0);
    sc = (struct stage_cfg){.k = m->k,
                            .stream = m->s,
                            .model = &m->model,
                            .params = &m->p,
                            .weights = m->w,
                            .sizes = {.micro = cache ? 1 : MICRO, .length = length, .slots = 1, .cache = cache},
                            .part = {.first = true, .last = true, .layers = m->p.chunk[0]}};
    assert_int_equal(stage_new(&sc, &m->st, NULL), 0);
}

static struct stage_cfg with_two_slots(const struct model *m)
{
    return (struct stage_cfg){.k = m->k,
                              .stream = m->s,
                              .model = &m->model,
                              .params = &m->p,
                              .weights = m->w,
                              .part = {.layers = m->p.chunk[0], .first = true, .last = true},
                              .sizes = {.micro = MICRO, .length = LENGTH, .slots = 2},
                              .precision = {.matrices = m->rounded}};
}

/* The model's stage anew, with two slots. */
static void stage_anew(struct model *m, bool split, enum kern_type type, enum recompute recompute, int kept)
{
    struct stage_cfg sc = with_two_slots(m);

    sc.split = split;
    sc.precision.type = type;
    sc.retain = (struct retain_cfg){.policy = retain_recompute(recompute), .kept = kept};
    stage_free(m->st);
    assert_int_equal(stage_new(&sc, &m->st, NULL), 0);
}

static void open_model(struct model *m, const struct model_cfg *c, double dropout)
{
    open_cached(m, c, dropout, LENGTH, 0);
}

static void close_model(struct model *m)
{
    stage_free(m->st);
    params_clear(&m->p);
    m->k->stream_free(m->s);
    free(m->w);
    free(m->g);
    free(m->rounded);
}

static double loss_in(struct model *m, int at, float *grad)
{
    struct stage_slot *slot = stage_slot(m->st, at);

    for (int i = 0; i < ROWS; i++) {
        slot->tokens[i] = (i * 7 + 3) % 21;
        slot->targets[i] = i == 4 ? -1 : (i * 5 + 1) % 21; /* one that does not count */
    }
    slot->sample[0] = 11;
    slot->sample[1] = 12;
    m->k->weights_changed(m->s, m->w, m->p.weight_n * sizeof(float));
    /* dropout is part of training: differences are taken of the same masked function */
    assert_int_equal(stage_forward(m->st, slot, grad, 1, NULL), 0);
    return slot->loss;
}

static double loss(struct model *m, float *grad)
{
    return loss_in(m, 0, grad);
}

static void add_head(struct model *m)
{
    for (size_t i = 0; m->p.grad_head_at && i < m->p.tied_n; i++)
        m->g[m->p.rest_n + i] += m->g[m->p.grad_head_at + i];
}

/* (L(w + e·d) - L(w - e·d)) / 2e against g·d for a random direction d in each tensor alone. */
static void check_tensors(struct model *m)
{
    float *scratch = calloc(m->p.grad_n, sizeof(float)), *keep = malloc(m->p.weight_n * sizeof(float));
    uint32_t key[2] = {9, 9};

    (void)loss(m, m->g);
    assert_int_equal(stage_backward(m->st, stage_slot(m->st, 0), m->g, NULL), 0);
    add_head(m);
    memcpy(keep, m->w, m->p.weight_n * sizeof(float));
    for (int i = 0; i < m->p.n; i++) {
        const struct param *q = &m->p.v[i];
        size_t n = q->shape[0] * (q->ndim > 1 ? q->shape[1] : 1);
        double want = 0, norm = 0, up = 0, down = 0;
        const double e = 1e-3;

        for (int sign = 1; sign >= -1; sign -= 2) {
            for (size_t j = 0; j < n; j++) {
                uint32_t ctr[4] = {(uint32_t)j, (uint32_t)i, 0, 0}, w[4];
                double d;

                philox4x32(ctr, key, w);
                d = (double)philox_unit(w[0]) - 0.5;
                m->w[q->at + j] = (float)((double)keep[q->at + j] + sign * e * d);
                if (sign > 0) {
                    want += (double)m->g[q->at + j] * d;
                    norm += fabs((double)m->g[q->at + j] * d);
                }
            }
            if (sign > 0)
                up = loss(m, scratch);
            else
                down = loss(m, scratch);
        }
        memcpy(m->w, keep, m->p.weight_n * sizeof(float));
        /* f32 noise of the loss over 2e, and the third derivative: one part in a hundred of the terms */
        if (fabs((up - down) / (2 * e) - want) > 0.01 * norm + 2e-3)
            fail_msg("%s: difference %g, gradient %g (terms %g)", q->name, (up - down) / (2 * e), want, norm);
        assert_true(norm > 0);
    }
    free(scratch);
    free(keep);
}

static void gradients_agree_with_differences(void **state)
{
    static const struct {
        const struct model_cfg *c;
        bool tied, bias;
        double dropout;
    } t[] = {
        {&gpt2, true, false, 0},     {&gpt2, false, false, 0},  {&gpt2, true, false, 0.3}, {&llama, true, false, 0},
        {&llama, false, false, 0},   {&llama, false, true, 0},  {&llama, true, true, 0.3}, {&normed, false, false, 0},
        {&normed, true, false, 0.3}, {&fused, false, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct model_cfg c = *t[i].c;
        struct model m;

        c.tied = t[i].tied;
        c.qkv_bias = t[i].bias;
        open_model(&m, &c, t[i].dropout);
        check_tensors(&m);
        close_model(&m);
    }
}

/* What a cache gives is what the whole sequence at once gives, however the tokens are handed in. */
static void decoding_agrees_with_the_whole_sequence(void **state)
{
    static const struct model_cfg *const all[] = {&gpt2, &llama, &normed, &fused};
    static const int32_t token[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    static const int steps[][8] = {{8}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 4, 1}, {5, 1, 2}};

    (void)state;
    for (size_t f = 0; f < COUNT(all); f++)
        for (size_t k = 0; k < COUNT(steps); k++) {
            struct model whole, some;
            float want[64], have[64];
            struct stage_slot *slot;
            int at;

            open_cached(&whole, all[f], 0.5, 8, 0);
            open_cached(&some, all[f], 0.5, 3, 8);
            slot = stage_slot(whole.st, 0);
            for (int i = 0; i < 16; i++) {
                slot->tokens[i] = token[i % 8];
                slot->targets[i] = -1;
            }
            assert_int_equal(stage_forward(whole.st, slot, NULL, 0, NULL), 0);
            assert_int_equal(stage_logits(whole.st, slot, 7, want, NULL), 0);
            for (int again = 0; again < 2; again++, stage_forget(some.st)) {
                at = 0;
                for (int j = 0; at < 8; at += steps[k][j++])
                    assert_int_equal(stage_decode(some.st, token + at, steps[k][j], have, NULL), 0);
                for (int i = 0; i < 21; i++)
                    assert_true(fabsf(have[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i])));
            }
            assert_int_equal(stage_decode(some.st, token, 8, have, NULL), 0);
            assert_int_equal(stage_decode(some.st, token, 1, have, NULL), -EMSGSIZE);
            close_model(&whole);
            close_model(&some);
        }
}

/* In two parts, with another micro-batch between them, as in a zero-bubble pipeline. */
static void a_backward_in_two_parts_gives_the_bits_of_a_whole_one(void **state)
{
    static const struct model_cfg *const all[] = {&gpt2, &llama, &normed, &fused};

    (void)state;
    for (size_t f = 0; f < COUNT(all); f++)
        for (int dropout = 0; dropout < 2; dropout++) {
            struct model whole, parts;
            float *weights;

            open_model(&whole, all[f], dropout * 0.3);
            open_model(&parts, all[f], dropout * 0.3);
            weights = calloc(parts.p.grad_n, sizeof(float)); /* each part has an arena of its own */
            for (int i = 0; i < 2; i++) {
                (void)loss(&whole, whole.g);
                assert_int_equal(stage_backward(whole.st, stage_slot(whole.st, 0), whole.g, NULL), 0);
            }
            stage_anew(&parts, true, KERN_F32, RECOMPUTE_NONE, 0);
            for (int i = 0; i < 2; i++) {
                (void)loss_in(&parts, i, parts.g);
                assert_int_equal(stage_backward_input(parts.st, stage_slot(parts.st, i), parts.g, NULL), 0);
            }
            for (int i = 0; i < 2; i++)
                assert_int_equal(stage_backward_weights(parts.st, stage_slot(parts.st, i), weights, NULL), 0);
            for (size_t i = 0; i < parts.p.grad_n; i++) {
                bool late = i >= parts.p.blocks_at[0] && i < parts.p.chunk_at[1];

                assert_true((late ? parts.g : weights)[i] == 0);
                assert_memory_equal(&(late ? weights : parts.g)[i], &whole.g[i], sizeof(float));
            }
            free(weights);
            close_model(&whole);
            close_model(&parts);
        }
}

/* Two micro-batches in flight: loss and gradient of both. */
static double two_micros(struct model *m)
{
    double sum = 0;

    memset(m->g, 0, m->p.grad_n * sizeof(*m->g));
    for (int i = 0; i < 2; i++)
        sum += loss_in(m, i, m->g);
    for (int i = 0; i < 2; i++)
        assert_int_equal(stage_backward(m->st, stage_slot(m->st, i), m->g, NULL), 0);
    return sum;
}

static void what_is_made_again_has_the_same_bits(void **state)
{
    static const struct model_cfg *const all[] = {&gpt2, &llama, &normed, &fused};

    (void)state;
    for (int i = 0; i < 16; i++) { /* family, dropout, type */
        enum kern_type type = i & 8 ? KERN_BF16 : KERN_F32;
        struct model m;
        float *want;
        double at;

        open_model(&m, all[i & 3], i & 4 ? 0.3 : 0);
        want = calloc(m.p.grad_n, sizeof(*want));
        stage_anew(&m, false, type, RECOMPUTE_NONE, 0);
        at = two_micros(&m);
        memcpy(want, m.g, m.p.grad_n * sizeof(*want));
        for (int r = 2 * RECOMPUTE_SELECTIVE; r <= 2 * RECOMPUTE_FULL + 1; r++) { /* of all blocks, of all but one */
            stage_anew(&m, false, type, (enum recompute)(r / 2), r % 2);
            assert_true(two_micros(&m) == at);
            assert_memory_equal(m.g, want, m.p.grad_n * sizeof(*want));
        }
        free(want);
        close_model(&m);
    }
}

/* A gradient goes through some ten roundings of one part in 256, and these weights are sharp: a few in a hundred. */
static void gradients_in_bf16_are_near_those_in_f32(void **state)
{
    static const struct model_cfg *const all[] = {&gpt2, &llama, &normed, &fused};

    (void)state;
    for (int f = 0; f < 4; f++) {
        struct model m;
        float *want;
        double at;

        open_model(&m, all[f], 0);
        want = calloc(m.p.grad_n, sizeof(*want));
        stage_anew(&m, false, KERN_F32, RECOMPUTE_NONE, 0);
        at = two_micros(&m);
        memcpy(want, m.g, m.p.grad_n * sizeof(*want));
        stage_anew(&m, false, KERN_BF16, RECOMPUTE_NONE, 0);
        assert_true(fabs(two_micros(&m) - at) < 5e-3 * at);
        for (int i = 0; i < m.p.n; i++) {
            const struct param *q = &m.p.v[i];
            double off = 0, size = 0;

            for (size_t j = q->at; j < q->at + q->n; j++) {
                off += pow((double)m.g[j] - (double)want[j], 2);
                size += pow((double)want[j], 2);
            }
            /* a bias of keys moves every score of a query alike: its gradient is nothing but rounding */
            if (sqrt(off) > 0.06 * sqrt(size) + 1e-6)
                fail_msg("%s: the gradient in bf16 is %g off, of %g", q->name, sqrt(off), sqrt(size));
        }
        free(want);
        close_model(&m);
    }
}

/* The plan counts what is taken, and less with more made again and with bf16. */
static void the_plan_of_memory_shrinks_with_what_is_made_again(void **state)
{
    size_t last[2] = {SIZE_MAX, SIZE_MAX};
    struct model m;

    (void)state;
    open_model(&m, &gpt2, 0);
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        size_t bytes[2];

        for (int type = KERN_F32; type <= KERN_BF16; type++) {
            struct stage_cfg sc = {.k = m.k,
                                   .model = &m.model,
                                   .params = &m.p,
                                   .part = {.layers = m.p.chunk[0]},
                                   .sizes = {.micro = 8, .length = 100, .slots = 4},
                                   .precision = {.type = (enum kern_type)type},
                                   .retain.policy = retain_recompute((enum recompute)r)};

            bytes[type] = stage_bytes(&sc, true);
            assert_true(bytes[type] < last[type] && stage_bytes(&sc, false) < bytes[type]);
            sc.retain.kept = 1;
            assert_true((stage_bytes(&sc, true) > bytes[type]) == (r != RECOMPUTE_NONE));
            last[type] = bytes[type];
        }
        assert_true(bytes[KERN_BF16] < bytes[KERN_F32]);
    }
    close_model(&m);
}

static void evaluation_drops_nothing_and_changes_no_gradient(void **state)
{
    struct model a, b;
    double x, y;

    (void)state;
    open_model(&a, &gpt2, 0.3);
    open_model(&b, &gpt2, 0);
    x = loss(&a, NULL);
    y = loss(&b, NULL);
    assert_true(x == y);
    assert_true(loss(&a, a.g) != x);
    close_model(&a);
    close_model(&b);
}

static void padding_of_the_vocabulary_gets_no_gradient(void **state)
{
    struct model m;

    (void)state;
    open_model(&m, &gpt2, 0);
    (void)loss(&m, m.g);
    assert_int_equal(stage_backward(m.st, stage_slot(m.st, 0), m.g, NULL), 0);
    for (size_t i = (size_t)21 * 12; i < m.p.tied_n; i++)
        assert_true(m.g[m.p.rest_n + i] == 0 && m.g[m.p.grad_head_at + i] == 0);
    close_model(&m);
}

/* Each case of this is one thing that cannot be, in a stage that can. */
static const char *spoil(struct stage_cfg *c, int what)
{
    switch (what) {
    case 0:
        c->sizes.slots = 0;
        return "rows and slots";
    case 1:
        c->part.layers.end = c->part.layers.begin;
        return "has blocks";
    case 2:
        c->retain.policy = "square";
        return "a policy that there is";
    case 3:
        c->precision = (struct stage_precision){.type = KERN_BF16};
        return "matrices in bf16";
    case 4:
        c->split = true;
        c->retain.policy = "selective";
        return "all activations kept";
    case 5:
        c->split = true;
        c->retain = (struct retain_cfg){.policy = "sqrt", .run = 2};
        return "all activations kept";
    case 6:
        c->split = true;
        c->sizes.bodies = 1;
        return "activations of all slots kept";
    case 7:
        c->retain.policy = "mimose";
        c->sizes.bodies = 1;
        return "slots that all hold activations";
    case 8:
        c->retain.policy = "mimose";
        c->context.size = 2;
        return "ranks that share no sequences";
    case 9:
        c->context.size = 2;
        c->sizes.stores = 1;
        return "in pieces is not shared";
    case 10:
        c->context.size = 2;
        c->sizes.cache = 8;
        return "generates shares no sequences";
    case 11:
        c->sizes.bodies = 1;
        c->sizes.cache = 8;
        return "one slot's activations";
    case 12:
        c->precision.type = KERN_BF16;
        c->sizes.cache = 8;
        return "in f32";
    case 13:
        c->context = (struct context_cfg){.mode = CP_ULYSSES, .size = 2};
        return "cannot share the 3 kv_heads";
    default:
        return NULL;
    }
}

static void what_a_stage_cannot_be_is_refused_in_words(void **state)
{
    struct model m;
    int i;

    (void)state;
    open_model(&m, &gpt2, 0);
    for (i = 0;; i++) {
        struct stage_cfg c = with_two_slots(&m);
        const char *words = spoil(&c, i);
        struct stage *st = NULL;
        struct merr err;

        if (!words)
            break;
        assert_int_equal(stage_new(&c, &st, &err), -EINVAL);
        assert_null(st);
        if (!strstr(err.text, words))
            fail_msg("'%s' does not say '%s'", err.text, words);
    }
    assert_int_equal(i, 14);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences),
        cmocka_unit_test(decoding_agrees_with_the_whole_sequence),
        cmocka_unit_test(a_backward_in_two_parts_gives_the_bits_of_a_whole_one),
        cmocka_unit_test(what_is_made_again_has_the_same_bits),
        cmocka_unit_test(gradients_in_bf16_are_near_those_in_f32),
        cmocka_unit_test(the_plan_of_memory_shrinks_with_what_is_made_again),
        cmocka_unit_test(evaluation_drops_nothing_and_changes_no_gradient),
        cmocka_unit_test(padding_of_the_vocabulary_gets_no_gradient),
        cmocka_unit_test(what_a_stage_cannot_be_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
