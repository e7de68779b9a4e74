/* http_head - whether the head of a request means the same to everybody who reads it
 *
 * A proxy and this server must not see two requests where there is one: a head with two lengths, a length and a
 * transfer coding, lines that do not end with CR LF, folded lines or a NUL is refused.
 */
#ifndef MUSTER_SERVER_HTTP_HEAD_H
#define MUSTER_SERVER_HTTP_HEAD_H

#include <microhttpd.h>

/* What is wrong with the head of a connection's request, whose method and version are those that libmicrohttpd calls
 * back with, not copies; uri_len: bytes of the URI as it was sent; NULL: nothing. */
const char *http_head_fault(struct MHD_Connection *conn, const char *method, size_t uri_len, const char *version);

#endif
