/* http_priv - what the files of the HTTP side share: the server, its connections, a request and its stream
 *
 * Lifetime of a request: libmicrohttpd holds one reference from the request line to the completion callback, the
 * handler's side holds one from the handler's call to its one answer. `lock` guards the state; whoever moves it
 * out of HELD answers, everybody later is dropped. A connection is suspended and resumed under that lock, so
 * a request found suspended can be resumed, once.
 *
 * Locks are taken in the order http.lock, http_req.lock, then libmicrohttpd's own.
 */
#ifndef MUSTER_SERVER_HTTP_PRIV_H
#define MUSTER_SERVER_HTTP_PRIV_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "server/http/http.h"
#include "server/http/http_guard.h"
#include "server/http/http_loops.h"
#include "server/http/http_page.h"
#include "server/http/http_parse.h"
#include "server/http/http_stream.h"
#include "server/http/http_tls.h"
#include "server/http/http_upgrade.h"

#define HTTP_HEADERS_MAX 48     /* kept of a request */
#define HTTP_OUT_HEADERS_MAX 12 /* set by a handler */
#define HTTP_STREAM_QUEUE_MAX (1 << 20)
#define HTTP_HEARTBEAT_US (15 * 1000000LL)

struct http_peer { /* http_peer.c; of the connection's thread */
    bool seen, shown;
    char node[64], token[13]; /* "": it is not good */
    int64_t until_us;         /* wall */
};

struct http_conn { /* guarded by http.lock, but peer */
    struct http_peer peer;
    struct http_conn *prev, *next;
    int fd;
    bool busy;        /* a request was read whole and is not completed */
    int64_t since_us; /* opened, or the last request completed, or the present one's head read */
};

struct http {
    struct http_cfg cfg; /* texts borrowed until http_start returns; routes for good */
    struct http_loops *loops;
    int port;
    atomic_bool stopping;
    struct http_tls *tls;                     /* NULL: it speaks HTTP */
    struct http_guard *guard;                 /* of addresses without a token that is known */
    struct http_guard *by_token, *by_address; /* of all others, but agents; NULL: any number */
    struct http_guard *large;                 /* bytes of large reports; NULL: any number */

    pthread_mutex_t lock; /* guards the lists and sweeping */
    pthread_cond_t wake;  /* the sweeper must end; or the last request is completed */
    struct http_req *reqs;
    struct http_conn *conns;
    size_t n_conns;
    bool sweeper_ends;
    pthread_t sweeper;
};

enum http_state { HTTP_READING, HTTP_HELD, HTTP_ANSWERED, HTTP_STREAMING, HTTP_UPGRADED };

struct http_stream { /* part of its request, guarded by its lock */
    struct buf queue;
    size_t sent;     /* bytes of queue that went out */
    bool ended;      /* nothing more comes */
    int64_t last_us; /* last time bytes went out */
};

struct http_req {
    struct http *h;               /* not touched once gone */
    struct http_req *prev, *next; /* http.reqs, guarded by http.lock */
    atomic_int refs;

    pthread_mutex_t lock; /* guards the block below */
    enum http_state state;
    bool in_handler; /* the handler is being called: an answer is sent when it returns */
    bool suspended;
    bool gone; /* libmicrohttpd has completed it */
    struct MHD_Connection *conn;
    int64_t deadline_us;
    struct http_stream stream;
    http_upgraded_fn *upgraded; /* of HTTP_UPGRADED */
    void *upgraded_arg;

    /* the answer: written by whoever moved state to HTTP_ANSWERED, read by the HTTP thread after that */
    int status;
    const char *content_type;
    char content_type_copy[64];
    char *out;
    struct http_page *page; /* not NULL: a reference to what is sent in place of out */
    size_t out_len;
    struct {
        char *name, *value;
    } out_headers[HTTP_OUT_HEADERS_MAX]; /* of the handler: its own until the answer */
    size_t n_out_headers;

    /* the question: fixed before the handler is called */
    char *uri;       /* as sent, for the record */
    char *uri_parts; /* path and query point into it */
    char method[16];
    char address[INET6_ADDRSTRLEN];
    bool is_head, begun;
    bool cut_off; /* refused, and what follows on the connection is not read */
    struct http_path path;
    struct http_fields query;
    const char *params[HTTP_PARAMS_MAX];
    const struct http_route *route;
    struct http_identity identity;
    struct http_rate rate; /* limit 0: it was not counted */
    char request_id[HTTP_REQUEST_ID_MAX + 1];
    struct buf header_text; /* name NUL value NUL, … */
    size_t n_headers;
    struct buf body;
    size_t body_seen; /* bytes that came, kept or not */
};

void http_req_unref(struct http_req *r);

/* Whether the client of a request that sleeps has closed its connection. r->lock is held. */
bool http_closed(const struct http_req *r);

/* Wake the connection of r if it sleeps. r->lock is held. */
void http_wake(struct http_req *r);

/* http_set_header with r->lock held. */
void http_set_header_locked(struct http_req *r, const char *name, const char *value);

/* Fill in a problem as r's answer; nothing is sent. */
void http_fill_problem(struct http_req *r, int status, const char *code, const char *detail);

/* Streams, for the sweeper: heartbeat and gone clients. r->lock is held. */
void http_stream_sweep(struct http_req *r, int64_t now_us);
struct MHD_Response *http_stream_response(struct http_req *r);

/* For one whose socket goes to another module. */
struct MHD_Response *http_upgrade_response(struct http_req *r);

/* For the page of r's answer. */
struct MHD_Response *http_page_response(struct http_req *r);

#endif
