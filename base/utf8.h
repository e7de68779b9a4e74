/* utf8 - bytes from anywhere as text that JSON can carry */
#ifndef MUSTER_BASE_UTF8_H
#define MUSTER_BASE_UTF8_H

#include <stddef.h>

#include "base/buf.h"

/* Length of the well-formed character at p (n > 0 bytes left): 1 to 4. 0 when no character begins like
 * this. -1 when the bytes at hand begin one that goes on beyond n. NUL counts as ill-formed. */
int utf8_length(const char *p, size_t n);

/* Append text to out, each ill-formed byte as U+FFFD. Unless last is set, a character that is cut off at
 * the end stays behind. Returns how many bytes were taken; what out cannot hold is taken and lost. */
size_t utf8_clean(const char *text, size_t n, int last, struct buf *out);

/* Turn each ill-formed byte into '?' in place: the length, and so every offset, stays. */
void utf8_patch(char *text, size_t n);

/* Copy as many whole characters of text as size bytes hold with their NUL. */
void utf8_copy(char *to, size_t size, const char *text);

/* The largest length up to n at which text may be cut without splitting a character. */
size_t utf8_cut(const char *text, size_t n);

#endif
