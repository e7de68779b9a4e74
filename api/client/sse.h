/* sse - server-sent events out of a stream of bytes that comes in pieces of any size */
#ifndef MUSTER_API_CLIENT_SSE_H
#define MUSTER_API_CLIENT_SSE_H

#include <stddef.h>

#include "base/buf.h"

#define SSE_EVENT_MAX (4 << 20) /* bytes of one event */

struct sse {
    struct buf line, data;
    char type[32], id[32];
    char last_id[32]; /* of the last whole event that had one */
    int cr;
};

/* Return 0 to go on; anything else ends the parsing. */
typedef int sse_event_fn(void *arg, const char *type, const char *data);

void sse_init(struct sse *s);
void sse_clear(struct sse *s);

/* Forget a half event: before a new connection. last_id stays. */
void sse_restart(struct sse *s);

/* Take bytes and call fn for each event that ends in them. Returns 0, what fn returned if not 0, or -EMSGSIZE when
 * an event is longer than SSE_EVENT_MAX. */
int sse_feed(struct sse *s, const char *bytes, size_t len, sse_event_fn *fn, void *arg);

#endif
