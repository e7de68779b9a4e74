/* pattern - lines that a pattern finds, in a time that the pattern cannot make long
 *
 * A pattern is an extended regular expression without references back: characters, "." (one character of UTF-8),
 * "[a-z]", "[^a-z]", "[[:digit:]]", "^", "$", "(...)", "|", "*", "+", "?", "{2}", "{2,}", "{2,5}", and behind a
 * backslash d, w, s, D, W, S, t or a sign that stands for itself. "(?i)" at its beginning: letters of either case. It
 * finds a line where any part of it matches.
 * All the ways to match are followed at once, as sets of the pattern's places (the positions automaton of Glushkov), so
 * that a line of n bytes takes at most n * PATTERN_PLACES moves. Pure; a compiled pattern is only read.
 */
#ifndef MUSTER_BASE_PATTERN_H
#define MUSTER_BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define PATTERN_TEXT_MAX 512 /* bytes of one */
#define PATTERN_PLACES 256   /* characters that it asks for, repeated ones counted as often as they are */

struct pattern;

/* Returns 0; -EINVAL with words: it is none, or longer than that; -ENOMEM. */
int pattern_new(const char *text, struct pattern **ret, struct merr *err);
void pattern_free(struct pattern *p);

/* Whether it finds a line, which may hold any bytes. moves, if not NULL, rises by those that it took beside one a
 * byte. */
bool pattern_finds(const struct pattern *p, const char *line, size_t len, uint64_t *moves);

#endif
