#include "server/store/metrics_series.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/store/metrics_line.h"

#define CHUNK (256 << 10)
#define SCAN_LINES 32768 /* of a range without enough spans, which are read */
#define EXACT_LINES 8192 /* of a range, which are read however many spans there are */
#define COLUMNS_MAX METRICS_LINE_NUMBERS
#define ANSWER_MAX (64 << 20)

struct cell { /* of a column in a bucket */
    double sum, least, most;
    int64_t n;
};

struct bucket {
    int64_t step, n; /* its last step, its lines */
};

struct series {
    const struct of_job *o;
    const struct spool *s;
    const char *names;
    int64_t below[SPOOL_GENERATIONS];
    int64_t from, to, width;
    size_t n_buckets;
    struct bucket *bucket;
    struct cell *column[COLUMNS_MAX]; /* each n_buckets */
    char *name[COLUMNS_MAX];
    bool asked[COLUMNS_MAX];
    size_t n_columns, near;
};

/* The cells of a column; NULL: it is not asked for, or one too many. */
static struct cell *cells_of(struct series *v, const char *name, size_t len)
{
    size_t k = v->near < v->n_columns ? v->near : 0; /* lines mostly have them in the same order */
    size_t passed = 0;
    char *key;

    for (; passed < v->n_columns; passed++, k = (k + 1) % v->n_columns)
        if (strncmp(v->name[k], name, len) == 0 && !v->name[k][len]) {
            v->near = k + 1;
            return v->asked[k] ? v->column[k] : NULL;
        }
    k = v->n_columns;
    key = k < COLUMNS_MAX ? strndup(name, len) : NULL;
    if (!key)
        return NULL;
    v->asked[k] = metrics_named(v->names, key) && strcmp(key, "step") != 0;
    v->column[k] = v->asked[k] ? calloc(v->n_buckets, sizeof(*v->column[k])) : NULL;
    if (v->asked[k] && !v->column[k]) {
        free(key);
        return NULL;
    }
    v->name[k] = key;
    v->n_columns++;
    return v->column[k];
}

static void add(struct series *v, size_t at, const char *name, size_t len, const struct cell *from)
{
    struct cell *to = cells_of(v, name, len);

    if (!to || from->n == 0)
        return;
    to += at;
    to->least = to->n == 0 || from->least < to->least ? from->least : to->least;
    to->most = to->n == 0 || from->most > to->most ? from->most : to->most;
    to->sum += from->sum;
    to->n += from->n;
}

static size_t bucket_of(const struct series *v, int64_t step)
{
    return (size_t)((step < v->from ? 0 : step - v->from) / v->width);
}

static void count(struct series *v, size_t at, int64_t step, int64_t lines)
{
    struct bucket *b = &v->bucket[at];

    b->step = b->n == 0 || step > b->step ? step : b->step;
    b->n += lines;
}

/* The last step of a span. */
static int64_t span_end(const struct metrics_index *x, size_t i)
{
    int64_t end = i + 1 < x->n_spans ? x->spans[i + 1].step - 1 : x->last_step;

    return end < x->spans[i].step ? x->spans[i].step : end;
}

static int64_t span_lines(const struct metrics_index *x, size_t i)
{
    return (int64_t)(i + 1 < x->n_spans ? x->per_span : x->n_lines - i * x->per_span);
}

static bool is_in(const struct series *v, size_t f, size_t i)
{
    const struct metrics_index *x = &v->o->v[f];

    return x->spans[i].step <= v->to && x->spans[i].step < v->below[f] && span_end(x, i) >= v->from;
}

static void take_spans(struct series *v, size_t f)
{
    const struct metrics_index *x = &v->o->v[f];

    for (size_t i = 0; i < x->n_spans; i++) {
        size_t at = bucket_of(v, x->spans[i].step);
        int64_t end = span_end(x, i);

        if (!is_in(v, f, i))
            continue;
        end = end >= v->below[f] ? v->below[f] - 1 : end;
        count(v, at, end > v->to ? v->to : end, span_lines(x, i));
        for (size_t k = 0; k < x->n_columns; k++) {
            const struct metrics_extreme *e = &x->spans[i].of[k];

            add(v, at, x->column[k], strlen(x->column[k]), &(struct cell){e->sum, e->least, e->most, e->n});
        }
    }
}

