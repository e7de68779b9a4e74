/* spool_times - when the bytes of a log came: notes beside it, from which a time finds its place
 *
 * A note says at which offset what came at which second begins. There is one only once SPOOL_TIMES_S have passed since
 * the one before, so the place of a time is found as exactly as that. A log of before there were notes has none for
 * what came then. Threads as spool.h says.
 */
#ifndef MUSTER_SERVER_SPOOL_TIMES_H
#define MUSTER_SERVER_SPOOL_TIMES_H

#include <stdint.h>

#include "server/store/spool.h"

#define SPOOL_TIMES_END ".t" /* of the name of a log's notes, behind the log's */
#define SPOOL_TIMES_S 10

/* What is at offset of a log comes at this second. One that cannot be written is left out. */
void spool_times_note(const struct spool *s, uint64_t job, const char *log, int64_t offset, int64_t now_s);

/* Where what came since then, or up to SPOOL_TIMES_S earlier, begins. length: of the log, which it is for nothing. */
int64_t spool_times_find(const struct spool *s, uint64_t job, const char *log, int64_t since_s, int64_t length);

#endif
