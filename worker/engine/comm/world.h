/* world - what the parts of comm know of each other; private to worker/comm
 *
 *   group.c        groups, and the frame around each of their calls
 *   collective.c   calls of a group, as messages or by reading node-mates' arenas
 *   coded.c        calls of a group whose values travel as blocks of a codec (coded_impl.h: coded_host.c, coded_gpu.c)
 *   message.c      messages as frames: matching, holding early ones, windows
 *   world.c        opening, closing, waiting
 *   device.c       calls of a group between GPUs, by way of nccl.c
 *   direct.c       messages between GPUs, likewise
 *   shm.c, ucx.c   frames from here to there: struct comm_transport
 *   rendezvous.c   small files of the run's folder
 *
 * Failure: the first one is kept in the world (world_fail) and answers every later call. A function that returns a
 * negative number has put the failure there.
 */
#ifndef MUSTER_WORKER_COMM_WORLD_H
#define MUSTER_WORKER_COMM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compress/codec.h"
#include "compress/device.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/frame.h"

#define COMM_SLICE_US 50000           /* longest sleep between looks at the abort order and at the peers' life */
#define COMM_WINDOW_BYTES (64u << 20) /* sent to a peer and not yet taken by its caller, at most */
#define COMM_FRAME_COST 256u          /* of each frame in the window, besides its payload */
#define COMM_EAGER_BYTES (16u << 20)  /* of messages to a peer held back here once their sender goes on */
#define COMM_HISTORY 8                /* calls of a group remembered, to name them */

struct comm_peer;

/* A way to reach some peers. Functions that return int give 1 for done, 0 for "not now", or a negative errno. */
struct comm_transport {
    const char *name;
    size_t part_bytes; /* of a frame's payload, at most */
    bool far;          /* frames leave the node: what they carry gets a checksum */
    bool copies;       /* a frame that send() has taken lies elsewhere already: req->in_flight stays 0 */
    /* Take a sealed frame with its payload. The payload stays until req->in_flight is back at 0 (req may be NULL
     * when there is none). */
    int (*send)(struct comm_world *w, struct comm_peer *p, const struct frame *f, const void *payload,
                struct comm_request *req);
    /* Give arrived frames to message_arrive(). Returns whether there were any, or sends completed. */
    bool (*progress)(struct comm_world *w);
};
extern const struct comm_transport comm_shm, comm_ucx;

struct comm_request {
    struct comm_request *next;
    struct comm_group *group;
    struct comm_peer *peer;
    char *buf;
    size_t bytes;
    size_t moved;              /* handed to the transport, or arrived */
    uint32_t frames;           /* handed to the transport */
    uint32_t in_flight;        /* frames that the transport still reads from buf */
    bool send, done, detached; /* detached: nobody waits, the end of sending frees it */
    char *staged;              /* own copy of the bytes, or NULL */
    struct coded_part *part;   /* of a coded message, or NULL: holds the block, freed with the request */
    struct comm_request *more; /* the rest of a coded message */
    struct direct *direct;     /* of a message from GPU to GPU, or NULL: freed with the request */
    struct frame head;         /* of its frames; of a receive: what to match */
};

/* A message that came before anybody asked for it. */
struct comm_early {
    struct comm_early *next;
    struct frame head;
    size_t got;
    uint64_t cost; /* in the window, freed when it is taken */
    char data[];
};

struct comm_queue {
    struct comm_request *first, **last;
};

struct comm_peer {
    int rank;
    const struct comm_transport *via; /* NULL: this rank itself */
    bool bye;                         /* it has left in good order */
    bool lost;                        /* it is gone without */
    void *link;                       /* the transport's own */
    struct comm_queue sending;        /* in order; the first may be half sent */
    struct comm_queue posted;         /* receives, in order of posting */
    struct comm_early *early, **early_last;
    struct comm_request *into;     /* where the message that is arriving goes, */
    struct comm_early *into_early; /* or here; both NULL between messages */
    uint64_t into_got;
    uint64_t frames_out, frames_in;
    uint64_t spent, freed;      /* window: cost sent in all time; of it, freed by the peer */
    uint64_t taken, taken_told; /* cost taken here in all time; of it, told to the peer */
    size_t staged_bytes;
    struct direct_way *way_out, *way_in; /* between GPUs, NULL until one is used */
};

