/* Fields of a model's config.json: taken, left to their usual value, or refused by name; what no kind has is said. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "api/hf.h"

#define KIND(type, more)                                                                                               \
    "{\"model_type\":\"" type "\",\"num_hidden_layers\":2,\"hidden_size\":32,\"num_attention_heads\":4,"               \
    "\"intermediate_size\":40,\"num_key_value_heads\":2" more "}"

static void a_field_is_taken_or_refused_by_its_name(void **state)
{
    static const struct {
        const char *json;
        int r;
        const char *words;
    } table[] = {
        {KIND("llama", ",\"vocab_size\":1"), 0, ""},
        {KIND("llama", ",\"vocab_size\":16777216"), 0, ""},
        {KIND("llama", ",\"vocab_size\":16777217"), -EINVAL, "'vocab_size'"},
        {KIND("llama", ",\"vocab_size\":0"), -EINVAL, "'vocab_size'"},
        {KIND("llama", ",\"vocab_size\":1.5"), -EINVAL, "'vocab_size'"},
        {KIND("llama", ",\"vocab_size\":\"1\""), -EINVAL, "'vocab_size'"},
        {KIND("llama", ""), -EINVAL, "'vocab_size'"}, /* which must be there */
        {KIND("llama", ",\"vocab_size\":9,\"rms_norm_eps\":0"), -EINVAL, "'rms_norm_eps'"},
        {KIND("llama", ",\"vocab_size\":9,\"rms_norm_eps\":-1"), -EINVAL, "'rms_norm_eps'"},
        {KIND("llama", ",\"vocab_size\":9,\"rms_norm_eps\":null"), 0, ""},
        {KIND("llama", ",\"vocab_size\":9,\"rms_norm_eps\":\"x\""), -EINVAL, "'rms_norm_eps'"},
        {KIND("llama", ",\"vocab_size\":9,\"hidden_act\":\"silu\""), 0, ""},
        {KIND("llama", ",\"vocab_size\":9,\"hidden_act\":null"), 0, ""},
        {KIND("llama", ",\"vocab_size\":9,\"hidden_act\":\"\""), -ENOTSUP, "only 'silu'"},
        {KIND("llama", ",\"vocab_size\":9,\"hidden_act\":1"), -ENOTSUP, "only 'silu'"},
        {KIND("llama", ",\"vocab_size\":9,\"head_dim\":3"), -EINVAL, "cannot be rotated"},
        {KIND("mixtral", ",\"vocab_size\":9"), -ENOTSUP, "model type 'mixtral'"},
        {"[]", -ENOTSUP, "model type ''"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].json, 0, NULL);
        struct hf_model m = {.layers = 99};
        struct merr err = {""};
        int r = hf_model_read(o, &m, &err);

        if (r != table[i].r || !strstr(err.text, table[i].words) || (r < 0 && m.layers != 99))
            fail_msg("row %zu: %d, %s", i, r, err.text);
    }
}

static void what_no_kind_has_together_is_said(void **state)
{
    static const struct hf_model can[] = {{.family = MODEL_GPT2},
                                          {.family = MODEL_LLAMA, .window = 3},
                                          {.family = MODEL_LLAMA, .qk_norm = true, .window = 3},
                                          {.family = MODEL_LLAMA, .fused = true, .window = 3}};
    static const struct hf_model cannot[] = {{.family = MODEL_LLAMA, .qkv_bias = true, .qk_norm = true},
                                             {.family = MODEL_LLAMA, .qkv_bias = true, .fused = true},
                                             {.family = MODEL_LLAMA, .qk_norm = true, .fused = true}};

    (void)state;
    for (size_t i = 0; i < COUNT(can); i++)
        assert_null(hf_model_fault(&can[i]));
    for (size_t i = 0; i < COUNT(cannot); i++) {
        assert_non_null(hf_model_fault(&cannot[i]));
        assert_null(hf_model_write(&cannot[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_is_taken_or_refused_by_its_name),
        cmocka_unit_test(what_no_kind_has_together_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
