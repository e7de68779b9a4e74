/* calls - HTTP calls to a Muster server: several at once, without a thread, over connections that are kept
 *
 * Of several servers one leads. A call goes to the one that answered last. Where that cannot be reached, or sends the
 * call on to another by 307, the same call goes to that other one, if it is one of the servers given: so the token is
 * never sent to anybody else. A call that may have reached a server is not made again by itself.
 * A host that has silently gone, as one without power, is known by that within some nine seconds, also while a call
 * waits for an answer that may take long.
 * A call either fails at once or is answered by its callback from calls_wait, never both and never neither. Whether to
 * try again, and when, is the caller's to decide. One owner thread.
 */
#ifndef MUSTER_API_CLIENT_CALLS_H
#define MUSTER_API_CLIENT_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define CALLS_ANSWER_MAX (64 << 20) /* bytes of an answer */
#define CALLS_HEADERS_MAX 2         /* of a call, besides those that all have */
#define CALLS_FDS_MAX 8
#define CALLS_SERVERS_MAX 16

struct calls;

struct calls_cfg {
    const char *url;        /* "http://host:port" or "https://host:port"; several, separated by commas */
    const char *token;      /* the bearer token; NULL: that of token_file */
    const char *token_file; /* its first line, read again for each call; NULL: no token */
    const char *ca_file;    /* of the server's certificate; NULL: the system's */
    bool proxies;           /* go by the proxies of the environment */
};

/* The end of a call. status is the answer's, with its body (borrowed) and why ""; or why there was no answer, in words
 * and as -EHOSTUNREACH, -EINVAL (the address), -EACCES (the certificate), -EPROTO (it does not speak HTTP, or HTTPS),
 * -EMSGSIZE (above CALLS_ANSWER_MAX), -ECANCELED (by calls_data) or -ENOMEM. */
typedef void calls_done(void *arg, int status, const char *body, size_t len, const char *why);

/* A piece of the body of an answer 200 as it comes. Returns 0, or anything else to end the call. */
typedef int calls_data(void *arg, const char *data, size_t len);

struct call {
    const char *method, *path;
    const char *type; /* of the body; NULL: JSON */
    const char *body; /* NULL: none */
    size_t len;
    const char *headers[CALLS_HEADERS_MAX]; /* "Name: value", or NULL */
    int timeout_ms;                         /* all told; 0: none */
    int quiet_s;                            /* a call without a byte for so long is lost; 0: never */
    calls_data *data;                       /* NULL: the body goes to done */
    calls_done *done;
    void *arg;
};

/* Returns 0 with a new *ret, or -EINVAL for a url of another kind or more than CALLS_SERVERS_MAX, -ENOMEM. Nothing is
 * sent. */
int calls_new(const struct calls_cfg *cfg, struct calls **ret, struct merr *err);

/* Show this certificate from the next call on, a PEM file with its key that stays where it is. Calls on their way, and
 * the connections that they were made over, go on with what they have. Returns 0 or -ENOMEM. */
int calls_show_certificate(struct calls *h, const char *file, struct merr *err);

/* Calls still on their way end without a callback. */
void calls_free(struct calls *h);
void calls_drop(struct calls *h);

/* Begin a call; all that it points to is copied. Returns 0, -ENOMEM, or why the token cannot be read. */
int calls_begin(struct calls *h, const struct call *call, struct merr *err);

/* Run callbacks until nothing is left to do; when there was none, wait until there is, one of n fds is readable, or
 * deadline_us. */
void calls_wait(struct calls *h, const int *fds, int n, int64_t deadline_us);

/* Of the call whose callback runs or ran last: the seconds after which its answer asked to come again; 0: it did
 * not. */
int calls_retry_after_s(const struct calls *h);

/* Whether calls to one of these servers can be read on the way: it is another host than this one, and no https://. */
bool calls_in_clear(const char *urls);

/* The address of this machine from which the server, of several the first, is reached. -errno when there is no way. */
int calls_local_address(const char *url, char *ret, size_t size, struct merr *err);

#endif
