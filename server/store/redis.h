/* redis - the server's store process: started, watched, connected to
 *
 * A private redis-server lives in a folder, is reached by a Unix socket, writes every change to disk before it
 * answers (AOF, appendfsync always) and ends with this process however that ends: a thread of ours is its parent
 * for as long as we live. A lock file is held by the server process itself, so a folder is never used by two.
 * An outside Redis is only connected to. struct redis may be used by one thread, apart from redis_up().
 */
#ifndef MUSTER_SERVER_REDIS_H
#define MUSTER_SERVER_REDIS_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "base/merr.h"

struct redis;

/* dir: the private server's folder, made when missing; url: NULL, or "unix:///path" or "redis://host[:port]" of an
 * outside one. The private server is started and waited for. Returns 0, or a negative errno with words. */
int redis_start(const char *dir, const char *url, struct redis **ret, struct merr *err);

/* The live connection; NULL while there is none (then redis_connect). Borrowed. */
redisContext *redis_context(struct redis *r);

/* Drop what there is of a connection and make a new one, waiting until the server answers PING or the monotonic
 * deadline. Returns 0, -ETIMEDOUT with words. */
int redis_connect(struct redis *r, int64_t deadline_us, struct merr *err);

bool redis_private(const struct redis *r);
bool redis_up(const struct redis *r); /* any thread: the last call worked */
void redis_set_up(struct redis *r, bool up);

/* Ask the private server to end, wait for it, free. */
void redis_stop(struct redis *r);

/* Parse an URL. Returns 0 with exactly one of path (then *ret_port 0) or host. -EINVAL with words. */
int redis_url_parse(const char *url, char *ret_where, size_t size, int *ret_port, struct merr *err);

#endif
