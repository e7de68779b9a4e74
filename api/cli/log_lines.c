#include "api/cli/log_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

struct log {
    int64_t rank, generation;
    int64_t next;    /* offset up to which it has been taken */
    struct buf held; /* the beginning of a line */
    bool open;       /* a line's beginning was handed on, its end was not */
};

struct log_lines {
    bool apart;
    log_lines_fn *fn;
    void *arg;
    struct log *v;
    size_t n, cap;
};

struct log_lines *log_lines_new(bool apart, log_lines_fn *fn, void *arg)
{
    struct log_lines *l = calloc(1, sizeof(*l));

    if (l)
        *l = (struct log_lines){.apart = apart, .fn = fn, .arg = arg};
    return l;
}

void log_lines_free(struct log_lines *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        buf_clear(&l->v[i].held);
    free(l->v);
    free(l);
}

static struct log *find(const struct log_lines *l, int64_t rank, int64_t generation)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].rank == rank && l->v[i].generation == generation)
            return &l->v[i];
    return NULL;
}

int64_t log_lines_next(const struct log_lines *l, int64_t rank, int64_t generation)
{
    const struct log *g = find(l, rank, generation);

    return g ? g->next : 0;
}

/* The line at hand has no other end than this. */
static void end_line(const struct log_lines *l, struct log *g)
{
    if (g->held.len > 0 || g->open)
        l->fn(l->arg, g->rank, buf_text(&g->held), g->held.len, true);
    buf_clear(&g->held);
    g->open = false;
}

/* Room for one more log; NULL: no memory. */
static struct log *make_room(struct log_lines *l)
{
    struct log *oldest = l->v;

    if (l->n == LOG_LINES_LOGS) {
        for (size_t i = 1; i < l->n; i++)
            oldest = l->v[i].generation < oldest->generation ? &l->v[i] : oldest;
        end_line(l, oldest);
        return oldest;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        struct log *v = realloc(l->v, cap * sizeof(*v));

        if (!v)
            return NULL;
        l->v = v;
        l->cap = cap;
    }
    return &l->v[l->n++];
}

static struct log *add(struct log_lines *l, int64_t rank, int64_t generation)
{
    struct log *g = make_room(l);

    if (!g)
        return NULL;
    *g = (struct log){.rank = rank, .generation = generation};
    buf_init(&g->held, LOG_LINES_HELD);
    return g;
}

int log_lines_begin(struct log_lines *l, int64_t rank, int64_t generation, int64_t offset)
{
    struct log *g = add(l, rank, generation);

    if (!g)
        return -ENOMEM;
    g->next = offset;
    return 0;
}

/* Others' lines that nothing will be added to before text of this log comes out. */
static void end_others(struct log_lines *l, const struct log *g)
{
    for (size_t i = 0; i < l->n; i++)
        if (&l->v[i] != g && (!l->apart || (l->v[i].rank == g->rank && l->v[i].generation < g->generation)))
            end_line(l, &l->v[i]);
}

/* Hand a whole line on, of which this is the end. */
static void pass_line(const struct log_lines *l, struct log *g, const char *text, size_t len)
{
    if (g->held.len > 0)
        l->fn(l->arg, g->rank, g->held.data, g->held.len, false);
    l->fn(l->arg, g->rank, text, len, true);
    buf_reset(&g->held);
    g->open = false;
}

/* Keep the beginning of a line, or hand it on. */
static int hold(const struct log_lines *l, struct log *g, const char *text, size_t len)
{
    if (len == 0)
        return 0;
    if (!l->apart) {
        l->fn(l->arg, g->rank, text, len, false);
        g->open = true;
        return 0;
    }
    return buf_add(&g->held, text, len);
}

/* Take text up to a line feed, or all of it. Returns the bytes taken, -ENOMEM. */
static int64_t take_one(const struct log_lines *l, struct log *g, const char *text, size_t len)
{
    const char *nl = memchr(text, '\n', len);
    size_t n = nl ? (size_t)(nl - text) : len, room = LOG_LINES_HELD - g->held.len;

    if (l->apart && n > room) { /* too long to wait for its end */
        n = utf8_cut(text, room);
        pass_line(l, g, text, n);
        return (int64_t)n;
    }
    if (nl) {
        pass_line(l, g, text, n);
        return (int64_t)n + 1;
    }
    return hold(l, g, text, n) < 0 ? -ENOMEM : (int64_t)n;
}

/* What is between this offset and the next text is not kept: say so, in a line of its own. */
static void note_gap(const struct log_lines *l, struct log *g, int64_t offset)
{
    char text[80];
    int n = snprintf(text, sizeof(text), "[muster: %" PRId64 " bytes of this output are not kept]", offset - g->next);

    end_line(l, g);
    l->fn(l->arg, g->rank, text, (size_t)n, true);
}

int64_t log_lines_take(struct log_lines *l, int64_t rank, int64_t generation, int64_t offset, const char *text,
                       size_t len)
{
    struct log *g = find(l, rank, generation);
    size_t skip = g && offset < g->next ? (size_t)(g->next - offset) : 0;

    if (skip >= len)
        return 0;
    if (!g && !(g = add(l, rank, generation)))
        return -ENOMEM;
    end_others(l, g);
    if (offset > g->next)
        note_gap(l, g, offset);
    for (size_t at = skip; at < len;) {
        int64_t n = take_one(l, g, text + at, len - at);

        if (n < 0)
            return n;
        at += (size_t)n;
    }
    g->next = offset + (int64_t)len;
    return (int64_t)(len - skip);
}

void log_lines_end(struct log_lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        end_line(l, &l->v[i]);
}
