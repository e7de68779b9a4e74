#include "worker/engine/comm/direct.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "worker/engine/comm/device.h"
#include "worker/engine/comm/nccl.h"

/* One direction between this rank and another. */
struct direct_way {
    struct direct_way *next; /* all of the world's */
    char id[NCCL_ID_BYTES];
    struct nccl *nccl;
    struct device_queue *queue;
    uint64_t turns, started; /* given to messages; of them, started */
};

enum state {
    ASKING,   /* the receiver's word is out, or the sender waits for it */
    WAITING,  /* for its turn */
    STARTING, /* NCCL has it, but not yet the GPU */
    RUNNING,
};

struct ready { /* the receiver: where GPUs meet */
    char id[NCCL_ID_BYTES];
};

struct direct {
    struct comm_request *req, *next; /* next: of the world's, in the order of posting */
    struct direct_way *way;          /* NULL: not known yet */
    struct device_mark *mark;
    struct comm_request *word, *answer; /* ours, until it is out; the other's, until it is here */
    struct ready ready;
    uint64_t turn;
    enum state state;
};

bool direct_worth(const struct comm_group *g, const void *buf, size_t bytes)
{
    return device_worth(g, bytes) && device_holds(g, buf);
}

static int told(struct comm_request *req, int r, const struct merr *why)
{
    return r < 0 ? world_fail(req->group->world, r, "a message between ranks %d and %d in '%s': %.900s",
                              req->group->world->rank, req->peer->rank, req->group->name, why->text)
                 : r;
}

/* --- ways --------------------------------------------------------------------------------------- */

static void way_free(struct comm_world *w, struct direct_way *y)
{
    nccl_free(y->nccl); /* after which nothing runs on the queue */
    w->gpu.ops->close(y->queue);
    free(y);
}

/* id: as the receiver made it, or NULL: here it is made. */
static int way_open(struct comm_request *req, const char *id, struct direct_way **ret)
{
    struct comm_world *w = req->group->world;
    struct nccl_place at = {.n = 2, .index = req->send ? 0 : 1};
    struct direct_way *y = calloc(1, sizeof(*y));
    struct merr why = {""};
    int r;

    if (!y)
        return world_fail(w, -ENOMEM, "no memory for the way to rank %d", req->peer->rank);
    r = told(req, w->gpu.ops->open(w->gpu.ordinal, &y->queue, &why), &why);
    if (r == 0 && id)
        memcpy(y->id, id, sizeof(y->id));
    else if (r == 0)
        r = nccl_id(w, y->id);
    memcpy(at.id, y->id, sizeof(at.id));
    if (r == 0)
        r = nccl_new(req->group, &at, y->queue, &y->nccl);
    if (r < 0) {
        way_free(w, y);
        return r;
    }
    y->next = w->gpu.ways;
    w->gpu.ways = y;
    *ret = y;
    return 0;
}

/* The way of a request, made when it is the first to go there. */
static int find_way(struct direct *d, const char *id)
{
    struct direct_way **known = d->req->send ? &d->req->peer->way_out : &d->req->peer->way_in;

    if (!*known)
        TRY(way_open(d->req, id, known));
    d->way = *known;
    return 0;
}

/* --- words -------------------------------------------------------------------------------------- */

static struct frame head_of(const struct comm_request *req, enum frame_kind kind, size_t bytes)
{
    struct frame f = req->head;

    f.generation = req->group->world->generation;
    f.source = (uint32_t)req->group->world->rank;
    f.kind = (uint8_t)kind;
    f.length = bytes;
    return f;
}

static int member_of(const struct comm_request *req)
{
    int i = 0;

    while (req->group->rank[i] != req->peer->rank)
        i++;
    return i;
}

/* Words are no payload: they do not count. */
static int say(struct direct *d, enum frame_kind kind, const void *what, size_t bytes)
{
    struct frame head = head_of(d->req, kind, bytes);
    uint64_t counted = d->req->group->bytes_sent;

    d->word = message_send(d->req->group, member_of(d->req), &head, what);
    d->req->group->bytes_sent = counted;
    return d->word ? 0 : d->req->group->world->failed;
}

static int hear(struct direct *d, enum frame_kind kind, void *what, size_t bytes)
{
    struct frame head = head_of(d->req, kind, bytes);

    d->answer = message_recv(d->req->group, member_of(d->req), &head, what);
    return d->answer ? 0 : d->req->group->world->failed;
}

/* --- requests ----------------------------------------------------------------------------------- */

static void let_go(struct comm_world *w, struct comm_request **at)
{
    struct comm_request *req = *at;

    *at = NULL;
    if (req && req->done)
        message_detach(w, req);
    else if (req)
        message_drop(w, req);
}

static void unlink_request(struct comm_world *w, const struct direct *d)
{
    for (struct comm_request **at = &w->gpu.messages; *at; at = &(*at)->direct->next) {
        if (*at == d->req) {
            *at = d->next;
            return;
        }
    }
}

void direct_free(struct comm_request *req)
{
    struct comm_world *w = req->group->world;
    struct direct *d = req->direct;

    if (!d)
        return;
    unlink_request(w, d);
    let_go(w, &d->word);
    let_go(w, &d->answer);
    w->gpu.ops->mark_free(d->mark);
    free(d);
    req->direct = NULL;
}

