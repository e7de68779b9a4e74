#include "server/store/metrics_line.h"

#include <string.h>

#define DIGITS_EXACT 15 /* so many make a double without rounding */
#define POWERS 23       /* of ten that are doubles */

struct text {
    const char *p, *end;
};

static void pass_space(struct text *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\t' || *t->p == '\r' || *t->p == '\n'))
        t->p++;
}

static bool pass(struct text *t, char c)
{
    pass_space(t);
    if (t->p == t->end || *t->p != c)
        return false;
    t->p++;
    return true;
}

/* A string of plain characters. */
static bool pass_string(struct text *t, const char **ret, size_t *ret_len)
{
    if (!pass(t, '"'))
        return false;
    *ret = t->p;
    while (t->p < t->end && *t->p >= ' ' && *t->p < 127 && *t->p != '"' && *t->p != '\\')
        t->p++;
    *ret_len = (size_t)(t->p - *ret);
    return pass(t, '"') && (*ret)[*ret_len] == '"';
}

static int digits(struct text *t, int64_t *value)
{
    int n = 0;

    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++, n++)
        if (n < 18)
            *value = *value * 10 + (*t->p - '0');
    return n;
}

/* A number that needs no rounding but one. */
static bool pass_number(struct text *t, double *ret, int64_t *ret_whole, bool *ret_is_whole)
{
    static const double ten[POWERS] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool minus = t->p < t->end && *t->p == '-';
    int64_t value = 0, power = 0;
    int whole, part = 0;
    const char *first;

    t->p += minus;
    first = t->p;
    whole = digits(t, &value);
    if (whole == 0 || (whole > 1 && *first == '0') || whole > DIGITS_EXACT)
        return false;
    *ret_is_whole = true;
    if (t->p < t->end && *t->p == '.') {
        *ret_is_whole = false;
        t->p++;
        part = digits(t, &value);
        if (part == 0 || whole + part > DIGITS_EXACT)
            return false;
    }
    if (t->p < t->end && (*t->p == 'e' || *t->p == 'E')) {
        bool below = false;

        *ret_is_whole = false;
        t->p++;
        if (t->p < t->end && (*t->p == '-' || *t->p == '+'))
            below = *t->p++ == '-';
        whole = digits(t, &power);
        if (whole == 0 || whole > 3)
            return false;
        power = below ? -power : power;
    }
    power -= part;
    if (power <= -POWERS || power >= POWERS)
        return false;
    *ret_whole = minus ? -value : value;
    *ret = (double)value;
    *ret = power < 0 ? *ret / ten[-power] : *ret * ten[power];
    *ret = minus ? -*ret : *ret;
    return true;
}

static void take(struct metrics_line_numbers *l, const char *name, size_t len, double v, int64_t whole, bool is_whole)
{
    if (len == 4 && memcmp(name, "step", 4) == 0)
        l->step = is_whole ? whole : 0;
    else if (l->n < METRICS_LINE_NUMBERS)
        l->v[l->n++] = (struct metrics_number){name, len, v};
}

static bool pass_word(struct text *t, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
        return false;
    t->p += n;
    return true;
}

/* Whether the line is as programs write them; if not, nothing is said of it. */
static bool read_flat(const char *text, size_t len, struct metrics_line_numbers *l)
{
    struct text t = {text, text + len};
    bool more = true;

    if (!pass(&t, '{'))
        return false;
    for (; more; more = pass(&t, ',')) {
        const char *name, *word;
        size_t n, k;
        int64_t whole = 0;
        bool is_whole = false;
        double v;

        if (!pass_string(&t, &name, &n) || n == 0 || !pass(&t, ':'))
            return false;
        pass_space(&t);
        if (t.p < t.end && *t.p == '"') {
            if (!pass_string(&t, &word, &k))
                return false;
        } else if (t.p < t.end && (*t.p == '-' || (*t.p >= '0' && *t.p <= '9'))) {
            if (!pass_number(&t, &v, &whole, &is_whole))
                return false;
            take(l, name, n, v, whole, is_whole);
        } else if (!pass_word(&t, "null") && !pass_word(&t, "true") && !pass_word(&t, "false")) {
            return false;
        }
    }
    if (!pass(&t, '}'))
        return false;
    pass_space(&t);
    return t.p == t.end;
}

bool metrics_line_read(const char *text, size_t len, struct metrics_line_numbers *ret)
{
    const char *key;
    json_t *value;

    ret->step = 0;
    ret->n = 0;
    ret->tree = NULL;
    if (len < 2 || text[0] != '{')
        return false;
    if (read_flat(text, len, ret))
        return true;
    ret->step = 0;
    ret->n = 0;
    ret->tree = json_loadb(text, len, 0, NULL);
    if (!json_is_object(ret->tree)) {
        metrics_line_clear(ret);
        return false;
    }
    json_object_foreach (ret->tree, key, value)
        if (json_is_number(value))
            take(ret, key, strlen(key), json_number_value(value), json_integer_value(value), json_is_integer(value));
    return true;
}

void metrics_line_clear(struct metrics_line_numbers *l)
{
    json_decref(l->tree);
    l->tree = NULL;
}
