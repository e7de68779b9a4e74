#include "server/store/metrics_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/metrics_line.h"

#define CHUNK (256 << 10)
#define SPANS_LEAST 16

void metrics_index_clear(struct metrics_index *x)
{
    free(x->lines);
    free(x->spans);
    *x = (struct metrics_index){0};
}

size_t metrics_index_bytes(const struct metrics_index *x)
{
    return sizeof(*x) + x->lines_cap * sizeof(*x->lines) + x->spans_cap * sizeof(*x->spans);
}

/* The number of a column, METRICS_INDEX_COLUMNS: it is not followed. Lines mostly have theirs in the same order: it is
 * looked for first where the last one's neighbour is. */
static size_t column_of(struct metrics_index *x, const struct metrics_number *m, size_t near)
{
    size_t i = 0;

    if (m->len >= METRICS_INDEX_NAME_MAX)
        return METRICS_INDEX_COLUMNS;
    if (near < x->n_columns && memcmp(x->column[near], m->name, m->len) == 0 && !x->column[near][m->len])
        return near;
    while (i < x->n_columns && (memcmp(x->column[i], m->name, m->len) != 0 || x->column[i][m->len]))
        i++;
    if (i < x->n_columns || i == METRICS_INDEX_COLUMNS)
        return i;
    memcpy(x->column[x->n_columns], m->name, m->len);
    x->column[x->n_columns++][m->len] = '\0';
    return i;
}

static void join(struct metrics_extreme *to, const struct metrics_extreme *from)
{
    if (from->least_at < 0)
        return;
    to->sum += from->sum;
    to->n += from->n;
    if (to->least_at < 0 || from->least < to->least) {
        to->least = from->least;
        to->least_at = from->least_at;
    }
    if (to->most_at < 0 || from->most > to->most) {
        to->most = from->most;
        to->most_at = from->most_at;
    }
}

/* All spans are used: each holds twice as many lines from now on. */
static void widen(struct metrics_index *x)
{
    for (size_t i = 0; i < x->n_spans; i++) {
        struct metrics_span *to = &x->spans[i / 2];

        if (i % 2 == 0)
            memmove(to, &x->spans[i], sizeof(*to));
        for (size_t k = 0; i % 2 && k < METRICS_INDEX_COLUMNS; k++)
            join(&to->of[k], &x->spans[i].of[k]);
    }
    x->n_spans = (x->n_spans + 1) / 2;
    x->per_span *= 2;
}

static size_t spans_most(const struct metrics_index *x)
{
    return x->share > 0 ? x->share : METRICS_INDEX_SPANS;
}

static uint64_t lines_most(const struct metrics_index *x)
{
    return spans_most(x) * (METRICS_INDEX_LINES / METRICS_INDEX_SPANS);
}

static void forget_lines(struct metrics_index *x)
{
    free(x->lines);
    x->lines = NULL;
    x->lines_cap = 0;
}

void metrics_index_share(struct metrics_index *x, size_t files)
{
    struct metrics_span *spans;

    x->share = METRICS_INDEX_SPANS / (files ? files : 1);
    x->share = x->share < SPANS_LEAST ? SPANS_LEAST : x->share - x->share % 2;
    if (x->n_lines > lines_most(x))
        forget_lines(x);
    while (x->n_spans > x->share)
        widen(x);
    if (x->spans_cap > x->share && (spans = realloc(x->spans, x->share * sizeof(*spans)))) {
        x->spans = spans;
        x->spans_cap = x->share;
    }
}

/* The span of the next line, -ENOMEM. */
static int next_span(struct metrics_index *x, int64_t at, int64_t step, struct metrics_span **ret)
{
    x->per_span = x->per_span ? x->per_span : METRICS_INDEX_LINES / METRICS_INDEX_SPANS;
    if (x->n_lines % x->per_span != 0) {
        *ret = &x->spans[x->n_spans - 1];
        return 0;
    }
    if (x->n_spans >= spans_most(x)) {
        widen(x);
        return next_span(x, at, step, ret);
    }
    if (x->n_spans == x->spans_cap) {
        size_t cap = x->spans_cap ? x->spans_cap * 2 : SPANS_LEAST;
        struct metrics_span *spans = realloc(x->spans, cap * sizeof(*spans));

        if (!spans)
            return -ENOMEM;
        x->spans = spans;
        x->spans_cap = cap;
    }
    *ret = &x->spans[x->n_spans++];
    (*ret)->at = at;
    (*ret)->step = step;
    for (size_t k = 0; k < METRICS_INDEX_COLUMNS; k++)
        (*ret)->of[k] = (struct metrics_extreme){.least_at = -1, .most_at = -1};
    return 0;
}

