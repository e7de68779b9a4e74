#include "worker/engine/text/tokenizer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/hash.h"
#include "base/try.h"
#include "worker/engine/text/tokenizer_priv.h"
#include "worker/engine/text/unicode.h"

int tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab;
}

int tokenizer_end(const struct tokenizer *t)
{
    return t->end;
}

const char *tokenizer_text(const struct tokenizer *t, int token, size_t *ret_len)
{
    if (token < 0 || token >= t->vocab || !t->text[token].p)
        return NULL;
    *ret_len = t->text[token].len;
    return t->text[token].p;
}

void tokenizer_free(struct tokenizer *t)
{
    int saved = errno;

    if (t) {
        for (int i = 0; i < t->vocab; i++)
            free(t->text[i].p);
        free(t->text);
        free(t->cell);
        free(t->merge);
        free(t->added);
        free(t);
    }
    errno = saved;
}

int tokenizer_find(const struct tokenizer *t, const char *p, size_t len)
{
    for (size_t at = hash_xxh3(p, len);; at++) {
        uint32_t cell = t->cell[at & (t->cells - 1)];

        if (cell == 0)
            return -1;
        if (t->text[cell - 1].len == len && memcmp(t->text[cell - 1].p, p, len) == 0)
            return (int)cell - 1;
    }
}

