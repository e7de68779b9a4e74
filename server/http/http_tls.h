/* http_tls - the certificate and key of HTTPS, read again while the server runs
 *
 * Connections that begin get the newest; those that are there go on with what they have. TLS 1.2 and 1.3 with ciphers
 * that authenticate (AEAD) and keys of each connection's own. One server of a process has certificates at a time.
 */
#ifndef MUSTER_SERVER_HTTP_TLS_H
#define MUSTER_SERVER_HTTP_TLS_H

#include <microhttpd.h>

#include "base/merr.h"

#define HTTP_TLS_OPTIONS 4

struct http_tls;

/* Read both PEM files. 0; -EINVAL, or why a file cannot be read, with words. */
int http_tls_new(const char *cert, const char *key, struct http_tls **ret, struct merr *err);
void http_tls_free(struct http_tls *t); /* no connection is left */

/* Read them again. On failure all stays as it was. Any thread. */
int http_tls_reload(struct http_tls *t, struct merr *err);

/* What libmicrohttpd is to be started with. authority: clients are asked for a certificate of it; NULL: for none. */
void http_tls_options(const struct http_tls *t, const char *authority, struct MHD_OptionItem ret[HTTP_TLS_OPTIONS]);

#endif
