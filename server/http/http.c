/* http - the threads of libmicrohttpd, a request's way in, and the sweeper that ends what takes too long
 *
 * Input: bytes of clients. Action: read a request whole within limits, find its route and its rights, call the
 * handler, let the connection sleep. Caveat: libmicrohttpd calls back from its own threads, and a
 * suspended connection must be resumed before the daemon stops.
 */
#include "server/http/http.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "server/http/http_meter.h"
#include "server/http/http_head.h"
#include "server/http/http_peer.h"
#include "server/http/http_priv.h"

#define SECOND_US 1000000LL
#define DEFAULT_TIMEOUT_S 30
#define IDLE_TIMEOUT_S 60   /* of a connection without any byte */
#define READ_LIMIT_MS 75000 /* for one request's head or body, dripping or not */
#define CROWDED 15          /* so many times less of it while connections are short */
#define MAX_CONNECTIONS 4096
#define DISCARD_MAX (16 << 20)       /* bytes of a refused body read before the answer; beyond, it is cut off */
#define CONNECTION_MEMORY (32 << 10) /* head of a request; more is answered 431 */
#define STOP_WAIT_US (2 * SECOND_US)

static void list_req(struct http *h, struct http_req *r)
{
    pthread_mutex_lock(&h->lock);
    r->next = h->reqs;
    if (r->next)
        r->next->prev = r;
    h->reqs = r;
    pthread_mutex_unlock(&h->lock);
}

