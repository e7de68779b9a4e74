/* merr - the words that go with an error code
 *
 * The one error idiom of Muster: a function returns 0 or a negative errno, and puts words for people
 * into a caller's struct merr, its last parameter, which may be NULL. Words are lower case, quote
 * their subject, say what failed and then what to do.
 */
#ifndef MUSTER_BASE_MERR_H
#define MUSTER_BASE_MERR_H

#include <stdarg.h>

#define MERR_TEXT_MAX 1024

struct merr {
    char text[MERR_TEXT_MAX]; /* never longer; cut at the end, always terminated */
};

/* Put words into err (when not NULL), replacing what was there. Returns code, so that report and
 * return are one line. errno is kept. */
int merr_set(struct merr *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As merr_set, then ": " and the system's text for -code. */
int merr_errno(struct merr *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put words and ": " in front of what err already says. Returns code. */
int merr_prefix(struct merr *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
