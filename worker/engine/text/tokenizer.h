/* tokenizer - text to tokens and back by byte-level BPE, as GPT-2, Llama 3 and Qwen write it down
 *
 * Two forms are read: GPT-2's vocab.json with merges.txt, and Hugging Face's tokenizer.json. Text is cut at added
 * tokens (such as <|endoftext|>, which text may hold), then into words (split.h); within a word the pair of neighbours
 * that was merged first in training is joined, again and again. No mark is put before or after a text: the caller does
 * that.
 *
 * Immutable once open: threads may share it.
 */
#ifndef MUSTER_WORKER_TEXT_TOKENIZER_H
#define MUSTER_WORKER_TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"

#define TOKENIZER_FILE_MAX (128u << 20) /* bytes */
#define TOKENIZER_TOKENS_MAX (1 << 24)
#define TOKENIZER_TEXT_MAX (1u << 30) /* bytes of one text */

struct tokenizer;

/* Read path: a folder, or one of its files, which hold vocab.json and merges.txt or else tokenizer.json. When
 * tokenizer_config.json lies beside, its eos_token ends a document; else <|endoftext|>, <|end_of_text|> or </s>, if
 * there is one. Returns 0 with a new *ret, or -ENOENT and the like, -EINVAL (broken: where), -ENOTSUP (a part that is
 * not byte-level BPE or not one of the rules of split.h, by name), -EFBIG, -ENOMEM. */
int tokenizer_open(const char *path, struct tokenizer **ret, struct merr *err);
void tokenizer_free(struct tokenizer *t);

/* From texts: tokenizer.json; or vocab.json with merges.txt (may be NULL for the former). */
int tokenizer_parse(const char *text, size_t len, const char *merges, size_t merges_len, struct tokenizer **ret,
                    struct merr *err);

/* All tokens are below this. */
int tokenizer_vocab(const struct tokenizer *t);

/* The mark after a document, -1 when the files name none. */
int tokenizer_end(const struct tokenizer *t);

/* Append the tokens of text to out, an int32_t each. Returns 0, -EILSEQ (not UTF-8; err says at which byte), -EFBIG
 * (longer than TOKENIZER_TEXT_MAX), -EMSGSIZE (out is full), -ENOMEM. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, struct buf *out, struct merr *err);

/* The bytes of a token, borrowed; NULL when there is no such token. They need not be whole characters. */
const char *tokenizer_text(const struct tokenizer *t, int token, size_t *ret_len);

#endif
