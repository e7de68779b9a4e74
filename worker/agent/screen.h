/* screen - which lines of a command's metrics.jsonl go to the server
 *
 * A line is a JSON object of at most SCREEN_LINE_MAX bytes; with `"v":1` it has a whole number `step` and at most
 * SCREEN_NAMES_MAX names (docs/programs.md). Others are blanked out where they stand, so that offsets stay, and
 * counted. So are those that come faster than SCREEN_PER_S, after a burst: by the line's own time `t`, since lines may
 * wait here long while the server is away; a time that cannot be is taken to be now. Pure but for its state, which may
 * be copied.
 */
#ifndef MUSTER_WORKER_AGENT_SCREEN_H
#define MUSTER_WORKER_AGENT_SCREEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/bucket.h"

#define SCREEN_LINE_MAX 16384
#define SCREEN_NAMES_MAX 512
#define SCREEN_NAME_MAX 128
#define SCREEN_PER_S 200
#define SCREEN_BURST 2000

struct screen {
    struct bucket rate;
    int64_t last_us;           /* the newest time of a line */
    uint64_t damaged, thinned; /* lines left out so far */
};

/* Blank out of n bytes, whole lines but for a piece of one that is too long, what is left out. */
void screen_lines(struct screen *s, char *text, size_t n, int64_t now_wall_us);

#endif
