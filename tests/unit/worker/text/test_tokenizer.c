/* Tokens against those of the plain implementation in tokenizer/make_vectors.py, and files that are not sound. */
#include "tests/unit/test.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "worker/engine/text/split.h"
#include "worker/engine/text/tokenizer.h"
#include "worker/engine/text/unicode.h"

#define FOLDER "tests/unit/worker/tokenizer/"

static json_t *load(const char *path)
{
    json_error_t je;
    json_t *doc = json_load_file(path, 0, &je);

    if (!doc)
        fail_msg("%s line %d: %s", path, je.line, je.text);
    return doc;
}

static char *slurp(const char *path)
{
    struct buf b;

    buf_init(&b, 1 << 20);
    assert_int_equal(io_read_file(path, &b, NULL), 0);
    return buf_detach(&b);
}

static void check_vector(const struct tokenizer *t, const json_t *v, const char *rule)
{
    const char *text = json_string_value(json_object_get(v, "text"));
    const json_t *want = json_object_get(v, rule);
    struct buf out, back;
    int32_t token;

    buf_init(&out, 1 << 16);
    buf_init(&back, 1 << 16);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), &out, NULL), 0);
    for (size_t i = 0; i < out.len / sizeof(token); i++) {
        size_t len;
        const char *p;

        memcpy(&token, out.data + i * sizeof(token), sizeof(token));
        if (token != json_integer_value(json_array_get(want, i)))
            fail_msg("%s, '%s': token %zu is %d, want %lld", rule, text, i, token,
                     (long long)json_integer_value(json_array_get(want, i)));
        p = tokenizer_text(t, token, &len);
        assert_non_null(p);
        assert_int_equal(buf_add(&back, p, len), 0);
    }
    assert_int_equal(out.len / sizeof(token), json_array_size(want));
    assert_string_equal(buf_text(&back), text);
    buf_clear(&out);
    buf_clear(&back);
}

static void gpt2_files_give_the_reference_tokens_and_the_text_back(void **state)
{
    static const char *const paths[] = {FOLDER, FOLDER "vocab.json", FOLDER "merges.txt"};
    json_t *vectors = load(FOLDER "vectors.json"), *v;
    struct tokenizer *t;
    size_t i;

    (void)state;
    for (size_t p = 0; p < COUNT(paths); p++) {
        struct merr err = {""};

        if (tokenizer_open(paths[p], &t, &err) != 0)
            fail_msg("%s", err.text);
        assert_int_equal(tokenizer_end(t), tokenizer_vocab(t) - 1);
        json_array_foreach (vectors, i, v) {
            check_vector(t, v, "gpt2");
        }
        tokenizer_free(t);
    }
    json_decref(vectors);
}

/* The same vocabulary as a tokenizer.json that cuts by this rule; new. */
static json_t *as_json(enum split rule)
{
    json_t *vocab = load(FOLDER "vocab.json"), *merges = json_array(), *pre;
    json_int_t id = json_integer_value(json_object_get(vocab, "<|endoftext|>"));
    char *text = slurp(FOLDER "merges.txt"), *line = strchr(text, '\n') + 1;

    for (char *next; (next = strchr(line, '\n')); line = next + 1) {
        char *space = strchr(line, ' ');

        if (json_array_size(merges) % 2)
            (void)json_array_append_new(merges, json_stringn(line, (size_t)(next - line)));
        else
            (void)json_array_append_new(
                merges, json_pack("[s%, s%]", line, (size_t)(space - line), space + 1, (size_t)(next - space - 1)));
    }
    free(text);
    (void)json_object_del(vocab, "<|endoftext|>");
    pre = rule == SPLIT_GPT2
              ? json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 1)
              : json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type", "Sequence", "pretokenizers",
                          "type", "Split", "pattern", "Regex", split_pattern(rule), "behavior", "Isolated", "invert", 0,
                          "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
    return json_pack("{s:[{s:I, s:s, s:b}], s:n, s:o, s:{s:s, s:o, s:o}}", "added_tokens", "id", id, "content",
                     "<|endoftext|>", "special", 1, "normalizer", "pre_tokenizer", pre, "model", "type", "BPE", "vocab",
                     vocab, "merges", merges);
}

