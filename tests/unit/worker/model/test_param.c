#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/model/family.h"
#include "worker/engine/model/param.h"

static struct model_cfg model(int tp, int tp_index, bool tied)
{
    struct model_cfg c = {.family = &family_gpt2,
                          .layers = 3,
                          .hidden = 24,
                          .heads = 4,
                          .ffn = 40,
                          .context = 10,
                          .vocab = 100,
                          .tied = tied};

    assert_int_equal(model_cut(&c, tp, tp_index, NULL), 0);
    return c;
}

/* Put a rank's boxes of tensor q into the global tensor, counting how often each element is written. */
static void scatter(const struct param *q, const float *weights, float *global, int *times)
{
    for (int i = 0; i < q->boxes; i++) {
        const struct param_box *x = &q->box[i];
        uint64_t rows = q->ndim > 1 ? x->len[0] : 1, cols = q->ndim > 1 ? x->len[1] : x->len[0];
        uint64_t stride = q->ndim > 1 ? q->shape[1] : q->shape[0];

        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < cols; c++) {
                uint64_t at = q->ndim > 1 ? (x->off[0] + r) * stride + x->off[1] + c : x->off[0] + c;

                global[at] = weights[q->at + x->at + r * cols + c];
                times[at]++;
            }
    }
}

/* Two heads of keys and values: with tp 4 two ranks hold the same one. */
static struct model_cfg llama(int tp, int tp_index)
{
    struct model_cfg c = {.family = &family_llama,
                          .layers = 3,
                          .hidden = 24,
                          .heads = 4,
                          .kv_heads = 2,
                          .ffn = 40,
                          .context = 10,
                          .vocab = 100,
                          .qkv_bias = true,
                          .rope = {.theta = 100}};

    assert_int_equal(model_cut(&c, tp, tp_index, NULL), 0);
    return c;
}

static void check_tensor(const struct params *whole, const float *reference, int i, int tp, bool gpt2)
{
    const struct param *w = &whole->v[i];
    size_t n = w->shape[0] * (w->ndim > 1 ? w->shape[1] : 1);
    float *global = calloc(n, sizeof(*global));
    int *times = calloc(n, sizeof(*times));
    bool kv = strstr(w->name, "k_proj") || strstr(w->name, "v_proj");

    for (int t = 0; t < tp; t++) {
        struct model_cfg mine = gpt2 ? model(tp, t, true) : llama(tp, t);
        struct params p;
        float *weights;

        assert_int_equal(params_init(&p, &mine, &(struct layer_range){0, 3}, 1, true, true, NULL), 0);
        weights = calloc(p.weight_n, sizeof(*weights));
        params_fill(&p, 77, 3, weights);
        assert_string_equal(p.v[i].name, w->name);
        assert_int_equal(p.v[i].sum, kv && tp > 2 ? PARAM_SUM_KV : PARAM_SUM_NONE);
        if (!p.v[i].copy)
            scatter(&p.v[i], weights, global, times);
        free(weights);
        params_clear(&p);
    }
    for (size_t e = 0; e < n; e++)
        assert_int_equal(times[e], 1);
    assert_memory_equal(global, reference + w->at, n * sizeof(*global));
    free(global);
    free(times);
}

static void a_tensor_can_be_rebuilt_from_the_boxes_of_any_tp(void **state)
{
    static const int sizes[] = {1, 2, 4};

    (void)state;
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        struct model_cfg c = gpt2 ? model(1, 0, true) : llama(1, 0);
        struct params whole;
        float *reference;

        assert_int_equal(params_init(&whole, &c, &(struct layer_range){0, 3}, 1, true, true, NULL), 0);
        reference = calloc(whole.weight_n, sizeof(*reference));
        params_fill(&whole, 77, 1, reference);
        for (size_t k = 0; k < COUNT(sizes); k++)
            for (int i = 0; i < whole.n; i++)
                check_tensor(&whole, reference, i, sizes[k], gpt2);
        free(reference);
        params_clear(&whole);
    }
}

