#include "worker/engine/data/data.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/engine/data/corpus.h"
#include "worker/engine/data/encoder.h"
#include "worker/engine/data/file.h"
#include "worker/engine/data/order.h"

#define PIECE_TOKENS 4096 /* read at once */

/* Tokens one after the other: a range of the file, or of memory. */
struct stream {
    uint64_t begin;  /* first token, from the start of the file or of memory */
    uint64_t n;      /* tokens a sample may use, as inputs or targets */
    uint64_t inputs; /* tokens that are inputs of some sample or left over: what info and entropy count */
    uint64_t samples;
    const unsigned char *mem; /* tokens as in a file; NULL: in the file */
};

struct data {
    char *path;
    int fd;         /* -1 when all is in memory */
    unsigned width; /* bytes a token in the file or in memory: 1, 2 or 4 */
    int vocab, length, batch;
    enum data_order order;
    uint64_t seed;
    struct stream train, heldout;
    char *memory[2]; /* owned by us, borrowed by the streams */
    uint64_t documents[2];
    int end_token;
    struct encoder encoder; /* only while a corpus of documents is opened */
};

/* --- reading tokens -------------------------------------------------------------------------------------- */

int32_t data_token_at(const unsigned char *p, unsigned width)
{
    if (width == 1)
        return p[0];
    if (width == 2)
        return p[0] | p[1] << 8;
    /* Above INT32_MAX it turns negative, which no vocabulary holds either. */
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

int data_bad_token(const char *path, uint64_t at, unsigned width, int32_t token, int vocab, struct merr *err)
{
    return merr_set(err, -EINVAL,
                    "token %llu of '%s' (byte offset %llu) is %lld, outside the vocabulary of %d; raise model.vocab or "
                    "tokenise the corpus with the vocabulary of the model",
                    (unsigned long long)at, path, (unsigned long long)(at * width), (long long)(uint32_t)token, vocab);
}

int data_half_token(const char *path, uint64_t size, unsigned width, int vocab, struct merr *err)
{
    return merr_set(err, -EINVAL,
                    "'%s' has %llu bytes, not a whole number of uint%u tokens (vocab %d); is the file complete, and "
                    "its tokens %u bytes each?",
                    path, (unsigned long long)size, 8 * width, vocab, width);
}

static int check_tokens(const struct data *d, const int32_t *token, size_t n, uint64_t first, struct merr *err)
{
    for (size_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= d->vocab)
            return data_bad_token(d->path, first + i, d->width, token[i], d->vocab, err);
    return 0;
}

/* Tokens first .. first+n-1 of the file, n <= PIECE_TOKENS. */
static int read_piece(const struct data *d, uint64_t first, size_t n, int32_t *token, struct merr *err)
{
    unsigned char raw[PIECE_TOKENS * 4];
    int rc;

    assert(n <= PIECE_TOKENS);
    rc = file_read(d->fd, d->path, first * d->width, raw, n * d->width, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        token[i] = data_token_at(raw + i * d->width, d->width);
    return check_tokens(d, token, n, first, err);
}

static int read_tokens(const struct data *d, const struct stream *s, uint64_t first, size_t n, int32_t *token,
                       struct merr *err)
{
    assert(first + n <= s->n);
    if (s->mem) {
        for (size_t i = 0; i < n; i++)
            token[i] = data_token_at(s->mem + (s->begin + first + i) * d->width, d->width);
        return 0;
    }
    for (size_t at = 0; at < n;) {
        size_t piece = n - at < PIECE_TOKENS ? n - at : PIECE_TOKENS;
        int rc = read_piece(d, s->begin + first + at, piece, token + at, err);

        if (rc < 0)
            return rc;
        at += piece;
    }
    return 0;
}

/* Sample i of a stream as inputs and targets; past the end of the stream 0 and -1. */
static int read_sample(const struct data *d, const struct stream *s, uint64_t i, int32_t *token, int32_t *target,
                       struct merr *err)
{
    size_t length = (size_t)d->length;
    uint64_t first = i * length;
    size_t n = s->n - first > length ? length + 1 : (size_t)(s->n - first); /* tokens there, the last one a target */
    int rc;

    assert(i < s->samples && n >= 2);
    rc = read_tokens(d, s, first, n - 1, token, err);
    if (rc < 0)
        return rc;
    memcpy(target, token + 1, (n - 2) * sizeof(*target));
    rc = read_tokens(d, s, first + n - 1, 1, target + n - 2, err);
    if (rc < 0)
        return rc;
    for (size_t at = n - 1; at < length; at++) {
        token[at] = 0;
        target[at] = -1;
    }
    return 0;
}

uint64_t data_sample_index(const struct data *d, uint64_t number)
{
    return order_index(d->order, d->seed, number, d->train.samples);
}

int data_train(const struct data *d, uint64_t step, int first, int count, int32_t *tokens, int32_t *targets,
               struct merr *err)
{
    assert(first >= 0 && count >= 0 && first + count <= d->batch);
    for (int i = 0; i < count; i++) {
        uint64_t number = step * (uint64_t)d->batch + (uint64_t)(first + i);
        size_t at = (size_t)i * (size_t)d->length;
        int rc = read_sample(d, &d->train, data_sample_index(d, number), tokens + at, targets + at, err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

void data_expect(const struct data *d, uint64_t step, int first, int count)
{
    for (int i = 0; i < count && !d->train.mem; i++) {
        uint64_t at = data_sample_index(d, step * (uint64_t)d->batch + (uint64_t)(first + i)) * (uint64_t)d->length;

        (void)posix_fadvise(d->fd, (off_t)((d->train.begin + at) * d->width), (off_t)(d->length + 1) * d->width,
                            POSIX_FADV_WILLNEED);
    }
}

int data_heldout(const struct data *d, uint64_t first, int count, int32_t *tokens, int32_t *targets, struct merr *err)
{
    assert(count >= 0 && first + (uint64_t)count <= d->heldout.samples);
    for (int i = 0; i < count; i++) {
        size_t at = (size_t)i * (size_t)d->length;
        int rc = read_sample(d, &d->heldout, first + (uint64_t)i, tokens + at, targets + at, err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

int data_unigram(const struct data *d, double *ret_nats, struct merr *err)
{
    const struct stream *s = &d->train;
    uint64_t *count = calloc((size_t)d->vocab, sizeof(*count));
    int32_t token[PIECE_TOKENS];
    double sum = 0;
    int rc = 0;

    if (!count)
        return merr_set(err, -ENOMEM, "no memory to count %d tokens", d->vocab);
    for (uint64_t at = 0; at < s->inputs && rc == 0; at += PIECE_TOKENS) {
        size_t n = s->inputs - at < PIECE_TOKENS ? (size_t)(s->inputs - at) : PIECE_TOKENS;

        rc = read_tokens(d, s, at, n, token, err);
        for (size_t i = 0; i < n && rc == 0; i++)
            count[token[i]]++;
    }
    for (int v = 0; v < d->vocab; v++)
        if (count[v] > 0)
            sum += (double)count[v] * log((double)count[v]);
    free(count);
    if (rc == 0)
        *ret_nats = log((double)s->inputs) - sum / (double)s->inputs;
    return rc;
}

void data_get_info(const struct data *d, struct data_info *ret)
{
    *ret = (struct data_info){
        .length = d->length,
        .batch = d->batch,
        .train_samples = d->train.samples,
        .heldout_samples = d->heldout.samples,
        .train_tokens = d->train.inputs,
        .heldout_tokens = d->heldout.inputs,
        .train_documents = d->documents[0],
        .heldout_documents = d->documents[1],
        .end_token = d->end_token,
    };
}

/* --- opening ---------------------------------------------------------------------------------------------- */

static int too_short(const struct data *d, uint64_t n, const char *what, struct merr *err)
{
    return merr_set(err, -EINVAL,
                    "'%s' gives %llu tokens for training; %s with batch.length %d; use a longer corpus or a shorter "
                    "batch.length",
                    d->path, (unsigned long long)n, what, d->length);
}

/* n tokens in a row as the training stream, whole samples at the tail held out when share > 0. */
static int cut_tail(struct data *d, uint64_t n, const unsigned char *mem, double share, struct merr *err)
{
    uint64_t length = (uint64_t)d->length, total = n > 0 ? (n - 1) / length : 0, held = 0;

    if (total < 1)
        return too_short(d, n, "one sample needs batch.length + 1 of them", err);
    if (share > 0) {
        if (total < 2)
            return too_short(d, n, "a hold-out needs two samples, 2 * batch.length + 1 of them,", err);
        held = (uint64_t)((double)total * share);
        held = held < 1 ? 1 : held > total - 1 ? total - 1 : held;
    }
    d->train = (struct stream){.n = n, .inputs = n, .samples = total, .mem = mem};
    if (held > 0) {
        uint64_t begin = (total - held) * length;

        d->train = (struct stream){.n = begin + 1, .inputs = begin, .samples = total - held, .mem = mem};
        d->heldout = (struct stream){
            .begin = begin, .n = held * length + 1, .inputs = held * length + 1, .samples = held, .mem = mem};
    }
    return 0;
}

/* Which documents are held out, a byte each; at least one on each side (docs->n >= 2). */
static void draw_holdout(const struct data *d, const struct documents *docs, double share, unsigned char *held)
{
    size_t lowest = 0, highest = 0, count = 0;
    uint32_t low = UINT32_MAX, high = 0;

    for (size_t i = 0; i < docs->n; i++) {
        uint32_t word = order_holdout(d->seed, i);

        held[i] = (double)word < share * 0x1p32;
        count += held[i];
        if (word < low) {
            low = word;
            lowest = i;
        }
        if (word > high) {
            high = word;
            highest = i;
        }
    }
    if (count == 0)
        held[lowest] = 1;
    if (count == docs->n)
        held[highest] = 0;
}

/* Append tokens (bytes of text when they are 1 wide) in the width of memory. */
static int keep_tokens(const struct data *d, const void *tokens, unsigned width, size_t n, struct buf *out)
{
    char *to = buf_reserve(out, n * d->width);

    if (!to)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        uint32_t token = (uint32_t)data_token_at((const unsigned char *)tokens + i * width, width);

        for (unsigned b = 0; b < d->width; b++)
            *to++ = (char)(token >> 8 * b);
    }
    buf_commit(out, n * d->width);
    return 0;
}

/* One document and its end mark. number: in the file, from 0. */
static int add_document(struct data *d, size_t number, const unsigned char *text, size_t len, struct buf *scratch,
                        struct buf *out, struct merr *err)
{
    uint32_t end = (uint32_t)d->end_token;
    int rc;

    if (!d->encoder.tokenizer) {
        rc = keep_tokens(d, text, 1, len, out);
    } else {
        buf_reset(scratch);
        rc = encoder_add(&d->encoder, (const char *)text, len, scratch, err);
        if (rc < 0)
            return merr_prefix(err, rc, "document %zu of '%s'", number + 1, d->path);
        rc = keep_tokens(d, buf_text(scratch), sizeof(int32_t), scratch->len / sizeof(int32_t), out);
    }
    if (rc == 0)
        rc = keep_tokens(d, &end, sizeof(end), 1, out);
    return rc == 0 ? 0 : merr_set(err, rc, "no memory for the tokens of '%s'", d->path);
}

/* The documents of one side, each followed by the end mark, as tokens in new memory. */
static int join_documents(struct data *d, const struct documents *docs, const unsigned char *held, int side,
                          uint64_t *ret_n, struct merr *err)
{
    struct buf out, scratch;
    uint64_t begin = 0, n = 0;
    int rc = 0;

    for (size_t i = 0; i < docs->n; begin = docs->end[i++])
        n += held[i] == side ? docs->end[i] - begin + 1 : 0;
    /* no token is shorter than a byte, but for the blanks that some tokenizers put before a text */
    buf_init(&out, (2 * n + 1) * d->width);
    buf_init(&scratch, (2 * n + 1) * sizeof(int32_t));
    begin = 0;
    for (size_t i = 0; i < docs->n && rc == 0; begin = docs->end[i++])
        if (held[i] == side) {
            rc = add_document(d, i, docs->text + begin, docs->end[i] - begin, &scratch, &out, err);
            d->documents[side]++;
        }
    buf_clear(&scratch);
    *ret_n = out.len / d->width;
    if (rc == 0) {
        d->memory[side] = buf_detach(&out);
        if (!d->memory[side])
            rc = merr_set(err, -ENOMEM, "no memory for the tokens of '%s'", d->path);
    }
    buf_clear(&out);
    return rc;
}

static int use_documents(struct data *d, const struct documents *docs, double share, struct merr *err)
{
    unsigned char *held;
    uint64_t n = 0, length = (uint64_t)d->length;
    int rc;

    if (docs->n == 0)
        return merr_set(err, -EINVAL, "'%s' holds no text: every document is empty; check train.data.path and format",
                        d->path);
    held = calloc(docs->n, 1);
    if (!held)
        return merr_set(err, -ENOMEM, "no memory for %zu documents", docs->n);
    if (share > 0 && docs->n > 1)
        draw_holdout(d, docs, share, held);
    rc = join_documents(d, docs, held, 0, &n, err);
    if (rc == 0)
        rc = cut_tail(d, n, (const unsigned char *)d->memory[0], docs->n > 1 ? 0 : share, err);
    if (rc == 0 && share > 0 && docs->n > 1) {
        rc = join_documents(d, docs, held, 1, &n, err);
        d->heldout = (struct stream){
            .n = n, .inputs = n, .samples = (n - 1 + length - 1) / length, .mem = (const unsigned char *)d->memory[1]};
    }
    free(held);
    return rc;
}

static int open_documents(struct data *d, const struct job_spec *spec, uint64_t size, struct merr *err)
{
    const struct corpus_form form = {d->path, spec->train.data.format, spec->train.data.separator};
    struct documents docs;
    void *map;
    int rc;

    if (size > DATA_TEXT_MAX)
        return merr_set(err, -EFBIG,
                        "'%s' has %llu bytes, more than the %llu that are held in memory as documents; tokenise it "
                        "beforehand and give it as format tokens, or use train.data.samples 'documents'",
                        d->path, (unsigned long long)size, (unsigned long long)DATA_TEXT_MAX);
    map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, d->fd, 0);
    if (map == MAP_FAILED)
        return merr_errno(err, -errno, "cannot map '%s'", d->path);
    d->width = d->vocab <= 65536 ? 2 : 4;
    d->end_token = d->encoder.end;
    rc = documents_split(&form, map, size, &docs, err);
    (void)munmap(map, size);
    if (rc < 0)
        return rc;
    rc = use_documents(d, &docs, spec->train.data.holdout, err);
    documents_clear(&docs);
    io_close(&d->fd);
    return rc;
}

static int open_text(struct data *d, const struct job_spec *spec, uint64_t size, struct merr *err)
{
    int rc = encoder_open(spec, &d->encoder, err);

    if (rc < 0)
        return rc;
    if (!d->encoder.tokenizer && spec->train.data.format == DATA_TEXT && spec->train.data.separator == SEPARATE_NONE) {
        d->width = 1;
        d->documents[0] = 1;
        return cut_tail(d, size, NULL, spec->train.data.holdout, err);
    }
    rc = open_documents(d, spec, size, err);
    encoder_clear(&d->encoder);
    return rc;
}

static int open_tokens(struct data *d, const struct job_spec *spec, uint64_t size, struct merr *err)
{
    int32_t token[PIECE_TOKENS];
    uint64_t n;
    int rc;

    d->width = d->vocab <= 65536 ? 2 : 4;
    n = size / d->width;
    if (size % d->width != 0)
        return data_half_token(d->path, size, d->width, d->vocab, err);
    rc = cut_tail(d, n, NULL, spec->train.data.holdout, err);
    for (uint64_t at = 0; rc == 0 && at < n && at * d->width < DATA_CHECK_BYTES; at += PIECE_TOKENS)
        rc = read_piece(d, at, n - at < PIECE_TOKENS ? (size_t)(n - at) : PIECE_TOKENS, token, err);
    return rc;
}

int data_open(const struct job_spec *spec, struct data **ret, struct merr *err)
{
    struct data *d;
    uint64_t size = 0;
    int rc;

    assert(spec->kind == JOB_TRAIN && spec->train.batch.length >= 1 && spec->train.batch.sequences >= 1);
    d = calloc(1, sizeof(*d));
    if (!d)
        return merr_set(err, -ENOMEM, "no memory for the corpus");
    *d = (struct data){
        .fd = -1,
        .vocab = spec->train.model.vocab,
        .length = spec->train.batch.length,
        .batch = spec->train.batch.sequences,
        .order = spec->train.data.order,
        .seed = spec->train.init.seed,
        .end_token = -1,
    };
    rc = file_open_corpus(spec, &d->path, &d->fd, &size, err);
    if (rc == 0)
        rc = spec->train.data.format == DATA_TOKENS ? open_tokens(d, spec, size, err) : open_text(d, spec, size, err);
    if (rc < 0) {
        data_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void data_close(struct data *d)
{
    int saved = errno;

    if (d) {
        io_close(&d->fd);
        free(d->memory[0]);
        free(d->memory[1]);
        free(d->path);
        free(d);
    }
    errno = saved;
}
