#include "base/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/try.h"
#include "base/version.h"
#include "base/word.h"

#define LINE 80       /* columns of help */
#define LEFT 26       /* of them for an option */
#define WORDS_MAX 512 /* bytes of the words about a value */

struct value { /* one of them, by the kind of its row */
    long long n;
    uint64_t whole;
    double real;
};

/* The row's own ones come first. NULL: there are fewer. */
static const struct option_row *row_at(const struct options *o, size_t i)
{
    for (const struct option_row *r = o->rows; r && r->name; r++)
        if (i-- == 0)
            return r;
    for (const struct option_row *r = o->common; r && r->name; r++)
        if (i-- == 0)
            return r;
    return NULL;
}

/* --- values ---------------------------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
    return isdigit((unsigned char)text[*text == '-']);
}

static bool in_range(const struct option_row *row, double x)
{
    if (row->zero && x == 0)
        return true;
    return (row->kind == OPTION_REAL_OVER ? x > row->lo : x >= row->lo) && x <= row->hi;
}

/* A whole number and what follows it. */
static bool read_whole(const char *text, uint64_t *ret, const char **ret_end)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    *ret_end = end;
    return isdigit((unsigned char)*text) && errno == 0;
}

static bool read_int(const struct option_row *row, const char *text, long long *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    return is_number(text) && errno == 0 && !*end && in_range(row, (double)*ret);
}

static bool read_real(const struct option_row *row, const char *text, double *ret)
{
    char *end;

    *ret = strtod(text, &end);
    return end != text && !*end && isfinite(*ret) && in_range(row, *ret);
}

static bool read_seconds(const struct option_row *row, const char *text, long long *ret)
{
    static const char units[] = "smhd";
    static const int seconds[] = {1, 60, 3600, 86400};
    const char *end, *unit;
    uint64_t n;

    if (!read_whole(text, &n, &end) || n > INT32_MAX)
        return false;
    unit = *end ? strchr(units, *end) : units;
    if (!unit || (*end && end[1]))
        return false;
    *ret = (long long)n * seconds[unit - units];
    return in_range(row, (double)*ret);
}

static bool read_bytes(const char *text, uint64_t *ret)
{
    static const char units[] = "kmgt";
    const char *end, *unit;
    int shift = 0;

    if (!read_whole(text, ret, &end))
        return false;
    if (*end) {
        unit = strchr(units, tolower((unsigned char)*end));
        if (!unit || end[1])
            return false;
        shift = 10 * (int)(unit - units + 1);
    }
    if (*ret == 0 || *ret > (uint64_t)INT64_MAX >> shift)
        return false;
    *ret <<= shift;
    return true;
}

static bool read_value(const struct option_row *row, const char *text, struct value *v)
{
    const char *end;

    switch (row->kind) {
    case OPTION_INT:
        return read_int(row, text, &v->n);
    case OPTION_WHOLE:
        return read_whole(text, &v->whole, &end) && !*end;
    case OPTION_REAL:
    case OPTION_REAL_OVER:
        return read_real(row, text, &v->real);
    case OPTION_SECONDS:
        return read_seconds(row, text, &v->n);
    case OPTION_BYTES:
        return read_bytes(text, &v->whole);
    case OPTION_WORD:
        v->n = word_index(text, row->words);
        return v->n >= 0;
    default:
        return true;
    }
}

long long options_whole(const struct option_row *row, const char *text)
{
    struct value v = {.n = 0};
    bool good = read_value(row, text, &v);

    assert(good);
    return row->kind == OPTION_WHOLE || row->kind == OPTION_BYTES ? (long long)v.whole : v.n;
}

/* What a value of the row may be. */
static void add_wanted(const struct option_row *row, struct buf *b)
{
    const char *zero = row->zero ? "0 or " : "";

    switch (row->kind) {
    case OPTION_INT:
        if (row->hi < 9e15)
            (void)buf_printf(b, "%sa number from %.0f to %.0f", zero, row->lo, row->hi);
        else
            (void)buf_printf(b, "%sa whole number from %.0f", zero, row->lo);
        return;
    case OPTION_WHOLE:
        (void)buf_addstr(b, "a whole number");
        return;
    case OPTION_REAL:
        (void)buf_printf(b, "%sa number from %g", zero, row->lo);
        break;
    case OPTION_REAL_OVER:
        (void)buf_printf(b, "%sa number above %g", zero, row->lo);
        break;
    case OPTION_SECONDS:
        (void)buf_printf(b, "%sa number from %.0f to %.0f, of seconds or such as 90s, 5m, 2h, 7d", zero, row->lo,
                         row->hi);
        return;
    case OPTION_BYTES:
        (void)buf_addstr(b, "a size such as 500m or 8g");
        return;
    case OPTION_WORD:
        word_list(row->words, " or ", b);
        return;
    default:
        (void)buf_addstr(b, row->value);
        return;
    }
    if (isfinite(row->hi))
        (void)buf_printf(b, " to %g", row->hi);
}

