/* rendezvous - small files in the run's folder by which ranks find each other; private to worker/comm
 *
 * A card is one file, "KIND-RANK" behind the name of the world, published whole and carried between nodes by the agents
 * (docs/protocol.md).
 */
#ifndef MUSTER_WORKER_COMM_RENDEZVOUS_H
#define MUSTER_WORKER_COMM_RENDEZVOUS_H

#include "base/buf.h"
#include "worker/engine/comm/world.h"

#define CARD_BYTES_MAX 49152 /* of a body: a file stays below the 64 KiB that agents carry */

int card_publish(const struct comm_world *w, const char *folder, const char *kind, const void *body, size_t bytes,
                 struct merr *err);

/* Wait for the card of rank and append its body to b. A card of an older generation is not taken; one of a newer
 * generation is -EPROTO: this rank is the one that is late. -ECANCELED, -ETIMEDOUT as in comm.h. */
int card_wait(const struct comm_world *w, const char *folder, const char *kind, int rank, int64_t deadline_us,
              struct buf *b, struct merr *err);

void card_remove(const struct comm_world *w, const char *folder, const char *kind);

#endif