static void stages_hold_each_tensor_once_and_the_tied_one_at_both_ends(void **state)
{
    static const struct {
        bool tied;
        int tensors;
    } t[] = {{true, 2 + 36 + 2}, {false, 2 + 36 + 3}};

    (void)state;
    for (size_t k = 0; k < COUNT(t); k++)
        for (int pp = 1; pp <= 3; pp++) {
            struct model_cfg c = model(1, 0, t[k].tied);
            int counted[64] = {0}, copies = 0;

            for (int s = 0; s < pp; s++) {
                struct layer_range r = {s * 3 / pp, (s + 1) * 3 / pp};
                struct params p;

                assert_int_equal(params_init(&p, &c, &r, 1, s == 0, s == pp - 1, NULL), 0);
                assert_int_equal(p.tensors, t[k].tensors);
                for (int i = 0; i < p.n; i++) {
                    copies += p.v[i].copy;
                    counted[p.v[i].id] += !p.v[i].copy;
                    assert_int_equal(p.v[i].at % PARAM_BLOCK, 0);
                    assert_true(p.v[i].at + p.v[i].n <= p.weight_n);
                }
                assert_int_equal(p.grad_head_at > 0, t[k].tied && pp == 1);
                params_clear(&p);
            }
            assert_int_equal(copies, t[k].tied && pp > 1);
            for (int i = 0; i < t[k].tensors; i++)
                assert_int_equal(counted[i], 1);
        }
}

static void chunks_lie_one_after_another_in_the_arena(void **state)
{
    static const struct layer_range chunk[] = {{0, 1}, {2, 3}};
    struct model_cfg c = model(1, 0, false);
    struct params p;

    (void)state;
    assert_int_equal(params_init(&p, &c, chunk, 2, true, true, NULL), 0);
    assert_int_equal(p.chunk_at[0], 0);
    assert_int_equal(p.v[p.layer[0].norm1.w].at,
                     p.v[p.wte].at + (p.v[p.wte].n + PARAM_BLOCK - 1) / PARAM_BLOCK * PARAM_BLOCK);
    assert_int_equal(p.v[p.layer[2].norm1.w].at, p.chunk_at[1]);
    assert_string_equal(p.v[p.layer[2].norm1.w].name, "h.2.ln_1.weight");
    assert_int_equal(p.v[p.norm.w].at, p.chunk_at[2]);
    for (int i = 0; i < 2; i++) /* norms, whose gradients come early, before the blocks' matrices */
        for (int j = 0; j < p.n; j++)
            if (p.v[j].at >= p.chunk_at[i] && p.v[j].at < p.chunk_at[i + 1] && strstr(p.v[j].name, "h."))
                assert_true((p.v[j].at < p.blocks_at[i]) == (strstr(p.v[j].name, "ln_") != NULL));
    assert_int_equal(p.n, 2 + 2 * 12 + 3);
    params_clear(&p);
}

static void tensors_do_not_overlap_in_the_arena(void **state)
{
    struct model_cfg c = model(4, 3, true); /* a vocabulary slice that is all padding */
    struct params p;

    (void)state;
    assert_int_equal(params_init(&p, &c, &(struct layer_range){0, 3}, 1, true, true, NULL), 0);
    for (int i = 0; i < p.n; i++)
        for (int j = 0; j < p.n; j++)
            assert_true(i == j || p.v[i].at + p.v[i].n <= p.v[j].at || p.v[j].at + p.v[j].n <= p.v[i].at);
    assert_int_equal(p.v[p.wte].boxes, 0);
    assert_int_equal(p.v[p.wte].n, 64 * 24);
    params_clear(&p);
}

