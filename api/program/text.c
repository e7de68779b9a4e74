#include <ctype.h>
#include <string.h>

#include "api/program/handle.h"

#define DEPTH_MAX 64

/* --- UTF-8 ------------------------------------------------------------------------------------------- */

/* Bytes of the character at p, of which there are n; 0: it is none. */
static size_t character(const unsigned char *p, size_t n)
{
    size_t len = p[0] < 0x80                   ? 1
                 : p[0] >= 0xC2 && p[0] < 0xE0 ? 2
                 : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
                 : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                               : 0;

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
        (p[0] == 0xF4 && p[1] > 0x8F))
        return 0; /* longer than need be, half of a pair, or no character at all */
    return len;
}

size_t text_quote(const char *text, size_t max, char *ret)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = strnlen(text, max + 4), out = 0;

    for (size_t i = 0, len; i < n && i < max; i += len) {
        len = character(p + i, n - i);
        if (i + len > max)
            break;
        if (len == 0 || (len == 1 && p[i] < 0x20)) {
            ret[out++] = ' ';
            len = 1;
        } else {
            if (p[i] == '"' || p[i] == '\\')
                ret[out++] = '\\';
            memcpy(ret + out, p + i, len);
            out += len;
        }
    }
    return out;
}

/* --- JSON -------------------------------------------------------------------------------------------- */

struct at {
    const char *p, *end;
};

static void space(struct at *a)
{
    while (a->p < a->end && (*a->p == ' ' || *a->p == '\t' || *a->p == '\n' || *a->p == '\r'))
        a->p++;
}

static bool take(struct at *a, char c)
{
    space(a);
    if (a->p == a->end || *a->p != c)
        return false;
    a->p++;
    return true;
}

static bool escape(struct at *a)
{
    if (++a->p == a->end)
        return false;
    if (*a->p == 'u') {
        for (int i = 0; i < 4; i++)
            if (++a->p == a->end || !isxdigit((unsigned char)*a->p))
                return false;
    } else if (!memchr("\"\\/bfnrt", *a->p, 8)) {
        return false;
    }
    a->p++;
    return true;
}

static bool string(struct at *a)
{
    if (!take(a, '"'))
        return false;
    while (a->p < a->end && *a->p != '"') {
        size_t len = character((const unsigned char *)a->p, (size_t)(a->end - a->p));

        if (*a->p == '\\') {
            if (!escape(a))
                return false;
            continue;
        }
        if (len == 0 || (unsigned char)*a->p < 0x20)
            return false;
        a->p += len;
    }
    return take(a, '"');
}

static bool digits(struct at *a)
{
    const char *from = a->p;

    while (a->p < a->end && isdigit((unsigned char)*a->p))
        a->p++;
    return a->p > from;
}

static bool number(struct at *a)
{
    const char *from;

    if (a->p < a->end && *a->p == '-')
        a->p++;
    from = a->p;
    if (!digits(a) || (*from == '0' && a->p > from + 1))
        return false;
    if (a->p < a->end && *a->p == '.') {
        a->p++;
        if (!digits(a))
            return false;
    }
    if (a->p < a->end && (*a->p == 'e' || *a->p == 'E')) {
        a->p++;
        if (a->p < a->end && (*a->p == '+' || *a->p == '-'))
            a->p++;
        return digits(a);
    }
    return true;
}

static bool word(struct at *a)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(a->end - a->p) >= n && memcmp(a->p, words[i], n) == 0) {
            a->p += n;
            return true;
        }
    }
    return false;
}

static bool value(struct at *a, int depth)
{
    char open, close;

    space(a);
    if (a->p == a->end || depth > DEPTH_MAX)
        return false;
    open = *a->p;
    if (open == '"')
        return string(a);
    if (open != '{' && open != '[')
        return isdigit((unsigned char)open) || open == '-' ? number(a) : word(a);
    close = open == '{' ? '}' : ']';
    a->p++;
    if (take(a, close))
        return true;
    do {
        if (open == '{' && (space(a), !string(a) || !take(a, ':')))
            return false;
        if (!value(a, depth + 1))
            return false;
    } while (take(a, ','));
    return take(a, close);
}

bool text_is_object(const char *text, size_t n)
{
    struct at a = {text, text + n};

    space(&a);
    if (a.p == a.end || *a.p != '{' || !value(&a, 0))
        return false;
    space(&a);
    return a.p == a.end;
}

const char *text_member(const char *text, const char *key)
{
    struct at a = {text, text + strlen(text)};
    size_t n = strlen(key);

    if (!take(&a, '{'))
        return NULL;
    do {
        const char *name;

        space(&a);
        name = a.p + 1;
        if (!string(&a) || !take(&a, ':'))
            return NULL;
        space(&a);
        if (strncmp(name, key, n) == 0 && name[n] == '"')
            return a.p;
    } while (value(&a, 0) && take(&a, ','));
    return NULL;
}
