#include "worker/engine/text/split.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "worker/engine/text/unicode.h"

#define LATIN_LONG_S 0x17f /* folds to s */

struct text {
    const char *p;
    size_t len;
};

/* The character at byte `at`, its class and where it ends; at the end of the text an other with c 0 and end at. */
struct mark {
    uint32_t c;
    enum unicode_class kind;
    size_t end;
};

static struct mark look(const struct text *t, size_t at)
{
    struct mark m = {0, UNICODE_OTHER, at};

    if (at < t->len) {
        size_t n = unicode_get(t->p + at, t->len - at, &m.c);

        assert(n > 0);
        m.kind = unicode_class_of(m.c);
        m.end = at + n;
    }
    return m;
}

const char *split_pattern(enum split rule)
{
    switch (rule) {
    case SPLIT_GPT2:
        return "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    case SPLIT_LLAMA3:
        return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
               "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    case SPLIT_QWEN2:
        return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
               "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    default:
        return NULL;
    }
}

/* Where the run of a class from `at` ends, after at most `most` characters. */
static size_t run_of(const struct text *t, enum unicode_class kind, size_t at, size_t most)
{
    for (struct mark m; most > 0 && at < t->len; at = m.end, most--) {
        m = look(t, at);
        if (m.kind != kind)
            break;
    }
    return at;
}

/* The end of 's, 't, 're, 've, 'm, 'll or 'd; 0 when there is none. */
static size_t contraction(const struct text *t, bool any_case)
{
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};

    if (t->p[0] != '\'')
        return 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t at = 1, k = 0;

        for (; ends[i][k] && at < t->len; k++) {
            struct mark m = look(t, at);
            uint32_t c = any_case && m.c == LATIN_LONG_S        ? 's'
                         : any_case && m.c >= 'A' && m.c <= 'Z' ? m.c | 0x20
                                                                : m.c;

            if (c != (uint32_t)ends[i][k])
                break;
            at = m.end;
        }
        if (!ends[i][k])
            return at;
    }
    return 0;
}

/* \s+(?!\S)|\s+ from the start, which is a blank. */
static size_t blanks(const struct text *t)
{
    size_t end = run_of(t, UNICODE_SPACE, 0, SIZE_MAX), last = 0;

    if (end == t->len)
        return end;
    for (size_t at = 0; at < end; at = look(t, at).end)
        last = at;
    return last > 0 ? last : end;
}

static size_t word_gpt2(const struct text *t)
{
    size_t end = contraction(t, false), from = t->p[0] == ' ' ? 1 : 0;
    struct mark m = look(t, from);

    if (end > 0)
        return end;
    if (m.end > from && m.kind != UNICODE_SPACE)
        return run_of(t, m.kind, from, SIZE_MAX);
    return blanks(t);
}

static bool is_newline(uint32_t c)
{
    return c == '\r' || c == '\n';
}

/* \s*[\r\n]+: up to the last newline of the run of blanks; 0 when it has none. */
static size_t lines(const struct text *t)
{
    size_t end = 0;

    for (size_t at = 0; at < t->len;) {
        struct mark m = look(t, at);

        if (m.kind != UNICODE_SPACE)
            break;
        at = m.end;
        if (is_newline(m.c))
            end = at;
    }
    return end;
}

static size_t word_cl100k(const struct text *t, size_t digits)
{
    size_t end = contraction(t, true), from = t->p[0] == ' ' ? 1 : 0;
    struct mark m = look(t, 0), next;

    if (end > 0)
        return end;
    if (m.kind == UNICODE_LETTER)
        return run_of(t, UNICODE_LETTER, 0, SIZE_MAX);
    if (m.kind == UNICODE_NUMBER)
        return run_of(t, UNICODE_NUMBER, 0, digits);
    next = look(t, m.end);
    if (!is_newline(m.c) && next.kind == UNICODE_LETTER)
        return run_of(t, UNICODE_LETTER, m.end, SIZE_MAX);
    next = look(t, from);
    if (next.end > from && next.kind == UNICODE_OTHER) {
        end = run_of(t, UNICODE_OTHER, from, SIZE_MAX);
        while (end < t->len && is_newline((unsigned char)t->p[end]))
            end++;
        return end;
    }
    end = lines(t);
    return end > 0 ? end : blanks(t);
}

static size_t word_digits(const struct text *t)
{
    struct mark m = look(t, 0);

    if (m.kind == UNICODE_NUMBER)
        return m.end;
    while (m.end < t->len) {
        struct mark next = look(t, m.end);

        if (next.kind == UNICODE_NUMBER)
            break;
        m = next;
    }
    return m.end;
}

size_t split_word(enum split rule, const char *text, size_t len)
{
    struct text t = {text, len};

    assert(len > 0);
    switch (rule) {
    case SPLIT_GPT2:
        return word_gpt2(&t);
    case SPLIT_LLAMA3:
        return word_cl100k(&t, 3);
    case SPLIT_QWEN2:
        return word_cl100k(&t, 1);
    case SPLIT_DIGITS:
        return word_digits(&t);
    default:
        return len;
    }
}
