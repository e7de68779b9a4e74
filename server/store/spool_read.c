#include "server/store/spool_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

#define RANKS_SHOWN 64 /* ranks in one answer of logs */
#define LAST_BYTES 16384

static ssize_t read_at(const struct spool *s, uint64_t job, const char *name, int64_t offset, char *to, size_t n,
                       int64_t *ret_length)
{
    return s->ops->read(s->self, job, name, offset, to, n, ret_length);
}

/* --- logs -------------------------------------------------------------------------------------------- */

struct found { /* ranks (as bits below RANKS_SHOWN; of one rank: bit 0) with a log of a generation */
    int rank;  /* -1: all */
    int generation;
    uint64_t ranks;
};

static void find_log(void *arg, const char *name)
{
    struct found *f = arg;
    int rank, generation;

    if (!spool_is_log(name, &rank, &generation) || (f->rank >= 0 && rank != f->rank) || generation != f->generation)
        return;
    if (rank >= 0 && (f->rank >= 0 || rank < RANKS_SHOWN))
        f->ranks |= UINT64_C(1) << (f->rank >= 0 ? 0 : rank);
}

static void find_newest(void *arg, const char *name)
{
    struct found *f = arg;
    int rank, generation;

    if (spool_is_log(name, &rank, &generation) && (f->rank < 0 || rank == f->rank) && generation > f->generation)
        f->generation = generation;
}

/* Where the last n lines of the first length bytes of a file begin, looking at most so many bytes back. */
static int64_t tail_offset(const struct spool *s, uint64_t job, const char *name, int64_t length, int n, size_t most,
                           char *scratch)
{
    int64_t from = length > (int64_t)most ? length - (int64_t)most : 0, ignored;
    ssize_t got = read_at(s, job, name, from, scratch, (size_t)(length - from), &ignored);

    for (ssize_t i = got - 2; i >= 0; i--)
        if (scratch[i] == '\n' && --n == 0)
            return from + i + 1;
    for (ssize_t i = 0; from > 0 && i < 3 && i < got && ((unsigned char)scratch[i] & 0xC0) == 0x80; i++)
        from++; /* no line begins here; a character does */
    return from;
}

static json_t *read_log(const struct spool *s, uint64_t job, int rank, int generation, int64_t offset, int tail,
                        size_t most, char *scratch)
{
    char name[SPOOL_NAME_MAX];
    int64_t length = 0;
    ssize_t got;

    spool_log_name(rank, generation, name);
    got = read_at(s, job, name, offset, scratch, tail > 0 ? 0 : most, &length);
    if (got >= 0 && tail > 0) {
        offset = tail_offset(s, job, name, length, tail, most, scratch);
        got = read_at(s, job, name, offset, scratch, most, &length);
    }
    if (got < 0)
        return NULL;
    if (got > 0 && offset + got < length) { /* where the answer is cut, end with a whole line, or character */
        const char *nl = memrchr(scratch, '\n', (size_t)got);

        got = nl ? nl - scratch + 1 : (ssize_t)utf8_cut(scratch, (size_t)got);
    }
    utf8_patch(scratch, (size_t)got);
    return json_pack("{s:i, s:i, s:I, s:s%, s:I, s:I}", "rank", rank, "generation", generation, "offset",
                     (json_int_t)offset, "text", scratch, (size_t)got, "next_offset", (json_int_t)(offset + got),
                     "size", (json_int_t)length);
}

static void add_lines(json_t *lines, const char *text, size_t len)
{
    while (len > 0) {
        const char *nl = memchr(text, '\n', len);
        size_t n = nl ? (size_t)(nl - text) : len;

        (void)json_array_append_new(lines, json_stringn(text, n));
        text += n + (nl != NULL);
        len -= n + (nl != NULL);
    }
}

json_t *spool_read_logs(const struct spool *s, uint64_t job, int rank, int generation, int64_t offset, int tail)
{
    json_t *logs = json_array(), *lines = json_array();
    struct found f = {.rank = rank, .generation = generation};
    char *scratch = malloc(SPOOL_ANSWER_MAX);
    int n;

    if (scratch && generation == 0)
        (void)s->ops->list(s->self, job, find_newest, &f);
    if (scratch)
        (void)s->ops->list(s->self, job, find_log, &f);
    n = __builtin_popcountll(f.ranks);
    for (int i = 0; scratch && i < RANKS_SHOWN; i++) {
        json_t *log = f.ranks >> i & 1 ? read_log(s, job, rank >= 0 ? rank : i, f.generation, offset, tail,
                                                  (size_t)(SPOOL_ANSWER_MAX / n), scratch)
                                       : NULL;

        if (!log)
            continue;
        add_lines(lines, json_string_value(json_object_get(log, "text")),
                  json_string_length(json_object_get(log, "text")));
        (void)json_array_append_new(logs, log);
    }
    free(scratch);
    return json_pack("{s:o, s:o}", "lines", lines, "logs", logs);
}

