/* pack - documents in memory, and micro-batches made of them
 *
 * A micro-batch is documents one after the other, no row between them; first come the pieces of documents that several
 * ranks share. Where one is padded, and where a micro-batch is
 * brought to a multiple of rows, the rows that come on top have the input 0 and no target.
 */
#ifndef MUSTER_WORKER_DATA_PACK_H
#define MUSTER_WORKER_DATA_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"
#include "worker/engine/data/docset.h"

struct pack_doc {
    size_t at;  /* of its ids, in all of them */
    int inputs; /* as in docset.h */
    int masked;
    uint64_t sample; /* its number since the run began */
};

struct pack_part { /* of each micro-batch: whether it is a part of a document that comes in several */
    int sequence;  /* of those in this pack, from 0; -1: it holds whole documents */
    bool last;     /* part of it */
    bool drop;     /* its activations are dropped and made again */
};

struct pack {
    struct buf ids;
    struct pack_doc *doc;
    size_t docs, docs_cap;
    /* Micro-batch m is pieces first[m] .. first[m + 1] - 1: of is a document, or PACK_FILL; rows are its length. */
    uint32_t *of;
    int *length, *start; /* start: the document's input that it begins with */
    size_t pieces, pieces_cap;
    size_t *first;
    int *rows; /* of each micro-batch */
    struct pack_part *part;
    int sequences; /* in parts */
    int *whole;    /* rows of each document that is cut over ranks; those of micro-batch m from first_whole[m] on */
    uint32_t *whole_of; /* which document it is */
    size_t wholes, wholes_cap;
    size_t *first_whole;
    size_t *shared; /* of each micro-batch: pieces of those */
    size_t micros, micros_cap;
};

#define PACK_FILL UINT32_MAX
#define PACK_FILL_SAMPLE UINT64_MAX /* of rows that are no document */

void pack_init(struct pack *p);
void pack_clear(struct pack *p);
/* Empty it; its memory is kept. */
void pack_reset(struct pack *p);

/* Add document i of a side, unless it is left out. Returns 1, 0 when it is left out, or as docset_read(). */
int pack_read(struct pack *p, const struct docset *docs, enum docset_side side, uint64_t i, uint64_t sample,
              struct merr *err);

/* Begin a micro-batch; put a document into it, padded to rows; end it: with rows of a multiple, at least one. Return 0
 * or -ENOMEM. */
int pack_begin(struct pack *p, struct merr *err);
int pack_put(struct pack *p, size_t doc, int rows, struct merr *err);
int pack_end(struct pack *p, int multiple, struct merr *err);
/* A micro-batch of its own of a part of a document: rows inputs from start on. Parts of one follow each other. */
int pack_put_part(struct pack *p, size_t doc, int start, int rows, bool drop, struct merr *err);

/* Before any pack_put() of the micro-batch: this rank's pieces (zigzag.h) of a document padded to rows and cut over
 * ranks, of which some have none. */
int pack_put_cut(struct pack *p, size_t doc, int rows, int ranks, int rank, struct merr *err);

/* Pieces that come first because their documents are cut over ranks. */
size_t pack_shared(const struct pack *p, size_t m);
/* Rows of the documents of micro-batch m that are cut over ranks (borrowed), whose pieces come first: their number. */
size_t pack_wholes(const struct pack *p, size_t m, const int **ret_rows);
/* What micro-batch m says: lengths of its pieces (borrowed) and the sample of each; tokens and targets of its rows. */
size_t pack_pieces(const struct pack *p, size_t m, const int **ret_length);
void pack_samples(const struct pack *p, size_t m, uint64_t *sample);
void pack_whole_samples(const struct pack *p, size_t m, uint64_t *sample); /* of each of pack_wholes() */
void pack_fill(const struct pack *p, size_t m, int32_t *tokens, int32_t *targets);

#endif
