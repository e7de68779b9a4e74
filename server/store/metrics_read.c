#include "server/store/metrics_read.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/metrics_kept.h"
#include "server/store/metrics_priv.h"
#include "server/store/metrics_series.h"

#define WINDOW (64 << 10) /* bytes that are read at once for a line that is chosen, at most; more than it has */
#define WINDOW_LEAST (2 << 10)
#define COLUMNS_MAX 64
#define GROUPS_LEAST 8

struct metrics_cache {
    pthread_mutex_t lock;  /* guards all below */
    struct of_job *newest; /* each in use is with who uses it, and not here */
    size_t bytes;
};

struct metrics_cache *metrics_cache_new(void)
{
    struct metrics_cache *m = calloc(1, sizeof(*m));

    if (m)
        (void)pthread_mutex_init(&m->lock, NULL);
    return m;
}

static void drop(struct of_job *o)
{
    for (size_t i = 0; o && i < o->n; i++)
        metrics_index_clear(&o->v[i]);
    free(o);
}

void metrics_cache_free(struct metrics_cache *m)
{
    for (struct of_job *o = m ? m->newest : NULL, *next; o; o = next) {
        next = o->next;
        drop(o);
    }
    if (m)
        (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

/* Take a job's indexes out of the cache, or new ones. NULL: no memory. */
static struct of_job *take(struct metrics_cache *m, uint64_t job)
{
    struct of_job **at = &m->newest, *o;

    (void)pthread_mutex_lock(&m->lock);
    while (*at && (*at)->job != job)
        at = &(*at)->next;
    o = *at;
    if (o) {
        *at = o->next;
        m->bytes -= o->bytes;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (!o && (o = calloc(1, sizeof(*o))))
        o->job = job;
    return o;
}

/* Put them back as the newest; those that are one too many go, the oldest first. */
static void give_back(struct metrics_cache *m, struct of_job *o)
{
    struct of_job **at = &o->next, *old = NULL;
    size_t kept;

    o->bytes = sizeof(*o);
    for (size_t i = 0; i < o->n; i++)
        o->bytes += metrics_index_bytes(&o->v[i]);
    (void)pthread_mutex_lock(&m->lock);
    o->next = m->newest;
    m->newest = o;
    for (kept = o->bytes; *at && (*at)->job != o->job && kept + (*at)->bytes <= METRICS_CACHE_BYTES; at = &(*at)->next)
        kept += (*at)->bytes;
    old = *at; /* these, or what another thread made of the same job meanwhile */
    *at = NULL;
    m->bytes = kept;
    (void)pthread_mutex_unlock(&m->lock);
    while (old) {
        struct of_job *next = old->next;

        drop(old);
        old = next;
    }
}

/* --- which files there are --------------------------------------------------------------------------- */

struct generations { /* the newest that have metrics, growing */
    int v[SPOOL_GENERATIONS];
    size_t n;
};

static void find_metrics(void *arg, const char *name)
{
    struct generations *g = arg;
    int generation;
    size_t at;

    if (!spool_is_metrics(name, &generation) || (g->n == SPOOL_GENERATIONS && generation < g->v[0]))
        return;
    if (g->n == SPOOL_GENERATIONS) /* the oldest makes room */
        memmove(g->v, g->v + 1, --g->n * sizeof(g->v[0]));
    for (at = g->n; at > 0 && g->v[at - 1] > generation; at--)
        g->v[at] = g->v[at - 1];
    g->v[at] = generation;
    g->n++;
}

/* Indexes of the files that there are, all of them read. 0 or a negative errno. */
static int update(struct of_job *o, const struct spool *s, metrics_go_on *go_on, void *arg)
{
    struct generations g = {.n = 0};
    struct metrics_index now[SPOOL_GENERATIONS] = {{0}};
    int r = 0;

    (void)s->ops->list(s->self, o->job, find_metrics, &g);
    for (size_t i = 0; i < g.n; i++) {
        for (size_t k = 0; k < o->n; k++)
            if (o->generation[k] == g.v[i]) {
                now[i] = o->v[k];
                o->v[k] = (struct metrics_index){0};
            }
    }
    for (size_t k = 0; k < o->n; k++)
        metrics_index_clear(&o->v[k]);
    memcpy(o->v, now, g.n * sizeof(now[0]));
    memcpy(o->generation, g.v, g.n * sizeof(g.v[0]));
    o->n = g.n;
    for (size_t i = 0; r == 0 && i < o->n; i++) {
        char name[SPOOL_NAME_MAX];

        spool_metrics_name(o->generation[i], name);
        if (o->v[i].read == 0)
            metrics_kept_load(&o->v[i], s, o->job, o->generation[i]);
        metrics_index_share(&o->v[i], o->n);
        r = metrics_index_update(&o->v[i], s, o->job, name, go_on, arg);
        metrics_kept_save(&o->v[i], s, o->job, o->generation[i]);
        r = r == -ENOENT ? 0 : r; /* it has gone meanwhile */
    }
    return r;
}

/* --- which lines are chosen -------------------------------------------------------------------------- */

struct place { /* of a line */
    uint32_t file;
    int64_t at;
};

struct choice {
    const struct of_job *o;
    int64_t below[SPOOL_GENERATIONS]; /* steps from here on are replaced by a later file's */
    bool wanted[SPOOL_GENERATIONS][METRICS_INDEX_COLUMNS];
    size_t n_wanted; /* columns, of the file with the most */
    struct place *v;
    size_t n, cap;
};

static int choose(struct choice *c, size_t file, int64_t at)
{
    if (at < 0)
        return 0;
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 1024;
        struct place *v = realloc(c->v, cap * sizeof(*v));

        if (!v)
            return -ENOMEM;
        c->v = v;
        c->cap = cap;
    }
    c->v[c->n++] = (struct place){.file = (uint32_t)file, .at = at};
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* All lines, or of a file whose lines are not all known the first one of each span. */
static int choose_all(struct choice *c, bool *ret_known)
{
    int r = 0;

    *ret_known = true;
    for (size_t f = 0; f < c->o->n; f++) {
        const struct metrics_index *x = &c->o->v[f];

        for (size_t i = 0; i < (x->lines ? x->n_lines : x->n_spans) && r == 0; i++)
            if ((x->lines ? x->lines[i].step : x->spans[i].step) < c->below[f])
                r = choose(c, f, x->lines ? x->lines[i].at : x->spans[i].at);
        *ret_known = *ret_known && (x->lines || x->n_lines == 0);
    }
    return r;
}

static int choose_last(struct choice *c)
{
    size_t f = c->o->n;

    while (f > 0 && c->o->v[f - 1].n_lines == 0)
        f--;
    return f > 0 ? choose(c, f - 1, c->o->v[f - 1].last_at) : 0;
}

/* Of every group of spans the lines where a wanted column is least and most. */
static int choose_extremes(struct choice *c, size_t groups)
{
    size_t n_spans = 0, each, seen = 0;
    int r = 0;

    c->n = 0;
    for (size_t f = 0; f < c->o->n; f++)
        n_spans += c->o->v[f].n_spans;
    each = (n_spans + groups - 1) / groups;
    for (size_t f = 0; f < c->o->n; f++) {
        const struct metrics_index *x = &c->o->v[f];

        for (size_t k = 0; k < x->n_columns; k++) {
            struct metrics_extreme best = {.least_at = -1, .most_at = -1};

            for (size_t i = 0; c->wanted[f][k] && r == 0 && i < x->n_spans; i++) {
                const struct metrics_extreme *e = &x->spans[i].of[k];

                if (e->least_at >= 0 && x->spans[i].step < c->below[f]) {
                    if (best.least_at < 0 || e->least < best.least) {
                        best.least = e->least;
                        best.least_at = e->least_at;
                    }
                    if (best.most_at < 0 || e->most > best.most) {
                        best.most = e->most;
                        best.most_at = e->most_at;
                    }
                }
                if ((seen + i + 1) % each == 0 || i + 1 == x->n_spans) {
                    r = choose(c, f, best.least_at);
                    r = r == 0 ? choose(c, f, best.most_at) : r;
                    best = (struct metrics_extreme){.least_at = -1, .most_at = -1};
                }
            }
        }
        seen += x->n_spans;
    }
    return r;
}

/* At most most lines; with fewer than GROUPS_LEAST parts of the curve, these say less than lines that are far apart. */
static int choose_lines(struct choice *c, size_t most)
{
    size_t groups = most / (2 * (c->n_wanted ? c->n_wanted : 1));
    bool known;
    int r = choose_all(c, &known);

    if (r == 0 && (c->n > most || !known) && groups >= GROUPS_LEAST) {
        c->n = 0;
        r = choose_extremes(c, groups);
    }
    return r == 0 ? choose_last(c) : r;
}

/* In order, each once, at most most of them: the last, and of the others every k-th. */
static void settle(struct choice *c, size_t most)
{
    size_t n = 0, every, kept = 0;

    qsort(c->v, c->n, sizeof(*c->v), by_place);
    for (size_t i = 0; i < c->n; i++)
        if (i == 0 || by_place(&c->v[i], &c->v[i - 1]) != 0)
            c->v[n++] = c->v[i];
    every = n > most ? (n + most - 1) / most : 1;
    for (size_t i = 0; i < n; i++)
        if ((n - 1 - i) % every == 0)
            c->v[kept++] = c->v[i];
    c->n = kept;
}

/* --- the answer -------------------------------------------------------------------------------------- */

struct window { /* of a file, read */
    const struct of_job *o;
    const struct spool *s;
    struct spool_extent extent[SPOOL_GENERATIONS]; /* of the files */
    uint32_t file;
    int64_t at;
    ssize_t n;
    char text[WINDOW];
};

/* The line at a place, if it has been read; NULL: it has not. */
static const char *line_at(const struct window *w, const struct place *p, size_t *ret_len)
{
    const char *text, *nl;

    if (w->n <= 0 || w->file != p->file || p->at < w->at || p->at >= w->at + w->n)
        return NULL;
    text = w->text + (p->at - w->at);
    nl = memchr(text, '\n', (size_t)(w->at + w->n - p->at));
    *ret_len = nl ? (size_t)(nl - text) : 0;
    return nl ? text : NULL;
}

/* The line at a place, new; NULL: it is not there any more. next: where the next one will be read. */
static json_t *read_line_new(struct window *w, const struct place *p, const struct place *next)
{
    bool near = next->file == p->file && next->at - p->at < WINDOW_LEAST;
    size_t size[] = {near ? 4 * WINDOW_LEAST : WINDOW_LEAST, WINDOW}, len;
    const char *line = line_at(w, p, &len);

    for (int i = 0; !line && i < 2; i++) {
        char name[SPOOL_NAME_MAX];

        spool_metrics_name(w->o->generation[p->file], name);
        w->at = p->at;
        w->file = p->file;
        w->n = spool_read(w->s, w->o->job, name, &w->extent[p->file], &w->at, w->text, size[i]);
        line = line_at(w, p, &len);
    }
    return line ? json_loadb(line, len, 0, NULL) : NULL;
}

/* Columns that a row has, empty. */
static json_t *columns_new(const json_t *row, const char *names)
{
    json_t *columns = json_object(), *value;
    const char *key;

    json_object_foreach ((json_t *)row, key, value) {
        if (metrics_named(names, key) && json_object_size(columns) < COLUMNS_MAX)
            (void)json_object_set_new(columns, key, json_array());
    }
    return columns;
}

static json_t *answer_new(const struct choice *c, struct window *w, const char *names, size_t *ret_points)
{
    json_t *last = c->n ? read_line_new(w, &c->v[c->n - 1], &c->v[c->n - 1]) : NULL, *value;
    json_t *columns = columns_new(last, names);
    const char *key;

    json_decref(last);
    *ret_points = 0;
    for (size_t i = 0; i < c->n; i++) {
        json_t *row = read_line_new(w, &c->v[i], &c->v[i + 1 < c->n ? i + 1 : i]);

        if (row && json_integer_value(json_object_get(row, "step")) < c->below[c->v[i].file]) {
            ++*ret_points;
            json_object_foreach (columns, key, value) {
                json_t *v = json_object_get(row, key);

                (void)json_array_append_new(value, json_is_number(v) ? json_incref(v) : json_null());
            }
        }
        json_decref(row);
    }
    return columns;
}

/* What of the curve stands, and which columns are asked for. */
static void look(struct choice *c, const char *names)
{
    metrics_below(c->o, c->below);
    for (size_t f = c->o->n; f-- > 0;) {
        const struct metrics_index *x = &c->o->v[f];
        size_t n = 0;

        for (size_t k = 0; k < x->n_columns; k++)
            n += c->wanted[f][k] = metrics_named(names, x->column[k]);
        c->n_wanted = n > c->n_wanted ? n : c->n_wanted;
    }
}

/* Measure the files; steps and bytes of all of them. */
static void measure(struct window *w, json_int_t *ret_steps, json_int_t *ret_left_out)
{
    *ret_steps = *ret_left_out = 0;
    for (size_t f = 0; f < w->o->n; f++) {
        char name[SPOOL_NAME_MAX];

        spool_metrics_name(w->o->generation[f], name);
        if (spool_measure(w->s, w->o->job, name, &w->extent[f]) < 0)
            w->extent[f] = (struct spool_extent){0};
        *ret_steps += (json_int_t)w->o->v[f].n_lines;
        *ret_left_out += w->extent[f].gap_to - w->extent[f].gap_from;
    }
}

static json_t *view_new(const struct of_job *o, const struct spool *s, const char *names, int points)
{
    size_t most = points > 0 && points < METRICS_POINTS_MAX ? (size_t)points : METRICS_POINTS_MAX, n = 0;
    struct choice *c = calloc(1, sizeof(*c));
    struct window *w = malloc(sizeof(*w));
    json_int_t steps = 0, left_out = 0;
    json_t *columns = NULL;

    if (c && w) {
        c->o = w->o = o;
        w->s = s;
        w->n = 0;
        measure(w, &steps, &left_out);
        look(c, names);
        if ((c->n_wanted + 1) * most > METRICS_VALUES_MAX)
            most = METRICS_VALUES_MAX / (c->n_wanted + 1);
        if (choose_lines(c, most) == 0) {
            settle(c, most);
            columns = answer_new(c, w, names, &n);
        }
        free(c->v);
    }
    free(c);
    free(w);
    return columns ? json_pack("{s:o, s:I, s:I, s:I}", "metrics", columns, "points", (json_int_t)n, "steps", steps,
                               "left_out_bytes", left_out)
                   : NULL;
}

json_t *metrics_read(struct metrics_cache *m, const struct spool *s, uint64_t job, const char *names, int points,
                     metrics_go_on *go_on, void *arg)
{
    struct of_job *o = take(m, job);
    json_t *view = NULL;

    if (!o)
        return NULL;
    if (update(o, s, go_on, arg) == 0)
        view = view_new(o, s, names, points);
    give_back(m, o);
    return view;
}

static bool always(void *arg)
{
    (void)arg;
    return true;
}

void metrics_note(struct metrics_cache *m, const struct spool *s, uint64_t job)
{
    struct of_job *o = take(m, job);

    if (!o)
        return;
    (void)update(o, s, always, NULL);
    give_back(m, o);
}

char *metrics_series(struct metrics_cache *m, const struct spool *s, uint64_t job, const struct metrics_range *range,
                     metrics_go_on *go_on, void *arg)
{
    struct of_job *o = take(m, job);
    char *text = NULL;

    if (!o)
        return NULL;
    if (update(o, s, go_on, arg) == 0)
        text = metrics_series_new(o, s, range);
    give_back(m, o);
    return text;
}
