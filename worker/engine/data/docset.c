#include "worker/engine/data/docset.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "worker/engine/data/corpus.h"
#include "worker/engine/data/data.h"
#include "worker/engine/data/encoder.h"
#include "worker/engine/data/file.h"
#include "worker/engine/data/order.h"

#define GROUP_BYTES (32u << 10) /* of text between two places that are kept */
#define GROUP_DOCUMENTS 4096u
#define WINDOW_BYTES (1u << 20) /* read at once while the file is looked through */
#define TRY_BYTES (4u << 20)    /* of text that a tokenizer is tried on when the corpus is opened */

/* Where some documents in a row begin. */
struct group {
    uint64_t first; /* number of the first, in the file */
    uint64_t train; /* training documents before it */
    uint64_t at;    /* of text: its byte */
    uint64_t line;  /* of text: its line, from 1 */
};

struct docset {
    char *path, *index;
    int fd, index_fd; /* index_fd -1: text */
    uint64_t size;    /* of path, bytes */
    unsigned width;   /* bytes a token in a file of tokens */
    int vocab, length;
    enum data_overlong overlong;
    struct corpus_form form;
    struct encoder encoder;
    uint64_t seed;
    double share;           /* held out */
    uint64_t always, never; /* documents that are held out, or not, whatever is drawn; UINT64_MAX: none */
    uint64_t documents, train;
    struct group *group;
    size_t groups, cap;
};

/* --- what is held out -------------------------------------------------------------------------------------- */

static bool is_held(const struct docset *d, uint64_t document)
{
    if (d->share <= 0 || document == d->never)
        return false;
    return document == d->always || (double)order_holdout(d->seed, document) < d->share * 0x1p32;
}

/* Count the training documents before each group; with none or all of them held out, one is moved. */
static int divide(struct docset *d, struct merr *err)
{
    uint32_t low = UINT32_MAX, high = 0, word;
    uint64_t lowest = 0, highest = 0, held = 0;
    size_t g = 0;

    if (d->share > 0 && d->documents < 2)
        return merr_set(err, -EINVAL,
                        "'%s' is one document, of which no share can be held out; set holdout to 0, or "
                        "say where its documents end (train.data.separator)",
                        d->path);
    for (uint64_t i = 0; i < d->documents && d->share > 0; i++) {
        word = order_holdout(d->seed, i);
        held += is_held(d, i);
        if (word < low) {
            low = word;
            lowest = i;
        }
        if (word > high) {
            high = word;
            highest = i;
        }
    }
    if (d->share > 0 && held == 0)
        d->always = lowest;
    if (held > 0 && held == d->documents)
        d->never = highest;
    for (uint64_t i = 0; i < d->documents; i++) {
        if (g < d->groups && d->group[g].first == i)
            d->group[g++].train = d->train;
        d->train += !is_held(d, i);
    }
    return 0;
}

/* Documents of the side before the group. */
static uint64_t before(const struct group *g, enum docset_side side)
{
    return side == DOCSET_TRAIN ? g->train : g->first - g->train;
}

/* The group that has document i of the side, and its number in the file. */
static const struct group *find(const struct docset *d, enum docset_side side, uint64_t i, uint64_t *ret_number)
{
    size_t low = 0, high = d->groups;
    uint64_t left, number;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (before(&d->group[mid], side) <= i)
            low = mid;
        else
            high = mid;
    }
    left = i - before(&d->group[low], side);
    number = d->group[low].first;
    while (is_held(d, number) != (side == DOCSET_HELDOUT) || left-- > 0)
        number++;
    assert(number < d->documents);
    *ret_number = number;
    return &d->group[low];
}

/* --- documents --------------------------------------------------------------------------------------------- */

/* What is said of a document that is too long, or has nothing to learn. */
static int fit(const struct docset *d, struct docset_doc *doc, const char *where, struct merr *err)
{
    if (doc->inputs > d->length && d->overlong == OVERLONG_FAIL)
        return merr_set(err, -EINVAL,
                        "%s of '%s' has %d tokens, more than batch.length %d; raise batch.length (and "
                        "batch.capacity), split it, or set train.data.overlong to 'cut' or 'drop'",
                        where, d->path, doc->inputs, d->length);
    if (doc->inputs > d->length && d->overlong == OVERLONG_DROP)
        doc->inputs = 0;
    if (doc->inputs > d->length) {
        doc->inputs = d->length;
        doc->cut = true;
    }
    if (doc->masked >= doc->inputs) /* cut within its prompt */
        doc->inputs = 0;
    return 0;
}

/* Take back the ids that no longer belong to the document. begin: its first in ids. */
static void trim(struct buf *ids, size_t begin, const struct docset_doc *doc)
{
    ids->len = begin + (doc->inputs > 0 ? ((size_t)doc->inputs + 1) * sizeof(int32_t) : 0);
}

