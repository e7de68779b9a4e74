/* ucx - ranks of different nodes speak through UCX: active messages over TCP or RDMA
 *
 * Each frame is one active message, its head the header. Messages are sent eagerly, so the receiver's handler gets
 * them whole and in order; the window of message.c bounds what may pile up. UCX's own shared memory is left out
 * (UCX_TLS decides otherwise): node-mates have ours, and its segments have names that a killed process leaves behind.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "base/clock.h"
#include "worker/engine/comm/rendezvous.h"
#include "worker/engine/comm/world.h"

#define AM_ID 7
#define PART_BYTES (256u << 10)
#define IN_FLIGHT_MAX 8   /* frames a peer */
#define ABANDON_US 500000 /* for closing connections by force */
#define DESYNC_US 50000   /* for what was sent to leave, so that the peer sees the same difference */
#define PROGRESS_MAX 64   /* turns in one pass */

struct ucx_sent {
    struct ucx_sent *next;
    struct comm_world *world;
    struct comm_peer *peer;
    struct comm_request *req;
    struct frame frame; /* UCX may read the header until it is done */
};

struct ucx_link {
    ucp_ep_h ep;
    int in_flight;
};

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    struct ucx_link *link; /* by rank */
    struct ucx_sent *spare;
    int fd;
    bool moved, abandoned, published;
    char *folder;
};

/* libucs has set handlers for faults when it was loaded, which print and stall; ours are the system's. */
static void quieten(void)
{
    static const int sig[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};

    for (size_t i = 0; i < sizeof(sig) / sizeof(sig[0]); i++)
        ucs_debug_disable_signal(sig[i]);
    if (!getenv("UCX_LOG_LEVEL"))
        (void)ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

static int code_of(ucs_status_t s)
{
    switch (s) {
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_UNREACHABLE:
        return -ECONNRESET;
    default:
        return -EIO;
    }
}

static int ucx_error(struct merr *err, ucs_status_t s, const char *what)
{
    return merr_set(err, code_of(s), "cannot %s: UCX says '%s'; ucx_info -d shows what this machine offers", what,
                    ucs_status_string(s));
}

static void sent_put(struct ucx_sent *t)
{
    struct ucx *u = t->world->ucx;

    t->next = u->spare;
    u->spare = t;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct ucx_sent *t = arg;
    struct comm_world *w = t->world;

    ucp_request_free(request);
    w->ucx->moved = true;
    w->ucx->link[t->peer->rank].in_flight--;
    if (status != UCS_OK && !w->ucx->abandoned)
        t->peer->lost = true;
    if (t->req && (status == UCS_OK || w->failed))
        message_sent(w, t->req);
    sent_put(t);
}

/* The payload of f is not what its sender had. */
static void refuse(struct comm_world *w, const struct frame *f)
{
    const struct comm_group *g = group_find(w, f->group);
    const char *codec = g && g->travels[0] ? g->travels : "none";
    char what[64];

    if (f->kind == FRAME_CALL)
        (void)snprintf(what, sizeof(what), "call %llu (%s) of", (unsigned long long)f->seq, comm_call_name(f->op));
    else
        (void)snprintf(what, sizeof(what), "a message with tag %u in", f->step);
    (void)world_fail(w, -EIO,
                     "rank %u sent %u bytes in %s '%s', codec %s, and others arrived: a link or memory "
                     "between it and rank %d is broken",
                     f->source, f->part, what, g ? g->name : "?", codec, w->rank);
}

static ucs_status_t on_frame(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                             const ucp_am_recv_param_t *param)
{
    struct comm_world *w = arg;
    struct merr err;
    struct frame f;

    w->ucx->moved = true;
    if (w->failed || w->ucx->abandoned)
        return UCS_OK;
    if (header_bytes != sizeof(f) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || bytes > PART_BYTES) {
        (void)world_fail(w, -EPROTO, "a message of another kind arrived through UCX (%zu and %zu bytes)", header_bytes,
                         bytes);
        return UCS_OK;
    }
    memcpy(&f, header, sizeof(f));
    if (frame_check(&f, (uint32_t)bytes, &err) < 0) {
        (void)world_fail(w, -EIO, "%s", err.text);
    } else if (f.generation == w->generation) { /* others are not let in */
        if (f.source >= (uint32_t)w->size || w->peers[f.source].via != &comm_ucx)
            (void)world_fail(w, -EPROTO, "a frame of rank %u arrived through UCX", f.source);
        else if (!frame_holds(&f, data))
            refuse(w, &f);
        else
            (void)message_arrive(w, &w->peers[f.source], &f, data);
    }
    return UCS_OK;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct comm_peer *p = arg;

    (void)ep;
    (void)status;
    if (!p->bye)
        p->lost = true;
}

static int ucx_send(struct comm_world *w, struct comm_peer *p, const struct frame *f, const void *payload,
                    struct comm_request *req)
{
    struct ucx *u = w->ucx;
    struct ucx_link *l = &u->link[p->rank];
    struct ucx_sent *t = u->spare;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = on_sent};
    ucs_status_ptr_t s;

    if (l->in_flight >= IN_FLIGHT_MAX || p->lost)
        return 0;
    if (t)
        u->spare = t->next;
    else if (!(t = malloc(sizeof(*t))))
        return 0;
    *t = (struct ucx_sent){.world = w, .peer = p, .req = req, .frame = *f};
    param.user_data = t;
    s = ucp_am_send_nbx(l->ep, AM_ID, &t->frame, sizeof(t->frame), payload, f->part, &param);
    if (UCS_PTR_IS_ERR(s)) {
        p->lost = true;
        sent_put(t);
        return 0;
    }
    if (!s) {
        sent_put(t);
        return 1;
    }
    l->in_flight++;
    if (req)
        req->in_flight++;
    return 1;
}

