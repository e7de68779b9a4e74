/* duplex - a WebSocket to a Muster server: messages both ways, of a session (api/protocol/frame.h)
 *
 * Opening waits for the answer; from then on nothing waits: the caller polls duplex_fd() and calls duplex_work(). Pings
 * are answered, and a server that sends nothing for DUPLEX_LOST_US, pings included, is gone. Of several servers the
 * first that takes the request is it. One owner thread.
 */
#ifndef MUSTER_API_CLIENT_DUPLEX_H
#define MUSTER_API_CLIENT_DUPLEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/protocol/frame.h"
#include "base/merr.h"

#define DUPLEX_LOST_US INT64_C(45000000)
#define DUPLEX_QUEUE_MAX (2 << 20) /* bytes that wait to be sent */

struct duplex;

struct duplex_cfg {
    const char *url;        /* of the server, or several with commas between */
    const char *path;       /* of the request, "/v1/exec/..." */
    const char *token_file; /* its first line is the bearer token; NULL: none is needed */
    const char *ca_file;    /* NULL: the system's */
    const char *cert_file;  /* PEM, with its key, to be shown; NULL: none */
    bool proxies;           /* go by those of the environment */
};

/* -EHOSTUNREACH; -EPERM: it was answered, and err has the words; -ENOMEM. */
int duplex_open(const struct duplex_cfg *cfg, struct duplex **ret, struct merr *err);
void duplex_free(struct duplex *d); /* what waits is lost; NULL is fine */

int duplex_fd(const struct duplex *d);
short duplex_events(const struct duplex *d);  /* for poll() */
bool duplex_more(const struct duplex *d);     /* there is more to read at once: do not wait for it */
size_t duplex_queued(const struct duplex *d); /* bytes that wait to be sent */

/* Send a message of this kind. -EMSGSIZE, -ENOMEM: it is lost, and nothing can be sent any more. */
int duplex_send(struct duplex *d, enum session_message kind, const void *data, size_t len);

/* Send what can be. Returns 0 or -EPIPE. */
int duplex_flush(struct duplex *d, struct merr *err);

/* Send all that waits, then a close. */
void duplex_close(struct duplex *d, enum frame_close code, const char *why);

/* Send and read what can be; fn is called with each message. Returns 0; 1 when the other end has closed, err with its
 * words; -EPIPE when it was lost; what fn returned if that was not 0. */
int duplex_work(struct duplex *d, int (*fn)(void *arg, enum session_message kind, char *data, size_t len), void *arg,
                struct merr *err);

#endif
