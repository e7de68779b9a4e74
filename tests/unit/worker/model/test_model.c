#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "worker/engine/model/family.h"

static json_t *parse(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);

    assert_non_null(o);
    return o;
}

#define LLAMA KIND("llama")
#define KIND(type)                                                                                                     \
    "\"model_type\":\"" type "\",\"num_hidden_layers\":2,\"hidden_size\":32,\"num_attention_heads\":4,"                \
    "\"intermediate_size\":40,\"vocab_size\":70,\"num_key_value_heads\":2"
#define GPT2 "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":32,\"n_head\":4,\"n_positions\":16,\"vocab_size\":70"

static void a_config_is_written_as_it_was_read(void **state)
{
    static const char *const all[] = {
        "{" GPT2 "}",
        "{" GPT2 ",\"layer_norm_epsilon\":1e-6,\"tie_word_embeddings\":false}",
        "{" LLAMA "}",
        "{" LLAMA ",\"rope_theta\":5e5,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"head_dim\":16}",
        "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}}",
        "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
        "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3,\"rope_theta\":77}}",
        "{" KIND("mistral") ",\"sliding_window\":7}",
        "{" KIND("mistral") ",\"sliding_window\":null,\"head_dim\":null}",
        "{" KIND("qwen2") ",\"use_sliding_window\":true,\"sliding_window\":9,\"max_window_layers\":0}",
        "{" KIND("qwen3") ",\"head_dim\":12}",
        "{" KIND("qwen3") "}",
        "{" KIND("phi3") ",\"sliding_window\":5}",
        "{" KIND("phi3") "}",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        json_t *o = parse(all[i]), *again, *third;
        struct model_cfg a, b;

        assert_int_equal(model_from_config(o, &a, NULL), 0);
        again = model_config(&a);
        assert_non_null(again);
        assert_int_equal(model_from_config(again, &b, NULL), 0);
        third = model_config(&b);
        assert_true(json_equal(again, third));
        assert_true(a.qkv_bias == b.qkv_bias && a.qk_norm == b.qk_norm && a.fused == b.fused && a.window == b.window);
        assert_true(a.family == b.family && a.dim == b.dim && a.rope.theta == b.rope.theta &&
                    a.rope.factor == b.rope.factor && a.norm_eps == b.norm_eps && a.tied == b.tied);
        json_decref(third);
        json_decref(o);
        json_decref(again);
    }
}

