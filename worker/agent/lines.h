/* lines - what a rank writes, as a log that is pleasant to keep
 *
 * Text that carriage returns overwrite is dropped, except that a progress bar leaves a line every two
 * seconds; ill-formed UTF-8 and NUL become U+FFFD; a line without an end is passed on once the rank
 * pauses. What there is no room for is left out, and a note says how much, once there is room again. Pure but for its
 * state: time comes in. Not thread safe.
 */
#ifndef MUSTER_WORKER_AGENT_LINES_H
#define MUSTER_WORKER_AGENT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define LINES_SEGMENT_MAX 16384   /* a longer line is passed on in pieces */
#define LINES_PAUSE_US 200000     /* a line without an end waits so long for more */
#define LINES_PROGRESS_US 2000000 /* between two lines of one progress bar */

struct lines {
    char seg[LINES_SEGMENT_MAX];
    size_t n;
    bool cr;       /* a carriage return came last: a line feed ends the line, anything else overwrites it */
    bool progress; /* this line has been overwritten at least once */
    bool open;     /* the beginning of this line is out already */
    bool shown;    /* the progress bar as it stands is out already */
    int64_t fed_us, shown_us;
    uint64_t limit, left; /* bytes that the log may have, and that it may grow by now */
    uint64_t lost;        /* left out since there was no room; 0: there is */
};

void lines_init(struct lines *l, uint64_t limit_bytes);

/* The log has so many bytes now: what was taken out of it makes room. Writes the note of what was left out once a
 * quarter of the limit is free. */
void lines_room(struct lines *l, uint64_t used_bytes, struct buf *out);

/* Take text; append what is ready to out. */
void lines_feed(struct lines *l, const char *text, size_t n, int64_t now_us, struct buf *out);

/* When lines_pause should be called, INT64_MAX when there is nothing to wait for. */
int64_t lines_deadline(const struct lines *l);
void lines_pause(struct lines *l, int64_t now_us, struct buf *out);

/* No more will come. */
void lines_end(struct lines *l, struct buf *out);

#endif