static void names_and_shapes_are_those_of_hugging_face(void **state)
{
    static const struct {
        const char *name;
        int ndim;
        uint64_t a, b;
        bool decay;
    } t[] = {
        {"wpe.weight", 2, 10, 24, true},           {"h.0.ln_1.weight", 1, 24, 0, false},
        {"h.0.ln_1.bias", 1, 24, 0, false},        {"h.0.attn.c_attn.weight", 2, 24, 72, true},
        {"h.0.attn.c_attn.bias", 1, 72, 0, false}, {"h.0.attn.c_proj.weight", 2, 24, 24, true},
        {"h.0.attn.c_proj.bias", 1, 24, 0, false}, {"h.0.ln_2.weight", 1, 24, 0, false},
        {"h.0.ln_2.bias", 1, 24, 0, false},        {"h.0.mlp.c_fc.weight", 2, 24, 40, true},
        {"h.0.mlp.c_fc.bias", 1, 40, 0, false},    {"h.0.mlp.c_proj.weight", 2, 40, 24, true},
        {"h.0.mlp.c_proj.bias", 1, 24, 0, false},
    };
    struct model_cfg c = model(2, 1, true);
    struct plan_split split = {.layers = 3, .stages = 3};
    struct params p;
    char name[PARAM_NAME_MAX];

    (void)state;
    assert_int_equal(params_init(&p, &c, &(struct layer_range){0, 3}, 1, true, true, NULL), 0);
    for (size_t i = 0; i < COUNT(t); i++) {
        assert_string_equal(p.v[i].name, t[i].name);
        assert_int_equal(p.v[i].ndim, t[i].ndim);
        assert_int_equal(p.v[i].shape[0], t[i].a);
        assert_int_equal(p.v[i].shape[1], t[i].b);
        assert_int_equal(p.v[i].decay, t[i].decay);
    }
    assert_string_equal(p.v[p.wte].name, "wte.weight");
    assert_int_equal(p.v[p.wte].shape[0], 100);
    assert_int_equal(params_place(&c, p.v[p.wte].id, &split, name), 0);
    assert_string_equal(name, "wte.weight");
    assert_int_equal(params_place(&c, p.v[p.norm.b].id, &split, name), 2);
    assert_string_equal(name, "ln_f.bias");
    params_clear(&p);
}

static void fresh_weights_have_the_deviation_asked_for(void **state)
{
    struct model_cfg c = model(1, 0, true);
    struct params p;
    float *w;

    (void)state;
    assert_int_equal(params_init(&p, &c, &(struct layer_range){0, 3}, 1, true, true, NULL), 0);
    w = calloc(p.weight_n, sizeof(*w));
    params_fill(&p, 1, 1, w);
    for (int i = 0; i < p.n; i++) {
        double sum = 0, square = 0, n = (double)p.v[i].shape[0] * (p.v[i].ndim > 1 ? (double)p.v[i].shape[1] : 1);

        for (size_t e = 0; e < (size_t)n; e++) {
            sum += w[p.v[i].at + e];
            square += w[p.v[i].at + e] * w[p.v[i].at + e];
        }
        if (p.v[i].ndim > 1) /* mean and deviation within five standard errors */
            assert_true(fabs(sum / n) < 5 * p.v[i].std / sqrt(n) &&
                        fabs(sqrt(square / n) / p.v[i].std - 1) < 5 / sqrt(2 * n));
        else
            assert_true(sum == n * p.v[i].constant);
    }
    free(w);
    params_clear(&p);
}

static void pieces_cover_a_region_in_whole_blocks(void **state)
{
    (void)state;
    for (size_t blocks = 0; blocks < 20; blocks++)
        for (int d = 1; d <= 8; d++) {
            size_t at = 0, begin, end;

            for (int i = 0; i < d; i++) {
                params_cut(blocks * PARAM_BLOCK, d, i, &begin, &end);
                assert_int_equal(begin, at);
                assert_int_equal(end % PARAM_BLOCK, 0);
                at = end;
            }
            assert_int_equal(at, blocks * PARAM_BLOCK);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_can_be_rebuilt_from_the_boxes_of_any_tp),
        cmocka_unit_test(stages_hold_each_tensor_once_and_the_tied_one_at_both_ends),
        cmocka_unit_test(chunks_lie_one_after_another_in_the_arena),
        cmocka_unit_test(tensors_do_not_overlap_in_the_arena),
        cmocka_unit_test(names_and_shapes_are_those_of_hugging_face),
        cmocka_unit_test(fresh_weights_have_the_deviation_asked_for),
        cmocka_unit_test(pieces_cover_a_region_in_whole_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
