#include "worker/engine/comm/transport/ucx.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "api/protocol/exit.h"
#include "base/clock.h"

#define AM_ID 7
#define PART_BYTES (256u << 10)
#define IN_FLIGHT_MAX 8   /* frames a peer */
#define ABANDON_US 500000 /* for closing connections by force */
#define DESYNC_US 50000   /* for what was sent to leave, so that the peer sees the same difference */
#define PROGRESS_MAX 64   /* turns in one pass */

struct ucx_sent {
    struct ucx_sent *next;
    struct ucx *ucx;
    int rank;
    void *token;        /* NULL: nobody asks when it is sent */
    struct frame frame; /* UCX may read the header until it is done */
};

struct ucx_link {
    struct wait_peer *peer;
    ucp_ep_h ep; /* NULL: not reached by UCX, or closed */
    int in_flight;
};

struct ucx {
    struct transport base;
    ucp_context_h context;
    ucp_worker_h worker;
    struct ucx_link *link; /* by rank */
    struct ucx_sent *spare;
    int fd;
    bool moved, abandoned, published;
};

static struct ucx *ucx_of(struct transport *t)
{
    return (struct ucx *)t;
}

static struct failure *failure_of(const struct ucx *u)
{
    return &u->base.host->wait->failure;
}

/* libucs has set handlers for faults when it was loaded, which print and stall; ours are the system's. */
static void quieten(void)
{
    static const int sig[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};

    for (size_t i = 0; i < sizeof(sig) / sizeof(sig[0]); i++)
        ucs_debug_disable_signal(sig[i]);
    if (!getenv("UCX_LOG_LEVEL"))
        (void)ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

/* An assertion of libucx may end the process where a peer is gone in the middle of a long message (1.13 holds a request
 * done twice). That is no failure of this rank's own: it ends as one that has lost a peer. */
static struct flight *progress_flight;             /* for the handler: set before it is installed */
static __thread volatile sig_atomic_t in_progress; /* this thread is in libucx */

static void on_abort(int number)
{
    static const char text[] = "muster-train: libucx has ended this rank, most likely since a peer is gone\n";

    if (in_progress) {
        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        flight_cause_set(progress_flight, EXIT_CAUSE_ABORTED);
        _exit(exit_status(EXIT_CAUSE_ABORTED));
    }
    (void)signal(number, SIG_DFL); /* abort() goes on with that */
}

/* Of the rank's first world: what others have is their own affair. */
static void catch_abort(struct flight *flight)
{
    struct sigaction sa = {.sa_handler = on_abort};

    if (progress_flight || !flight)
        return;
    progress_flight = flight;
    (void)sigaction(SIGABRT, &sa, NULL);
}

static unsigned progress(const struct ucx *u)
{
    unsigned n;

    in_progress = 1;
    n = ucp_worker_progress(u->worker);
    in_progress = 0;
    return n;
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
    t->next = t->ucx->spare;
    t->ucx->spare = t;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct ucx_sent *t = arg;
    struct ucx *u = t->ucx;
    const struct transport_host *host = u->base.host;

    ucp_request_free(request);
    u->moved = true;
    u->link[t->rank].in_flight--;
    if (status != UCS_OK && !u->abandoned)
        u->link[t->rank].peer->lost = true;
    if (t->token && (status == UCS_OK || failure_of(u)->code))
        host->sent(host->above, t->token);
    sent_put(t);
}

static ucs_status_t on_frame(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                             const ucp_am_recv_param_t *param)
{
    struct ucx *u = arg;
    const struct transport_host *host = u->base.host;
    struct merr err;
    struct frame f;

    u->moved = true;
    if (failure_of(u)->code || u->abandoned)
        return UCS_OK;
    if (header_bytes != sizeof(f) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || bytes > PART_BYTES) {
        (void)failure_keep(failure_of(u), -EPROTO, "a message of another kind arrived through UCX (%zu and %zu bytes)",
                           header_bytes, bytes);
        return UCS_OK;
    }
    memcpy(&f, header, sizeof(f));
    if (frame_check(&f, (uint32_t)bytes, &err) < 0) {
        (void)failure_keep(failure_of(u), -EIO, "%s", err.text);
    } else if (f.generation == host->meet.generation) { /* others are not let in */
        if (f.source >= (uint32_t)host->meet.size || !u->link[f.source].ep)
            (void)failure_keep(failure_of(u), -EPROTO, "a frame of rank %u arrived through UCX", f.source);
        else if (!frame_holds(&f, data))
            host->damaged(host->above, &f);
        else
            (void)host->arrive(host->above, (int)f.source, &f, data);
    }
    return UCS_OK;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct wait_peer *p = arg;

    (void)ep;
    (void)status;
    if (!p->left)
        p->lost = true;
}

static enum transport_took ucx_send(struct transport *base, int rank, const struct frame *f, const void *payload,
                                    void *token)
{
    struct ucx *u = ucx_of(base);
    struct ucx_link *l = &u->link[rank];
    struct ucx_sent *t = u->spare;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = on_sent};
    ucs_status_ptr_t s;

    if (l->in_flight >= IN_FLIGHT_MAX || l->peer->lost)
        return TRANSPORT_NOT_NOW;
    if (t)
        u->spare = t->next;
    else if (!(t = malloc(sizeof(*t))))
        return TRANSPORT_NOT_NOW;
    *t = (struct ucx_sent){.ucx = u, .rank = rank, .token = token, .frame = *f};
    param.user_data = t;
    s = ucp_am_send_nbx(l->ep, AM_ID, &t->frame, sizeof(t->frame), payload, f->part, &param);
    if (UCS_PTR_IS_ERR(s)) {
        l->peer->lost = true;
        sent_put(t);
        return TRANSPORT_NOT_NOW;
    }
    if (!s) {
        sent_put(t);
        return TRANSPORT_TOOK;
    }
    l->in_flight++;
    return TRANSPORT_HOLDS;
}