struct coded_part { /* a slice of a coded message */
    const struct codec *codec;
    enum codec_type type;
    void *values; /* where the block's values go; NULL: it is sent */
    size_t count;
    uint32_t *flags;
    char *lent; /* memory of the GPU, which codes it, for the block; NULL: the processor does */
    char block[];
};

struct call { /* what all members must agree on */
    uint64_t seq, bytes;
    uint8_t op, type, extra;
};

/* Requests of one wave, waited for together. */
struct wave {
    struct comm_request **req;
    int n;
};

struct comm_group {
    struct comm_group *next;
    struct comm_world *world;
    char name[16];
    char travels[16]; /* what its values travel as, for people; "": as they are */
    uint64_t id, seq, messages, bytes_sent;
    int n, index;
    bool near; /* all members are of this node and reached by shm */
    bool busy; /* inside history[seq % COMM_HISTORY] */
    struct call history[COMM_HISTORY];
    struct comm_request **req; /* 12·n, for the calls */
    const void **src;          /* n */
    struct nccl *nccl;         /* NULL until a call goes by it */
    int nodes;                 /* that members are of */
    int *grid;                 /* members by node, equally many of each, both in member order; NULL: not so */
    int rank[];
};

/* A call that adds up vectors, whatever its form. */
struct sum {
    struct comm_group *g;
    const char *in;            /* the vector of the own rank */
    char *out;                 /* all of it, or only the own share (scatter) */
    size_t size, count, share; /* bytes of an element; elements in all, of a full share */
    size_t per;                /* elements of a piece, of which shares are cut */
    bool scatter;
    enum comm_type type;
    enum comm_op op;
};

/* The elements of member's share in round k: [*ret_at, *ret_at + returned). */
size_t sum_piece(const struct sum *s, int member, size_t k, size_t *ret_at);
/* Where the result of the own piece goes. */
char *sum_own(const struct sum *s, size_t at);

struct shm;
struct ucx;
struct nccl;

/* The rank's GPU, and whether all ranks use theirs (device.c). */
struct world_gpu {
    const struct device_ops *ops; /* NULL: none */
    int ordinal;
    struct device_queue *queue; /* of calls */
    void *stage;                /* memory of the GPU, NULL until it is needed */
    struct coded_gpu *coded;    /* of coded calls, NULL until one comes */
    struct direct_way *ways;
    struct comm_request *messages; /* of direct.c, under way, in the order of posting */
    bool usable, needed;
    char said[256];
};

struct comm_world {
    int rank, size;
    uint64_t generation;
    char name[16];
    int64_t timeout_us;
    int *node_of; /* of each rank */
    struct flight *flight;
    struct comm_group *groups;
    struct comm_peer *peers;
    struct shm *shm; /* NULL: no node-mates and no arena */
    struct ucx *ucx; /* NULL: no peers elsewhere */
    struct world_gpu gpu;
    struct comm_request *grave; /* given up while a transport may still know them */
    char *scratch;
    size_t scratch_bytes;
    int failed; /* the first failure */
    struct merr why;
};