static int refuse_value(const struct option_row *row, const char *text, struct merr *err)
{
    struct buf wanted;
    int r;

    buf_init(&wanted, WORDS_MAX);
    add_wanted(row, &wanted);
    r = merr_set(err, -EINVAL, "--%s wants %s, not '%.200s'", row->name, buf_text(&wanted), text);
    buf_clear(&wanted);
    return r;
}

/* --- reading --------------------------------------------------------------------------------------------------- */

struct reading {
    const struct options *o;
    char *const *argv;
    int argc, at; /* argv[at] is next */
    struct options_given given;
};

static int unknown(const struct options *o, const char *text, struct merr *err)
{
    const char *known[OPTIONS_ROWS_MAX], *near = NULL, *name = text + strspn(text, "-");
    const struct option_row *row;
    char word[64];
    size_t n = 0, len, begin_alike = 0;

    (void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "="), name);
    len = strlen(word);
    for (; (row = row_at(o, n)); n++) {
        known[n] = row->name;
        if (len > 1 && strncmp(row->name, word, len) == 0) {
            begin_alike++;
            near = row->name;
        }
    }
    if (begin_alike != 1)
        near = word_nearest(word, known, n);
    if (near && text[1] == '-')
        return merr_set(err, -EINVAL, "unknown option '%.200s'; did you mean '--%s'?", text, near);
    return merr_set(err, -EINVAL, "unknown option '%.200s'; see `%s --help`", text, o->name);
}

/* The row that "--name", "--name=value", "-n" or "-nvalue" is of, and its place; NULL: of none. */
static const struct option_row *find_row(const struct options *o, const char *text, size_t *ret_at)
{
    const char *name = text + 2;
    size_t len = text[1] == '-' ? strcspn(name, "=") : 0;
    const struct option_row *row;

    for (*ret_at = 0; (row = row_at(o, *ret_at)); ++*ret_at)
        if (len ? strlen(row->name) == len && strncmp(row->name, name, len) == 0 : text[1] == row->letter)
            return row;
    return NULL;
}

/* The value that stands with the option, or as the next argument; NULL: there is none. */
static const char *find_value(struct reading *g, const struct option_row *row, const char *text)
{
    if (text[1] != '-' && text[2])
        return text + 2;
    if (text[1] == '-' && strchr(text, '='))
        return strchr(text, '=') + 1;
    return row->value && g->at < g->argc ? g->argv[g->at++] : NULL;
}

static int take_option(struct reading *g, const char *text, struct merr *err)
{
    size_t at;
    const struct option_row *row = find_row(g->o, text, &at);
    const char *value;
    struct value v;

    if (!row)
        return unknown(g->o, text, err);
    value = find_value(g, row, text);
    if (value && !row->value)
        return merr_set(err, -EINVAL, "'%.200s': --%s takes no value", text, row->name);
    if (!value && row->value)
        return merr_set(err, -EINVAL, "--%s wants %s", row->name, row->value);
    if (row->kind == OPTION_HELP || row->kind == OPTION_VERSION)
        return (int)row->kind;
    if (value && !read_value(row, value, &v))
        return refuse_value(row, value, err);
    if (row->kind == OPTION_LIST) {
        if (g->given.n_list == OPTIONS_LIST_MAX)
            return merr_set(err, -EINVAL, "more than %d --%s; leave some out", OPTIONS_LIST_MAX, row->name);
        g->given.list[g->given.n_list++] = value;
    }
    g->given.text[at] = value ? value : "";
    return 0;
}

static int take_argument(struct reading *g, const char *text, struct merr *err)
{
    const struct options *o = g->o;

    if (g->given.n_args == OPTIONS_ARGS_MAX || g->given.n_args == o->max)
        return merr_set(err, -EINVAL, "'%.200s' is one argument too many; usage: %s%s%s [OPTION...]", text, o->name,
                        *o->args ? " " : "", o->args);
    g->given.arg[g->given.n_args++] = text;
    return 0;
}

static int take_all(struct reading *g, struct merr *err)
{
    bool only_arguments = false;

    while (g->at < g->argc) {
        const char *text = g->argv[g->at++];
        bool option = !only_arguments && text[0] == '-' && text[1];
        int r;

        if (option && strcmp(text, "--") == 0) {
            if (g->o->tail) {
                g->given.rest = g->argv + g->at;
                return 0;
            }
            only_arguments = true;
            continue;
        }
        if (!option && g->o->passes) {
            g->given.rest = g->argv + g->at - 1;
            return 0;
        }
        r = option ? take_option(g, text, err) : take_argument(g, text, err);
        if (r != 0)
            return r;
    }
    return 0;
}

