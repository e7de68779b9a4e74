#include "server/http/queue.h"

#include <assert.h>
#include <time.h>

#include "server/http/call.h"

void queue_init(struct queue *q, size_t limit)
{
    pthread_condattr_t attr;

    *q = (struct queue){.limit = limit, .tail = &q->head};
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->more, &attr);
    (void)pthread_condattr_destroy(&attr);
}

void queue_destroy(struct queue *q)
{
    assert(q->n == 0);
    (void)pthread_mutex_destroy(&q->lock);
    (void)pthread_cond_destroy(&q->more);
}

static bool put(struct queue *q, struct call *call, size_t limit)
{
    bool ok;

    (void)pthread_mutex_lock(&q->lock);
    ok = !q->closed && q->n < limit;
    if (ok) {
        call->next = NULL;
        *q->tail = call;
        q->tail = &call->next;
        if (q->n++ == 0)
            (void)pthread_cond_signal(&q->more);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return ok;
}

bool queue_put(struct queue *q, struct call *call)
{
    return put(q, call, q->limit);
}

bool queue_give(struct queue *q, struct call *call)
{
    return put(q, call, SIZE_MAX);
}

struct call *queue_take(struct queue *q, size_t most, int64_t deadline_us)
{
    struct timespec ts = {.tv_sec = deadline_us / 1000000, .tv_nsec = deadline_us % 1000000 * 1000};
    struct call *list, **end;

    assert(most > 0);
    (void)pthread_mutex_lock(&q->lock);
    while (q->n == 0 && !q->closed)
        if (pthread_cond_timedwait(&q->more, &q->lock, &ts) != 0)
            break;
    list = q->head;
    end = &list;
    while (*end && most-- > 0) {
        end = &(*end)->next;
        q->n--;
    }
    q->head = *end;
    *end = NULL;
    if (!q->head)
        q->tail = &q->head;
    (void)pthread_mutex_unlock(&q->lock);
    return list;
}

void queue_close(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->closed = true;
    (void)pthread_cond_broadcast(&q->more);
    (void)pthread_mutex_unlock(&q->lock);
}

bool queue_closed(struct queue *q)
{
    bool closed;

    (void)pthread_mutex_lock(&q->lock);
    closed = q->closed;
    (void)pthread_mutex_unlock(&q->lock);
    return closed;
}

size_t queue_length(struct queue *q)
{
    size_t n;

    (void)pthread_mutex_lock(&q->lock);
    n = q->n;
    (void)pthread_mutex_unlock(&q->lock);
    return n;
}
