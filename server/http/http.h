/* http - the HTTP side of musterd: a few threads of libmicrohttpd, no thread a client
 *
 * A request is read whole (bounded), authenticated, matched to a route and handed to that route's handler as a
 * struct http_req; the connection sleeps meanwhile. Whoever holds the request answers it once, from any
 * thread, at any later time: http_reply…(), or http_stream_begin() for server-sent events. A request not
 * answered by its deadline is answered 504 by this module, and the late answer is dropped.
 *
 * This module knows nothing of jobs. Faults are RFC 9457 problem documents.
 */
#ifndef MUSTER_SERVER_HTTP_H
#define MUSTER_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bucket.h"
#include "base/merr.h"
#include "server/http/http_req.h"
#include "server/http/query.h"

#define HTTP_BODY_MAX (1 << 20)       /* 413 beyond, for people */
#define HTTP_AGENT_BODY_MAX (8 << 20) /* for agents' reports */
#define HTTP_AGENT_LARGE (256 << 10)  /* a report without much that a job has printed is smaller */
#define HTTP_PARAMS_MAX 4
#define HTTP_PROBE (-1) /* a route's timeout_s: 30 s, and nobody is told to come less often */
#define HTTP_ELSEWHERE_MAX 512

struct http;
/* A route: method, pattern ("/v1/jobs/{id}/cancel"), least role, handler. The handler owns the request from then
 * on and must see to it that it is answered. It runs on an HTTP thread and must not block: it hands on. */
struct http_route {
    const char *method, *pattern;
    enum http_role role; /* ROLE_NONE: no token needed; ROLE_AGENT: agents only */
    void (*handler)(void *arg, struct http_req *req);
    int timeout_s;                       /* 0: 30 s; long-polls say more */
    const struct query_parameter *query; /* that it takes (query.h); NULL: none */
};

/* Who a bearer token is, at this wall time. token NULL: none was sent. Runs on HTTP threads. *ret is written when it is
 * KNOWN. */
enum http_auth { HTTP_AUTH_UNKNOWN, HTTP_AUTH_EXPIRED, HTTP_AUTH_KNOWN };
typedef enum http_auth (*http_auth_fn)(void *arg, const char *token, int64_t wall_us, struct http_identity *ret);

struct http_cfg {
    const char *bind;               /* address */
    int port;                       /* 0: any free one, see http_port */
    const char *tls_cert, *tls_key; /* PEM files, both or neither */
    const char *node_ca; /* PEM: agents show a certificate of this authority, for their node; NULL: they show none */
    bool insecure;       /* allow binding beyond loopback without TLS */
    const struct http_route *routes;
    size_t n_routes;
    void *arg; /* of handlers and auth */
    http_auth_fn auth;
    /* A request was refused for want of a right, 401 or 403, before any handler had it. HTTP threads; may be NULL. */
    void (*refused)(void *arg, const struct http_req *r, int status, const char *code);
    /* Not NULL: what is no route (here of patterns without parts in braces) is sent to this address by 307, before its
     * body is read; "": 503, nobody knows where. Runs on HTTP threads. */
    void (*elsewhere)(void *arg, char ret[HTTP_ELSEWHERE_MAX]);
    /* How often one may come with a token, agents aside; and an address without one. per_s 0: as often as it likes. */
    struct bucket_rule per_token, per_address;
    struct bucket_rule of_large;               /* bytes of bodies beyond HTTP_AGENT_LARGE of one node; the same */
    void (*limited)(void *arg, bool by_token); /* one was told to wait; HTTP threads; may be NULL */
    int max_connections;                       /* 0: 4096 */
    int read_limit_ms; /* for a request's head, its body, and between two; 0: 75 s. While three quarters of the
                        * connections are taken, a fifteenth of it, so that those who wait get one */
};

int http_start(const struct http_cfg *cfg, struct http **ret, struct merr *err);
/* Read certificate and key again, for connections that begin from now on; on failure the old ones stay. Any thread. */
int http_reload(struct http *h, struct merr *err);
int http_port(const struct http *h);
/* Whether an address to bind is reached from this machine alone. */
bool http_is_loopback(const char *bind);
void http_stop(struct http *h); /* answers what waits with 503, ends streams, joins the threads */

#endif
