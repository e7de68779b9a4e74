#include "worker/engine/comm/direct.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

/* One direction between this rank and another. */
struct direct_way {
    struct direct_way *next; /* all of the world's */
    char id[FABRIC_ID_BYTES];
    struct fabric *fabric;
    struct device_queue *queue;
    uint64_t turns, started; /* given to messages; of them, started */
};

enum state {
    ASKING,   /* the receiver's word is out, or the sender waits for it */
    WAITING,  /* for its turn */
    STARTING, /* the fabric has it, but not yet the GPU */
    RUNNING,
};

struct ready { /* the receiver: where GPUs meet */
    char id[FABRIC_ID_BYTES];
};

struct direct {
    struct message_hook hook; /* on the request */
    struct comm_request *req;
    struct comm_group *group;
    struct direct_all *all;
    struct direct *next;    /* of the world's, in the order of posting */
    struct direct_way *way; /* NULL: not known yet */
    struct device_mark *mark;
    struct comm_request *word, *answer; /* ours, until it is out; the other's, until it is here */
    struct ready ready;
    uint64_t turn;
    enum state state;
};

struct direct_all { /* of a world */
    struct gpu *gpu;
    struct direct *first; /* under way, in the order of posting */
    struct direct_way *ways;
    struct {
        struct direct_way *out, *in; /* NULL until one is used */
    } peer[];                        /* by rank */
};

/* The GPU's hardware queues, but for those of kernels, calls of groups, codecs and checkpoints: what shares one runs in
 * turns, and two GPUs could wait for each other's turns. */
static int ways_most(void)
{
    const char *word = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    long queues = word ? strtol(word, NULL, 10) : 8;

    return (int)(queues < 1 ? 8 : queues > 32 ? 32 : queues) - 4;
}

bool direct_worth(const struct comm_group *g, const void *buf, size_t bytes)
{
    return gpu_worth(g, bytes) && gpu_holds(g, buf);
}

static int told(struct comm_request *req, int r, const struct merr *why)
{
    struct wait *w = req->channel->messages->wait;

    return r < 0 ? failure_keep(&w->failure, r, "a message between ranks %d and %d in '%s': %.900s", w->rank,
                                req->peer->rank, req->channel->name, why->text)
                 : r;
}

/* --- ways --------------------------------------------------------------------------------------- */

static void way_free(struct direct_all *all, struct direct_way *y)
{
    fabric_free(y->fabric); /* after which nothing runs on the queue */
    all->gpu->ops->close(y->queue);
    free(y);
}

/* id: as the receiver made it, or NULL: here it is made. */
static int way_open(struct direct *d, const char *id, struct direct_way **ret)
{
    struct comm_request *req = d->req;
    struct gpu *gpu = d->all->gpu;
    struct fabric_cfg at = {
        .wait = gpu->wait, .device = gpu->ops, .of = group_members(d->group), .n = 2, .index = req->send ? 0 : 1};
    struct direct_way *y = calloc(1, sizeof(*y));
    struct merr why = {""};
    int n = 0, r;

    if (!y)
        return failure_keep(&gpu->wait->failure, -ENOMEM, "no memory for the way to rank %d", req->peer->rank);
    for (const struct direct_way *w = d->all->ways; w; w = w->next)
        n++;
    if (n >= ways_most()) {
        free(y);
        return failure_keep(
            &gpu->wait->failure, -ENOTSUP,
            "rank %d trades messages with so many others that its GPU's hardware queues, of which %d "
            "are left for that, do not suffice: send them through the host with MUSTER_NCCL=off, or use "
            "fewer replicas and stages",
            gpu->wait->rank, ways_most());
    }
    r = told(req, gpu->ops->open(gpu->ordinal, &y->queue, &why), &why);
    if (r == 0 && id)
        memcpy(y->id, id, sizeof(y->id));
    else if (r == 0)
        r = fabric_id(&gpu->wait->failure, y->id);
    memcpy(at.id, y->id, sizeof(at.id));
    at.queue = y->queue;
    if (r == 0)
        r = fabric_open(&at, &y->fabric);
    if (r < 0) {
        way_free(d->all, y);
        return r;
    }
    y->next = d->all->ways;
    d->all->ways = y;
    *ret = y;
    return 0;
}

/* The way of a request, made when it is the first to go there. */
static int find_way(struct direct *d, const char *id)
{
    int rank = d->req->peer->rank;
    struct direct_way **known = d->req->send ? &d->all->peer[rank].out : &d->all->peer[rank].in;

    if (!*known)
        TRY(way_open(d, id, known));
    d->way = *known;
    return 0;
}

/* --- words -------------------------------------------------------------------------------------- */

static int failed(const struct direct *d)
{
    return d->all->gpu->wait->failure.code;
}

static struct frame head_of(const struct comm_request *req, enum frame_kind kind, size_t bytes)
{
    struct frame f = req->head;

    f.generation = req->channel->messages->generation;
    f.source = (uint32_t)req->channel->messages->wait->rank;
    f.kind = (uint8_t)kind;
    f.length = bytes;
    return f;
}

/* Words are no payload: they do not count. */
static int say(struct direct *d, enum frame_kind kind, const void *what, size_t bytes)
{
    struct frame head = head_of(d->req, kind, bytes);
    struct message_channel *c = d->req->channel;
    uint64_t counted = c->bytes_sent;

    d->word = message_send(c, d->req->peer->rank, &head, what);
    c->bytes_sent = counted;
    return d->word ? 0 : failed(d);
}

static int hear(struct direct *d, enum frame_kind kind, void *what, size_t bytes)
{
    struct frame head = head_of(d->req, kind, bytes);

    d->answer = message_recv(d->req->channel, d->req->peer->rank, &head, what);
    return d->answer ? 0 : failed(d);
}