static bool ucx_progress(void *self)
{
    struct ucx *u = self;

    u->moved = false;
    for (int i = 0; i < PROGRESS_MAX && progress(u); i++)
        ;
    return u->moved;
}

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

/* Close all connections. After the forced way nothing of ours is read or written any more. */
static void links_close(struct ucx *u, bool force, int64_t deadline_us)
{
    int size = u->base.host->meet.size;
    ucs_status_ptr_t *closing = calloc((size_t)size, sizeof(*closing));
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    bool pending = true;

    for (int i = 0; closing && i < size; i++) {
        if (u->link[i].ep)
            closing[i] = ucp_ep_close_nbx(u->link[i].ep, &param);
        u->link[i].ep = NULL;
    }
    while (closing && pending && clock_mono_us() < deadline_us) {
        pending = false;
        (void)progress(u);
        for (int i = 0; i < size; i++) {
            bool open =
                closing[i] && !UCS_PTR_IS_ERR(closing[i]) && ucp_request_check_status(closing[i]) == UCS_INPROGRESS;

            pending |= open || u->link[i].in_flight > 0;
        }
    }
    for (int i = 0; closing && i < size; i++) {
        if (closing[i] && !UCS_PTR_IS_ERR(closing[i]))
            ucp_request_free(closing[i]);
    }
    free(closing);
}

static void ucx_abandon(void *self)
{
    struct ucx *u = self;
    int64_t until = clock_mono_us() + DESYNC_US;
    bool busy = true;

    if (!u->worker || u->abandoned)
        return;
    while (failure_of(u)->code == -EPROTO && busy && clock_mono_us() < until) {
        busy = progress(u) != 0;
        for (int i = 0; i < u->base.host->meet.size; i++)
            busy |= u->link[i].in_flight > 0;
    }
    u->abandoned = true;
    links_close(u, true, clock_mono_us() + ABANDON_US);
}

