/* history_read - events read back from the store
 *
 * What the batch holds is not among them. Owned by the thread that owns the store. What is kept: history.h.
 */
#ifndef MUSTER_SERVER_HISTORY_READ_H
#define MUSTER_SERVER_HISTORY_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/store/store.h"

#define HISTORY_PAGE_BYTES (1 << 20)

struct history_gap { /* what was left out */
    uint64_t events; /* 0: nothing was */
    uint64_t before; /* id of the first state event after the gap between the first ones and the newest; 0: none */
};

/* Of all events those with ids above `after`, oldest first, at most `most`: name is the user ("" where an older musterd
 * kept none), text the event. *ret_end: the id of the last one when there may be more, else 0. Returns 0; -EIO, -ENOMEM
 * with words, and nothing is changed. */
int history_read_all(struct store *s, uint64_t after, size_t most, struct store_rows *ret, uint64_t *ret_end,
                     struct merr *err);

/* An event's text as JSON, new; one that cannot be read becomes an event of type "unreadable", with this id: that of
 * its place, or of an event before it. */
json_t *history_parse(const char *text, uint64_t id);

/* A job's events with ids above `after`, oldest first, at most `most` and of each kind some HISTORY_PAGE_BYTES, but one
 * at least; notes_only: of notes alone. Returns 0 with a new array in *ret, in *ret_end the id of the last one where
 * there may be more, else 0, and in *ret_gap (may be NULL) what was left out of the whole history; or -EIO, -ENOMEM
 * with words. */
int history_read_job(struct store *s, uint64_t job, uint64_t after, size_t most, bool notes_only, json_t **ret,
                     uint64_t *ret_end, struct history_gap *ret_gap, struct merr *err);

#endif
