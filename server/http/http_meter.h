/* http_meter - requests counted by http_guard.h: who comes too often is told to wait, the others what is left
 *
 * For the threads of libmicrohttpd.
 */
#ifndef MUSTER_SERVER_HTTP_METER_H
#define MUSTER_SERVER_HTTP_METER_H

#include "server/http/http_priv.h"

/* Count a request that has its route and its identity. False, with words: its token, or its address without one, comes
 * too often. */
bool http_meter_take(struct http_req *r, struct MHD_Connection *conn, char *ret_why, size_t size);

/* Count the body of an agent's request, once it is read. False: it is large, and its node has sent too many of those;
 * nobody has looked into it. A smaller one is taken. */
bool http_meter_body(struct http_req *r);

/* An answer is about to say that a token or a code is not known: an address that hears it too often is told to wait
 * instead. What is known is always taken, so that nobody suffers from another who guesses behind the same address.
 * r->lock is held. */
void http_meter_guess(struct http_req *r, struct MHD_Connection *conn);

/* Headers that say what is left. */
void http_meter_tell(const struct http_req *r, struct MHD_Response *response);

#endif