static int parse(const json_t *doc, struct tokenizer **ret, struct merr *err)
{
    char *text = json_dumps(doc, 0);
    int r = tokenizer_parse(text, strlen(text), NULL, 0, ret, err);

    free(text);
    return r;
}

static void tokenizer_json_gives_the_reference_tokens_of_each_rule(void **state)
{
    static const struct {
        enum split rule;
        const char *name;
    } rules[] = {
        {SPLIT_GPT2, "gpt2"},
        {SPLIT_LLAMA3, "llama3"},
        {SPLIT_QWEN2, "qwen2"},
    };
    json_t *vectors = load(FOLDER "vectors.json"), *v;

    (void)state;
    for (size_t r = 0; r < COUNT(rules); r++) {
        json_t *doc = as_json(rules[r].rule);
        struct merr err = {""};
        struct tokenizer *t;
        size_t i;

        if (parse(doc, &t, &err) != 0)
            fail_msg("%s", err.text);
        json_array_foreach (vectors, i, v) {
            check_vector(t, v, rules[r].name);
        }
        tokenizer_free(t);
        json_decref(doc);
    }
    json_decref(vectors);
}

static void parts_that_are_not_built_are_refused_by_name(void **state)
{
    static const struct {
        const char *path[2];
        const char *value;
        int code;
        const char *says;
    } t[] = {
        {{"normalizer", NULL}, "{\"type\": \"NFKC\"}", -ENOTSUP, "NFKC"},
        {{"normalizer", NULL}, "{\"type\": \"Sequence\"}", -ENOTSUP, "Sequence"},
        {{"pre_tokenizer", NULL}, "{\"type\": \"Metaspace\"}", -ENOTSUP, "Metaspace"},
        {{"pre_tokenizer", NULL}, "{}", -ENOTSUP, "ByteLevel"},
        {{"pre_tokenizer", NULL},
         "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"x+\"}}",
         -ENOTSUP,
         "x+"},
        {{"model", NULL}, "{\"type\": \"Unigram\"}", -ENOTSUP, "Unigram"},
        {{"model", NULL}, "[]", -EINVAL, "model"},
        {{"model", "byte_fallback"}, "true", -ENOTSUP, "byte_fallback"},
        {{"model", "end_of_word_suffix"}, "\"</w>\"", -ENOTSUP, "end_of_word_suffix"},
        {{"model", "dropout"}, "0.1", -ENOTSUP, "dropout"},
        {{"model", "merges"}, "[\"a\"]", -EINVAL, "merge 1"},
        {{"model", "merges"}, "[7]", -EINVAL, "merge 1"},
        {{"model", "merges"}, "[\"zz qq\"]", -EINVAL, "merge 1"},
        {{"model", "vocab"}, "{\"a\": 1}", -ENOTSUP, "byte 0x00"},
        {{"model", "vocab"}, "{\"a\": -1}", -EINVAL, "-1"},
        {{"model", "vocab"}, "{\"a\": \"b\"}", -EINVAL, "'a'"},
        {{"model", "vocab"}, "{\"a\": 16777216}", -EINVAL, "16777216"},
        {{"added_tokens", NULL}, "[{\"id\": 3, \"content\": \"x\", \"lstrip\": true}]", -ENOTSUP, "lstrip"},
        {{"added_tokens", NULL}, "[{\"content\": \"x\"}]", -EINVAL, "added token 1"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        json_t *doc = as_json(SPLIT_GPT2), *value = json_loads(t[i].value, JSON_DECODE_ANY, NULL);
        json_t *at = t[i].path[1] ? json_object_get(doc, t[i].path[0]) : doc;
        struct tokenizer *none = NULL;
        struct merr err = {""};

        assert_int_equal(json_object_set_new(at, t[i].path[t[i].path[1] != NULL], value), 0);
        assert_int_equal(parse(doc, &none, &err), t[i].code);
        if (!strstr(err.text, t[i].says))
            fail_msg("row %zu: '%s' does not say '%s'", i, err.text, t[i].says);
        assert_null(none);
        json_decref(doc);
    }
}

/* Appended to out, which it returns. */
static struct buf *encoded(const struct tokenizer *t, const char *text, struct buf *out)
{
    buf_init(out, 4096);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), out, NULL), 0);
    return out;
}