static void what_is_left_out_is_hugging_faces_default(void **state)
{
    json_t *llama = parse("{" LLAMA "}"), *gpt2 = parse("{" GPT2 "}"), *qwen = parse("{" LLAMA "}");
    struct model_cfg c;

    (void)state;
    assert_int_equal(model_from_config(llama, &c, NULL), 0);
    assert_true(c.norm_eps == 1e-6 && c.rope.theta == 10000 && c.context == 2048 && !c.tied && !c.qkv_bias);
    assert_true(c.dim == 8 && c.kv_heads == 2 && c.qkv_local == 64 && c.rope.scaling == ROPE_PLAIN);
    assert_int_equal(model_from_config(gpt2, &c, NULL), 0);
    assert_true(c.norm_eps == 1e-5 && c.rope.theta == 0 && c.tied && c.ffn == 128 && c.kv_heads == 4);
    (void)json_object_set_new(qwen, "model_type", json_string("qwen2"));
    assert_int_equal(model_from_config(qwen, &c, NULL), 0);
    assert_true(c.qkv_bias && c.family == &family_llama);
    (void)json_object_set_new(qwen, "model_type", json_string("qwen3"));
    assert_int_equal(model_from_config(qwen, &c, NULL), 0);
    assert_true(!c.qkv_bias && c.qk_norm && c.dim == 128 && c.window == 0);
    (void)json_object_set_new(qwen, "model_type", json_string("phi3"));
    assert_int_equal(model_from_config(qwen, &c, NULL), 0);
    assert_true(c.fused && c.norm_eps == 1e-5 && c.context == 4096);
    json_decref(llama);
    json_decref(gpt2);
    json_decref(qwen);
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    static const struct {
        const char *config;
        int code;
        const char *words;
    } t[] = {
        {"{}", -ENOTSUP, "model type ''"},
        {"{\"model_type\":\"mamba\"}", -ENOTSUP, "model type 'mamba'"},
        {"{" LLAMA ",\"attention_bias\":true}", -ENOTSUP, "attention_bias"},
        {"{" LLAMA ",\"mlp_bias\":true}", -ENOTSUP, "mlp_bias"},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", -ENOTSUP, "hidden_act"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}", -ENOTSUP, "yarn"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", -EINVAL, "factor"},
        {"{" LLAMA ",\"rope_theta\":-1}", -EINVAL, "rope_theta"},
        {"{" LLAMA ",\"rope_theta\":\"x\"}", -EINVAL, "rope_theta"},
        {"{" LLAMA ",\"head_dim\":7}", -EINVAL, "rotated"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", -EINVAL, "3 kv_heads"},
        {"{" LLAMA ",\"vocab_size\":0}", -EINVAL, "vocab_size"},
        {"{" KIND("mistral") ",\"sliding_window\":0}", -EINVAL, "sliding_window"},
        {"{" KIND("qwen2") ",\"use_sliding_window\":true,\"max_window_layers\":1}", -ENOTSUP, "max_window_layers"},
        {"{" KIND("qwen3") ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", -ENOTSUP, "layer_types"},
        {"{" KIND("qwen3") ",\"layer_types\":[3]}", -ENOTSUP, "layer_types"},
        {"{" KIND("qwen3") ",\"attention_bias\":true}", -ENOTSUP, "attention_bias"},
        {"{" KIND("phi3") ",\"partial_rotary_factor\":0.75}", -ENOTSUP, "partial_rotary_factor"},
        {"{" KIND("phi3") ",\"rope_scaling\":{\"type\":\"longrope\"}}", -ENOTSUP, "longrope"},
        {"{" GPT2 ",\"activation_function\":\"relu\"}", -ENOTSUP, "activation_function"},
        {"{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", -ENOTSUP, "scaled"},
        {"{" GPT2 ",\"n_head\":5}", -EINVAL, "heads 5"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        json_t *o = parse(t[i].config);
        struct model_cfg c = {.layers = 7};
        struct merr err = {""};

        assert_int_equal(model_from_config(o, &c, &err), t[i].code);
        if (!strstr(err.text, t[i].words))
            fail_msg("'%s' does not say '%s'", err.text, t[i].words);
        assert_int_equal(c.layers, 7);
        json_decref(o);
    }
}

static void groups_of_heads_are_cut_together(void **state)
{
    struct model_cfg c = {.family = &family_llama,
                          .layers = 1,
                          .hidden = 32,
                          .heads = 8,
                          .kv_heads = 4,
                          .ffn = 24,
                          .context = 8,
                          .vocab = 100,
                          .rope = {.theta = 10}};

    (void)state;
    assert_int_equal(model_cut(&c, 4, 3, NULL), 0);
    assert_true(c.dim == 4 && c.heads_local == 2 && c.kv_heads_local == 1 && c.q_local == 8 && c.qkv_local == 16);
    assert_true(c.ffn_local == 6 && c.vocab_local == 64 && c.vocab_first == 192);
    assert_int_equal(c.kv_copies, 1);
    assert_int_equal(model_cut(&c, 8, 0, NULL), 0); /* two ranks share one */
    assert_true(c.heads_local == 1 && c.kv_heads_local == 1 && c.kv_copies == 2 && c.qkv_local == 12);
    c.heads = 12;
    c.kv_heads = 6;
    c.dim = 4;
    assert_int_equal(model_cut(&c, 4, 0, NULL), -EINVAL);
}

/* The published formula, written down once more: positions of slow, blended and quick frequencies. */
static void scaled_rotations_have_their_frequencies(void **state)
{
    struct rope r = {.theta = 500000, .scaling = ROPE_LLAMA3, .factor = 32, .low = 1, .high = 4, .original = 8192};
    float plain[32], scaled[32], linear[32];
    int slow = 0, quick = 0;

    (void)state;
    rope_frequencies(&r, 64, scaled);
    r.scaling = ROPE_LINEAR;
    rope_frequencies(&r, 64, linear);
    r.scaling = ROPE_PLAIN;
    rope_frequencies(&r, 64, plain);
    for (int i = 0; i < 32; i++) {
        double length = 6.283185307179586 / (double)plain[i];

        assert_true(fabs((double)plain[i] / pow(500000, -i / 32.0) - 1) < 1e-6);
        assert_true(fabs((double)linear[i] * 32 / (double)plain[i] - 1) < 1e-6);
        slow += scaled[i] == linear[i];
        quick += scaled[i] == plain[i];
        assert_true(length > 8192   ? scaled[i] == linear[i]
                    : length < 2048 ? scaled[i] == plain[i]
                                    : scaled[i] > linear[i] && scaled[i] < plain[i]);
    }
    assert_true(slow > 5 && quick > 10 && slow + quick < 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_is_written_as_it_was_read),
        cmocka_unit_test(what_is_left_out_is_hugging_faces_default),
        cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(groups_of_heads_are_cut_together),
        cmocka_unit_test(scaled_rotations_have_their_frequencies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
