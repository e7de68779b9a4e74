/* redis - a Redis as the backend of the store: the connection and what is sent over it
 *
 * Either a private server, which is started (redis_server.h), or one of somebody else's, which is only connected to.
 * A batch is applied by one Lua script. One thread, apart from what store_ops.h says.
 */
#ifndef MUSTER_SERVER_REDIS_H
#define MUSTER_SERVER_REDIS_H

#include <stddef.h>

#include "base/merr.h"
#include "server/store/store_ops.h"

struct redis;

/* dir: the private server's folder, made when missing; url: NULL, or "unix:///path", "redis://host[:port]" or one of
 * sentinel.h of an outside one. The private server is started and waited for. A batch is done once so many replicas
 * have it in memory; -1: one where there are Sentinels, else none. Returns 0, or a negative errno with words. */
int redis_start(const char *dir, const char *url, int replicas, struct redis **ret, struct merr *err);

/* Close the connection, end the private server, free. NULL is fine. */
void redis_stop(struct redis *r);

/* For store_open(), which must be closed before redis_stop(). */
struct store_backend redis_backend(struct redis *r);

/* Parse an URL. Returns 0 with exactly one of path (then *ret_port 0) or host. -EINVAL with words. */
int redis_url_parse(const char *url, char *ret_where, size_t size, int *ret_port, struct merr *err);

#endif