/* From Unicode's NormalizationTest.txt, and text that stays as it is. */
static void text_is_composed_where_the_file_asks_for_it(void **state)
{
    static const struct {
        const char *text, *nfc;
    } row[] = {
        {"caf\u00e9 e\u0301", "caf\u00e9 \u00e9"},        /* a letter and its mark */
        {"\u212b", "\u00c5"},                             /* one character for another */
        {"q\u0307\u0323", "q\u0323\u0307"},               /* marks in their order */
        {"\u1100\u1161\u11a8", "\uac01"},                 /* a Hangul syllable */
        {"\u0958", "\u0915\u093c"},                       /* one that is never composed */
        {"e<|endoftext|>\u0301", "e<|endoftext|>\u0301"}, /* an added token stands between */
        {"\u4f60\u597d \U0001f600", "\u4f60\u597d \U0001f600"},
    };
    json_t *doc = as_json(SPLIT_QWEN2);
    struct tokenizer *as_is, *nfc;

    (void)state;
    assert_int_equal(parse(doc, &as_is, NULL), 0);
    assert_int_equal(json_object_set_new(doc, "normalizer", json_pack("{s:s}", "type", "NFC")), 0);
    assert_int_equal(parse(doc, &nfc, NULL), 0);
    for (size_t i = 0; i < COUNT(row); i++) {
        struct buf a, b;

        assert_int_equal(encoded(nfc, row[i].text, &a)->len, encoded(as_is, row[i].nfc, &b)->len);
        assert_memory_equal(a.data, b.data, a.len);
        buf_clear(&a);
        buf_clear(&b);
    }
    tokenizer_free(as_is);
    tokenizer_free(nfc);
    json_decref(doc);
}

static void text_that_is_not_utf8_is_refused_where_it_breaks(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        const char *says;
    } t[] = {
        {"ab\xff", 3, "byte 2"},           {"\xc0\x80", 2, "byte 0"},   {"x\xed\xa0\x80", 4, "byte 1"},
        {"\xf4\x90\x80\x80", 4, "byte 0"}, {"ok\xe4\xbd", 4, "byte 2"}, {"\x80", 1, "byte 0"},
    };
    struct tokenizer *k;

    (void)state;
    assert_int_equal(tokenizer_open(FOLDER, &k, NULL), 0);
    for (size_t i = 0; i < COUNT(t); i++) {
        struct merr err = {""};
        struct buf out;

        buf_init(&out, 1024);
        assert_int_equal(tokenizer_encode(k, t[i].text, t[i].len, &out, &err), -EILSEQ);
        assert_non_null(strstr(err.text, t[i].says));
        assert_int_equal(out.len, 0);
        buf_clear(&out);
    }
    tokenizer_free(k);
}

static void a_word_of_any_length_takes_time_in_proportion(void **state)
{
    size_t len = 1 << 20;
    char *text = malloc(len);
    struct tokenizer *t;
    struct buf out;

    (void)state;
    assert_non_null(text);
    memset(text, 'e', len);
    assert_int_equal(tokenizer_open(FOLDER, &t, NULL), 0);
    buf_init(&out, 4 * len);
    assert_int_equal(tokenizer_encode(t, text, len, &out, NULL), 0); /* quadratic, this would take hours */
    assert_true(out.len > 0);
    buf_clear(&out);
    buf_init(&out, 8);
    assert_int_equal(tokenizer_encode(t, "q1w2", 4, &out, NULL), -EMSGSIZE);
    buf_clear(&out);
    tokenizer_free(t);
    free(text);
}

static void no_file_is_said(void **state)
{
    struct tokenizer *t = NULL;
    struct merr err = {""};

    (void)state;
    assert_int_equal(tokenizer_open("/nowhere/tokenizer.json", &t, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/tokenizer.json"));
    assert_int_equal(tokenizer_open("docs", &t, &err), -ENOENT);
    assert_non_null(strstr(err.text, "tokenizer.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_files_give_the_reference_tokens_and_the_text_back),
        cmocka_unit_test(tokenizer_json_gives_the_reference_tokens_of_each_rule),
        cmocka_unit_test(parts_that_are_not_built_are_refused_by_name),
        cmocka_unit_test(text_is_composed_where_the_file_asks_for_it),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_where_it_breaks),
        cmocka_unit_test(a_word_of_any_length_takes_time_in_proportion),
        cmocka_unit_test(no_file_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