static void ucx_close(struct transport *t)
{
    struct ucx *u = ucx_of(t);

    if (u->worker && u->link && !u->abandoned) {
        u->abandoned = true;
        links_close(u, failure_of(u)->code != 0, clock_mono_us() + ABANDON_US);
    }
    if (u->worker)
        ucp_worker_destroy(u->worker);
    if (u->context)
        ucp_cleanup(u->context);
    if (u->published)
        rendezvous_remove(&t->host->meet, "ucx");
    for (struct ucx_sent *sent = u->spare, *next; sent; sent = next) {
        next = sent->next;
        free(sent);
    }
    free(u->link);
    free(u);
}

static bool ucx_reaches(const struct transport_cfg *cfg, int from, int to)
{
    (void)cfg;
    (void)from;
    (void)to;
    return true;
}

static int publish(struct ucx *u, struct merr *err)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = AM_ID,
                                      .cb = on_frame,
                                      .arg = u};
    ucp_address_t *address;
    ucs_status_t s = ucp_worker_set_am_recv_handler(u->worker, &handler);
    size_t bytes;
    int r;

    if (s == UCS_OK)
        s = ucp_worker_get_address(u->worker, &address, &bytes);
    if (s != UCS_OK)
        return ucx_error(err, s, "get UCX's address");
    r = rendezvous_publish(&u->base.host->meet, "ucx", address, bytes, err);
    ucp_worker_release_address(u->worker, address);
    u->published = r == 0;
    return r;
}

static int ucx_open(const struct transport_host *host, const struct transport_cfg *cfg, bool mates, bool alone,
                    struct transport **ret, struct merr *err)
{
    struct ucx *u = calloc(1, sizeof(*u));
    int r;

    (void)cfg;
    (void)mates;
    (void)alone;
    if (u)
        u->link = calloc((size_t)host->meet.size, sizeof(*u->link));
    if (!u || !u->link) {
        free(u);
        return merr_set(err, -ENOMEM, "no memory for UCX");
    }
    u->base = (struct transport){.ops = &ucx_transport, .host = host, .part_bytes = PART_BYTES};
    u->fd = -1;
    for (int i = 0; i < host->meet.size; i++)
        u->link[i].peer = &host->wait->peer[i];
    quieten();
    catch_abort(host->meet.flight);
    r = context_open(u, err);
    if (r == 0)
        r = publish(u, err);
    if (r < 0)
        ucx_close(&u->base);
    else
        *ret = &u->base;
    return r;
}

static int link_open(struct ucx *u, int rank, const void *address, struct merr *err)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = u->link[rank].peer}};
    ucs_status_t s = ucp_ep_create(u->worker, &params, &u->link[rank].ep);

    return s == UCS_OK ? 0 : ucx_error(err, s, "reach a rank of another node");
}

static int ucx_meet(struct transport *t, int rank, int64_t deadline_us, struct merr *err)
{
    struct buf b;
    int r;

    buf_init(&b, RENDEZVOUS_BYTES_MAX);
    r = rendezvous_wait(&t->host->meet, "ucx", rank, deadline_us, &b, err);
    if (r == 0)
        r = link_open(ucx_of(t), rank, b.data, err);
    if (r < 0)
        (void)merr_prefix(err, r, "rank %d", rank);
    buf_clear(&b);
    return r;
}

static int ucx_arm(void *self)
{
    const struct ucx *u = self;

    return ucp_worker_arm(u->worker) == UCS_OK ? u->fd : -EAGAIN;
}

static const struct wait_source source = {.progress = ucx_progress, .arm = ucx_arm, .abandon = ucx_abandon};

const struct transport_ops ucx_transport = {
    .name = "ucx",
    .far = true,
    .farewell = true,
    .reaches = ucx_reaches,
    .open = ucx_open,
    .meet = ucx_meet,
    .close = ucx_close,
    .send = ucx_send,
    .source = &source,
};
