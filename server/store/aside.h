/* aside - records that could not be read: out of the way, and kept until somebody has them read again or drops them
 *
 * Each has a name of its own ("job:j17", "node:n1") and a note, which is what is told of it. A row of a table is moved
 * here with its text; a job's record stays where it is and only leaves the lists of jobs. Puts and drops go into the
 * store's batch. Owned by the thread that owns the store.
 */
#ifndef MUSTER_SERVER_ASIDE_H
#define MUSTER_SERVER_ASIDE_H

#include <stddef.h>
#include <stdint.h>

#include "server/store/store.h"

/* text: the row's, of len bytes; NULL: the record stays where it is. */
void aside_put(struct store *s, const char *id, const char *note, const char *text, size_t len);
void aside_drop(struct store *s, const char *id);

/* All there are: names and notes. As store_read_rows(). */
int aside_read(struct store *s, struct store_rows *ret, struct merr *err);

/* The text that was kept, new; NULL: none was, or the store does not give it. */
char *aside_read_text(struct store *s, const char *id);

/* A job leaves the lists of jobs, and is in one of them again. */
void aside_hide_job(struct store *s, uint64_t job);
void aside_show_job(struct store *s, uint64_t job, bool ended);

#endif
