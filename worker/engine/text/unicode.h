/* unicode - what a tokenizer has to know of characters: how they are written, and which are letters, numbers, blanks */
#ifndef MUSTER_WORKER_TEXT_UNICODE_H
#define MUSTER_WORKER_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_class { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

/* The character at the start of text[len], len > 0, and how many bytes it takes. Returns 0 bytes where it is not UTF-8:
 * a byte that does not belong, too long a form, a surrogate, past U+10FFFF, or an end too soon. */
size_t unicode_get(const char *text, size_t len, uint32_t *ret);

/* Letters are general category L, numbers N, blanks have the property White_Space. */
enum unicode_class unicode_class_of(uint32_t c);

#endif
