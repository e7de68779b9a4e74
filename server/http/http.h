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

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define HTTP_BODY_MAX (1 << 20)       /* 413 beyond, for people */
#define HTTP_AGENT_BODY_MAX (8 << 20) /* for agents' reports */
#define HTTP_PARAMS_MAX 4

enum http_role { ROLE_NONE, ROLE_VIEWER, ROLE_USER, ROLE_ADMIN, ROLE_AGENT }; /* admin may all but agent's */

const char *http_role_name(enum http_role role); /* "viewer", ...; never NULL */

struct http;
struct http_req;
struct http_stream;

struct http_identity {
    enum http_role role;
    char user[64];  /* of the token; "" for ROLE_NONE */
    char token[13]; /* the token's id */
};

/* A route: method, pattern ("/v1/jobs/{id}/cancel"), least role, handler. The handler owns the request from then
 * on and must see to it that it is answered. It runs on an HTTP thread and must not block: it hands on. */
struct http_route {
    const char *method, *pattern;
    enum http_role role; /* ROLE_NONE: no token needed; ROLE_AGENT: agents only */
    void (*handler)(void *arg, struct http_req *req);
    int timeout_s; /* 0: 30 s; long-polls say more */
};

/* Who a bearer token is. token NULL: none was sent. Runs on HTTP threads. Returns false when it is unknown. */
typedef bool (*http_auth_fn)(void *arg, const char *token, struct http_identity *ret);

struct http_cfg {
    const char *bind;               /* address */
    int port;                       /* 0: any free one, see http_port */
    const char *tls_cert, *tls_key; /* PEM files, both or neither */
    bool insecure;                  /* allow binding beyond loopback without TLS */
    const struct http_route *routes;
    size_t n_routes;
    void *arg; /* of handlers and auth */
    http_auth_fn auth;
    int max_connections; /* 0: 4096 */
    int read_limit_ms;   /* for a request's head, its body, and between two; 0: 75 s. While three quarters of the
                        * connections are taken, a fifteenth of it, so that those who wait get one */
};

int http_start(const struct http_cfg *cfg, struct http **ret, struct merr *err);
int http_port(const struct http *h);
void http_stop(struct http *h); /* answers what waits with 503, ends streams, joins the threads */

/* --- a request; everything returned is borrowed and lives until the answer --------------------------- */
const char *http_method(const struct http_req *r);
const char *http_path(const struct http_req *r);
const char *http_param(const struct http_req *r, int i);            /* i-th {…} of the pattern, decoded */
const char *http_query(const struct http_req *r, const char *name); /* decoded, NULL if absent */
const char *http_header(const struct http_req *r, const char *name);
const char *http_body(const struct http_req *r, size_t *ret_len);
const struct http_identity *http_identity(const struct http_req *r);
const char *http_request_id(const struct http_req *r); /* X-Request-Id, made when none came */
const struct http_route *http_route(const struct http_req *r);
bool http_wants_stream(const struct http_req *r);   /* Accept: text/event-stream */
void http_set_user(struct http_req *r, void *user); /* a pointer for whoever holds the request */
void *http_user(const struct http_req *r);

/* An extra header of the answer (ETag, Location, …); both copied. */
void http_set_header(struct http_req *r, const char *name, const char *value);

/* Answer. body is taken over ("stolen"), also on failure; NULL: an empty answer. */
void http_reply_new(struct http_req *r, int status, json_t *body);
/* Answer with text; copied. */
void http_reply_text(struct http_req *r, int status, const char *content_type, const char *text, size_t len);
/* Answer with a problem: type "urn:muster:problem:CODE", title from the status. */
void http_problem(struct http_req *r, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* 422 "spec-invalid" with errors [{pointer, message}], taken over. */
void http_problem_errors_new(struct http_req *r, const char *detail, json_t *errors);

/* Turn the request into a stream of server-sent events; the request is gone, the stream takes its place. */
struct http_stream *http_stream_begin(struct http_req *r);
/* Queue an event (id 0: none). Returns 0, -EPIPE once the client is gone, -ENOBUFS when it is too slow (more than
 * 1 MiB waits: the stream is ended after a "lagging" event, the client resumes by Last-Event-ID). Any thread. */
int http_stream_event(struct http_stream *s, uint64_t id, const char *event, const char *data);
/* Whether events have become useless: the client has left (noticed within seconds), or the stream has ended. */
bool http_stream_over(struct http_stream *s);
/* No more events; frees the stream. Must be called once for each stream, also after an error. */
void http_stream_end(struct http_stream *s);

#endif
