/* mirror - rendezvous files carried between the nodes of a run
 *
 * For each run on several nodes: what appears in its rendezvous folder here is put to the server, what
 * other nodes have put is fetched and published into the folder. Hidden files, anything that is no plain
 * file and files over 64 KiB are left alone. Runs on one node cost nothing. One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_MIRROR_H
#define MUSTER_WORKER_AGENT_MIRROR_H

#include <stdint.h>

#include "base/merr.h"
#include "api/client/calls.h"
#include "worker/agent/ranks.h"

struct mirror;

/* h and r are borrowed for the mirror's life. */
int mirror_new(struct calls *h, const struct ranks *r, const char *node, const char *incarnation, struct mirror **ret,
               struct merr *err);
void mirror_free(struct mirror *m);

/* Begin with new runs, end with those that are gone, look at the folders where something has happened, call
 * again what failed. Returns when to come again. */
int64_t mirror_tick(struct mirror *m, int64_t now_us);

/* A descriptor that is readable when mirror_tick has something to look at. */
int mirror_fd(const struct mirror *m);

#endif
