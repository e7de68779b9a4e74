/* history - events put into the store: each job's, and all in the order of their ids
 *
 * State events: the first HISTORY_FIRST and the newest HISTORY_RECENT; notes (checkpoints, evaluations, faults): the
 * newest HISTORY_NOTES. So a job may live for as long as it likes; how many events were left out is counted. Events
 * that were not left out are in the order of their ids. Of all events the newest HISTORY_ALL or some more.
 * Owned by the thread that owns the store. Reading: history_read.h.
 */
#ifndef MUSTER_SERVER_HISTORY_H
#define MUSTER_SERVER_HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/store/store.h"

#define HISTORY_FIRST 100
#define HISTORY_RECENT 900
#define HISTORY_NOTES 2000
#define HISTORY_ALL 100000

/* Put a state event into the batch: the job's n-th, from 1. */
void history_add_state(struct store *s, uint64_t job, uint64_t n, const char *text);

/* Put a note into the batch; with it so many of the newest stay, at most HISTORY_NOTES. */
void history_add_note(struct store *s, uint64_t job, const char *text, size_t keep);

/* Count a note that is not kept. */
void history_skip_note(struct store *s, uint64_t job);

/* The bytes of the newest `most` notes that are kept, oldest first. Returns how many; -EIO: the store is away. */
ssize_t history_read_note_bytes(struct store *s, uint64_t job, uint16_t *ret, size_t most);

/* Put the end of all events of a job into the batch. */
void history_drop(struct store *s, uint64_t job);

/* Put an event into the list of all; ids grow. user: whose it is, for it may outlive its job. */
void history_add_all(struct store *s, uint64_t id, const char *text, const char *user);

#endif
