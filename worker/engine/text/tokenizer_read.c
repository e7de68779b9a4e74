/* Reading a tokenizer's files. */
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "worker/engine/text/tokenizer_priv.h"
#include "worker/engine/text/unicode.h"

#define WORD_MAX (1 << 20) /* bytes of a token */

/* --- GPT-2's alphabet: each byte as a character that can be seen --------------------------------------- */

static bool is_shown(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* byte_of[c]: the byte that character c < 0x144 stands for, or -1. */
static void alphabet(int byte_of[0x144])
{
    int next = 0x100;

    for (int c = 0; c < 0x144; c++)
        byte_of[c] = -1;
    for (int b = 0; b < 256; b++)
        byte_of[is_shown(b) ? b : next++] = b;
    assert(next == 0x144);
}

/* The bytes that text is written for, to out (as long as text). Returns how many, or -1 for a character outside. */
static long unmask(const char *text, size_t len, char *out)
{
    int byte_of[0x144];
    long n = 0;

    alphabet(byte_of);
    for (size_t at = 0, step; at < len; at += step) {
        uint32_t c;

        step = unicode_get(text + at, len - at, &c);
        if (step == 0 || c >= 0x144 || byte_of[c] < 0)
            return -1;
        out[n++] = (char)byte_of[c];
    }
    return n;
}

/* --- tables -------------------------------------------------------------------------------------------- */

/* Token `id` is these bytes; p is taken over, also on failure. */
static int set_text_take(struct tokenizer *t, json_int_t id, char *p, size_t len, struct merr *err)
{
    if (!p)
        return merr_set(err, -ENOMEM, "no memory for a token");
    if (id < 0 || id >= TOKENIZER_TOKENS_MAX) {
        free(p);
        return merr_set(err, -EINVAL, "a token has the number %lld; want 0 to %d", (long long)id,
                        TOKENIZER_TOKENS_MAX - 1);
    }
    if (id >= t->vocab) {
        struct token_text *v = realloc(t->text, ((size_t)id + 1) * sizeof(*v));

        if (!v) {
            free(p);
            return merr_set(err, -ENOMEM, "no memory for %lld tokens", (long long)id + 1);
        }
        memset(v + t->vocab, 0, ((size_t)id + 1 - t->vocab) * sizeof(*v));
        t->text = v;
        t->vocab = (int)id + 1;
    }
    free(t->text[id].p);
    t->text[id] = (struct token_text){p, len};
    return 0;
}

static json_int_t largest(const json_t *vocab)
{
    json_int_t most = -1;
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)vocab, key, v) {
        most = json_integer_value(v) > most ? json_integer_value(v) : most;
    }
    return most;
}

static int read_vocab(struct tokenizer *t, const json_t *vocab, struct merr *err)
{
    const char *key;
    json_t *v;

    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return merr_set(err, -EINVAL, "there is no vocabulary: want an object from tokens to numbers");
    if (largest(vocab) < TOKENIZER_TOKENS_MAX && largest(vocab) > 0) { /* all memory at once */
        TRY(set_text_take(t, largest(vocab), strdup(""), 0, err));
        free(t->text[t->vocab - 1].p);
        t->text[t->vocab - 1].p = NULL;
    }
    json_object_foreach ((json_t *)vocab, key, v) {
        size_t len = strlen(key);
        char *p = malloc(len + 1);
        long n = p && len < WORD_MAX ? unmask(key, len, p) : -1;

        if (p && n < 0) { /* no byte-level word: as it is written, such as <|endoftext|> */
            memcpy(p, key, len);
            n = (long)len;
        }
        if (!json_is_integer(v)) {
            free(p);
            return merr_set(err, -EINVAL, "the token '%.60s' has no number", key);
        }
        TRY(set_text_take(t, json_integer_value(v), p, (size_t)n, err));
    }
    return 0;
}

