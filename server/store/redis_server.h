/* redis_server - the private redis-server of a musterd: started, watched, ended
 *
 * It lives in a folder, is reached by a Unix socket there, writes every change to disk before it answers (AOF,
 * appendfsync always) and ends with this process however that ends: a thread of ours, the keeper, is its parent for as
 * long as we live, and starts it again where it ends by itself. A lock file is held by the server process itself, so a
 * folder is never used by two. All that others need to know of it is the socket's path (redis.h connects).
 */
#ifndef MUSTER_SERVER_REDIS_SERVER_H
#define MUSTER_SERVER_REDIS_SERVER_H

#include "base/merr.h"

#define REDIS_SERVER_PATH_MAX 64

struct redis_server;

/* Start one in the folder, which is made when missing. It may take a while to answer: connecting shows. Returns 0, or a
 * negative errno with words. */
int redis_server_start(const char *dir, struct redis_server **ret, struct merr *err);

/* Ask it to end, wait for it, free. NULL is fine. */
void redis_server_stop(struct redis_server *s);

/* Where it is reached, for as long as s is: a path short enough for a socket. */
void redis_server_socket(const struct redis_server *s, char ret[REDIS_SERVER_PATH_MAX]);

/* Its folder, where its log is. Borrowed. */
const char *redis_server_dir(const struct redis_server *s);

#endif
