#include "server/control/waiters.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define NONE UINT32_MAX
#define BUCKETS 4096 /* a power of two */

struct waiter {
    uint64_t thing;
    int64_t deadline_us;
    uint32_t next, prev; /* of its bucket; next of the free ones */
    bool used, awake;
};

struct waiters {
    size_t limit, size;
    struct waiter *v;
    unsigned char *own; /* size bytes for each of v */
    uint32_t *awake;    /* n_awake places in v, oldest first; each is there once */
    size_t n, n_awake, cap;
    uint32_t free; /* the first place in v that is not used */
    uint32_t bucket[BUCKETS];
};

struct waiters *waiters_new(size_t limit, size_t size)
{
    struct waiters *w = calloc(1, sizeof(*w));

    assert(limit < NONE);
    if (!w)
        return NULL;
    w->limit = limit;
    w->size = size;
    w->free = NONE;
    memset(w->bucket, 0xff, sizeof(w->bucket));
    return w;
}

void waiters_free(struct waiters *w)
{
    if (!w)
        return;
    free(w->v);
    free(w->own);
    free(w->awake);
    free(w);
}

size_t waiters_count(const struct waiters *w)
{
    return w->n;
}

static uint32_t *bucket_of(struct waiters *w, uint64_t thing)
{
    return &w->bucket[thing * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (BUCKETS - 1)];
}

static int grow(struct waiters *w)
{
    size_t cap = w->cap ? w->cap * 2 : 64;
    struct waiter *v;
    unsigned char *own;
    uint32_t *awake;

    cap = cap < w->limit ? cap : w->limit;
    if (cap == w->cap)
        return -ENOSPC;
    v = realloc(w->v, cap * sizeof(*v));
    w->v = v ? v : w->v;
    own = realloc(w->own, cap * w->size);
    w->own = own ? own : w->own;
    awake = realloc(w->awake, cap * sizeof(*awake));
    w->awake = awake ? awake : w->awake;
    if (!v || !own || !awake)
        return -ENOMEM; /* what did grow is used next time */
    for (size_t i = cap; i-- > w->cap;) {
        v[i] = (struct waiter){.next = w->free};
        w->free = (uint32_t)i;
    }
    w->cap = cap;
    return 0;
}

static void wake(struct waiters *w, uint32_t at)
{
    if (w->v[at].awake)
        return;
    w->v[at].awake = true;
    w->awake[w->n_awake++] = at;
}

int waiters_add(struct waiters *w, uint64_t thing, int64_t deadline_us, const void *own)
{
    uint32_t *head = bucket_of(w, thing), at;
    int r = w->free == NONE ? grow(w) : 0;

    if (r < 0)
        return r;
    at = w->free;
    w->free = w->v[at].next;
    w->v[at] = (struct waiter){.thing = thing, .deadline_us = deadline_us, .next = *head, .prev = NONE, .used = true};
    memcpy(w->own + at * w->size, own, w->size);
    if (*head != NONE)
        w->v[*head].prev = at;
    *head = at;
    w->n++;
    wake(w, at);
    return 0;
}

static void drop(struct waiters *w, uint32_t at)
{
    struct waiter *one = &w->v[at];

    if (one->next != NONE)
        w->v[one->next].prev = one->prev;
    if (one->prev != NONE)
        w->v[one->prev].next = one->next;
    else
        *bucket_of(w, one->thing) = one->next;
    *one = (struct waiter){.next = w->free};
    w->free = at;
    w->n--;
}

uint64_t waiters_node(const char *name)
{
    return hash_xxh3(name, strlen(name));
}

void waiters_wake(struct waiters *w, uint64_t thing)
{
    for (uint32_t at = *bucket_of(w, thing); at != NONE; at = w->v[at].next)
        if (w->v[at].thing == thing)
            wake(w, at);
}

void waiters_wake_due(struct waiters *w, int64_t now_us)
{
    for (uint32_t at = 0; at < w->cap; at++)
        if (w->v[at].used && w->v[at].deadline_us <= now_us)
            wake(w, at);
}

void waiters_wake_all(struct waiters *w)
{
    waiters_wake_due(w, INT64_MAX);
}

void waiters_take(struct waiters *w, int64_t now_us, waiters_fn *fn, void *arg)
{
    for (size_t i = 0; i < w->n_awake; i++) {
        uint32_t at = w->awake[i];

        w->v[at].awake = false;
        if (fn(arg, w->own + at * w->size, w->v[at].deadline_us <= now_us))
            drop(w, at);
    }
    w->n_awake = 0;
}