static int index_tokens(struct tokenizer *t, struct merr *err)
{
    for (t->cells = 256; t->cells < 2 * (size_t)t->vocab; t->cells *= 2)
        continue;
    t->cell = calloc(t->cells, sizeof(*t->cell));
    if (!t->cell)
        return merr_set(err, -ENOMEM, "no memory for %d tokens", t->vocab);
    for (int i = 0; i < t->vocab; i++) {
        size_t at;

        if (!t->text[i].p || tokenizer_find(t, t->text[i].p, t->text[i].len) >= 0)
            continue;
        for (at = hash_xxh3(t->text[i].p, t->text[i].len); t->cell[at & (t->cells - 1)] != 0; at++)
            continue;
        t->cell[at & (t->cells - 1)] = (uint32_t)i + 1;
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b;

        t->byte[b] = tokenizer_find(t, &c, 1);
        if (t->byte[b] < 0)
            return merr_set(err, -ENOTSUP, "the vocabulary has no token for byte 0x%02x: only byte-level BPE is built",
                            b);
    }
    return 0;
}

/* --- merges -------------------------------------------------------------------------------------------- */

static int start_merges(struct tokenizer *t, size_t n, struct merr *err)
{
    for (t->merge_cells = 256; t->merge_cells < 2 * n; t->merge_cells *= 2)
        continue;
    t->merge = malloc(t->merge_cells * sizeof(*t->merge));
    if (!t->merge)
        return merr_set(err, -ENOMEM, "no memory for %zu merges", n);
    for (size_t i = 0; i < t->merge_cells; i++)
        t->merge[i].left = -1;
    return 0;
}

static int add_merge(struct tokenizer *t, const char *a, size_t a_len, const char *b, size_t b_len, struct merr *err)
{
    char *p = malloc(a_len + b_len + 1);
    long na = p ? unmask(a, a_len, p) : -1, nb = na >= 0 ? unmask(b, b_len, p + na) : -1;
    int left, right, made;
    struct merge *m;

    if (!p)
        return merr_set(err, -ENOMEM, "no memory for a merge");
    left = nb > 0 && na > 0 ? tokenizer_find(t, p, (size_t)na) : -1;
    right = left >= 0 ? tokenizer_find(t, p + na, (size_t)nb) : -1;
    made = right >= 0 ? tokenizer_find(t, p, (size_t)(na + nb)) : -1;
    free(p);
    if (made < 0)
        return merr_set(err, -EINVAL, "merge %zu ('%.*s' and '%.*s') is of no tokens of the vocabulary", t->merges + 1,
                        (int)(a_len < 60 ? a_len : 60), a, (int)(b_len < 60 ? b_len : 60), b);
    m = tokenizer_merge_cell(t->merge, t->merge_cells, left, right);
    if (m->left < 0)
        *m = (struct merge){left, right, made, (uint32_t)t->merges};
    t->merges++;
    return 0;
}

/* One "a b". */
static int add_merge_line(struct tokenizer *t, const char *line, size_t len, struct merr *err)
{
    const char *space = memchr(line, ' ', len);

    if (!space)
        return merr_set(err, -EINVAL, "merge %zu ('%.*s') is not two tokens with a space between", t->merges + 1,
                        (int)(len < 60 ? len : 60), line);
    return add_merge(t, line, (size_t)(space - line), space + 1, len - (size_t)(space - line) - 1, err);
}

static int read_merges_text(struct tokenizer *t, const char *text, size_t len, struct merr *err)
{
    size_t lines = 1;

    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    TRY(start_merges(t, lines, err));
    for (size_t at = 0; at < len;) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t line = newline ? (size_t)(newline - text) - at : len - at, whole = line + 1;

        if (line > 0 && text[at + line - 1] == '\r')
            line--;
        if (line > 0 && !(at == 0 && line > 8 && memcmp(text, "#version", 8) == 0))
            TRY(add_merge_line(t, text + at, line, err));
        at += whole;
    }
    return 0;
}

static int read_merges_json(struct tokenizer *t, const json_t *merges, struct merr *err)
{
    const json_t *v;
    size_t i;

    if (!json_is_array(merges))
        return merr_set(err, -EINVAL, "there are no merges: want a list");
    TRY(start_merges(t, json_array_size(merges), err));
    json_array_foreach (merges, i, v) {
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);

        if (json_is_string(v))
            TRY(add_merge_line(t, json_string_value(v), json_string_length(v), err));
        else if (json_is_string(a) && json_is_string(b) && json_array_size(v) == 2)
            TRY(add_merge(t, json_string_value(a), json_string_length(a), json_string_value(b), json_string_length(b),
                          err));
        else
            return merr_set(err, -EINVAL, "merge %zu is neither \"a b\" nor [\"a\", \"b\"]", i + 1);
    }
    return 0;
}

