/* history - what the store keeps of events: of each job's, and of all in the order of their ids
 *
 * State events: the first HISTORY_FIRST and the newest HISTORY_RECENT; notes (checkpoints, evaluations, faults): the
 * newest HISTORY_NOTES. So a job may live for as long as it likes; how many events were left out is counted. Events
 * that were not left out are in the order of their ids. Of all events the newest HISTORY_ALL or some more.
 * Owned by the thread that owns the store.
 */
#ifndef MUSTER_SERVER_HISTORY_H
#define MUSTER_SERVER_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/store/store.h"

#define HISTORY_FIRST 100
#define HISTORY_RECENT 900
#define HISTORY_NOTES 2000
#define HISTORY_ALL 100000

struct history_gap { /* what was left out */
    uint64_t events; /* 0: nothing was */
    uint64_t before; /* id of the first state event after the gap between the first ones and the newest; 0: none */
};

/* Put a state event into the batch: the job's n-th, from 1. */
void history_add_state(struct store *s, uint64_t job, uint64_t n, const char *text);

/* Put a note into the batch. */
void history_add_note(struct store *s, uint64_t job, const char *text);

/* Put the end of all events of a job into the batch. */
void history_drop(struct store *s, uint64_t job);

/* Put an event into the list of all; ids grow. user: whose it is, for it may outlive its job. */
void history_add_all(struct store *s, uint64_t id, const char *text, const char *user);

/* Of all events those with ids above `after`, oldest first, at most `most`: name is the user ("" where an older musterd
 * kept none), text the event. *ret_end: the id of the last one when there may be more, else 0. Returns 0; -EIO, -ENOMEM
 * with words, and nothing is changed. */
int history_read_all(struct store *s, uint64_t after, size_t most, struct store_rows *ret, uint64_t *ret_end,
                     struct merr *err);

/* Events with ids above `after`, oldest first, at most `most`; notes_only: of notes alone. What the batch holds is not
 * among them. Returns 0 with a new array in *ret, and in *ret_gap (may be NULL) what was left out of the whole history;
 * or -EIO, -ENOMEM with words. */
int history_read(struct store *s, uint64_t job, uint64_t after, size_t most, bool notes_only, json_t **ret,
                 struct history_gap *ret_gap, struct merr *err);

#endif
