/* docset - a corpus as documents of any length, each read when it is asked for
 *
 * The file is looked through once when it is opened. What is kept of it is where every few documents begin, some 32
 * bytes for each 32 KiB of text, whatever its size; the tokens of a document are made when it is read.
 *
 *   jsonl   one document a line: {"text": "..."}, or {"prompt": "...", "completion": "..."}, of which the completion
 *           alone is learnt; other fields are ignored, blank lines skipped.
 *   text    documents ended by blank lines or by lines of a single '%', or the whole file as one.
 *   tokens  flat little-endian tokens as in data.h, and beside them an index: little-endian uint64, for each document
 *           the number of the token after its last.
 *
 * The n tokens of a document of text are followed by the end mark: n inputs, n targets, each the token after. In tokens
 * nothing is added: n - 1 of each. Prompt and completion are made into tokens each for itself; the prompt's own tokens
 * are no targets.
 *
 * Held-out documents are drawn by seed and number in the file, at least one on each side. The files must stay as they
 * are. Immutable once open: threads may share it.
 */
#ifndef MUSTER_WORKER_DATA_DOCSET_H
#define MUSTER_WORKER_DATA_DOCSET_H

#include <stdbool.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/buf.h"
#include "base/merr.h"

#define DOCSET_DOCUMENTS_MAX (UINT64_C(1) << 32)
#define DOCSET_IDS_MAX ((size_t)1 << 33) /* bytes of ids that are held at once */

struct docset;

enum docset_side { DOCSET_TRAIN, DOCSET_HELDOUT };

struct docset_info {
    uint64_t documents[2]; /* of each side */
    uint64_t bytes;        /* of the corpus */
};

struct docset_doc { /* ids[0 .. inputs] are its tokens: id i is the input, id i + 1 the target */
    int inputs;     /* 0: left out, by train.data.overlong */
    int masked;     /* the first so many targets are not learnt; below inputs */
    bool cut;       /* it was longer than batch.length */
};

/* Open the corpus of spec (kind JOB_TRAIN, samples `documents`; borrowed until the call returns). The first
 * DATA_CHECK_BYTES of it (4 MiB with a tokenizer) are read as they will be later, so that faults show at once.
 * Returns 0 with a new *ret, or
 *   -ENOENT, -EACCES, -EISDIR, ...  a file cannot be opened or read
 *   -EINVAL   no document; an empty one; text that is not UTF-8; a broken line; a token outside the vocabulary; a
 *             document longer than batch.length where overlong is `fail`; one document of which a share should be held
 *             out; an index that is not rising or goes beyond the tokens; what encoder_open() refuses
 *   -EFBIG    a document above DATA_LINE_MAX bytes, more than DOCSET_DOCUMENTS_MAX of them
 *   -ENOTSUP, -ENOMEM
 * err names file, line or document, and what to do. */
int docset_open(const struct job_spec *spec, struct docset **ret, struct merr *err);
void docset_close(struct docset *d);

void docset_get_info(const struct docset *d, struct docset_info *ret);

/* Append the inputs + 1 ids of document i of a side, an int32_t each, and describe it. Returns 0, or errors as
 * docset_open(); ids is then undefined. */
int docset_read(const struct docset *d, enum docset_side side, uint64_t i, struct buf *ids, struct docset_doc *ret,
                struct merr *err);

#endif
