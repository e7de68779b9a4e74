/* message - bytes from one rank to another as frames: matched with who asked for them, kept when they come early,
 * bounded in what may be on the way
 *
 * A message goes, in the order of posting, to the receive of its channel that matches. Sending goes on while the window
 * of a peer allows: MESSAGE_WINDOW_BYTES sent and not yet taken by its callers. Messages that nobody has asked for yet
 * lie here as copies. A function that returns a negative number, or NULL, has kept the world's failure (wait.h).
 */
#ifndef MUSTER_WORKER_COMM_MESSAGE_H
#define MUSTER_WORKER_COMM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/comm/frame.h"
#include "worker/engine/comm/transport/transport.h"
#include "worker/engine/comm/wait.h"

#define MESSAGE_WINDOW_BYTES (64u << 20) /* sent to a peer and not yet taken by its caller, at most */
#define MESSAGE_FRAME_COST 256u          /* of each frame in the window, besides its payload */
#define MESSAGE_EAGER_BYTES (16u << 20)  /* of messages to a peer held back here once their sender goes on */

struct comm_request;

/* Something that those above hang on a request; it begins with this. */
struct message_hook {
    struct message_hook *next;
    int (*land)(struct comm_request *req,
                struct message_hook *h); /* the message is here or sent; NULL: nothing to do */
    void (*free)(struct comm_request *req, struct message_hook *h); /* with the request, of a failed world too */
};

/* Messages that are matched among themselves: those of a group. */
struct message_channel {
    struct messages *messages;
    char name[16]; /* of the group, for words */
    uint64_t id;
    uint64_t bytes_sent; /* of payloads */
    uint64_t waited;     /* messages waited for: numbers them in the flight ring */
    bool ordered;        /* ranks of the same role wait for them in the same order */
};

struct comm_request {
    struct comm_request *next;
    struct message_channel *channel;
    struct message_peer *peer;
    char *buf;
    size_t bytes;
    size_t moved;              /* handed to the transport, or arrived */
    uint32_t frames;           /* handed to the transport */
    uint32_t in_flight;        /* frames that the transport still reads from buf */
    bool send, done, detached; /* detached: nobody waits, the end of sending frees it */
    char *staged;              /* own copy of the bytes, or NULL */
    struct message_hook *hooks;
    struct comm_request *more; /* to be waited for with this one */
    struct frame head;         /* of its frames; of a receive: what to match */
};

/* A message that came before anybody asked for it. */
struct message_early {
    struct message_early *next;
    struct frame head;
    size_t got;
    uint64_t cost; /* in the window, freed when it is taken */
    char data[];
};

struct message_queue {
    struct comm_request *first, **last;
};

struct message_peer {
    int rank;
    struct transport *via;        /* NULL: this rank itself */
    struct message_queue sending; /* in order; the first may be half sent */
    struct message_queue posted;  /* receives, in order of posting */
    struct message_early *early, **early_last;
    struct comm_request *into;        /* where the message that is arriving goes, */
    struct message_early *into_early; /* or here; both NULL between messages */
    uint64_t into_got;
    uint64_t frames_out, frames_in;
    uint64_t spent, freed;      /* window: cost sent in all time; of it, freed by the peer */
    uint64_t taken, taken_told; /* cost taken here in all time; of it, told to the peer */
    size_t staged_bytes;
};

/* Whom messages ask about calls, of which they know nothing themselves. */
struct message_above {
    /* The first frame of a message that is part of a call, or the word (FRAME_WRONG) that a peer finds calls to differ.
     * 0: it goes with what this rank calls, or will call; or the failure. */
    int (*check)(void *above, const struct frame *f);
    void (*damaged)(void *above, const struct frame *f); /* see struct transport_host */
};

struct messages { /* of a world */
    struct wait *wait;
    const struct message_above *above;
    void *above_self;
    uint64_t generation;
    struct message_peer *peer; /* by rank */
    int peers;
    struct comm_request *grave; /* given up while a transport may still know them */
};

/* Make ready for wait's ranks. Returns 0 or -ENOMEM. */
int messages_init(struct messages *m, struct wait *wait, uint64_t generation, const struct message_above *above,
                  void *above_self, struct merr *err);
/* Whom transports tell. */
void messages_host(struct messages *m, struct transport_host *ret);
/* The ways to the peers are there, borrowed until messages_clear: from now on messages go on within the wait. */
void messages_start(struct messages *m, const struct transports *ways);
/* After the transports are closed. */
void messages_clear(struct messages *m);
/* Part in good order: whether all is sent, and goodbyes said where a transport asks for them, and heard. told: by rank,
 * false at first. */
bool messages_left(struct messages *m, bool *told);

/* To and from rank, head->length bytes; buf is the request's until it is done. */
struct comm_request *message_send(struct message_channel *c, int rank, const struct frame *head, const void *buf);
struct comm_request *message_recv(struct message_channel *c, int rank, const struct frame *head, void *buf);
/* A request that does not go by frames: those who hang a hook on it see to it. NULL: no memory, which is kept. */
struct comm_request *message_new(struct message_channel *c, int rank, const struct frame *head, const void *buf);
void message_hang(struct comm_request *req, struct message_hook *h); /* stolen: after those that hang there */
int message_land(struct comm_request *req); /* of one that is done: 0, or what the first hook to fail returns */

int message_wait(struct comm_request *req);                                 /* until it is done; does not free it */
void message_detach(struct comm_request *req);                              /* staged or done: let it end by itself */
void message_drop(struct comm_request *req);                                /* forget a request of a failed world */
void message_free(struct comm_request *req);                                /* one that nothing knows of any more */
void message_wrong(struct messages *m, int rank, const struct frame *call); /* say that calls differ: ours is call */

/* Ask above->check about each message of a call that came early from rank, of channel id up to call seq. */
int message_check_early(struct messages *m, int rank, uint64_t id, uint64_t seq);

#endif
