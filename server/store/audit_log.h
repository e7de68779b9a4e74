/* audit_log - the log of what people changed and were refused: entries put into the store and read back
 *
 * An entry's id is the wall time at which it was made, in microseconds; ids grow. Entries lie in records, those of a
 * turn together: a record is a line "USER ID ENTRY" for each, and has the id of its last one; an older musterd put each
 * entry into a record of its own, without user and id in front. How many bytes all records have is kept with them.
 * Owned by the thread that owns the store.
 */
#ifndef MUSTER_SERVER_AUDIT_LOG_H
#define MUSTER_SERVER_AUDIT_LOG_H

#include <stdint.h>

#include "base/merr.h"
#include "server/store/store.h"

/* Put a record into the batch: lines, each with its newline. */
void audit_log_add(struct store *s, uint64_t last_id, const char *lines);

/* Put the end of all records before an id into the batch. */
void audit_log_trim(struct store *s, uint64_t id);

/* Put the newest id and the bytes of all records into the batch, once for all that it adds and ends. */
void audit_log_put_size(struct store *s, uint64_t newest, uint64_t bytes);

/* The newest id and the bytes of all; 0 while there is none. 0; -EIO with words. */
int audit_log_size(struct store *s, uint64_t *ret_newest, uint64_t *ret_bytes, struct merr *err);

/* Records whose ids are above `after`, the oldest first, at most `most`, as history_read_all(): text as it is kept. */
int audit_log_read_records(struct store *s, uint64_t after, size_t most, struct store_rows *ret, uint64_t *ret_end,
                           struct merr *err);

/* Entries after an id, the oldest first, those of some records, as history_read_all(): name is the user. */
int audit_log_read(struct store *s, uint64_t after, struct store_rows *ret, uint64_t *ret_end, struct merr *err);

#endif
