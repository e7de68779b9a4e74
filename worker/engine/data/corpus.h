/* corpus - text from outside as documents
 *
 * Finds the documents in the bytes of a corpus file, in the order of the file, and what each says. Pure: no file is
 * touched. A document of text is whole lines, their newlines kept, up to a separator: one or more empty lines, or a
 * line that is '%' alone; with SEPARATE_NONE all is one document. Carriage returns before a newline do not hide a
 * separator. A document of jsonl is a line that is not blank.
 */
#ifndef MUSTER_WORKER_DATA_CORPUS_H
#define MUSTER_WORKER_DATA_CORPUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

struct corpus_form {
    const char *name;        /* the file's, for messages; borrowed */
    enum data_format format; /* DATA_TEXT or DATA_JSONL */
    enum data_separator separator;
};

/* A document as it lies in the bytes. */
struct corpus_piece {
    size_t begin, end; /* its bytes; of jsonl without the newline */
    size_t next;       /* where the search for the one after it goes on */
    uint64_t line;     /* lines before it */
    uint64_t lines;    /* lines before next */
};

/* Find the first document of data[len]. whole: the file ends where data does; else a document that might go on beyond
 * is not found. Returns whether there is one. */
bool corpus_find(const struct corpus_form *form, const char *data, size_t len, bool whole, struct corpus_piece *ret);

/* What a document says. */
struct corpus_text {
    const char *prompt; /* what is not learnt; NULL: it has no such part */
    size_t prompt_len;
    const char *text;
    size_t text_len;
    json_t *owner; /* of both; NULL: they are borrowed from the bytes */
};

/* Read a document that corpus_find() found; line is its first, from 1. Of jsonl an object with a string "text" or,
 * with prompts, with strings "prompt" and "completion" instead; other fields are ignored. Returns 0 with *ret, which
 * corpus_text_clear() frees, or -EINVAL (not such an object, by line), -EFBIG (a line above DATA_LINE_MAX). */
int corpus_read(const struct corpus_form *form, bool prompts, const char *raw, size_t len, uint64_t line,
                struct corpus_text *ret, struct merr *err);
void corpus_text_clear(struct corpus_text *t);

struct documents {
    unsigned char *text; /* all documents, one after the other */
    size_t text_len;
    uint64_t *end; /* end[d]: offset in text where document d ends */
    size_t n, cap;
};

/* All documents of data[len], those that say nothing dropped. Returns 0 with *ret to be cleared by documents_clear, or
 * as corpus_read(), -EFBIG (too many), -ENOMEM. */
int documents_split(const struct corpus_form *form, const char *data, size_t len, struct documents *ret,
                    struct merr *err);
void documents_clear(struct documents *d);

#endif
