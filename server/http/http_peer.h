/* http_peer - the certificate by which an agent shows, besides its token, that it is its node
 *
 * Looked at once a connection, when an agent first asks over it, and held to the time at each request. Its name (CN) is
 * to be the node of the token, its unit (OU) the token's id (server/control/node_ca.h).
 */
#ifndef MUSTER_SERVER_HTTP_PEER_H
#define MUSTER_SERVER_HTTP_PEER_H

#include <stdint.h>

#include "server/http/http_priv.h"

/* Why an agent's request is not taken, as the code of a problem with its words in why; NULL: it is. On the thread of
 * the connection. */
const char *http_peer_fault(struct http_req *r, struct http_conn *c, int64_t wall_us, char *why, size_t size);

#endif