/* What the environment and the defaults say of options that were not given. */
static int complete(struct reading *g, struct merr *err)
{
    const struct option_row *row;
    struct value v;

    for (size_t i = 0; (row = row_at(g->o, i)); i++) {
        const char *env = row->env ? getenv(row->env) : NULL;

        if (g->given.text[i])
            continue;
        if (env && *env) {
            if (!read_value(row, env, &v))
                return merr_prefix(err, refuse_value(row, env, err), "%s", row->env);
            g->given.text[i] = env;
        } else {
            g->given.text[i] = row->def;
        }
        if (row->needed && !g->given.text[i])
            return merr_set(err, -EINVAL, "--%s %s is missing; see `%s --help`", row->name, row->value, g->o->name);
    }
    if (g->given.n_args < g->o->min)
        return merr_set(err, -EINVAL, "usage: %s %s [OPTION...]", g->o->name, g->o->args);
    return 0;
}

static void store(const struct option_row *row, const char *text, void *place)
{
    struct value v = {.n = 0};
    bool good = !row->value || read_value(row, text, &v);

    assert(good); /* the default, too */
    if (!row->value) {
        *(bool *)place = true;
        return;
    }
    switch (row->kind) {
    case OPTION_INT:
    case OPTION_SECONDS:
    case OPTION_WORD:
        *(int *)place = (int)v.n;
        return;
    case OPTION_WHOLE:
    case OPTION_BYTES:
        *(uint64_t *)place = v.whole;
        return;
    case OPTION_REAL:
    case OPTION_REAL_OVER:
        *(double *)place = v.real;
        return;
    default:
        *(const char **)place = text;
        return;
    }
}

int options_read(const struct options *o, int argc, char *const *argv, void *ret, struct options_given *ret_given,
                 struct merr *err)
{
    struct reading g = {.o = o, .argv = argv, .argc = argc};
    const struct option_row *row;

    TRY(take_all(&g, err));
    TRY(complete(&g, err));
    for (size_t i = 0; (row = row_at(o, i)); i++)
        if (row->at && g.given.text[i])
            store(row, g.given.text[i], (char *)ret + row->at - 1);
    *ret_given = g.given;
    return 0;
}

int options_refuse(const struct options *o, const char *fmt, ...)
{
    va_list ap;

    (void)fprintf(stderr, "%s: ", o->name);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    return OPTIONS_USAGE;
}

int options_main(const struct options *o, int argc, char *const *argv, void *ret, struct options_given *ret_given,
                 int *ret_status)
{
    struct merr err;
    int r = options_read(o, argc - 1, argv + 1, ret, ret_given, &err);

    if (r == 0)
        return 0;
    if (r == OPTION_HELP)
        options_print_help(o, stdout);
    else if (r == OPTION_VERSION)
        (void)printf("%s %s\n", o->name, MUSTER_VERSION);
    *ret_status = r < 0 ? options_refuse(o, "%s", err.text) : 0;
    return 1;
}

/* --- help ------------------------------------------------------------------------------------------------------ */

void options_print_pair(FILE *out, const char *left, int width, const char *words)
{
    int indent = width + 3, at = fprintf(out, "  %-*s", width, left);

    while (*words) {
        int len = (int)strcspn(words, " ");

        if (at > indent && at + 1 + len > LINE)
            at = fprintf(out, "\n%*s", indent - 1, "") - 1;
        at += fprintf(out, " %.*s", len, words);
        words += len + (words[len] == ' ');
    }
    (void)fputc('\n', out);
}

const char *options_help_of(const struct option_row *row, char *out, size_t size)
{
    (void)snprintf(out, size, "%s%s%s%s", row->help, row->def ? " (default " : "", row->def ? row->def : "",
                   row->def ? ")" : "");
    return out;
}

void options_print_help(const struct options *o, FILE *out)
{
    const struct option_row *row;
    char left[128], words[WORDS_MAX];

    (void)fprintf(out, "usage: %s%s%s%s%s\n\n%s\n\n", o->name, o->tail ? " [OPTION...]" : "", *o->args ? " " : "",
                  o->args, o->tail ? "" : " [OPTION...]", o->about);
    for (size_t i = 0; (row = row_at(o, i)); i++) {
        (void)snprintf(left, sizeof(left), "%s%c%s--%s%s%s", row->letter ? "-" : "", row->letter ? row->letter : ' ',
                       row->letter ? ", " : "   ", row->name, row->value ? " " : "", row->value ? row->value : "");
        options_print_pair(out, left, LEFT, options_help_of(row, words, sizeof(words)));
    }
    if (o->after)
        (void)fprintf(out, "\n%s\n", o->after);
}
