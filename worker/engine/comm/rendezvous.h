/* rendezvous - small files in the run's folder by which ranks find each other
 *
 * A card is one file, "KIND-RANK" behind the name of the world, published whole and carried between nodes by the agents
 * (docs/protocol.md).
 */
#ifndef MUSTER_WORKER_COMM_RENDEZVOUS_H
#define MUSTER_WORKER_COMM_RENDEZVOUS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"
#include "worker/flight/flight.h"

#define RENDEZVOUS_BYTES_MAX 49152 /* of a card's body: a file stays below the 64 KiB that agents carry */

/* Who meets where; all borrowed. */
struct rendezvous {
    const char *folder;
    const char *world; /* its name, "" for none */
    int rank, size;
    uint64_t generation;
    struct flight *flight; /* its abort order ends a wait */
};

/* Publish this rank's card. -EMSGSIZE: the body is too large; -EPROTO: a newer generation is there; or as
 * io_publish_file. */
int rendezvous_publish(const struct rendezvous *v, const char *kind, const void *body, size_t bytes, struct merr *err);

/* Wait for the card of rank and append its body to b. A card of an older generation is not taken; one of a newer
 * generation is -EPROTO: this rank is the one that is late. -ECANCELED, -ETIMEDOUT as in comm.h. */
int rendezvous_wait(const struct rendezvous *v, const char *kind, int rank, int64_t deadline_us, struct buf *b,
                    struct merr *err);

/* Take this rank's card away, if it is there. */
void rendezvous_remove(const struct rendezvous *v, const char *kind);

#endif