static int note_line(struct metrics_index *x, int64_t at, int64_t step)
{
    if (x->n_lines >= lines_most(x)) {
        forget_lines(x);
        return 0;
    }
    if (x->n_lines == x->lines_cap) {
        size_t cap = x->lines_cap ? x->lines_cap * 2 : 64;
        struct metrics_line *lines = realloc(x->lines, cap * sizeof(*lines));

        if (!lines)
            return -ENOMEM;
        x->lines = lines;
        x->lines_cap = cap;
    }
    x->lines[x->n_lines] = (struct metrics_line){.at = at, .step = step};
    return 0;
}

static int take_line(struct metrics_index *x, int64_t at, const char *text, size_t len)
{
    struct metrics_line_numbers line;
    struct metrics_span *span = NULL;
    size_t k = 0;
    int r;

    if (len > METRICS_INDEX_LINE_MAX || !metrics_line_read(text, len, &line))
        return 0;
    r = note_line(x, at, line.step);
    r = r == 0 ? next_span(x, at, line.step, &span) : r;
    for (size_t i = 0; span && i < line.n; i++) {
        double v = line.v[i].v;

        k = column_of(x, &line.v[i], k);
        if (k < METRICS_INDEX_COLUMNS)
            join(&span->of[k++], &(struct metrics_extreme){v, v, at, at, v, 1});
    }
    metrics_line_clear(&line);
    if (r < 0)
        return r;
    x->first_step = x->n_lines == 0 ? line.step : x->first_step;
    x->last_step = x->n_lines == 0 || line.step > x->last_step ? line.step : x->last_step;
    x->last_at = at;
    x->n_lines++;
    return 0;
}

/* Take the whole lines of what was read at an offset. Returns the bytes that are done with, or -ENOMEM. */
static ssize_t take_chunk(struct metrics_index *x, int64_t offset, const char *text, size_t len)
{
    const char *p = text, *nl;

    while ((nl = memchr(p, '\n', len - (size_t)(p - text)))) {
        int r = x->within ? 0 : take_line(x, offset + (p - text), p, (size_t)(nl - p));

        if (r < 0)
            return r;
        x->within = false;
        p = nl + 1;
    }
    if (p == text && len == CHUNK) { /* no line is that long */
        x->within = true;
        return (ssize_t)len;
    }
    return p - text;
}

int metrics_index_update(struct metrics_index *x, const struct spool *s, uint64_t job, const char *name,
                         metrics_go_on *go_on, void *arg)
{
    char *text = malloc(CHUNK);
    struct spool_extent e;
    ssize_t n = text ? spool_measure(s, job, name, &e) : -ENOMEM;

    if (n == 0 && e.length < x->read) { /* another file of that name */
        size_t share = x->share;

        metrics_index_clear(x);
        x->share = share;
    }
    while (n >= 0 && x->read < e.length) {
        int64_t at = x->read;

        if (!go_on(arg)) {
            n = -ECANCELED;
            break;
        }
        n = spool_read(s, job, name, &e, &at, text, CHUNK);
        x->within = x->within || at != x->read; /* the gap may end within a line */
        x->read = at;
        if (n > 0 && at + n == e.gap_from && !memrchr(text, '\n', (size_t)n)) {
            x->read = e.gap_to;
            x->within = true;
            continue;
        }
        n = n > 0 ? take_chunk(x, at, text, (size_t)n) : n;
        if (n <= 0)
            break;
        x->read += n;
    }
    free(text);
    return n < 0 ? (int)n : 0;
}
