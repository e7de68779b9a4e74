/* tokenizer_priv - what reading a tokenizer (tokenizer_read.c) and using it (tokenizer.c) share */
#ifndef MUSTER_WORKER_TEXT_TOKENIZER_PRIV_H
#define MUSTER_WORKER_TEXT_TOKENIZER_PRIV_H

#include <stdbool.h>

#include "worker/engine/text/split.h"
#include "worker/engine/text/tokenizer.h"

#define TOKENIZER_RULES_MAX 4

struct token_text {
    char *p; /* NULL: no such token */
    size_t len;
};

struct merge { /* a cell of an open-addressed table; left -1: empty */
    int32_t left, right, made;
    uint32_t rank;
};

struct tokenizer {
    struct token_text *text; /* [vocab] */
    int vocab;
    uint32_t *cell; /* tokens by their bytes: number + 1, 0 empty */
    size_t cells;   /* a power of two */
    struct merge *merge;
    size_t merge_cells, merges;
    int32_t byte[256]; /* the token of each byte, -1 */
    int32_t *added;    /* added tokens, the longest first */
    size_t n_added;
    bool added_first[256];                /* whether one begins with this byte */
    enum split rule[TOKENIZER_RULES_MAX]; /* applied one within the other */
    int rules;
    bool prefix_space;  /* a text that does not begin with a blank gets one */
    bool nfc;           /* text is brought to Unicode's form NFC first */
    bool ignore_merges; /* a word that is a token is that token */
    int end;
};

/* The token with these bytes, or -1. Added tokens are not looked at. */
int tokenizer_find(const struct tokenizer *t, const char *p, size_t len);
/* Its cell in a table with room: where it is or belongs. */
struct merge *tokenizer_merge_cell(struct merge *v, size_t cells, int left, int right);

#endif
