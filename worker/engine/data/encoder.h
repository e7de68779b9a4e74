/* encoder - text to tokens as a spec asks: byte values, or a tokenizer that fits the model's vocabulary
 *
 * Immutable once open: threads may share it.
 */
#ifndef MUSTER_WORKER_DATA_ENCODER_H
#define MUSTER_WORKER_DATA_ENCODER_H

#include <stddef.h>

#include "api/spec.h"
#include "base/buf.h"
#include "base/merr.h"
#include "worker/engine/text/tokenizer.h"

struct encoder {
    struct tokenizer *tokenizer; /* NULL: byte values */
    int end; /* the mark after a document: the tokenizer's own; of bytes 256 when there is that token, else 0 */
};

/* For the text formats of spec. Returns 0 with *ret for encoder_clear(), or -EINVAL (a vocabulary below 256 for bytes,
 * a tokenizer with more tokens than the model or without an end mark, none named) or as tokenizer_open(). */
int encoder_open(const struct job_spec *spec, struct encoder *ret, struct merr *err);
void encoder_clear(struct encoder *e);

/* Append the tokens of text to out, an int32_t each. Returns 0, -EINVAL (not UTF-8; err says at which byte), -EFBIG,
 * -EMSGSIZE (out is full), -ENOMEM. */
int encoder_add(const struct encoder *e, const char *text, size_t len, struct buf *out, struct merr *err);

#endif