/* The tokens of a text in one of two parts. Returns their number, or an error. */
static long add_part(const struct docset *d, const char *text, size_t len, uint64_t line, struct buf *ids,
                     struct merr *err)
{
    size_t had = ids->len;
    int rc = encoder_add(&d->encoder, text, len, ids, err);

    if (rc < 0)
        return merr_prefix(err, rc, "line %llu of '%s'", (unsigned long long)line, d->path);
    return (long)((ids->len - had) / sizeof(int32_t));
}

static int add_text(const struct docset *d, const struct corpus_text *t, uint64_t line, struct buf *ids,
                    struct docset_doc *ret, struct merr *err)
{
    const int32_t end = d->encoder.end;
    size_t begin = ids->len;
    char where[48];
    long prompt = 0, text;

    (void)snprintf(where, sizeof(where), "%s%llu", d->form.format == DATA_JSONL ? "line " : "the document at line ",
                   (unsigned long long)line);
    if (t->text_len == 0)
        return merr_set(err, -EINVAL, "%s of '%s' has an empty %s; remove it", where, d->path,
                        t->prompt ? "\"completion\"" : "\"text\"");
    if (t->prompt)
        prompt = add_part(d, t->prompt, t->prompt_len, line, ids, err);
    if (prompt < 0)
        return (int)prompt;
    text = add_part(d, t->text, t->text_len, line, ids, err);
    if (text < 0)
        return (int)text;
    if (buf_add(ids, &end, sizeof(end)) < 0)
        return merr_set(err, -ENOMEM, "no memory for %ld tokens of '%s'", prompt + text, d->path);
    *ret = (struct docset_doc){.inputs = (int)(prompt + text), .masked = (int)(prompt > 0 ? prompt - 1 : 0)};
    if (fit(d, ret, where, err) < 0)
        return -EINVAL;
    trim(ids, begin, ret);
    return 0;
}

static int read_raw(const struct docset *d, const char *raw, const struct corpus_piece *p, uint64_t line,
                    struct buf *ids, struct docset_doc *ret, struct merr *err)
{
    struct corpus_text t;
    int rc = corpus_read(&d->form, true, raw + p->begin, p->end - p->begin, line + p->line, &t, err);

    if (rc < 0)
        return rc;
    rc = add_text(d, &t, line + p->line, ids, ret, err);
    corpus_text_clear(&t);
    return rc;
}

/* Document number of a text: go through its group up to it. */
static int read_text(const struct docset *d, const struct group *g, uint64_t number, struct buf *ids,
                     struct docset_doc *ret, struct merr *err)
{
    uint64_t end = g + 1 < d->group + d->groups ? g[1].at : d->size, line = g->line;
    size_t len = (size_t)(end - g->at), at = 0;
    struct corpus_piece p = {0};
    char *raw = malloc(len + 1);
    int rc;

    if (!raw)
        return merr_set(err, -ENOMEM, "no memory for %zu bytes of '%s'", len, d->path);
    rc = file_read(d->fd, d->path, g->at, raw, len, err);
    for (uint64_t i = g->first; rc == 0; i++) {
        if (!corpus_find(&d->form, raw + at, len - at, true, &p)) {
            rc = merr_set(err, -EIO, "'%s' has changed since it was opened; restore it", d->path);
            break;
        }
        if (i == number) {
            rc = read_raw(d, raw + at, &p, line, ids, ret, err);
            break;
        }
        at += p.next;
        line += p.lines;
    }
    free(raw);
    return rc;
}

/* Where document number of a file of tokens begins and ends. */
static int token_range(const struct docset *d, uint64_t number, uint64_t *ret_begin, uint64_t *ret_end,
                       struct merr *err)
{
    uint64_t pair[2] = {0, 0};
    size_t first = number > 0 ? 0 : 1;
    int rc = file_read(d->index_fd, d->index, (number + first - 1) * sizeof(pair[0]), pair + first,
                       (2 - first) * sizeof(pair[0]), err);

    if (rc < 0)
        return rc;
    *ret_begin = first ? 0 : le64toh(pair[0]);
    *ret_end = le64toh(pair[1]);
    if (*ret_end > d->size / d->width)
        return merr_set(err, -EINVAL, "document %llu of '%s' ends at token %llu, but '%s' has %llu",
                        (unsigned long long)number + 1, d->index, (unsigned long long)*ret_end, d->path,
                        (unsigned long long)(d->size / d->width));
    if (*ret_end < *ret_begin || *ret_end - *ret_begin < 2)
        return merr_set(err, -EINVAL,
                        "document %llu of '%s' goes from token %llu to %llu; the index must rise, and a "
                        "document have two tokens or more",
                        (unsigned long long)number + 1, d->index, (unsigned long long)*ret_begin,
                        (unsigned long long)*ret_end);
    if (*ret_end - *ret_begin > DATA_LINE_MAX)
        return merr_set(err, -EFBIG, "document %llu of '%s' has more than %u tokens; split it",
                        (unsigned long long)number + 1, d->index, DATA_LINE_MAX);
    return 0;
}