/* --- metrics ----------------------------------------------------------------------------------------- */

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

/* Append the lines of one file; a step that comes again replaces what followed it. */
static void load_metrics(const struct spool *s, uint64_t job, int generation, json_t *rows)
{
    char name[SPOOL_NAME_MAX], *text;
    bool first = true;
    int64_t length;
    struct buf b;
    ssize_t got;

    buf_init(&b, SPOOL_FILE_MAX + (1 << 20));
    spool_metrics_name(generation, name);
    got = read_at(s, job, name, 0, NULL, 0, &length);
    text = got == 0 ? buf_reserve(&b, (size_t)length) : NULL;
    got = text ? read_at(s, job, name, 0, text, (size_t)length, &length) : 0;
    if (got > 0)
        buf_commit(&b, (size_t)got);
    for (const char *p = buf_text(&b), *nl; (nl = strchr(p, '\n')) && json_array_size(rows) < SPOOL_POINTS_MAX;
         p = nl + 1) {
        json_t *row = json_loadb(p, (size_t)(nl - p), 0, NULL);
        json_int_t step = json_integer_value(json_object_get(row, "step"));

        if (!json_is_object(row)) {
            json_decref(row);
            continue;
        }
        while (first && json_array_size(rows) > 0 &&
               json_integer_value(json_object_get(json_array_get(rows, json_array_size(rows) - 1), "step")) >= step)
            (void)json_array_remove(rows, json_array_size(rows) - 1);
        first = false;
        (void)json_array_append_new(rows, row);
    }
    buf_clear(&b);
}

static bool named(const char *names, const char *key)
{
    size_t n = strlen(key);

    if (!names || !*names || strcmp(key, "step") == 0)
        return true;
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, key, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

json_t *spool_read_metrics(const struct spool *s, uint64_t job, const char *names, int points)
{
    json_t *rows = json_array(), *columns = json_object(), *value;
    struct generations g = {.n = 0};
    size_t n, every, kept = 0;
    const char *key;

    (void)s->ops->list(s->self, job, find_metrics, &g);
    for (size_t i = 0; i < g.n; i++)
        load_metrics(s, job, g.v[i], rows);
    n = json_array_size(rows);
    every = points > 0 && n > (size_t)points ? (n + (size_t)points - 1) / (size_t)points : 1;
    json_object_foreach (json_array_get(rows, n ? n - 1 : 0), key, value) {
        if (named(names, key))
            (void)json_object_set_new(columns, key, json_array());
    }
    for (size_t i = 0; i < n; i++) {
        if ((n - 1 - i) % every != 0)
            continue;
        kept++;
        json_object_foreach (columns, key, value) {
            json_t *v = json_object_get(json_array_get(rows, i), key);

            (void)json_array_append_new(value, v ? json_incref(v) : json_null());
        }
    }
    json_decref(rows);
    return json_pack("{s:o, s:I}", "metrics", columns, "points", (json_int_t)kept);
}

json_t *spool_read_last_metrics(const struct spool *s, uint64_t job)
{
    char name[SPOOL_NAME_MAX], text[LAST_BYTES];
    struct generations g = {.n = 0};
    int64_t from, length;
    ssize_t got;

    (void)s->ops->list(s->self, job, find_metrics, &g);
    if (g.n == 0)
        return NULL;
    spool_metrics_name(g.v[g.n - 1], name);
    got = read_at(s, job, name, 0, NULL, 0, &length);
    if (got < 0)
        return NULL;
    from = length > LAST_BYTES ? length - LAST_BYTES : 0;
    got = read_at(s, job, name, from, text, sizeof(text), &length);
    while (got > 0 && text[got - 1] != '\n')
        got--;
    for (ssize_t begin = got - 1; begin > 0; begin--)
        if (text[begin - 1] == '\n')
            return json_loadb(text + begin, (size_t)(got - begin), 0, NULL);
    return got > 0 && from == 0 ? json_loadb(text, (size_t)got, 0, NULL) : NULL;
}