/* world.c */
int world_fail(struct comm_world *w, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int world_error(const struct comm_world *w, struct merr *err); /* the kept failure, into err */
bool world_progress(struct comm_world *w);
int world_wait(struct comm_world *w, struct comm_request *req); /* until it is done; does not free it */
void world_abandon(struct comm_world *w); /* of a failed world: no buffer is read or written after */
/* A wait for what is no request: zero at first. */
struct world_vigil {
    int64_t deadline_us, looked_us, left_us;
    unsigned looks;
};
/* One more look around while members of g do what; sleeps a little after some. 0, or the failure that ends the wait. */
int world_watch(struct comm_group *g, struct world_vigil *v, const char *what);
void *world_scratch(struct comm_world *w, size_t bytes); /* kept till the next call; NULL: no memory */

/* message.c */
void message_free(struct comm_request *req); /* one that nothing knows of any more */
struct comm_request *message_send(struct comm_group *g, int member, const struct frame *head, const void *buf);
struct comm_request *message_recv(struct comm_group *g, int member, const struct frame *head, void *buf);
int message_arrive(struct comm_world *w, struct comm_peer *p, const struct frame *f, const void *payload);
bool message_pump(struct comm_world *w, struct comm_peer *p);        /* send what can be sent; true: something was */
void message_sent(struct comm_world *w, struct comm_request *req);   /* the transport let go of one frame */
void message_detach(struct comm_world *w, struct comm_request *req); /* staged or done: let it end by itself */
void message_drop(struct comm_world *w, struct comm_request *req);   /* forget a request of a failed world */
void message_wrong(struct comm_world *w, struct comm_peer *p, const struct comm_group *g); /* say that calls differ */
int message_bye(struct comm_world *w, struct comm_peer *p);                                /* 1 sent, 0 not now */
void message_peer_init(struct comm_peer *p, int rank);
void message_peer_clear(struct comm_peer *p);

/* coded_message.c */
int coded_land(struct comm_request *req);       /* a part of a coded message is here: decode it, or fail the world */
void coded_part_free(struct comm_request *req); /* if it has one */

/* coded_gpu.c */
void coded_gpu_close(struct comm_world *w);

/* group.c */
void group_free(struct comm_group *g);
/* A call: begin, waves of messages, end. begin and end stand around all of it, whatever it comes to. */
int group_begin(struct comm_group *g, enum comm_call op, unsigned type, unsigned extra, uint64_t bytes);
int group_end(struct comm_group *g, int r, struct merr *err); /* r: what the call came to */
int group_send(struct comm_group *g, struct wave *v, int member, uint32_t step, const void *buf, size_t bytes);
int group_recv(struct comm_group *g, struct wave *v, int member, uint32_t step, void *buf, size_t bytes);
int group_wait(struct comm_group *g, struct wave *v); /* for all of a wave, which is empty then, also on failure */
/* Everyone's word of bytes at out[member·bytes]; the own one is there already. */
int group_exchange(struct comm_group *g, uint32_t step, char *out, size_t bytes);
int group_meet(struct comm_group *g, uint32_t step); /* returns when every member has come to this step */
struct frame group_call(const struct comm_group *g, uint32_t step, size_t bytes); /* head of the call's frames */
struct comm_group *group_find(struct comm_world *w, uint64_t id);
int group_check(struct comm_group *g, const struct frame *f); /* 0: f is of this call, or of one to come; or fails */

/* shm.c */
struct shm_cfg {
    const char *rendezvous;
    const int *node_of;
    size_t shared_bytes;
    int shared_fd;
    bool mates; /* speak with node-mates through it */
    bool pipe;  /* waits also watch descriptors: make a pipe that mates write to */
};
int shm_publish(struct comm_world *w, const struct shm_cfg *cfg, struct merr *err);
int shm_meet(struct comm_world *w, const struct shm_cfg *cfg, int64_t deadline_us, struct merr *err);
void shm_close(struct comm_world *w);
void *shm_alloc(struct comm_world *w, size_t bytes);
uint64_t shm_offset(const struct comm_world *w, const void *p, size_t bytes); /* in the arena; UINT64_MAX: not */
void *shm_peer_at(const struct comm_world *w, int rank, uint64_t offset, size_t bytes); /* NULL: not in its arena */
void shm_look(struct comm_world *w);                                                    /* for mates that are gone */
int shm_doze(struct comm_world *w, bool with_pipe); /* -1: something may have come: do not sleep */
void shm_futex(struct comm_world *w, int64_t us);
void shm_awake(struct comm_world *w);
int shm_pipe_fd(const struct comm_world *w);

/* ucx.c */
int ucx_publish(struct comm_world *w, const char *rendezvous, struct merr *err);
int ucx_meet(struct comm_world *w, const char *rendezvous, int64_t deadline_us, struct merr *err);
void ucx_close(struct comm_world *w);
void ucx_abandon(struct comm_world *w); /* drop all connections: no buffer is read or written after */
int ucx_arm(struct comm_world *w);      /* the descriptor to wait for, or -1: something came */

#endif