static void take_line(struct series *v, size_t f, const char *text, size_t len)
{
    struct metrics_line_numbers line;

    if (len > METRICS_INDEX_LINE_MAX || !metrics_line_read(text, len, &line))
        return;
    if (line.step >= v->from && line.step <= v->to && line.step < v->below[f]) {
        size_t at = bucket_of(v, line.step);

        count(v, at, line.step, 1);
        for (size_t i = 0; i < line.n; i++) {
            double x = line.v[i].v;

            add(v, at, line.v[i].name, line.v[i].len, &(struct cell){x, x, x, 1});
        }
    }
    metrics_line_clear(&line);
}

/* The whole lines from an offset to another. 0 or a negative errno. */
static int scan(struct series *v, size_t f, int64_t at, int64_t end)
{
    char name[SPOOL_NAME_MAX], *text = malloc(CHUNK);
    struct spool_extent e;
    ssize_t n = text ? 1 : -ENOMEM;

    spool_metrics_name(v->o->generation[f], name);
    n = n > 0 && spool_measure(v->s, v->o->job, name, &e) < 0 ? 0 : n;
    while (n > 0 && at < end) {
        const char *p = text, *nl;

        n = spool_read(v->s, v->o->job, name, &e, &at, text, CHUNK);
        while (n > 0 && (nl = memchr(p, '\n', (size_t)(text + n - p))) && at + (p - text) < end) {
            take_line(v, f, p, (size_t)(nl - p));
            p = nl + 1;
        }
        at += p > text || n <= 0 ? p - text : n; /* no line is that long */
    }
    free(text);
    return n < 0 ? (int)n : 0;
}

/* All lines of the spans of a file that are in the range. */
static int take_lines(struct series *v, size_t f)
{
    const struct metrics_index *x = &v->o->v[f];
    int64_t begin = -1, end = 0;

    for (size_t i = 0; i < x->n_spans; i++) {
        if (!is_in(v, f, i))
            continue;
        begin = begin < 0 ? x->spans[i].at : begin;
        end = i + 1 < x->n_spans ? x->spans[i + 1].at : x->read;
    }
    return begin < 0 ? 0 : scan(v, f, begin, end);
}

static int collect(struct series *v)
{
    int64_t lines = 0;
    size_t spans = 0;
    bool fine;
    int r = 0;

    for (size_t f = 0; f < v->o->n; f++)
        for (size_t i = 0; i < v->o->v[f].n_spans; i++)
            if (is_in(v, f, i)) {
                spans++;
                lines += span_lines(&v->o->v[f], i);
            }
    fine = lines > SCAN_LINES || (lines > EXACT_LINES && spans >= v->n_buckets);
    for (size_t f = 0; f < v->o->n && r == 0; f++) {
        if (fine)
            take_spans(v, f);
        else
            r = take_lines(v, f);
    }
    return r;
}

/* --- the answer -------------------------------------------------------------------------------------- */

static void print_value(struct buf *b, double v)
{
    if (isfinite(v))
        (void)buf_printf(b, fabs(v) < 1e9 ? "%.9g" : "%.14g", v);
    else
        (void)buf_addstr(b, "null");
}

enum what { MEAN, LEAST, MOST };

static void print_cells(const struct series *v, struct buf *b, const struct cell *cells, enum what what)
{
    bool first = true;

    (void)buf_addstr(b, what == MEAN ? "\"mean\":[" : what == LEAST ? ",\"least\":[" : ",\"most\":[");
    for (size_t i = 0; i < v->n_buckets; i++) {
        const struct cell *c = &cells[i];

        if (v->bucket[i].n == 0)
            continue;
        (void)buf_addstr(b, first ? "" : ",");
        first = false;
        if (c->n > 0)
            print_value(b, what == MEAN ? c->sum / (double)c->n : what == LEAST ? c->least : c->most);
        else
            (void)buf_addstr(b, "null");
    }
    (void)buf_addstr(b, "]");
}

