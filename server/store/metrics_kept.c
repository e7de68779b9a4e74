#include "server/store/metrics_kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MAGIC 0x3178646972747375ull

struct head {
    uint64_t magic;
    uint32_t index_bytes, span_bytes; /* another version has others */
    uint64_t n_lines, n_spans;        /* that follow the index */
    uint64_t hash;                    /* of all that follows this */
};

static void name_of(int generation, char ret[SPOOL_NAME_MAX])
{
    char metrics[SPOOL_NAME_MAX];

    spool_metrics_name(generation, metrics);
    (void)snprintf(ret, SPOOL_NAME_MAX, "%.*s" SPOOL_INDEX_END, SPOOL_NAME_MAX - (int)sizeof(SPOOL_INDEX_END), metrics);
}

static size_t lines_of(const struct metrics_index *x)
{
    return x->lines ? (size_t)x->n_lines : 0;
}

/* Whether a file has one index, with as many lines and spans as it says. */
static bool is_whole(const char *text, size_t len, struct head *ret)
{
    size_t most = METRICS_INDEX_LINES;

    if (len < sizeof(*ret) + sizeof(struct metrics_index))
        return false;
    memcpy(ret, text, sizeof(*ret));
    return ret->magic == MAGIC && ret->index_bytes == sizeof(struct metrics_index) &&
           ret->span_bytes == sizeof(struct metrics_span) && ret->n_lines <= most &&
           ret->n_spans <= METRICS_INDEX_SPANS &&
           len == sizeof(*ret) + sizeof(struct metrics_index) + ret->n_lines * sizeof(struct metrics_line) +
                      ret->n_spans * sizeof(struct metrics_span) &&
           ret->hash == hash_xxh3(text + sizeof(*ret), len - sizeof(*ret));
}

/* The whole of a small file, new; NULL: it is not there, or there is no memory. */
static char *read_new(const struct spool *s, uint64_t job, const char *name, size_t *ret_len)
{
    int64_t length = 0;
    char *text = NULL;

    if (s->ops->read(s->self, job, name, 0, NULL, 0, &length) < 0 || length <= 0 || length > SPOOL_FILE_MAX)
        return NULL;
    text = malloc((size_t)length);
    if (text && s->ops->read(s->self, job, name, 0, text, (size_t)length, &length) != length) {
        free(text);
        return NULL;
    }
    *ret_len = (size_t)length;
    return text;
}

void metrics_kept_load(struct metrics_index *x, const struct spool *s, uint64_t job, int generation)
{
    struct metrics_line *lines = NULL;
    struct metrics_span *spans = NULL;
    char name[SPOOL_NAME_MAX], *text;
    size_t len = 0, at = sizeof(struct head) + sizeof(*x);
    struct head head;

    name_of(generation, name);
    text = read_new(s, job, name, &len);
    if (!text || !is_whole(text, len, &head)) {
        free(text);
        return;
    }
    lines = head.n_lines > 0 ? malloc(head.n_lines * sizeof(*lines)) : NULL;
    spans = malloc((head.n_spans ? head.n_spans : 1) * sizeof(*spans));
    if (spans && (lines || head.n_lines == 0)) {
        memcpy(x, text + sizeof(head), sizeof(*x));
        if (lines)
            memcpy(lines, text + at, head.n_lines * sizeof(*lines));
        memcpy(spans, text + at + head.n_lines * sizeof(*lines), head.n_spans * sizeof(*spans));
        x->lines = lines;
        x->spans = spans;
        x->lines_cap = head.n_lines;
        x->spans_cap = x->n_spans = head.n_spans;
        x->kept = x->read;
    } else {
        free(lines);
        free(spans);
    }
    free(text);
}

void metrics_kept_save(struct metrics_index *x, const struct spool *s, uint64_t job, int generation)
{
    size_t lines = lines_of(x) * sizeof(*x->lines), spans = x->n_spans * sizeof(*x->spans);
    size_t len = sizeof(struct head) + sizeof(*x) + lines + spans;
    struct metrics_index plain = *x;
    char name[SPOOL_NAME_MAX], *text;
    struct head head = {.magic = MAGIC,
                        .index_bytes = sizeof(*x),
                        .span_bytes = sizeof(*x->spans),
                        .n_lines = lines_of(x),
                        .n_spans = x->n_spans};

    if (x->read - x->kept < METRICS_KEPT_EACH || !(text = malloc(len)))
        return;
    plain.lines = NULL;
    plain.spans = NULL;
    plain.lines_cap = plain.spans_cap = 0;
    memcpy(text + sizeof(head), &plain, sizeof(plain));
    if (lines > 0)
        memcpy(text + sizeof(head) + sizeof(plain), x->lines, lines);
    if (spans > 0)
        memcpy(text + sizeof(head) + sizeof(plain) + lines, x->spans, spans);
    head.hash = hash_xxh3(text + sizeof(head), len - sizeof(head));
    memcpy(text, &head, sizeof(head));
    name_of(generation, name);
    (void)s->ops->put(s->self, job, name, text, len);
    x->kept = x->read; /* where the disk is full it is tried again as far on */
    free(text);
}
