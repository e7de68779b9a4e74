#include "server/store/spool_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "server/store/spool_logs.h"
#include "server/store/spool_parts.h"
#include "server/store/spool_times.h"

#define RANKS_SHOWN 64 /* ranks in one answer of logs */
#define LAST_BYTES 16384
#define ATTEMPTS_MAX (SPOOL_GENERATIONS + 1) /* the one that is about to go may still be there */

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

struct attempts {
    int v[ATTEMPTS_MAX];
    size_t n;
};

/* In order, each once. */
static void find_attempt(void *arg, const char *name)
{
    struct attempts *a = arg;
    int rank, generation;
    size_t at = a->n;

    if (!spool_is_log(name, &rank, &generation))
        return;
    while (at > 0 && a->v[at - 1] > generation)
        at--;
    if ((at > 0 && a->v[at - 1] == generation) || a->n == ATTEMPTS_MAX)
        return;
    memmove(&a->v[at + 1], &a->v[at], (a->n - at) * sizeof(a->v[0]));
    a->v[at] = generation;
    a->n++;
}

static json_t *attempts_of(const struct spool *s, uint64_t job)
{
    struct attempts a = {.n = 0};
    json_t *all = json_array();

    (void)s->ops->list(s->self, job, find_attempt, &a);
    for (size_t i = 0; i < a.n; i++)
        (void)json_array_append_new(all, json_integer(a.v[i]));
    return all;
}

static void find_newest(void *arg, const char *name)
{
    struct found *f = arg;
    int rank, generation;

    if (spool_is_log(name, &rank, &generation) && (f->rank < 0 || rank == f->rank) && generation > f->generation)
        f->generation = generation;
}

/* Where the last n lines of a file begin, looking at most so many bytes back. */
static int64_t tail_offset(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e, int n,
                           size_t most, char *scratch)
{
    int64_t from = e->length > (int64_t)most ? e->length - (int64_t)most : 0;
    ssize_t got = spool_read(s, job, name, e, &from, scratch, (size_t)(e->length - from));

    for (ssize_t i = got - 2; i >= 0; i--)
        if (scratch[i] == '\n' && --n == 0)
            return from + i + 1;
    for (ssize_t i = 0; from > 0 && i < 3 && i < got && ((unsigned char)scratch[i] & 0xC0) == 0x80; i++)
        from++; /* no line begins here; a character does */
    return from;
}

/* Text from an offset on, as much as there is room for. Returns 0 or a negative errno. */
static int read_text(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e,
                     int64_t offset, char *scratch, size_t most, struct spool_stretch *ret)
{
    ssize_t got = spool_read(s, job, name, e, &offset, scratch, most);

    if (got < 0)
        return (int)got;
    if (got > 0 && offset + got < e->length) { /* where the answer is cut, end with a whole line, or character */
        const char *nl = memrchr(scratch, '\n', (size_t)got);

        if (offset + got != e->gap_from)
            got = nl ? nl - scratch + 1 : (ssize_t)utf8_cut(scratch, (size_t)got);
    }
    *ret = (struct spool_stretch){.from = offset, .to = offset + got, .len = (size_t)got};
    return 0;
}

static json_t *read_log(const struct spool *s, uint64_t job, int rank, int generation, int64_t offset, int tail,
                        int since_s, const struct spool_search *search, int n, char *scratch)
{
    size_t most = (size_t)(SPOOL_ANSWER_MAX / n);
    struct spool_stretch stretch;
    char name[SPOOL_NAME_MAX];
    struct spool_extent e;
    int r;

    spool_log_name(rank, generation, name);
    r = spool_measure(s, job, name, &e);
    if (r < 0)
        return NULL;
    if (tail > 0 && !search)
        offset = tail_offset(s, job, name, &e, tail, most, scratch);
    if (since_s > 0 && s->clock) {
        int64_t at = spool_times_find(s, job, name, clock_read_wall_us(s->clock) / 1000000 - since_s, e.length);

        offset = at > offset ? at : offset;
    }
    r = search ? spool_search_log(s, job, name, &e, search, offset, tail, n, scratch, most, &stretch)
               : read_text(s, job, name, &e, offset, scratch, most, &stretch);
    if (r < 0)
        return NULL;
    utf8_patch(scratch, stretch.len);
    return json_pack("{s:i, s:i, s:I, s:s%, s:I, s:I, s:o*}", "rank", rank, "generation", generation, "offset",
                     (json_int_t)stretch.from, "text", scratch, stretch.len, "next_offset", (json_int_t)stretch.to,
                     "size", (json_int_t)e.length, "left_out",
                     e.gap_to > 0 ? json_pack("{s:I, s:I}", "from", (json_int_t)e.gap_from, "to", (json_int_t)e.gap_to)
                                  : NULL);
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

json_t *spool_read_logs(const struct spool *s, uint64_t job, int rank, int generation, int64_t offset, int tail,
                        int since_s, const struct spool_search *search)
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
        json_t *log = f.ranks >> i & 1 ? read_log(s, job, rank >= 0 ? rank : i, f.generation, offset, tail, since_s,
                                                  search, n, scratch)
                                       : NULL;

        if (!log)
            continue;
        add_lines(lines, json_string_value(json_object_get(log, "text")),
                  json_string_length(json_object_get(log, "text")));
        (void)json_array_append_new(logs, log);
    }
    free(scratch);
    return json_pack("{s:o, s:o, s:b, s:o}", "lines", lines, "logs", logs, "removed", spool_logs_removed(s, job),
                     "attempts", attempts_of(s, job));
}

/* --- metrics ----------------------------------------------------------------------------------------- */

static void find_metrics(void *arg, const char *name)
{
    int *newest = arg, generation;

    if (spool_is_metrics(name, &generation) && generation > *newest)
        *newest = generation;
}

json_t *spool_read_last_metrics(const struct spool *s, uint64_t job)
{
    char name[SPOOL_NAME_MAX], text[LAST_BYTES];
    struct spool_extent e;
    int newest = 0;
    int64_t from;
    ssize_t got;

    (void)s->ops->list(s->self, job, find_metrics, &newest);
    spool_metrics_name(newest, name);
    if (newest == 0 || spool_measure(s, job, name, &e) < 0)
        return NULL;
    from = e.length > LAST_BYTES ? e.length - LAST_BYTES : 0;
    got = spool_read(s, job, name, &e, &from, text, sizeof(text));
    while (got > 0 && text[got - 1] != '\n')
        got--;
    for (ssize_t begin = got - 1; begin > 0; begin--)
        if (text[begin - 1] == '\n')
            return json_loadb(text + begin, (size_t)(got - begin), 0, NULL);
    return got > 0 && from == 0 ? json_loadb(text, (size_t)got, 0, NULL) : NULL;
}
