/* http_upgrade - a request that becomes a WebSocket (RFC 6455): its socket is another module's from then on
 *
 * With TLS the socket is one to libmicrohttpd, which codes and decodes what passes. It must be closed before
 * http_stop().
 */
#ifndef MUSTER_SERVER_HTTP_UPGRADE_H
#define MUSTER_SERVER_HTTP_UPGRADE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/http/http_req.h"

struct http_socket;

/* Who has the socket from now on, that does not block. early: bytes that have come already, borrowed. On an HTTP
 * thread; the request is as it was in its handler. */
typedef void http_upgraded_fn(void *arg, const struct http_req *r, int fd, struct http_socket *s, const char *early,
                              size_t n);

/* Answer a held request by 101, and call fn once that is sent; not if the client has gone before. False: it asks for no
 * WebSocket of this protocol (Sec-WebSocket-Protocol) and is answered 426. */
bool http_upgrade(struct http_req *r, const char *protocol, http_upgraded_fn *fn, void *arg);

/* It is closed, and fd not to be used any more. Any thread. */
void http_upgrade_close(struct http_socket *s);

#endif