/* --- tokenizer.json ------------------------------------------------------------------------------------ */

static int longest_first(const void *a, const void *b, void *arg)
{
    const struct tokenizer *t = arg;
    const int32_t *x = a, *y = b;
    size_t lx = t->text[*x].len, ly = t->text[*y].len;

    return lx != ly ? (lx < ly ? 1 : -1) : (*x > *y) - (*x < *y);
}

static int add_added(struct tokenizer *t, int token)
{
    int32_t *v = realloc(t->added, (t->n_added + 1) * sizeof(*v));

    if (!v)
        return -ENOMEM;
    t->added = v;
    t->added[t->n_added++] = token;
    t->added_first[(unsigned char)t->text[token].p[0]] = true;
    return 0;
}

static int read_added(struct tokenizer *t, const json_t *added, struct merr *err)
{
    static const char *const unbuilt[] = {"single_word", "lstrip", "rstrip"};
    const json_t *o;
    size_t i;

    json_array_foreach (added, i, o) {
        const json_t *content = json_object_get(o, "content"), *id = json_object_get(o, "id");

        if (!json_is_string(content) || json_string_length(content) == 0 || !json_is_integer(id))
            return merr_set(err, -EINVAL, "added token %zu has no content or no id", i + 1);
        for (size_t k = 0; k < sizeof(unbuilt) / sizeof(unbuilt[0]); k++)
            if (json_is_true(json_object_get(o, unbuilt[k])))
                return merr_set(err, -ENOTSUP, "the added token '%.60s' has %s, which is not built",
                                json_string_value(content), unbuilt[k]);
        TRY(set_text_take(t, json_integer_value(id), strdup(json_string_value(content)), json_string_length(content),
                          err));
        if (add_added(t, (int)json_integer_value(id)) != 0)
            return merr_set(err, -ENOMEM, "no memory for %zu added tokens", i + 1);
    }
    return 0;
}

static int add_rule(struct tokenizer *t, enum split rule, struct merr *err)
{
    if (t->rules == TOKENIZER_RULES_MAX)
        return merr_set(err, -ENOTSUP, "more than %d rules cut the text", TOKENIZER_RULES_MAX);
    t->rule[t->rules++] = rule;
    return 0;
}