struct merge *tokenizer_merge_cell(struct merge *v, size_t cells, int left, int right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    for (size_t at = (key * 0x9e3779b97f4a7c15u) >> 32;; at++) {
        struct merge *m = &v[at & (cells - 1)];

        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

static const struct merge *merge_of(const struct tokenizer *t, int left, int right)
{
    const struct merge *m = tokenizer_merge_cell(t->merge, t->merge_cells, left, right);

    return m->left < 0 ? NULL : m;
}

/* --- merging within a word ----------------------------------------------------------------------------- */

struct symbol {
    int32_t token;         /* -1: joined to the one before */
    int32_t before, after; /* neighbours, -1 at the ends */
};

struct candidate { /* in a heap: the lowest rank, then the leftmost, on top */
    uint32_t rank;
    int32_t at, left, right; /* stale when the symbols at and after it are no longer these */
};

struct work { /* memory of one encoding, grown to its longest word */
    const struct tokenizer *t;
    struct buf *out;
    struct symbol *symbol;
    struct candidate *heap;
    size_t room, n;
    struct merr *err;
};

static bool sooner(const struct candidate *a, const struct candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void heap_add(struct work *w, struct candidate c)
{
    size_t i = w->n++;

    for (; i > 0 && sooner(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static struct candidate heap_take(struct work *w)
{
    struct candidate top = w->heap[0], last = w->heap[--w->n];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < w->n; i = child) {
        if (child + 1 < w->n && sooner(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!sooner(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static void offer(struct work *w, int32_t at)
{
    int32_t right = at < 0 ? -1 : w->symbol[at].after;
    const struct merge *m;

    if (right < 0)
        return;
    m = merge_of(w->t, w->symbol[at].token, w->symbol[right].token);
    if (m)
        heap_add(w, (struct candidate){m->rank, at, m->left, m->right});
}

static void join(struct work *w, const struct candidate *c)
{
    struct symbol *s = &w->symbol[c->at];
    int32_t right = s->after;

    if (s->token != c->left || right < 0 || w->symbol[right].token != c->right)
        return;
    s->token = merge_of(w->t, c->left, c->right)->made;
    s->after = w->symbol[right].after;
    w->symbol[right].token = -1;
    if (s->after >= 0)
        w->symbol[s->after].before = c->at;
    offer(w, s->before);
    offer(w, c->at);
}

/* Each join takes one symbol away and offers two pairs, so the heap never holds more than 3 · len. */
static int make_room(struct work *w, size_t len)
{
    size_t room = w->room > 0 ? w->room : 256;

    if (len <= w->room)
        return 0;
    while (room < len)
        room *= 2;
    free(w->symbol);
    free(w->heap);
    w->symbol = malloc(room * sizeof(*w->symbol));
    w->heap = malloc(3 * room * sizeof(*w->heap));
    w->room = w->symbol && w->heap ? room : 0;
    return w->room > 0 ? 0 : merr_set(w->err, -ENOMEM, "no memory for a word of %zu bytes", len);
}

static int put(struct work *w, int32_t token)
{
    int r = buf_add(w->out, &token, sizeof(token));

    return r == 0 ? 0 : merr_set(w->err, r, "a text has more tokens than the %zu bytes that are kept", w->out->limit);
}

static int merge_word(struct work *w, const char *p, size_t len)
{
    const struct tokenizer *t = w->t;
    int r = make_room(w, len), known = t->ignore_merges || len == 1 ? tokenizer_find(t, p, len) : -1;

    if (r != 0)
        return r;
    if (known >= 0)
        return put(w, known);
    w->n = 0;
    for (size_t i = 0; i < len; i++)
        w->symbol[i] = (struct symbol){t->byte[(unsigned char)p[i]], (int32_t)i - 1, i + 1 < len ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < len; i++)
        offer(w, (int32_t)i);
    while (w->n > 0) {
        struct candidate c = heap_take(w);

        join(w, &c);
    }
    for (int32_t i = 0; i >= 0 && r == 0; i = w->symbol[i].after)
        r = put(w, w->symbol[i].token);
    return r;
}

/* --- cutting a text ------------------------------------------------------------------------------------ */

/* text[len] by the rule of this depth, each part by the next rule, words at the end. */
static int cut(struct work *w, int depth, const char *text, size_t len)
{
    if (depth == w->t->rules)
        return merge_word(w, text, len);
    for (size_t at = 0; at < len;) {
        size_t n = split_word(w->t->rule[depth], text + at, len - at);
        int r = cut(w, depth + 1, text + at, n);

        if (r != 0)
            return r;
        at += n;
    }
    return 0;
}

/* A stretch of text without added tokens. */
static int encode_plain(struct work *w, const char *text, size_t len)
{
    char *spaced;
    int r;

    if (len == 0)
        return 0;
    if (!w->t->prefix_space || text[0] == ' ')
        return cut(w, 0, text, len);
    spaced = malloc(len + 1);
    if (!spaced)
        return merr_set(w->err, -ENOMEM, "no memory for a text of %zu bytes", len);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, len);
    r = cut(w, 0, spaced, len + 1);
    free(spaced);
    return r;
}

/* Whether text surely is in NFC: all characters below U+0300 are, whatever stands beside them. */
static bool is_composed(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0xcc)
            return false;
    return true;
}

/* Text without added tokens, as the tokenizer normalizes it. */
static int encode_part(struct work *w, const char *text, size_t len)
{
    utf8proc_uint8_t *nfc = NULL;
    utf8proc_ssize_t n;
    int r;

    if (!w->t->nfc || is_composed(text, len))
        return encode_plain(w, text, len);
    n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len, &nfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0)
        return merr_set(w->err, n == UTF8PROC_ERROR_NOMEM ? -ENOMEM : -EINVAL,
                        "cannot bring a text of %zu bytes to "
                        "NFC: %s",
                        len, utf8proc_errmsg(n));
    r = encode_plain(w, (const char *)nfc, (size_t)n);
    free(nfc);
    return r;
}

/* The longest added token at text, or -1. */
static int added_at(const struct tokenizer *t, const char *text, size_t len)
{
    if (!t->added_first[(unsigned char)text[0]])
        return -1;
    for (size_t i = 0; i < t->n_added; i++) {
        const struct token_text *a = &t->text[t->added[i]];

        if (a->len <= len && memcmp(a->p, text, a->len) == 0)
            return t->added[i];
    }
    return -1;
}

static int check_utf8(const char *text, size_t len, struct merr *err)
{
    uint32_t c;

    for (size_t at = 0, n; at < len; at += n) {
        n = unicode_get(text + at, len - at, &c);
        if (n == 0)
            return merr_set(err, -EILSEQ, "the text is not UTF-8 at byte %zu (0x%02x)", at, (unsigned char)text[at]);
    }
    return 0;
}

/* The parts between added tokens, and these. */
static int encode_parts(struct work *w, const char *text, size_t len)
{
    size_t from = 0;

    for (size_t at = 0; at < len; at++) {
        int token = added_at(w->t, text + at, len - at);

        if (token < 0)
            continue;
        TRY(encode_part(w, text + from, at - from));
        TRY(put(w, token));
        from = at + w->t->text[token].len;
        at = from - 1;
    }
    return encode_part(w, text + from, len - from);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, struct buf *out, struct merr *err)
{
    struct work w = {.t = t, .out = out, .err = err};
    int r;

    if (len > TOKENIZER_TEXT_MAX)
        return merr_set(err, -EFBIG, "a text of %zu bytes is longer than %u; split it", len, TOKENIZER_TEXT_MAX);
    TRY(check_utf8(text, len, err));
    r = encode_parts(&w, text, len);
    free(w.symbol);
    free(w.heap);
    return r;
}