/* --- requests ----------------------------------------------------------------------------------- */

static void let_go(struct comm_request **at)
{
    struct comm_request *req = *at;

    *at = NULL;
    if (req && req->done)
        message_detach(req);
    else if (req)
        message_drop(req);
}

static void unlink_direct(const struct direct *d)
{
    for (struct direct **at = &d->all->first; *at; at = &(*at)->next) {
        if (*at == d) {
            *at = d->next;
            return;
        }
    }
}

/* What belongs to a request of this kind, done or of a failed world. */
static void direct_free(struct comm_request *req, struct message_hook *h)
{
    struct direct *d = (struct direct *)h;

    (void)req;
    unlink_direct(d);
    let_go(&d->word);
    let_go(&d->answer);
    d->all->gpu->ops->mark_free(d->mark);
    free(d);
}

static struct direct *direct_new(struct comm_group *g, int member, const struct frame *head, const void *buf)
{
    struct direct_all *all = g->set->gpu->direct;
    struct comm_request *req = message_new(&g->channel, g->rank[member], head, buf);
    struct direct *d = calloc(1, sizeof(*d)), **last = &all->first;

    if (!req || !d) {
        free(req);
        free(d);
        (void)failure_keep(&g->wait->failure, -ENOMEM, "no memory for a message of %llu bytes",
                           (unsigned long long)head->length);
        return NULL;
    }
    *d = (struct direct){.hook = {.free = direct_free}, .req = req, .group = g, .all = all};
    message_hang(req, &d->hook);
    while (*last)
        last = &(*last)->next;
    *last = d;
    return d;
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
    struct direct *d = direct_new(g, member, head, buf);

    if (!d)
        return NULL;
    d->req->send = true;
    g->channel.bytes_sent += d->req->bytes;
    return posted(d->req, hear(d, FRAME_READY, &d->ready, sizeof(d->ready)));
}

struct comm_request *direct_recv(struct comm_group *g, int member, const struct frame *head, void *buf)
{
    struct direct *d = direct_new(g, member, head, buf);
    int r;

    if (!d)
        return NULL;
    r = hear(d, FRAME_TURN, &d->turn, sizeof(d->turn));
    if (r == 0)
        r = find_way(d, NULL);
    if (r == 0) {
        memcpy(d->ready.id, d->way->id, sizeof(d->ready.id));
        r = say(d, FRAME_READY, &d->ready, sizeof(d->ready));
    }
    return posted(d->req, r);
}

/* --- going on: 1 when a request came further, 0, or the world's failure ------------------------- */

static int agree(struct direct *d)
{
    if (!d->answer->done)
        return 0;
    let_go(&d->answer);
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
    struct fabric *c = d->way->fabric;
    int r;

    if (d->turn != d->way->started)
        return 0;
    r = fabric_look(c);
    if (r <= 0)
        return r;
    TRY(fabric_begin(c));
    TRY(d->req->send ? fabric_send(c, 1, d->req->buf, d->req->bytes) : fabric_recv(c, 0, d->req->buf, d->req->bytes));
    TRY(fabric_start(c));
    d->state = STARTING;
    return 1;
}

static int set_mark(struct direct *d)
{
    const struct device_ops *ops = d->all->gpu->ops;
    struct merr why = {""};
    int r = fabric_look(d->way->fabric);

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
    int r = fabric_look(d->way->fabric);

    if (r >= 0)
        r = told(d->req, d->all->gpu->ops->reached(d->mark, &why), &why);
    if (r <= 0 || !d->word->done)
        return r < 0 ? r : 0;
    unlink_direct(d);
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

static bool direct_progress(void *self)
{
    const struct direct_all *all = self;
    bool moved = false;

    for (struct direct *d = all->first, *next; d && !all->gpu->wait->failure.code; d = next) {
        next = d->next;
        moved |= go_on(d) > 0;
    }
    return moved;
}

/* GPUs work, which tell nobody when they are done. */
static bool direct_unheard(const void *self)
{
    const struct direct_all *all = self;

    for (const struct direct *d = all->first; d; d = d->next) {
        if (d->state != ASKING)
            return true;
    }
    return false;
}

/* --- the world's ---------------------------------------------------------------------------------- */

static void direct_abandon(void *self)
{
    const struct direct_all *all = self;

    for (struct direct_way *y = all->ways; y; y = y->next) {
        fabric_free(y->fabric);
        y->fabric = NULL;
    }
}

static const struct wait_source source = {
    .progress = direct_progress, .unheard = direct_unheard, .abandon = direct_abandon};

int direct_open(struct gpu *gpu, struct merr *err)
{
    struct direct_all *all = calloc(1, sizeof(*all) + (size_t)gpu->wait->size * sizeof(all->peer[0]));

    if (!all)
        return merr_set(err, -ENOMEM, "no memory for messages between GPUs of %d ranks", gpu->wait->size);
    all->gpu = gpu;
    gpu->direct = all;
    wait_add(gpu->wait, &source, all);
    return 0;
}

void direct_close(struct gpu *gpu)
{
    struct direct_all *all = gpu->direct;

    if (!all)
        return;
    wait_remove(gpu->wait, all);
    for (struct direct_way *y = all->ways; y; y = y->next) {
        if (y->fabric)
            fabric_leave(y->fabric);
    }
    while (all->ways) {
        struct direct_way *y = all->ways;

        all->ways = y->next;
        way_free(all, y);
    }
    while (all->first)
        message_free(all->first->req);
    free(all);
    gpu->direct = NULL;
}
