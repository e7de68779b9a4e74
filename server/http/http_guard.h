/* http_guard - how often an address may come with a token that is not known
 *
 * A table of fixed size: an address that was not seen for long loses its place to another. IPv6 addresses count by
 * their /64, which is one customer's. Safe from any thread.
 */
#ifndef MUSTER_SERVER_HTTP_GUARD_H
#define MUSTER_SERVER_HTTP_GUARD_H

#include <stdint.h>
#include <sys/socket.h>

#define HTTP_GUARD_BURST 30 /* refusals that an address gets at once, */
#define HTTP_GUARD_PER_S 1  /* and then each second; beyond, it is told to wait */

struct http_guard;

struct http_guard *http_guard_new(void); /* NULL: no memory */
void http_guard_free(struct http_guard *g);

/* This address has failed once more. Returns 0, or for how many seconds it is to stay away. */
int http_guard_fail(struct http_guard *g, const struct sockaddr *address, int64_t now_us);

#endif
