/* post - messages to others' servers, sent by a thread of their own
 *
 * A message is a POST of HTTP, or a mail that a relay on this host takes. It is sent once, over its own connection, to
 * an address that reach.h allows; no redirect is followed, no proxy asked, nothing of the answer is kept but its
 * status. It ends within POST_WAIT_MS, names are resolved in other threads, and what a receiver sends back is cut.
 * Whether to try again is the caller's to decide.
 */
#ifndef MUSTER_API_CLIENT_POST_H
#define MUSTER_API_CLIENT_POST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/client/reach.h"
#include "base/merr.h"

#define POST_QUEUE_MAX 1024   /* messages that wait or are on their way */
#define POST_WAIT_MS 10000    /* for one, from its name to its answer */
#define POST_ANSWER_MAX 65536 /* bytes of an answer, with its head */
#define POST_HEADERS_MAX 4
#define POST_WHY_MAX 200

struct post;

struct post_message {
    uint64_t id;
    const char *url;                       /* http://, https://; of mail the relay's: smtp://HOST:PORT */
    const char *headers[POST_HEADERS_MAX]; /* "Name: value", or NULL */
    const char *from, *to;                 /* of mail; NULL: it is none */
    const char *body;
    size_t len;
    bool trusted; /* its url is the operator's own: any address may be called, and connections are kept */
};

/* One has ended: the answer's status, 0: there was none, and why not, in words. On the thread of post. */
typedef void post_done(void *arg, uint64_t id, int status, int ms, const char *why);

struct post_cfg {
    struct reach reach;
    post_done *done;
    void *arg;
};

int post_start(const struct post_cfg *cfg, struct post **ret, struct merr *err); /* 0, -ENOMEM, -EAGAIN */

/* Send a message; all of it is copied. False: too many are waiting, or there is no memory. Any thread. */
bool post_send(struct post *p, const struct post_message *m);

/* What is on its way ends without being told of. NULL is fine. */
void post_stop(struct post *p);

/* How the messages of a program leave it, and what its operator allows. */
struct post_way {
    bool (*send)(void *self, const struct post_message *m); /* NULL: they do not */
    void *self;
    bool plain;               /* http:// will do */
    const char *relay, *from; /* of mail: "smtp://HOST:PORT" and the sender; NULL: there is none */
    const char *domains;      /* to which mail may go, separated by commas; NULL: all */
};

/* What is wrong with a URL for post_send(): in words; NULL: nothing. plain: http:// will do. */
const char *post_check_url(const char *url, bool plain);

#endif
