/* transport - the ways by which frames reach other ranks, as those above see them: one table for all
 *
 * A world opens the transports that it needs: each peer is reached by the first of the list in transport.c that reaches
 * it. What a transport does by itself it does as a source of the world's wait: takes in what came, looks for peers that
 * are gone, sleeps. Whom it tells of what stands in struct transport_host. Nobody above this folder knows which
 * transports there are; they ask for properties.
 *
 * A transport fails by keeping the world's failure (wait.h). Used by one thread at a time.
 */
#ifndef MUSTER_WORKER_COMM_TRANSPORT_H
#define MUSTER_WORKER_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/engine/comm/frame.h"
#include "worker/engine/comm/rendezvous.h"
#include "worker/engine/comm/wait.h"

struct transport;

/* What transports are given, and whom they tell. It outlives them. */
struct transport_host {
    struct wait *wait;
    struct rendezvous meet; /* rank, size and generation are the world's */
    void *above;            /* first parameter of what follows */
    /* A sound frame of this generation came from rank; the payload is gone when it returns. 0 or the failure. */
    int (*arrive)(void *above, int rank, const struct frame *f, const void *payload);
    /* A frame came whose payload is not what its sender had: keep words for that as failure. */
    void (*damaged)(void *above, const struct frame *f);
    /* What was given to send as token is not read any more. */
    void (*sent)(void *above, void *token);
};

struct transport_cfg {
    const int *node_of;  /* by rank, borrowed: ranks with equal numbers can share memory */
    size_t shared_bytes; /* of memory that peers can read in place, transports_alloc; 0: none */
    int shared_fd;       /* see struct comm_cfg */
    const char *only;    /* name of the only one to be used, NULL: any */
};

enum transport_took { TRANSPORT_NOT_NOW, TRANSPORT_TOOK, TRANSPORT_HOLDS };

struct transport_ops {
    const char *name;
    bool far;      /* frames leave the node: what they carry gets a checksum */
    bool copies;   /* a frame that was taken lies elsewhere already: never TRANSPORT_HOLDS */
    bool farewell; /* does not tell by itself that a peer left: frames have to */

    bool (*reaches)(const struct transport_cfg *cfg, int from, int to);
    /* Publish where this rank can be found. mates: whether it is to reach anybody; alone: whether no other transport is
     * opened. On failure there is nothing to close. */
    int (*open)(const struct transport_host *host, const struct transport_cfg *cfg, bool mates, bool alone,
                struct transport **ret, struct merr *err);
    /* Connect to rank, which opens the same. */
    int (*meet)(struct transport *t, int rank, int64_t deadline_us, struct merr *err);
    void (*close)(struct transport *t);

    /* Take a sealed frame with its payload. TRANSPORT_HOLDS: the payload stays until the host is told sent(token). */
    enum transport_took (*send)(struct transport *t, int rank, const struct frame *f, const void *payload, void *token);

    /* Memory of this rank that peers can read in place; NULL, all three: there is none. */
    void *(*alloc)(struct transport *t, size_t bytes);                          /* NULL: not so much is left */
    uint64_t (*offset)(const struct transport *t, const void *p, size_t bytes); /* UINT64_MAX: not there */
    void *(*peer_at)(const struct transport *t, int rank, uint64_t offset, size_t bytes); /* NULL: outside */

    const struct wait_source *source;
};

struct transport { /* how each begins */
    const struct transport_ops *ops;
    const struct transport_host *host;
    size_t part_bytes; /* of a frame's payload, at most */
};

#define TRANSPORTS_MAX 2
#define TRANSPORT_ALIGN 4096u /* of what transports_alloc gives, as COMM_SHARED_ALIGN in comm.h */

struct transports { /* of a world */
    struct transport *open[TRANSPORTS_MAX];
    int n;
    struct transport *memory; /* whose memory peers can read; NULL: none */
    struct transport **via;   /* by rank; NULL: this rank itself */
};

/* -EINVAL: there is none of that name that reaches all ranks. */
int transports_check(const char *only, struct merr *err);

/* Open those that are needed to reach all ranks, and connect. host is borrowed until transports_close, which is called
 * also after a failure. -ENOMEM, or what a transport fails with. */
int transports_open(struct transports *v, const struct transport_host *host, const struct transport_cfg *cfg,
                    int64_t deadline_us, struct merr *err);
void transports_close(struct transports *v);

/* Whether rank can read this rank's memory in place, and this one its. */
bool transports_share(const struct transports *v, int rank);
/* As the functions of struct transport_ops. */
void *transports_alloc(struct transports *v, size_t bytes);
uint64_t transports_offset(const struct transports *v, const void *p, size_t bytes);
void *transports_peer_at(const struct transports *v, int rank, uint64_t offset, size_t bytes);

#endif