static struct comm_request *request_new(struct comm_group *g, int member, const struct frame *head, const void *buf)
{
    struct comm_world *w = g->world;
    struct comm_request *req = calloc(1, sizeof(*req)), **last = &w->gpu.messages;
    struct direct *d = calloc(1, sizeof(*d));

    if (!req || !d) {
        free(req);
        free(d);
        (void)world_fail(w, -ENOMEM, "no memory for a message of %llu bytes", (unsigned long long)head->length);
        return NULL;
    }
    *req = (struct comm_request){.group = g,
                                 .peer = &w->peers[g->rank[member]],
                                 .buf = (char *)(uintptr_t)buf,
                                 .bytes = head->length,
                                 .head = *head,
                                 .direct = d};
    d->req = req;
    while (*last)
        last = &(*last)->direct->next;
    *last = req;
    return req;
}

static struct comm_request *posted(struct comm_request *req, int r)
{
    if (r == 0)
        return req;
    message_free(req);
    return NULL;
}

struct comm_request *direct_send(struct comm_group *g, int member, const struct frame *head, const void *buf)
{
    struct comm_request *req = request_new(g, member, head, buf);

    if (!req)
        return NULL;
    req->send = true;
    g->bytes_sent += req->bytes;
    return posted(req, hear(req->direct, FRAME_READY, &req->direct->ready, sizeof(req->direct->ready)));
}

struct comm_request *direct_recv(struct comm_group *g, int member, const struct frame *head, void *buf)
{
    struct comm_request *req = request_new(g, member, head, buf);
    struct direct *d;
    int r;

    if (!req)
        return NULL;
    d = req->direct;
    r = hear(d, FRAME_TURN, &d->turn, sizeof(d->turn));
    if (r == 0)
        r = find_way(d, NULL);
    if (r == 0) {
        memcpy(d->ready.id, d->way->id, sizeof(d->ready.id));
        r = say(d, FRAME_READY, &d->ready, sizeof(d->ready));
    }
    return posted(req, r);
}

/* --- going on: 1 when a request came further, 0, or the world's failure ------------------------- */

static int agree(struct direct *d)
{
    struct comm_world *w = d->req->group->world;

    if (!d->answer->done)
        return 0;
    let_go(w, &d->answer);
    if (d->req->send) {
        TRY(find_way(d, d->ready.id));
        d->turn = d->way->turns++;
        TRY(say(d, FRAME_TURN, &d->turn, sizeof(d->turn)));
    }
    d->state = WAITING;
    return 1;
}

static int start(struct direct *d)
{
    struct nccl *c = d->way->nccl;
    int r;

    if (d->turn != d->way->started)
        return 0;
    r = nccl_look(c);
    if (r <= 0)
        return r;
    TRY(nccl_begin(c));
    TRY(d->req->send ? nccl_send(c, 1, d->req->buf, d->req->bytes) : nccl_recv(c, 0, d->req->buf, d->req->bytes));
    TRY(nccl_start(c));
    d->state = STARTING;
    return 1;
}

static int set_mark(struct direct *d)
{
    const struct device_ops *ops = d->req->group->world->gpu.ops;
    struct merr why = {""};
    int r = nccl_look(d->way->nccl);

    if (r <= 0)
        return r;
    r = ops->mark_new(d->way->queue, &d->mark, &why);
    if (r == 0)
        r = ops->mark(d->way->queue, d->mark, &why);
    TRY(told(d->req, r, &why));
    d->way->started++;
    d->state = RUNNING;
    return 1;
}

static int end(struct direct *d)
{
    struct merr why = {""};
    int r = nccl_look(d->way->nccl);

    if (r >= 0)
        r = told(d->req, d->req->group->world->gpu.ops->reached(d->mark, &why), &why);
    if (r <= 0 || !d->word->done)
        return r < 0 ? r : 0;
    unlink_request(d->req->group->world, d);
    d->req->done = true;
    return 1;
}

static int go_on(struct direct *d)
{
    switch (d->state) {
    case ASKING:
        return agree(d);
    case WAITING:
        return start(d);
    case STARTING:
        return set_mark(d);
    default:
        return end(d);
    }
}

bool direct_progress(struct comm_world *w)
{
    bool moved = false;

    for (struct comm_request *req = w->gpu.messages, *next; req && !w->failed; req = next) {
        next = req->direct->next;
        moved |= go_on(req->direct) > 0;
    }
    return moved;
}

bool direct_runs(const struct comm_world *w)
{
    for (const struct comm_request *req = w->gpu.messages; req; req = req->direct->next) {
        if (req->direct->state != ASKING)
            return true;
    }
    return false;
}

/* --- the end ------------------------------------------------------------------------------------ */

void direct_abandon(struct comm_world *w)
{
    assert(w->failed);
    for (struct direct_way *y = w->gpu.ways; y; y = y->next) {
        nccl_free(y->nccl);
        y->nccl = NULL;
    }
}

void direct_close(struct comm_world *w)
{
    for (struct direct_way *y = w->gpu.ways; y; y = y->next) {
        if (y->nccl)
            nccl_leave(y->nccl);
    }
    for (struct direct_way *y = w->gpu.ways, *next; y; y = next) {
        next = y->next;
        way_free(w, y);
    }
    w->gpu.ways = NULL;
    while (w->gpu.messages)
        message_free(w->gpu.messages);
}
