/* corpus - text from outside as documents
 *
 * Splits the bytes of a corpus file into documents, in the order of the file. Pure: no file is touched.
 */
#ifndef MUSTER_WORKER_TRAIN_CORPUS_H
#define MUSTER_WORKER_TRAIN_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

struct documents {
    unsigned char *text; /* all documents, one after the other */
    size_t text_len;
    uint64_t *end; /* end[d]: offset in text where document d ends */
    size_t n, cap;
};

/* Split data[len] of a file of this format (DATA_TEXT or DATA_JSONL). A document of text is whole lines, their
 * newlines kept, up to a separator: one or more empty lines, or a line that is '%' alone; with SEPARATE_NONE all is
 * one document. Carriage returns before a newline do not hide a separator. Empty documents are dropped.
 * Returns 0 with *ret to be cleared by documents_clear, or -EINVAL (a line of jsonl that is not an object
 * with a string "text", named by its number from 1), -EFBIG, -ENOMEM; name is the file's, for err. */
int documents_split(const char *name, enum data_format format, enum data_separator separator, const char *data,
                    size_t len, struct documents *ret, struct merr *err);
void documents_clear(struct documents *d);

#endif
