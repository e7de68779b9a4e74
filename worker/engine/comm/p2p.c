/* Messages between two members of a group (comm.h): from GPU to GPU where both ends lie there, else as frames. */

#include <errno.h>

#include "base/ops.h"
#include "base/clock.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/direct.h"
#include "worker/engine/comm/group.h"

#define LINGER_US 5000 /* a finished sender helps its last bytes out this long, without progress */

static int message_check(struct comm_group *g, int peer, struct merr *err)
{
    if (g->wait->failure.code)
        return failure_tell(&g->wait->failure, err);
    if (peer < 0 || peer >= g->n || peer == g->index)
        return merr_set(err, -EINVAL, "member %d of '%s' cannot speak with member %d of %d", g->index, g->channel.name,
                        peer, g->n);
    return 0;
}

int comm_isend(struct comm_group *g, int peer, uint32_t tag, const void *buf, size_t bytes, struct comm_request **ret,
               struct merr *err)
{
    struct frame head = {.generation = g->channel.messages->generation,
                         .group = g->channel.id,
                         .length = bytes,
                         .source = (uint32_t)g->wait->rank,
                         .step = tag,
                         .kind = FRAME_MESSAGE};
    struct comm_request *req;
    int r = message_check(g, peer, err);

    if (r < 0)
        return r;
    req = direct_worth(g, buf, bytes) ? direct_send(g, peer, &head, buf)
                                      : message_send(&g->channel, g->rank[peer], &head, buf);
    if (!req)
        return failure_tell(&g->wait->failure, err);
    *ret = req;
    return 0;
}

int comm_irecv(struct comm_group *g, int peer, uint32_t tag, void *buf, size_t bytes, struct comm_request **ret,
               struct merr *err)
{
    struct frame head = {.group = g->channel.id, .length = bytes, .step = tag, .kind = FRAME_MESSAGE};
    struct comm_request *req;
    int r = message_check(g, peer, err);

    if (r < 0)
        return r;
    req = direct_worth(g, buf, bytes) ? direct_recv(g, peer, &head, buf)
                                      : message_recv(&g->channel, g->rank[peer], &head, buf);
    if (!req)
        return failure_tell(&g->wait->failure, err);
    *ret = req;
    return 0;
}

/* A send that lies in our own memory goes on by itself; help it out while it moves. */
static void linger(struct wait *w, const struct comm_request *req)
{
    int64_t until = clock_mono_us() + LINGER_US;

    while (!req->done && !w->failure.code && !flight_aborted(w->flight)) {
        if (wait_progress(w))
            until = clock_mono_us() + LINGER_US;
        else if (clock_mono_us() >= until)
            return;
        else
            wait_nap(w, LINGER_US / 5);
    }
}

static void enter(const struct comm_request *req)
{
    struct message_channel *c = req->channel;
    uint32_t op = req->send ? COMM_CALL_SEND : COMM_CALL_RECV;

    flight_enter(c->messages->wait->flight, &(struct flight_call){.group = c->name,
                                                                  .key = c->id,
                                                                  .peer = req->peer->rank,
                                                                  .op = op,
                                                                  .seq = ++c->waited,
                                                                  .digest = ops_digest(op, c->name, req->bytes),
                                                                  .ordered = c->ordered,
                                                                  .bytes = req->bytes});
}

static int wait_one(struct comm_request *req, struct merr *err)
{
    struct wait *w = req->channel->messages->wait;
    int r;

    enter(req);
    if (req->send && req->staged && !req->done && !w->failure.code)
        linger(w, req);
    r = req->send && req->staged && !w->failure.code ? 0 : message_wait(req);
    if (r == 0)
        r = message_land(req);
    if (r < 0) {
        message_drop(req);
        r = failure_tell(&w->failure, err); /* no leave: the ring shows where it ended */
    } else {
        message_detach(req);
        flight_leave(w->flight);
    }
    return r;
}

int comm_wait(struct comm_request *req, struct merr *err)
{
    int r = 0;

    for (struct comm_request *next; req; req = next) {
        int also;

        next = req->more;
        also = wait_one(req, r < 0 ? NULL : err);
        r = r < 0 ? r : also;
    }
    return r;
}

bool comm_done(const struct comm_request *req)
{
    while (req && req->done)
        req = req->more;
    return !req;
}

struct some {
    struct comm_request *const *req;
    size_t n;
};

static bool one_is_done(const void *arg)
{
    const struct some *s = arg;

    for (size_t i = 0; i < s->n; i++)
        if (comm_done(s->req[i]))
            return true;
    return false;
}

int comm_wait_any(struct comm_request *const *req, size_t n, struct merr *err)
{
    const struct comm_request *first = req[0];
    struct wait *w = first->channel->messages->wait;
    struct some some = {req, n};

    enter(first);
    if (wait_for(w, one_is_done, &some, first->peer->rank, first->channel->name) < 0)
        return failure_tell(&w->failure, err); /* no leave: the ring shows where it ended */
    flight_leave(w->flight);
    return 0;
}

uint64_t comm_bytes_sent(const struct comm_group *g)
{
    return g->channel.bytes_sent;
}
