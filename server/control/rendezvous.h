/* rendezvous - the keys by which the ranks of a run find each other, passed on between its nodes by the server
 *
 * Kept in memory for as long as the run is live; a key is put once. Numbers of keys begin anew with each server, at a
 * base of its own, so that an agent's count of an earlier one is seen to be stale.
 */
#ifndef MUSTER_SERVER_RENDEZVOUS_H
#define MUSTER_SERVER_RENDEZVOUS_H

#include <jansson.h>
#include <stdint.h>

#include "server/control/entry.h"

struct core;

/* Keep a key of the run, and wake who waits for it; one that is there stays as it is. 0; -ENOSPC: the run, or all runs
 * together, have too many; -ENOMEM. */
int rendezvous_put(struct core *c, struct entry *e, const char *key, const char *value);

/* The run is over. */
void rendezvous_drop(struct core *c, struct entry *e);

/* The number of the next key. */
uint64_t rendezvous_next(const struct core *c, const struct entry *e);

/* The keys from a number on, as many as an answer holds: {"next", "keys"}, new. */
json_t *rendezvous_view(const struct core *c, const struct entry *e, uint64_t since);

#endif
