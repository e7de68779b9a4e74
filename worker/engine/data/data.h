/* data - the corpus of a training job: which tokens each step sees, the same for every layout of ranks
 *
 * A corpus is one training stream of tokens and, when the spec asks for a hold-out, one held-out stream.
 * Sample i of a stream is tokens [i·T, i·T+T) as inputs and the same range shifted by one as targets, T being
 * spec.train.batch.length. Step s (from 0) takes the samples numbered s·B .. s·B+B-1 since the run began, B being
 * batch.sequences. A number becomes an index of the stream by the order of the spec: `sequential` is the number
 * modulo the samples of the stream; `shuffle` permutes the stream's indices anew in each epoch, keyed by seed
 * and epoch alone. So the step number is the whole cursor: resuming at step s needs nothing else.
 *
 * Formats:
 *   tokens  flat little-endian uint16 when vocab <= 65536, else uint32. Hold-out: whole samples at the tail.
 *   text    one document, or documents ended by a blank line or by a line of a single '%'.
 *   jsonl   one document a line: {"text": "..."}; other fields are ignored, empty lines skipped.
 * With the tokenizer `bytes` token ids are byte values, so vocab must be at least 256; else text becomes the tokens of
 * worker/engine/text/tokenizer.h, all of it when the corpus is opened. Every document is followed by an end mark: the
 * tokenizer's own; for bytes 256 when the vocabulary has that token, else 0. Bytes that are one document (separator
 * none) are taken as they are, without a mark. Hold-out of text and jsonl: whole documents, drawn by seed and document
 * number, at least one on each side; of a single document whole samples at its tail. With holdout 0 there is no
 * held-out stream.
 *
 * tokens, and bytes of one document, are read from the file as needed and may be of any size; documents are
 * held in memory, up to DATA_TEXT_MAX bytes. The file must stay as it is while it is open. Calls on one struct
 * data may come from several threads at once: it is immutable.
 */
#ifndef MUSTER_WORKER_DATA_DATA_H
#define MUSTER_WORKER_DATA_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

#define DATA_TEXT_MAX (UINT64_C(1) << 30)     /* bytes of a corpus of documents in memory */
#define DATA_DOCUMENTS_MAX (1u << 26)         /* documents of a corpus */
#define DATA_LINE_MAX (64u << 20)             /* bytes of a jsonl line */
#define DATA_CHECK_BYTES (UINT64_C(64) << 20) /* of a large file, looked at when it is opened */

struct data;

struct data_info {
    int length;                                  /* T, tokens a sample */
    int batch;                                   /* B, samples a step */
    uint64_t train_samples, heldout_samples;     /* at least 1; 0 when nothing is held out */
    uint64_t train_tokens, heldout_tokens;       /* of the streams, end marks included */
    uint64_t train_documents, heldout_documents; /* 0 for format tokens */
    int end_token;                               /* the mark after each document, -1 when there is none */
};

/* Open the corpus of spec (kind JOB_TRAIN; borrowed until the call returns) and check it.
 * Returns 0 with a new *ret, or
 *   -ENOENT, -EACCES, -EISDIR, ...  the file cannot be opened or read
 *   -EINVAL   the file does not hold what the spec says: empty, too short for one sample, half a token, a broken
 *             line (by number), a token outside the vocabulary (by offset), vocab below 256 for bytes, text that is not
 *             UTF-8, a tokenizer with more tokens than the model or without an end mark
 *   -ENOTSUP  a tokenizer that is not byte-level BPE
 *   -EFBIG    more than the limits above
 *   -ENOMEM
 * err names the path and what to do. Tokens beyond the first 64 MiB of a token file are checked when fetched. */
int data_open(const struct job_spec *spec, struct data **ret, struct merr *err);
void data_close(struct data *d);

void data_get_info(const struct data *d, struct data_info *ret);

/* Samples first .. first+count-1 of step's global batch (first + count <= B): tokens[count][T] and
 * targets[count][T]. Both arrays are the caller's. Returns 0, or -EIO (the file cannot be read, or has shrunk),
 * -EINVAL (a token outside the vocabulary); the arrays are then undefined. */
int data_train(const struct data *d, uint64_t step, int first, int count, int32_t *tokens, int32_t *targets,
               struct merr *err);

/* data_train of the same will come: the kernel is asked to have by then what lies in a file. Does not wait. */
void data_expect(const struct data *d, uint64_t step, int first, int count);

/* Held-out samples first .. first+count-1 (first + count <= heldout_samples), as data_train. The last one may be
 * shorter than T: its missing inputs are 0 and their targets -1, which no loss counts. */
int data_heldout(const struct data *d, uint64_t first, int count, int32_t *tokens, int32_t *targets, struct merr *err);

/* The index in the training stream of the sample with this number since the run began. */
uint64_t data_sample_index(const struct data *d, uint64_t number);

/* Entropy of the training stream's tokens taken one by one, in nats: the loss of a model that knows their
 * frequencies alone. Reads the whole stream. Returns 0 or as data_train. */
int data_unigram(const struct data *d, double *ret_nats, struct merr *err);

/* A token as it lies in a file, width bytes each (2 or 4; 1: a byte of text). What passes INT32_MAX turns negative,
 * which no vocabulary holds either. */
int32_t data_token_at(const unsigned char *p, unsigned width);
/* The words for a token, number `at` in the file, that no vocabulary of that size holds, and for a file that ends
 * within a token: -EINVAL. */
int data_bad_token(const char *path, uint64_t at, unsigned width, int32_t token, int vocab, struct merr *err);
int data_half_token(const char *path, uint64_t size, unsigned width, int vocab, struct merr *err);

#endif
