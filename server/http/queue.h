/* queue - calls on their way from one thread to another, first in first out, with a limit */
#ifndef MUSTER_SERVER_QUEUE_H
#define MUSTER_SERVER_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

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

/* The same for one that somebody waits for, beyond the limit too: false only when the queue is closed. */
bool queue_give(struct queue *q, struct call *call);

/* Take up to most calls as a list, waiting until there is one, the queue is closed or the monotonic deadline. NULL
 * when there is none. */
struct call *queue_take(struct queue *q, size_t most, int64_t deadline_us);

void queue_close(struct queue *q);
bool queue_closed(struct queue *q);
size_t queue_length(struct queue *q);

#endif
