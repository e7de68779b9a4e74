/* queue - requests on their way from one thread to another, first in first out, with a limit
 *
 * A call is one request: what its handler read from it, and the answer once there is one. It belongs to one thread
 * at a time; putting it into a queue hands it on.
 */
#ifndef MUSTER_SERVER_QUEUE_H
#define MUSTER_SERVER_QUEUE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "server/http/http.h"

struct call {
    struct call *next;
    void (*run)(void *owner, struct call *call); /* on the thread whose queue it is in */
    struct http_req *req;  /* NULL: none waits for an answer, or it has been turned into a stream */
    json_t *body;          /* owned, may be NULL */
    struct job_spec *spec; /* owned: a submit's */
    char *text;            /* owned: its spec as JSON, or bytes of a body */
    uint64_t hash;         /* of the body */
    uint64_t job;
    uint32_t generation;
    bool flag;
    int64_t began_us;

    json_t *acks, *fresh; /* owned: a report's, from the files' thread: what is durable; what was new in it */

    int status; /* 0: not answered yet */
    json_t *reply;
    char etag[32];
    char *page; /* owned: an answer that is text, not JSON */
};

struct queue {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t more;
    struct call *head, **tail;
    size_t n, limit;
    bool closed;
};

void queue_init(struct queue *q, size_t limit);
void queue_destroy(struct queue *q); /* must be empty */

/* Hand the call on. False when the queue is full or closed: the call stays the caller's. */
bool queue_put(struct queue *q, struct call *call);

/* Take up to most calls as a list, waiting until there is one, the queue is closed or the monotonic deadline. NULL
 * when there is none. */
struct call *queue_take(struct queue *q, size_t most, int64_t deadline_us);

void queue_close(struct queue *q);
bool queue_closed(struct queue *q);
size_t queue_length(struct queue *q);

struct call *call_new(struct http_req *req, void (*run)(void *owner, struct call *call));
void call_free(struct call *call);

/* Set the answer; the first one stands. reply is taken over. */
void call_answer_new(struct call *call, int status, json_t *reply);
void call_problem(struct call *call, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* "limit" of a list's query: a number from 1 to most, def without it. False: the call is answered. */
bool call_page_limit(struct call *call, size_t def, size_t most, size_t *ret);

/* Send the answer and free the call. */
void call_deliver(struct call *call);

#endif
