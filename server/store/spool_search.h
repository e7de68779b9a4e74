/* spool_search - those lines of a log that a pattern finds, a limited stretch of it in each answer
 *
 * A stretch has about SPOOL_SEARCH_MAX bytes over all logs of an answer, and fewer where the pattern is slow. Who wants
 * more asks again: from where the stretch ended, or, for the last lines, before where it began. A line is looked at
 * whole, but for one longer than a stretch, which is cut into lines of that length. Threads as spool.h says.
 */
#ifndef MUSTER_SERVER_SPOOL_SEARCH_H
#define MUSTER_SERVER_SPOOL_SEARCH_H

#include <stdint.h>

#include "base/pattern.h"
#include "server/store/spool_parts.h"

#define SPOOL_SEARCH_MAX (4 << 20)
#define SPOOL_SEARCH_LEAST (256 << 10) /* of each log, however many there are */

struct spool_search {
    const struct pattern *pattern; /* borrowed */
    int64_t before;                /* of the log alone what is before this byte; 0: all */
};

struct spool_stretch {
    int64_t from, to; /* was looked at: whole lines */
    size_t len;       /* bytes of text, which has the lines, each with a line feed */
};

/* Look for lines from an offset on, or (tail > 0) for that many from the end (or search->before) backwards, though not
 * before offset. text takes most bytes; a line that it does not hold is cut. n: how many logs share the answer.
 * Returns 0, or a negative errno; *ret is set. */
int spool_search_log(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e,
                     const struct spool_search *search, int64_t offset, int tail, int n, char *text, size_t most,
                     struct spool_stretch *ret);

#endif