static bool ucx_progress(struct comm_world *w)
{
    struct ucx *u = w->ucx;
    bool any = false;

    u->moved = false;
    for (int i = 0; i < PROGRESS_MAX && ucp_worker_progress(u->worker); i++)
        ;
    for (int i = 0; i < w->size; i++) {
        struct comm_peer *p = &w->peers[i];

        if (p->via == &comm_ucx && (p->sending.first || p->taken - p->taken_told >= COMM_WINDOW_BYTES / 4))
            any |= message_pump(w, p);
    }
    return any || u->moved;
}

const struct comm_transport comm_ucx = {
    .name = "ucx", .part_bytes = PART_BYTES, .far = true, .send = ucx_send, .progress = ucx_progress};

static int context_open(struct ucx *u, struct merr *err)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .name = "muster"};
    ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    ucs_status_t s = ucp_config_read(NULL, NULL, &config);

    if (s != UCS_OK)
        return ucx_error(err, s, "read UCX's settings (UCX_… in the environment)");
    if (!getenv("UCX_TLS"))
        (void)ucp_config_modify(config, "TLS", "^sm");
    s = ucp_init(&params, config, &u->context);
    ucp_config_release(config);
    if (s != UCS_OK)
        return ucx_error(err, s, "start UCX");
    s = ucp_worker_create(u->context, &wp, &u->worker);
    if (s != UCS_OK)
        return ucx_error(err, s, "open UCX's devices");
    s = ucp_worker_get_efd(u->worker, &u->fd);
    return s == UCS_OK ? 0 : ucx_error(err, s, "wait for UCX");
}

int ucx_publish(struct comm_world *w, const char *rendezvous, struct merr *err)
{
    struct ucx *u = calloc(1, sizeof(*u));
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = AM_ID,
                                      .cb = on_frame,
                                      .arg = w};
    ucp_address_t *address;
    ucs_status_t s;
    size_t bytes;
    int r;

    if (!u)
        return merr_set(err, -ENOMEM, "no memory for UCX");
    w->ucx = u;
    u->fd = -1;
    u->link = calloc((size_t)w->size, sizeof(*u->link));
    u->folder = strdup(rendezvous);
    if (!u->link || !u->folder)
        return merr_set(err, -ENOMEM, "no memory for UCX");
    quieten();
    r = context_open(u, err);
    if (r < 0)
        return r;
    s = ucp_worker_set_am_recv_handler(u->worker, &handler);
    if (s == UCS_OK)
        s = ucp_worker_get_address(u->worker, &address, &bytes);
    if (s != UCS_OK)
        return ucx_error(err, s, "get UCX's address");
    r = card_publish(w, rendezvous, "ucx", address, bytes, err);
    ucp_worker_release_address(u->worker, address);
    u->published = r == 0;
    return r;
}

