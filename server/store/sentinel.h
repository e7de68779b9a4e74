/* sentinel - which Redis of a group is the master now, as its Sentinels say
 *
 * The address is "sentinel://HOST:PORT,HOST:PORT/NAME": any number of them up to SENTINEL_MAX, and the name under which
 * they watch the group. They are asked in turn, at each connect; the first that knows is believed, and the Redis itself
 * is asked, too. One thread.
 */
#ifndef MUSTER_SERVER_SENTINEL_H
#define MUSTER_SERVER_SENTINEL_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/merr.h"

#define SENTINEL_MAX 8
#define SENTINEL_HOST_MAX 128

struct sentinel {
    char name[64];
    struct {
        char host[SENTINEL_HOST_MAX];
        int port;
    } v[SENTINEL_MAX];
    size_t n;
};

/* 0; -ENOENT: it is no address of Sentinels; -EINVAL with words. */
int sentinel_parse(const char *url, struct sentinel *ret, struct merr *err);

/* The master's address. 0; -ENOENT: no Sentinel answers, or none knows one. */
int sentinel_find(const struct sentinel *s, char ret_host[SENTINEL_HOST_MAX], int *ret_port);

/* Whether a Redis takes itself for a master. */
bool sentinel_confirms(redisContext *c);

#endif