static int read_split(struct tokenizer *t, const json_t *o, struct merr *err)
{
    const char *regex = json_string_value(json_object_get(json_object_get(o, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(o, "behavior"));

    if (!behavior || strcmp(behavior, "Isolated") != 0 || json_is_true(json_object_get(o, "invert")))
        return merr_set(err, -ENOTSUP, "pre_tokenizer: a Split that is not Isolated is not built");
    for (enum split r = SPLIT_GPT2; regex && r <= SPLIT_QWEN2; r++)
        if (strcmp(regex, split_pattern(r)) == 0)
            return add_rule(t, r, err);
    return merr_set(err, -ENOTSUP,
                    "pre_tokenizer: the pattern '%.200s' is none of those that are built (those of "
                    "GPT-2, Llama 3, Qwen 2)",
                    regex ? regex : "");
}

static int read_pre(struct tokenizer *t, const json_t *o, bool *byte_level, struct merr *err)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    const json_t *list = json_object_get(o, "pretokenizers"), *part;
    size_t i;

    if (type && strcmp(type, "Sequence") == 0) {
        json_array_foreach (list, i, part) {
            const char *inner = json_string_value(json_object_get(part, "type"));

            if (inner && strcmp(inner, "Sequence") == 0)
                return merr_set(err, -ENOTSUP, "pre_tokenizer: a Sequence in a Sequence is not built");
            TRY(read_pre(t, part, byte_level, err));
        }
        return 0;
    }
    if (type && strcmp(type, "Split") == 0)
        return read_split(t, o, err);
    if (type && strcmp(type, "Digits") == 0 && json_is_true(json_object_get(o, "individual_digits")))
        return add_rule(t, SPLIT_DIGITS, err);
    if (!type || strcmp(type, "ByteLevel") != 0)
        return merr_set(err, -ENOTSUP, "pre_tokenizer '%.60s' is not built; want ByteLevel", type ? type : "");
    *byte_level = true;
    t->prefix_space = json_is_true(json_object_get(o, "add_prefix_space"));
    if (t->prefix_space && t->rules > 0)
        return merr_set(err, -ENOTSUP, "pre_tokenizer: add_prefix_space after another rule is not built");
    return json_is_false(json_object_get(o, "use_regex")) ? 0 : add_rule(t, SPLIT_GPT2, err);
}

static bool is_nfc(const json_t *normalizer)
{
    const char *type = json_string_value(json_object_get(normalizer, "type"));

    return type && strcmp(type, "NFC") == 0;
}

/* Parts of a tokenizer.json that must be absent, or have the value that changes nothing. */
static int check_parts(const json_t *doc, const json_t *model, struct merr *err)
{
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = json_string_value(json_object_get(model, "type"));
    const json_t *normalizer = json_object_get(doc, "normalizer"), *dropout = json_object_get(model, "dropout");

    if (type && strcmp(type, "BPE") != 0)
        return merr_set(err, -ENOTSUP, "model '%.60s' is not built; want BPE", type);
    if (json_is_object(normalizer) && !is_nfc(normalizer))
        return merr_set(err, -ENOTSUP, "normalizer '%.60s' is not built; want NFC, or none",
                        json_is_string(json_object_get(normalizer, "type"))
                            ? json_string_value(json_object_get(normalizer, "type"))
                            : "");
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return merr_set(err, -ENOTSUP, "byte_fallback is not built: only byte-level BPE is");
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++)
        if (json_string_length(json_object_get(model, empty[i])) > 0)
            return merr_set(err, -ENOTSUP, "%s is not built: only byte-level BPE is", empty[i]);
    return json_number_value(dropout) > 0 ? merr_set(err, -ENOTSUP, "BPE with dropout is not built") : 0;
}

static int read_json(struct tokenizer *t, const json_t *doc, struct merr *err)
{
    const json_t *model = json_object_get(doc, "model");
    bool byte_level = false;

    if (!json_is_object(model))
        return merr_set(err, -EINVAL, "there is no 'model': is this a tokenizer.json?");
    TRY(check_parts(doc, model, err));
    TRY(read_pre(t, json_object_get(doc, "pre_tokenizer"), &byte_level, err));
    if (!byte_level)
        return merr_set(err, -ENOTSUP, "pre_tokenizer has no ByteLevel: only byte-level BPE is built");
    t->nfc = is_nfc(json_object_get(doc, "normalizer"));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    TRY(read_vocab(t, json_object_get(model, "vocab"), err));
    TRY(index_tokens(t, err));
    TRY(read_merges_json(t, json_object_get(model, "merges"), err));
    return read_added(t, json_object_get(doc, "added_tokens"), err);
}

/* --- the whole ----------------------------------------------------------------------------------------- */

/* The token with exactly this text, added ones too, or -1. */
static int named(const struct tokenizer *t, const char *name)
{
    int found = -1;

    for (int i = 0; i < t->vocab && found < 0; i++)
        if (t->text[i].p && t->text[i].len == strlen(name) && memcmp(t->text[i].p, name, t->text[i].len) == 0)
            found = i;
    return found;
}

static int read_gpt2(struct tokenizer *t, const json_t *doc, const char *merges, size_t len, struct merr *err)
{
    int end;

    TRY(read_vocab(t, doc, err));
    TRY(index_tokens(t, err));
    TRY(read_merges_text(t, merges, len, err));
    TRY(add_rule(t, SPLIT_GPT2, err));
    end = named(t, "<|endoftext|>");
    return end >= 0 && add_added(t, end) != 0 ? merr_set(err, -ENOMEM, "no memory for an added token") : 0;
}