/* Steps of the buckets, or the numbers of their lines. */
static void print_buckets(const struct series *v, struct buf *b, const char *name, bool steps)
{
    const char *comma = "";

    (void)buf_printf(b, ",\"%s\":[", name);
    for (size_t i = 0; i < v->n_buckets; i++) {
        if (v->bucket[i].n == 0)
            continue;
        (void)buf_printf(b, "%s%lld", comma, (long long)(steps ? v->bucket[i].step : v->bucket[i].n));
        comma = ",";
    }
    (void)buf_addstr(b, "]");
}

static void print_attempts(const struct series *v, struct buf *b)
{
    const char *comma = "";

    (void)buf_addstr(b, "},\"attempts\":[");
    for (size_t f = 0; f < v->o->n; f++) {
        if (v->o->v[f].n_lines == 0 || v->o->v[f].first_step >= v->below[f])
            continue;
        (void)buf_printf(b, "%s{\"attempt\":%d,\"step\":%lld}", comma, v->o->generation[f],
                         (long long)v->o->v[f].first_step);
        comma = ",";
    }
    (void)buf_addstr(b, "]}");
}

static char *print_new(const struct series *v, int64_t first, int64_t last)
{
    struct buf b;
    int64_t most = 0;
    const char *comma = "";
    char *text;

    for (size_t i = 0; i < v->n_buckets; i++)
        most = v->bucket[i].n > most ? v->bucket[i].n : most;
    buf_init(&b, ANSWER_MAX);
    (void)buf_printf(&b, "{\"from\":%lld,\"to\":%lld,\"first\":%lld,\"last\":%lld,\"most\":%lld", (long long)v->from,
                     (long long)v->to, (long long)first, (long long)last, (long long)most);
    print_buckets(v, &b, "step", true);
    print_buckets(v, &b, "n", false);
    (void)buf_addstr(&b, ",\"series\":{");
    for (size_t k = 0; k < v->n_columns; k++) {
        json_t *name = v->asked[k] ? json_string(v->name[k]) : NULL;
        char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

        if (!quoted) {
            json_decref(name);
            continue;
        }
        (void)buf_printf(&b, "%s%s:{", comma, quoted);
        comma = ",";
        print_cells(v, &b, v->column[k], MEAN);
        for (enum what what = LEAST; what <= MOST && most > 1; what++)
            print_cells(v, &b, v->column[k], what);
        (void)buf_addstr(&b, "}");
        free(quoted);
        json_decref(name);
    }
    print_attempts(v, &b);
    text = buf_failed(&b) ? NULL : buf_detach(&b);
    buf_clear(&b);
    return text;
}

static void clear(struct series *v)
{
    for (size_t k = 0; k < v->n_columns; k++) {
        free(v->name[k]);
        free(v->column[k]);
    }
    free(v->bucket);
    free(v);
}

char *metrics_series_new(const struct of_job *o, const struct spool *s, const struct metrics_range *range)
{
    struct series *v = calloc(1, sizeof(*v));
    int64_t first = 0, last = -1;
    char *text = NULL;

    if (!v)
        return NULL;
    for (size_t f = 0; f < o->n; f++) {
        if (o->v[f].n_lines == 0)
            continue;
        first = last < 0 || o->v[f].first_step < first ? o->v[f].first_step : first;
        last = o->v[f].last_step; /* of the newest: it replaces what others have from its first step on */
    }
    v->o = o;
    v->s = s;
    v->names = range->names;
    metrics_below(o, v->below);
    v->from = range->from > first ? range->from : first;
    v->to = range->to < last ? range->to : last;
    v->n_buckets = (size_t)range->buckets;
    v->width = v->to < v->from ? 1 : (v->to - v->from) / range->buckets + 1;
    v->bucket = calloc(v->n_buckets, sizeof(*v->bucket));
    if (v->bucket && (v->to < v->from || collect(v) == 0))
        text = print_new(v, first, last);
    clear(v);
    return text;
}
