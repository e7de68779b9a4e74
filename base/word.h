/* word - a word among known ones: where it stands, which is nearest to one that is none, how they are listed */
#ifndef MUSTER_BASE_WORD_H
#define MUSTER_BASE_WORD_H

#include <stddef.h>

#include "base/buf.h"

/* The known word nearest to word, when it is near enough to be what was meant; else NULL. */
const char *word_nearest(const char *word, const char *const *known, size_t n);

/* Where word stands among words, which end with NULL; -1 when it is none of them. */
int word_index(const char *word, const char *const *words);

/* Add "a, b or c" to b: before_last is " or ", or " and ". */
void word_list(const char *const *words, const char *before_last, struct buf *b);

#endif