int tokenizer_parse(const char *text, size_t len, const char *merges, size_t merges_len, struct tokenizer **ret,
                    struct merr *err)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    struct tokenizer *t = calloc(1, sizeof(*t));
    json_error_t je;
    json_t *doc;
    int r;

    if (!t)
        return merr_set(err, -ENOMEM, "no memory for a tokenizer");
    t->end = -1;
    doc = json_loadb(text, len, 0, &je);
    if (!doc)
        r = merr_set(err, -EINVAL, "line %d: %s", je.line, je.text);
    else
        r = merges ? read_gpt2(t, doc, merges, merges_len, err) : read_json(t, doc, err);
    json_decref(doc);
    if (r != 0) {
        tokenizer_free(t);
        return r;
    }
    if (t->n_added > 0)
        qsort_r(t->added, t->n_added, sizeof(*t->added), longest_first, t);
    for (size_t i = 0; t->end < 0 && i < sizeof(ends) / sizeof(ends[0]); i++)
        t->end = named(t, ends[i]);
    *ret = t;
    return 0;
}

/* path/name, or the file of that name beside the file path. */
static int beside(const char *path, bool folder, const char *name, char out[PATH_MAX], struct merr *err)
{
    const char *slash = strrchr(path, '/');
    int stem = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    int n = snprintf(out, PATH_MAX, "%.*s%s%s", stem, path, folder || slash ? "/" : "", name);

    return n < PATH_MAX ? 0 : merr_set(err, -ENAMETOOLONG, "the path '%.100s...' is too long", path);
}

static int read_end(struct tokenizer *t, const char *path, struct merr *err)
{
    struct buf b;
    json_error_t je;
    json_t *doc = NULL;
    const json_t *eos;
    const char *name;
    int r;

    buf_init(&b, TOKENIZER_FILE_MAX);
    r = io_read_file(path, &b, err);
    if (r == 0) {
        doc = json_loadb(buf_text(&b), b.len, 0, &je);
        if (!doc)
            r = merr_set(err, -EINVAL, "line %d of '%s': %s", je.line, path, je.text);
    }
    eos = json_object_get(doc, "eos_token");
    name = json_string_value(json_is_object(eos) ? json_object_get(eos, "content") : eos);
    if (r == 0 && name)
        t->end = named(t, name);
    json_decref(doc);
    buf_clear(&b);
    return r;
}

static int open_files(const char *path, bool folder, struct tokenizer **ret, struct merr *err)
{
    char main_file[PATH_MAX], merges_file[PATH_MAX], vocab_file[PATH_MAX];
    BUF_CLEAR_AUTO struct buf main_text, merges;
    bool two;
    int r;

    buf_init(&main_text, TOKENIZER_FILE_MAX);
    buf_init(&merges, TOKENIZER_FILE_MAX);
    TRY(beside(path, folder, "vocab.json", vocab_file, err));
    TRY(beside(path, folder, "merges.txt", merges_file, err));
    TRY(beside(path, folder, "tokenizer.json", main_file, err));
    two = folder ? access(main_file, F_OK) != 0 && access(vocab_file, F_OK) == 0
                 : strcmp(path, vocab_file) == 0 || strcmp(path, merges_file) == 0;
    TRY(io_read_file(two ? vocab_file : folder ? main_file : path, &main_text, err));
    if (two)
        TRY(io_read_file(merges_file, &merges, err));
    r = tokenizer_parse(buf_text(&main_text), main_text.len, two ? buf_text(&merges) : NULL, merges.len, ret, err);
    return r < 0 ? merr_prefix(err, r, "tokenizer '%s'", path) : 0;
}

int tokenizer_open(const char *path, struct tokenizer **ret, struct merr *err)
{
    struct tokenizer *t = NULL;
    char config[PATH_MAX];
    struct stat st;
    int r;

    if (stat(path, &st) != 0)
        return merr_errno(err, -errno, "cannot open the tokenizer '%s'", path);
    TRY(beside(path, S_ISDIR(st.st_mode), "tokenizer_config.json", config, err));
    TRY(open_files(path, S_ISDIR(st.st_mode), &t, err));
    r = access(config, F_OK) == 0 ? read_end(t, config, err) : 0;
    if (r != 0) {
        tokenizer_free(t);
        return r;
    }
    *ret = t;
    return 0;
}