static int add_tokens(const struct docset *d, uint64_t begin, size_t n, struct buf *ids, struct merr *err)
{
    unsigned char *raw = malloc(n * d->width);
    int32_t *to = (int32_t *)(void *)buf_reserve(ids, n * sizeof(*to));
    int rc = raw && to ? file_read(d->fd, d->path, begin * d->width, raw, n * d->width, err)
                       : merr_set(err, -ENOMEM, "no memory for %zu tokens of '%s'", n, d->path);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        to[i] = data_token_at(raw + i * d->width, d->width);
        if (to[i] < 0 || to[i] >= d->vocab)
            rc = data_bad_token(d->path, begin + i, d->width, to[i], d->vocab, err);
    }
    if (rc == 0)
        buf_commit(ids, n * sizeof(*to));
    free(raw);
    return rc;
}

static int read_tokens(const struct docset *d, uint64_t number, struct buf *ids, struct docset_doc *ret,
                       struct merr *err)
{
    uint64_t begin, end;
    char where[48];
    int rc = token_range(d, number, &begin, &end, err);

    if (rc < 0)
        return rc;
    (void)snprintf(where, sizeof(where), "document %llu", (unsigned long long)number + 1);
    *ret = (struct docset_doc){.inputs = (int)(end - begin - 1)};
    rc = fit(d, ret, where, err);
    if (rc < 0 || ret->inputs == 0)
        return rc;
    return add_tokens(d, begin, (size_t)ret->inputs + 1, ids, err);
}

int docset_read(const struct docset *d, enum docset_side side, uint64_t i, struct buf *ids, struct docset_doc *ret,
                struct merr *err)
{
    uint64_t number;
    const struct group *g;

    assert(i < (side == DOCSET_TRAIN ? d->train : d->documents - d->train));
    g = find(d, side, i, &number);
    return d->index ? read_tokens(d, number, ids, ret, err) : read_text(d, g, number, ids, ret, err);
}

void docset_get_info(const struct docset *d, struct docset_info *ret)
{
    *ret = (struct docset_info){.documents = {d->train, d->documents - d->train}, .bytes = d->size};
}

/* --- opening ----------------------------------------------------------------------------------------------- */

/* Count a document; it opens a group when the last one has enough. */
static int count(struct docset *d, uint64_t at, uint64_t line, struct merr *err)
{
    const struct group *last = d->groups > 0 ? &d->group[d->groups - 1] : NULL;

    if (d->documents == DOCSET_DOCUMENTS_MAX)
        return merr_set(err, -EFBIG, "'%s' has more than %llu documents; divide it", d->path,
                        (unsigned long long)DOCSET_DOCUMENTS_MAX);
    if (!last || at - last->at >= GROUP_BYTES || d->documents - last->first >= GROUP_DOCUMENTS) {
        if (d->groups == d->cap) {
            size_t cap = d->cap > 0 ? 2 * d->cap : 256;
            struct group *v = realloc(d->group, cap * sizeof(*v));

            if (!v)
                return merr_set(err, -ENOMEM, "no memory to remember where %zu documents begin", cap);
            d->group = v;
            d->cap = cap;
        }
        d->group[d->groups++] = (struct group){.first = d->documents, .at = at, .line = line};
    }
    d->documents++;
    return 0;
}

struct look { /* at the whole file, through a window */
    struct buf window;
    uint64_t at;    /* of the window, in the file */
    uint64_t line;  /* likewise, from 1 */
    struct buf ids; /* of the document that is tried */
};

/* The documents that are whole in the window. */
static int look_at_window(struct docset *d, struct look *l, struct merr *err)
{
    bool whole = l->at + l->window.len == d->size;
    struct corpus_piece p;
    size_t at = 0;

    while (corpus_find(&d->form, l->window.data + at, l->window.len - at, whole, &p)) {
        uint64_t place = l->at + at + p.begin;
        int rc = count(d, place, l->line + p.line, err);

        if (rc == 0 && place < (d->encoder.tokenizer ? TRY_BYTES : DATA_CHECK_BYTES)) {
            struct docset_doc doc;

            buf_reset(&l->ids);
            rc = read_raw(d, l->window.data + at, &p, l->line, &l->ids, &doc, err);
        }
        if (rc < 0)
            return rc;
        at += p.next;
        l->line += p.lines;
    }
    buf_drop(&l->window, at);
    l->at += at;
    return 0;
}

