/* libmuster-flight.so.1 - for the package muster: what a PyTorch program's process groups wait in, told through the
 * flight page of its rank. Its calls are private to api/python/muster/_c10d.py of the same release. */
#include <stdlib.h>

#include "worker/profiler/queue.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int mflight_open(void);
EXPORTED struct queue_group *mflight_group_new(const char *name, uint64_t key, int size);
EXPORTED void mflight_group_free(struct queue_group *g);
EXPORTED uint64_t mflight_begin(struct queue_group *g, uint32_t op, int peer, uint64_t bytes, uint64_t agree);
EXPORTED void mflight_end(uint64_t number);

int mflight_open(void)
{
    return queue_open();
}

struct queue_group *mflight_group_new(const char *name, uint64_t key, int size)
{
    struct queue_group *g = malloc(sizeof(*g));

    if (g)
        queue_group_init(g, name, key, size);
    return g;
}

void mflight_group_free(struct queue_group *g)
{
    queue_forget(g);
    free(g);
}

/* 0: it is not told. */
uint64_t mflight_begin(struct queue_group *g, uint32_t op, int peer, uint64_t bytes, uint64_t agree)
{
    const struct queue_call call = {.op = op, .peer = peer, .bytes = bytes, .agree = agree, .parts = 1};

    return g ? queue_begin(g, &call) : 0;
}

void mflight_end(uint64_t number)
{
    queue_part_done(number);
}