static void make_request_id(char out[HTTP_REQUEST_ID_MAX + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[8] = {0};

    (void)getrandom(raw, sizeof(raw), 0);
    for (size_t i = 0; i < sizeof(raw); i++) {
        out[2 * i] = digits[raw[i] >> 4];
        out[2 * i + 1] = digits[raw[i] & 15];
    }
    out[2 * sizeof(raw)] = '\0';
}

/* The request line is read: the first that libmicrohttpd tells of a request, with the URI as it was sent. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
    struct http_req *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->h = cls;
    r->conn = conn;
    atomic_init(&r->refs, 1);
    pthread_mutex_init(&r->lock, NULL);
    buf_init(&r->header_text, 2 * CONNECTION_MEMORY);
    buf_init(&r->body, HTTP_BODY_MAX);
    r->uri = strdup(uri);
    r->uri_parts = strdup(uri);
    list_req(r->h, r);
    return r;
}

static struct http_conn *conn_of(struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static void mark_conn(struct http *h, struct MHD_Connection *conn, bool busy)
{
    struct http_conn *c = conn_of(conn);

    if (!c)
        return;
    pthread_mutex_lock(&h->lock);
    c->busy = busy;
    c->since_us = clock_mono_us();
    pthread_mutex_unlock(&h->lock);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode why)
{
    struct http *h = cls;
    struct http_req *r = *con_cls;

    (void)why;
    if (!r)
        return;
    mark_conn(h, conn, false);
    pthread_mutex_lock(&r->lock);
    r->gone = true;
    r->conn = NULL;
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_lock(&h->lock);
    if (r->prev)
        r->prev->next = r->next;
    else
        h->reqs = r->next;
    if (r->next)
        r->next->prev = r->prev;
    if (!h->reqs)
        pthread_cond_broadcast(&h->wake);
    pthread_mutex_unlock(&h->lock);
    *con_cls = NULL;
    http_req_unref(r);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = cls;
    struct http_conn *c = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = calloc(1, sizeof(*c));
        if (!c)
            return;
        c->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->since_us = clock_mono_us();
        *socket_context = c;
        pthread_mutex_lock(&h->lock);
        c->next = h->conns;
        if (c->next)
            c->next->prev = c;
        h->conns = c;
        h->n_conns++;
        pthread_mutex_unlock(&h->lock);
    } else if (c) {
        pthread_mutex_lock(&h->lock);
        if (c->prev)
            c->prev->next = c->next;
        else
            h->conns = c->next;
        if (c->next)
            c->next->prev = c->prev;
        h->n_conns--;
        pthread_mutex_unlock(&h->lock);
        *socket_context = NULL;
        free(c);
    }
}

/* --- a request's head ------------------------------------------------------------------------------- */

static void refuse(struct http_req *r, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Answer before any handler has the request. */
static void refuse(struct http_req *r, int status, const char *code, const char *fmt, ...)
{
    char detail[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&r->lock);
    r->state = HTTP_ANSWERED;
    http_fill_problem(r, status, code, detail);
    pthread_mutex_unlock(&r->lock);
}

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct http_req *r = cls;

    (void)kind;
    if (r->n_headers == HTTP_HEADERS_MAX)
        return MHD_NO;
    if (!value)
        value = "";
    (void)buf_add(&r->header_text, name, strlen(name) + 1);
    (void)buf_add(&r->header_text, value, strlen(value) + 1);
    if (!buf_failed(&r->header_text))
        r->n_headers++;
    return MHD_YES;
}

static void set_header(struct http_req *r, const char *name, const char *value)
{
    pthread_mutex_lock(&r->lock);
    http_set_header_locked(r, name, value);
    pthread_mutex_unlock(&r->lock);
}

/* Say what the caller may have meant: the pattern with the fewest edits, if they are few. */
static void refuse_unknown_path(struct http_req *r)
{
    const struct http_cfg *cfg = &r->h->cfg;
    const char *best = NULL;
    size_t best_edits = 6;

    for (size_t i = 0; i < cfg->n_routes; i++) {
        size_t edits = http_path_distance(cfg->routes[i].pattern, &r->path);

        if (edits < best_edits) {
            best_edits = edits;
            best = cfg->routes[i].pattern;
        }
    }
    if (best)
        refuse(r, 404, "no-such-resource", "no resource at '%.256s'; did you mean '%s'?", r->uri, best);
    else
        refuse(r, 404, "no-such-resource", "no resource at '%.256s'; /openapi.yaml lists what there is", r->uri);
}

/* Find the route. Returns false once the request has been refused. */
static bool find_route(struct http_req *r)
{
    const struct http_cfg *cfg = &r->h->cfg;
    const char *method = r->is_head ? "GET" : r->method;
    char allow[128] = "";

    for (size_t i = 0; i < cfg->n_routes; i++) {
        const struct http_route *route = &cfg->routes[i];
        const char *params[HTTP_PARAMS_MAX] = {NULL};
        size_t used = strlen(allow);

        if (!http_path_match(route->pattern, &r->path, params, HTTP_PARAMS_MAX))
            continue;
        if (strcmp(route->method, method) == 0) {
            memcpy(r->params, params, sizeof(params));
            r->route = route;
            return true;
        }
        (void)snprintf(allow + used, sizeof(allow) - used, "%s%s%s", used ? ", " : "", route->method,
                       strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
    }
    if (!*allow) {
        refuse_unknown_path(r);
        return false;
    }
    refuse(r, 405, "method-not-allowed", "'%s' takes %s, not %s", http_path(r), allow, r->method);
    set_header(r, "Allow", allow);
    return false;
}

const char *http_role_name(enum http_role role)
{
    static const char *const names[] = {"none", "viewer", "user", "admin", "agent"};

    return names[role];
}

/* Why the request is refused; NULL: it is not. */
static const char *find_fault(struct http_req *r, int *ret_status, char *why, size_t size)
{
    const struct http_cfg *cfg = &r->h->cfg;
    const char *header = http_header(r, "Authorization"), *token = http_bearer(header);
    enum http_role need = r->route->role, have;

    *ret_status = 401;
    switch (cfg->auth(cfg->arg, token, clock_wall_us(), &r->identity)) {
    case HTTP_AUTH_UNKNOWN:
        if (token)
            (void)snprintf(why, size, "this token is not known here; it may be of another server or revoked");
        else
            (void)snprintf(why, size,
                           "%s; send 'Authorization: Bearer TOKEN' (musterd writes the admin's token into its state "
                           "folder)",
                           header ? "the Authorization header is not a bearer token" : "no token");
        return token ? "unknown-token" : "no-token";
    case HTTP_AUTH_EXPIRED:
        (void)snprintf(why, size, "this token has expired; ask an admin for another (`muster token create`)");
        return "token-expired";
    case HTTP_AUTH_KNOWN:
        break;
    }
    have = r->identity.role;
    *ret_status = 403;
    if (need == ROLE_AGENT && have == ROLE_AGENT)
        return cfg->node_ca ? http_peer_fault(r, conn_of(r->conn), clock_wall_us(), why, size) : NULL;
    if (need != ROLE_AGENT && have != ROLE_AGENT && have >= need)
        return NULL;
    (void)snprintf(why, size, "this takes the role %s; the token of '%s' has %s", http_role_name(need),
                   r->identity.user, http_role_name(have));
    return "forbidden";
}

/* Returns false once the request has been refused. */
static bool authorize(struct http_req *r)
{
    const struct http_cfg *cfg = &r->h->cfg;
    char why[256];
    int status;
    const char *code = r->route->role == ROLE_NONE ? NULL : find_fault(r, &status, why, sizeof(why));

    if (!code)
        return true;
    refuse(r, status, code, "%s", why);
    if (cfg->refused)
        cfg->refused(cfg->arg, r, status, code);
    return false;
}

static void note_address(struct http_req *r, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;

    if (a && a->sa_family == AF_INET)
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, r->address,
                        sizeof(r->address));
    else if (a && a->sa_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, r->address,
                        sizeof(r->address));
}

static bool is_own(const struct http_req *r)
{
    size_t len = strcspn(r->uri, "?");

    for (size_t i = 0; i < r->h->cfg.n_routes; i++)
        if (strncmp(r->h->cfg.routes[i].pattern, r->uri, len) == 0 && !r->h->cfg.routes[i].pattern[len])
            return true;
    return false;
}

static void send_elsewhere(struct http_req *r)
{
    char url[HTTP_ELSEWHERE_MAX] = "", *location = NULL;

    r->h->cfg.elsewhere(r->h->cfg.arg, url);
    if (*url && r->uri[0] == '/' && asprintf(&location, "%s%s", url, r->uri) >= 0) {
        refuse(r, 307, "standby", "this server stands by; the one that leads is at '%s'", url);
        set_header(r, "Location", location);
        free(location);
    } else {
        refuse(r, 503, "standby", "this server stands by and does not know who leads; try again");
        set_header(r, "Retry-After", "1");
    }
}

static void read_head(struct http_req *r, struct MHD_Connection *conn, const char *method, const char *version)
{
    const char *id, *fault;
    char *query, why[MERR_TEXT_MAX];
    int rc;

    (void)snprintf(r->method, sizeof(r->method), "%s", method);
    note_address(r, conn);
    r->is_head = strcmp(method, "HEAD") == 0;
    (void)MHD_get_connection_values(conn, MHD_HEADER_KIND, copy_header, r);
    id = http_header(r, "X-Request-Id");
    if (id && http_request_id_ok(id))
        (void)snprintf(r->request_id, sizeof(r->request_id), "%s", id);
    else
        make_request_id(r->request_id);
    if (!r->uri || !r->uri_parts || buf_failed(&r->header_text)) {
        refuse(r, 503, "out-of-memory", "no memory for the request; try again");
        return;
    }
    fault = http_head_fault(conn, method, strlen(r->uri), version);
    if (fault) {
        refuse(r, 400, "ambiguous-request", "%s", fault);
        set_header(r, "Connection", "close");
        r->cut_off = true;
        return;
    }
    if (r->h->cfg.elsewhere && !is_own(r)) {
        send_elsewhere(r);
        return;
    }
    r->uri[strcspn(r->uri, "?")] = '\0';
    query = strchr(r->uri_parts, '?');
    if (query)
        *query++ = '\0';
    rc = http_path_split(r->uri_parts, &r->path);
    if (rc == 0 && query)
        rc = http_query_split(query, &r->query);
    if (rc < 0) {
        refuse(r, 400, "bad-uri",
               rc == -E2BIG ? "the path or query of '%.256s' has too many parts"
                            : "the path or query of '%.256s' is not properly encoded",
               r->uri);
        return;
    }
    if (!find_route(r) || !authorize(r))
        return;
    if (!http_meter_take(r, conn, why, sizeof(why)))
        refuse(r, 429, "too-many-requests", "%s", why);
    else if (!query_ok(r->route->query, &r->query, why, sizeof(why)))
        refuse(r, 422, "query-invalid", "%s", why);
}

/* --- a request's body ------------------------------------------------------------------------------- */

static size_t body_limit(const struct http_req *r)
{
    return r->route && r->route->role == ROLE_AGENT ? HTTP_AGENT_BODY_MAX : HTTP_BODY_MAX;
}

static void refuse_body(struct http_req *r)
{
    refuse(r, 413, "body-too-large", "the body is larger than %zu bytes", body_limit(r));
}

static bool answered(struct http_req *r)
{
    bool is;

    pthread_mutex_lock(&r->lock);
    is = r->state == HTTP_ANSWERED || r->state == HTTP_STREAMING || r->state == HTTP_UPGRADED;
    pthread_mutex_unlock(&r->lock);
    return is;
}

static bool has_header(const struct http_req *r, const char *name)
{
    for (size_t i = 0; i < r->n_out_headers; i++)
        if (strcasecmp(r->out_headers[i].name, name) == 0)
            return true;
    return false;
}

/* Headers that every answer carries; a handler's own value wins. */
static void add_headers(const struct http_req *r, struct MHD_Response *response)
{
    static const struct {
        const char *name, *value;
    } always[] = {
        {"X-Content-Type-Options", "nosniff"},
        {"Cache-Control", "no-store"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Frame-Options", "DENY"},
        {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
    };

    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        if (!has_header(r, always[i].name))
            (void)MHD_add_response_header(response, always[i].name, always[i].value);
    for (size_t i = 0; i < r->n_out_headers; i++)
        (void)MHD_add_response_header(response, r->out_headers[i].name, r->out_headers[i].value);
    (void)MHD_add_response_header(response, "X-Request-Id", r->request_id);
    http_meter_tell(r, response);
    if (r->h->tls)
        (void)MHD_add_response_header(response, "Strict-Transport-Security", "max-age=31536000");
    if (r->status == 401)
        (void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"muster\"");
}

/* The response that r's state calls for; NULL when memory is short. */
static struct MHD_Response *response_of(struct http_req *r)
{
    struct MHD_Response *response;

    if (r->state == HTTP_STREAMING) {
        r->status = 200;
        r->content_type = "text/event-stream; charset=utf-8";
        response = http_stream_response(r);
    } else if (r->state == HTTP_UPGRADED) {
        response = http_upgrade_response(r);
    } else if (r->page) {
        response = http_page_response(r);
    } else {
        response = MHD_create_response_from_buffer(r->out_len, r->out ? r->out : (char *)"",
                                                   r->out ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
        if (response)
            r->out = NULL;
    }
    if (!response)
        return NULL;
    if (r->content_type && r->out_len + (r->state == HTTP_STREAMING) > 0)
        (void)MHD_add_response_header(response, "Content-Type", r->content_type);
    add_headers(r, response);
    return response;
}

static enum MHD_Result queue_response(struct http_req *r, struct MHD_Connection *conn)
{
    struct MHD_Response *response;
    enum MHD_Result rc;

    pthread_mutex_lock(&r->lock);
    if (r->state == HTTP_ANSWERED && r->status == 401)
        http_meter_guess(r, conn);
    response = response_of(r);
    pthread_mutex_unlock(&r->lock);
    if (!response)
        return MHD_NO;
    rc = MHD_queue_response(conn, (unsigned)r->status, response);
    MHD_destroy_response(response);
    return rc;
}

/* The head is read: refuse now what can be refused. A refused body is still read, so that the client, which
 * writes first, gets to see the answer; not so if it waits for "100 Continue", the body is huge, or where it ends is
 * not certain. */
static enum MHD_Result begin_request(struct http_req *r, struct MHD_Connection *conn, const char *method,
                                     const char *version)
{
    const char *length_text, *expect;
    unsigned long long length;

    r->begun = true;
    read_head(r, conn, method, version);
    mark_conn(r->h, conn, false); /* the body's time begins */
    length_text = http_header(r, "Content-Length");
    length = length_text ? strtoull(length_text, NULL, 10) : 0;
    if (!answered(r) && length > body_limit(r))
        refuse_body(r);
    buf_init(&r->body, body_limit(r));
    if (!answered(r))
        return MHD_YES;
    expect = http_header(r, "Expect");
    if (r->cut_off || length > DISCARD_MAX || (length && expect && strcasecmp(expect, "100-continue") == 0))
        return queue_response(r, conn);
    return MHD_YES;
}

static enum MHD_Result read_body(struct http_req *r, const char *data, size_t len)
{
    r->body_seen += len;
    if (r->body_seen > DISCARD_MAX)
        return MHD_NO;
    if (answered(r))
        return MHD_YES;
    switch (buf_add(&r->body, data, len)) {
    case 0:
        break;
    case -EMSGSIZE:
        refuse_body(r);
        break;
    default:
        refuse(r, 503, "out-of-memory", "no memory for the body; try again");
    }
    return MHD_YES;
}

/* Hand the whole request to its handler. The connection sleeps unless the answer is already there. */
static void hand_over(struct http_req *r, struct MHD_Connection *conn)
{
    int timeout_s = r->route->timeout_s > 0 ? r->route->timeout_s : DEFAULT_TIMEOUT_S;

    mark_conn(r->h, conn, true);
    pthread_mutex_lock(&r->lock);
    r->state = HTTP_HELD;
    r->in_handler = true;
    r->deadline_us = clock_mono_us() + timeout_s * SECOND_US;
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    r->route->handler(r->h->cfg.arg, r);

    pthread_mutex_lock(&r->lock);
    r->in_handler = false;
    if (r->state == HTTP_HELD && atomic_load(&r->h->stopping)) {
        r->state = HTTP_ANSWERED;
        http_fill_problem(r, 503, "stopping", "the server is stopping; try again");
    } else if (r->state == HTTP_HELD) {
        r->suspended = true;
        MHD_suspend_connection(conn);
    }
    pthread_mutex_unlock(&r->lock);
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                 const char *version, const char *data, size_t *len, void **con_cls)
{
    struct http_req *r = *con_cls;

    (void)cls;
    (void)url;
    if (!r)
        return MHD_NO; /* no memory even for the request itself */
    if (!r->begun)
        return begin_request(r, conn, method, version);
    if (*len) {
        size_t n = *len;

        *len = 0;
        return read_body(r, data, n);
    }
    if (!answered(r) && !http_meter_body(r))
        refuse(r, 413, "over-allowance",
               "this node has sent more than %g bytes of large reports at once, or %g a second",
               r->h->cfg.of_large.burst, r->h->cfg.of_large.per_s);
    if (!answered(r))
        hand_over(r, conn);
    return answered(r) ? queue_response(r, conn) : MHD_YES;
}

/* --- the sweeper ------------------------------------------------------------------------------------ */

static void answer_late(struct http_req *r)
{
    r->state = HTTP_ANSWERED;
    for (; r->n_out_headers; r->n_out_headers--) { /* what the handler had prepared does not fit this answer */
        free(r->out_headers[r->n_out_headers - 1].name);
        free(r->out_headers[r->n_out_headers - 1].value);
    }
    if (atomic_load(&r->h->stopping))
        http_fill_problem(r, 503, "stopping", "the server is stopping; try again");
    else
        http_fill_problem(r, 504, "timeout",
                          "no answer in time; whether it was done is not known: look, or repeat "
                          "with the same Idempotency-Key");
    http_wake(r);
}

/* Close the connections that have been without a whole request for too long. h->lock is held. */
static void sweep_connections(struct http *h, int64_t now_us)
{
    bool crowded = h->n_conns > (size_t)h->cfg.max_connections * 3 / 4;
    int64_t limit_us = (int64_t)h->cfg.read_limit_ms * 1000 / (crowded ? CROWDED : 1);

    for (struct http_conn *c = h->conns; c; c = c->next)
        if (!c->busy && now_us - c->since_us > limit_us)
            (void)shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees its end and closes it */
}

/* One round over all requests; the time of the next deadline. h->lock is held. */
static int64_t sweep(struct http *h, int64_t now_us)
{
    int64_t next_us = now_us + SECOND_US;
    bool stopping = atomic_load(&h->stopping);

    for (struct http_req *r = h->reqs; r; r = r->next) {
        pthread_mutex_lock(&r->lock);
        if (r->state == HTTP_HELD && r->suspended) {
            if (stopping || now_us >= r->deadline_us)
                answer_late(r);
            else if (r->deadline_us < next_us)
                next_us = r->deadline_us;
        } else if (r->state == HTTP_STREAMING) {
            if (stopping) {
                r->stream.ended = true;
                http_wake(r);
            } else {
                http_stream_sweep(r, now_us);
            }
        }
        pthread_mutex_unlock(&r->lock);
    }
    sweep_connections(h, now_us);
    return next_us;
}

static void wait_until(struct http *h, int64_t until_us)
{
    struct timespec at = {.tv_sec = until_us / SECOND_US, .tv_nsec = until_us % SECOND_US * 1000};

    (void)pthread_cond_timedwait(&h->wake, &h->lock, &at);
}

static void *sweeper_main(void *arg)
{
    struct http *h = arg;

    pthread_mutex_lock(&h->lock);
    while (!h->sweeper_ends)
        wait_until(h, sweep(h, clock_mono_us()));
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* --- start and stop --------------------------------------------------------------------------------- */

bool http_is_loopback(const char *bind)
{
    struct in6_addr v6;
    struct in_addr v4;

    if (inet_pton(AF_INET, bind, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return strcmp(bind, "localhost") == 0 || (inet_pton(AF_INET6, bind, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

/* The address to bind, checked against what may be reached from outside. */
static int read_address(const struct http_cfg *cfg, struct sockaddr_storage *ret, socklen_t *ret_len, struct merr *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    const char *text = strcmp(cfg->bind, "localhost") == 0 ? "127.0.0.1" : cfg->bind;

    memset(ret, 0, sizeof(*ret));
    if (cfg->port < 0 || cfg->port > 65535)
        return merr_set(err, -EINVAL, "cannot listen on port %d: want 0 to 65535", cfg->port);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)cfg->port);
        *ret_len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)cfg->port);
        *ret_len = sizeof(*v6);
    } else {
        return merr_set(err, -EINVAL, "cannot bind '%s': want an address such as 127.0.0.1, 0.0.0.0 or ::1", cfg->bind);
    }
    if (!http_is_loopback(cfg->bind) && !cfg->tls_cert && !cfg->insecure)
        return merr_set(err, -EPERM,
                        "refusing to bind '%s': tokens would cross the network in the clear; give "
                        "--tls-cert and --tls-key, or --insecure if the network is yours alone",
                        cfg->bind);
    return 0;
}

static int open_listener(const struct http_cfg *cfg, int *ret_fd, int *ret_port, struct merr *err)
{
    struct sockaddr_storage address;
    socklen_t len = 0;
    int one = 1, rc = read_address(cfg, &address, &len, err);
    IO_CLOSE_AUTO int fd = -1;

    if (rc < 0)
        return rc;
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, len) < 0 ||
        listen(fd, cfg->max_connections ? cfg->max_connections : MAX_CONNECTIONS) < 0)
        return errno == EADDRINUSE ? merr_set(err, -EADDRINUSE,
                                              "cannot listen on %s port %d: another program does; "
                                              "stop it or choose another port",
                                              cfg->bind, cfg->port)
                                   : merr_errno(err, -errno, "cannot listen on %s port %d", cfg->bind, cfg->port);
    if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return merr_errno(err, -errno, "cannot read the address bound");
    *ret_port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                   : ((struct sockaddr_in6 *)&address)->sin6_port);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int read_tls(struct http *h, struct merr *err)
{
    const struct http_cfg *cfg = &h->cfg;

    if (!cfg->tls_cert && !cfg->tls_key)
        return 0;
    if (!cfg->tls_cert || !cfg->tls_key)
        return merr_set(err, -EINVAL, "TLS takes both a certificate and a key; --tls-%s is missing",
                        cfg->tls_cert ? "key" : "cert");
    return http_tls_new(cfg->tls_cert, cfg->tls_key, &h->tls, err);
}

static struct MHD_Daemon *start_loop(void *arg, int listener)
{
    struct http *h = arg;
    unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | (h->tls ? MHD_USE_TLS : 0);
    int max = (h->cfg.max_connections + HTTP_LOOPS - 1) / HTTP_LOOPS;
    struct MHD_OptionItem tls[HTTP_TLS_OPTIONS];

    http_tls_options(h->tls, h->cfg.node_ca, tls);
    return MHD_start_daemon(flags, 0, NULL, NULL, on_access, h, MHD_OPTION_LISTEN_SOCKET, listener,
                            MHD_OPTION_URI_LOG_CALLBACK, on_uri, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT, (unsigned)max,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_STRICT_FOR_CLIENT, 1,
                            MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

static void free_guards(struct http *h)
{
    http_guard_free(h->guard);
    http_guard_free(h->by_token);
    http_guard_free(h->by_address);
    http_guard_free(h->large);
}

static bool make_guards(struct http *h)
{
    const struct bucket_rule of_guesses = {.per_s = HTTP_GUARD_PER_S, .burst = HTTP_GUARD_BURST};
    const struct http_cfg *cfg = &h->cfg;

    h->guard = http_guard_new(&of_guesses);
    h->by_token = cfg->per_token.per_s > 0 ? http_guard_new(&cfg->per_token) : NULL;
    h->by_address = cfg->per_address.per_s > 0 ? http_guard_new(&cfg->per_address) : NULL;
    h->large = cfg->of_large.per_s > 0 ? http_guard_new(&cfg->of_large) : NULL;
    return h->guard && (h->by_token || !(cfg->per_token.per_s > 0)) &&
           (h->by_address || !(cfg->per_address.per_s > 0)) && (h->large || !(cfg->of_large.per_s > 0));
}

static void free_http(struct http *h)
{
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    http_tls_free(h->tls);
    free_guards(h);
    free(h);
}

static struct http *new_http(const struct http_cfg *cfg)
{
    struct http *h = calloc(1, sizeof(*h));
    pthread_condattr_t attr;

    if (!h)
        return NULL;
    h->cfg = *cfg;
    if (!make_guards(h)) {
        free_guards(h);
        free(h);
        return NULL;
    }
    h->cfg.max_connections = cfg->max_connections ? cfg->max_connections : MAX_CONNECTIONS;
    h->cfg.read_limit_ms = cfg->read_limit_ms ? cfg->read_limit_ms : READ_LIMIT_MS;
    atomic_init(&h->stopping, false);
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->wake, &attr);
    pthread_condattr_destroy(&attr);
    return h;
}

int http_start(const struct http_cfg *cfg, struct http **ret, struct merr *err)
{
    struct http *h = new_http(cfg);
    int listener = -1, rc;

    if (!h)
        return merr_set(err, -ENOMEM, "no memory for the HTTP side");
    rc = read_tls(h, err);
    if (rc == 0)
        rc = open_listener(cfg, &listener, &h->port, err);
    if (rc == 0)
        rc = http_loops_start(listener, start_loop, h, &h->loops, err);
    io_close(&listener); /* each loop has its own */
    if (rc < 0) {
        free_http(h);
        return rc;
    }
    rc = -pthread_create(&h->sweeper, NULL, sweeper_main, h);
    if (rc < 0) {
        http_loops_stop(h->loops); /* no route was reachable long enough to hold anything */
        free_http(h);
        return merr_errno(err, rc, "cannot start the thread of HTTP deadlines");
    }
    *ret = h;
    return 0;
}

int http_reload(struct http *h, struct merr *err)
{
    return h->tls ? http_tls_reload(h->tls, err) : 0;
}

int http_port(const struct http *h)
{
    return h->port;
}

void http_stop(struct http *h)
{
    int64_t deadline_us = clock_mono_us() + STOP_WAIT_US;

    if (!h)
        return;
    http_loops_quiesce(h->loops);
    atomic_store(&h->stopping, true);
    pthread_mutex_lock(&h->lock);
    h->sweeper_ends = true;
    pthread_cond_broadcast(&h->wake);
    /* Answers go out before the connections are closed, unless a client does not read them. */
    (void)sweep(h, clock_mono_us());
    while (h->reqs && clock_mono_us() < deadline_us)
        wait_until(h, deadline_us);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->sweeper, NULL);
    http_loops_stop(h->loops);
    assert(!h->reqs && !h->conns);
    free_http(h);
}
