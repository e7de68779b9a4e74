/* http_guard - how often an address, or the holder of a token, may come: a token bucket for each
 *
 * A table of fixed size: who was not seen for long loses the place to another. IPv6 addresses count by their /64, which
 * is one customer's. Safe from any thread.
 */
#ifndef MUSTER_SERVER_HTTP_GUARD_H
#define MUSTER_SERVER_HTTP_GUARD_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/bucket.h"

#define HTTP_GUARD_BURST 30 /* refusals of unknown tokens that an address gets at once, */
#define HTTP_GUARD_PER_S 1  /* and then each second; beyond, it is told to wait */

struct http_guard;

struct http_guard *http_guard_new(const struct bucket_rule *rule); /* NULL: no memory */
void http_guard_free(struct http_guard *g);                        /* NULL is fine */

struct http_rate { /* what one who came is told */
    int wait_s;    /* 0: taken; else so long to stay away */
    int limit, left, reset_s;
};

/* This address, or the one of this name, has come once more. */
struct http_rate http_guard_address(struct http_guard *g, const struct sockaddr *address, int64_t now_us);
struct http_rate http_guard_name(struct http_guard *g, const char *name, int64_t now_us);

/* One of this name wants n of what the buckets hold. */
struct http_rate http_guard_amount(struct http_guard *g, const char *name, double n, int64_t now_us);

#endif