static int look_through(struct docset *d, struct look *l, struct merr *err)
{
    int rc = 0;

    while (rc == 0 && l->at + l->window.len < d->size) {
        uint64_t left = d->size - l->at - l->window.len;
        size_t n = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        char *to = buf_reserve(&l->window, n);

        if (!to)
            return merr_set(err, -EFBIG,
                            "the document at line %llu of '%s' has more than %u bytes; split it, or say "
                            "where documents end (train.data.separator)",
                            (unsigned long long)l->line, d->path, DATA_LINE_MAX);
        rc = file_read(d->fd, d->path, l->at + l->window.len, to, n, err);
        if (rc == 0) {
            buf_commit(&l->window, n);
            rc = look_at_window(d, l, err);
        }
    }
    return rc;
}

static int open_text(struct docset *d, const struct job_spec *spec, struct merr *err)
{
    struct look l = {.line = 1};
    int rc = encoder_open(spec, &d->encoder, err);

    if (rc < 0)
        return rc;
    buf_init(&l.window, DATA_LINE_MAX + WINDOW_BYTES);
    buf_init(&l.ids, DOCSET_IDS_MAX);
    rc = look_through(d, &l, err);
    buf_clear(&l.window);
    buf_clear(&l.ids);
    if (rc == 0 && d->documents == 0)
        return merr_set(err, -EINVAL, "'%s' holds no text: every document is empty; check train.data.path and format",
                        d->path);
    return rc;
}

/* Look at the first documents as they will be read. */
static int try_tokens(struct docset *d, struct merr *err)
{
    struct docset_doc doc;
    struct buf ids;
    uint64_t seen = 0;
    int rc = 0;

    buf_init(&ids, DOCSET_IDS_MAX);
    for (uint64_t i = 0; rc == 0 && i < d->documents && seen * d->width < DATA_CHECK_BYTES; i++) {
        buf_reset(&ids);
        rc = read_tokens(d, i, &ids, &doc, err);
        seen += ids.len / sizeof(int32_t);
    }
    buf_clear(&ids);
    return rc;
}

static int open_tokens(struct docset *d, const struct job_spec *spec, struct merr *err)
{
    uint64_t bytes, entries;
    int rc;

    d->index = spec->train.data.index ? strdup(spec->train.data.index) : NULL;
    if (!d->index)
        return spec->train.data.index
                   ? merr_set(err, -ENOMEM, "no memory for a path")
                   : merr_set(err, -EINVAL, "documents of format tokens want an index; set train.data.index");
    d->width = d->vocab <= 65536 ? 2 : 4;
    if (d->size % d->width != 0)
        return data_half_token(d->path, d->size, d->width, d->vocab, err);
    rc = file_open("the index", d->index, &d->index_fd, &bytes, err);
    if (rc < 0)
        return rc;
    if (bytes % sizeof(uint64_t) != 0)
        return merr_set(err, -EINVAL, "'%s' has %llu bytes, not a whole number of uint64; is the index complete?",
                        d->index, (unsigned long long)bytes);
    entries = bytes / sizeof(uint64_t);
    for (uint64_t i = 0; rc == 0 && i < entries; i++)
        rc = count(d, 0, 0, err);
    return rc == 0 ? try_tokens(d, err) : rc;
}

int docset_open(const struct job_spec *spec, struct docset **ret, struct merr *err)
{
    struct docset *d;
    int rc;

    assert(spec->kind == JOB_TRAIN && spec->train.batch.length >= 1);
    d = calloc(1, sizeof(*d));
    if (!d)
        return merr_set(err, -ENOMEM, "no memory for the corpus");
    *d = (struct docset){
        .fd = -1,
        .index_fd = -1,
        .vocab = spec->train.model.vocab,
        .length = spec->train.batch.length,
        .overlong = spec->train.data.overlong,
        .seed = spec->train.init.seed,
        .share = spec->train.data.holdout,
        .always = UINT64_MAX,
        .never = UINT64_MAX,
    };
    rc = file_open_corpus(spec, &d->path, &d->fd, &d->size, err);
    d->form = (struct corpus_form){d->path, spec->train.data.format, spec->train.data.separator};
    if (rc == 0)
        rc = spec->train.data.format == DATA_TOKENS ? open_tokens(d, spec, err) : open_text(d, spec, err);
    if (rc == 0)
        rc = divide(d, err);
    if (rc < 0) {
        docset_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void docset_close(struct docset *d)
{
    int saved = errno;

    if (d) {
        io_close(&d->fd);
        io_close(&d->index_fd);
        encoder_clear(&d->encoder);
        free(d->group);
        free(d->index);
        free(d->path);
        free(d);
    }
    errno = saved;
}