static int link_open(struct comm_world *w, int rank, const void *address, struct merr *err)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = &w->peers[rank]}};
    ucs_status_t s = ucp_ep_create(w->ucx->worker, &params, &w->ucx->link[rank].ep);

    if (s != UCS_OK)
        return ucx_error(err, s, "reach a rank of another node");
    w->peers[rank].via = &comm_ucx;
    return 0;
}

int ucx_meet(struct comm_world *w, const char *rendezvous, int64_t deadline_us, struct merr *err)
{
    int r = 0;

    for (int i = 0; i < w->size && r == 0; i++) {
        struct buf b;

        if (i == w->rank || w->peers[i].via)
            continue;
        buf_init(&b, CARD_BYTES_MAX);
        r = card_wait(w, rendezvous, "ucx", i, deadline_us, &b, err);
        if (r == 0)
            r = link_open(w, i, b.data, err);
        if (r < 0)
            (void)merr_prefix(err, r, "rank %d", i);
        buf_clear(&b);
    }
    return r;
}

/* Close all connections. After the forced way nothing of ours is read or written any more. */
static void links_close(struct comm_world *w, bool force, int64_t deadline_us)
{
    struct ucx *u = w->ucx;
    ucs_status_ptr_t *closing = calloc((size_t)w->size, sizeof(*closing));
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    bool pending = true;

    for (int i = 0; closing && i < w->size; i++) {
        if (u->link[i].ep)
            closing[i] = ucp_ep_close_nbx(u->link[i].ep, &param);
        u->link[i].ep = NULL;
    }
    while (closing && pending && clock_mono_us() < deadline_us) {
        pending = false;
        (void)ucp_worker_progress(u->worker);
        for (int i = 0; i < w->size; i++) {
            bool open =
                closing[i] && !UCS_PTR_IS_ERR(closing[i]) && ucp_request_check_status(closing[i]) == UCS_INPROGRESS;

            pending |= open || u->link[i].in_flight > 0;
        }
    }
    for (int i = 0; closing && i < w->size; i++) {
        if (closing[i] && !UCS_PTR_IS_ERR(closing[i]))
            ucp_request_free(closing[i]);
    }
    free(closing);
}

void ucx_abandon(struct comm_world *w)
{
    struct ucx *u = w->ucx;
    int64_t until = clock_mono_us() + DESYNC_US;
    bool busy = true;

    if (!u->worker || u->abandoned)
        return;
    while (w->failed == -EPROTO && busy && clock_mono_us() < until) {
        busy = ucp_worker_progress(u->worker) != 0;
        for (int i = 0; i < w->size; i++)
            busy |= u->link[i].in_flight > 0;
    }
    u->abandoned = true;
    links_close(w, true, clock_mono_us() + ABANDON_US);
}

int ucx_arm(struct comm_world *w)
{
    return ucp_worker_arm(w->ucx->worker) == UCS_OK ? w->ucx->fd : -1;
}

void ucx_close(struct comm_world *w)
{
    struct ucx *u = w->ucx;

    if (!u)
        return;
    if (u->worker && u->link && !u->abandoned) {
        u->abandoned = true;
        links_close(w, w->failed != 0, clock_mono_us() + ABANDON_US);
    }
    if (u->worker)
        ucp_worker_destroy(u->worker);
    if (u->context)
        ucp_cleanup(u->context);
    if (u->published)
        card_remove(w, u->folder, "ucx");
    for (struct ucx_sent *t = u->spare, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    free(u->link);
    free(u->folder);
    free(u);
    w->ucx = NULL;
}
