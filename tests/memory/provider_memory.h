/* provider_memory - a provider of nodes in this process's memory, for tests and for simulating one
 *
 * What is asked of it waits until a test grants it. Where something goes wrong is the choice of its fields. One thread.
 */
#ifndef MUSTER_TESTS_MEMORY_PROVIDER_MEMORY_H
#define MUSTER_TESTS_MEMORY_PROVIDER_MEMORY_H

#include "server/control/provider.h"

#define PROVIDER_MEMORY_MAX 256

struct provider_memory_one {
    char name[64], queue[64], account[64];
    int count;
    bool runs;
    json_t *nodes; /* with their join codes */
};

struct provider_memory {
    struct provider_memory_one v[PROVIDER_MEMORY_MAX];
    size_t n;
    int requests, releases, lists; /* that came */
    int refuse;                    /* so many requests fail */
    int lose_answers;              /* so many requests are carried out, and fail */
    int keep;                      /* so many releases are answered, and nothing is done */
    bool silent;                   /* lists fail */
    bool twice;                    /* each is listed twice */
};

/* Let a core use it; both are borrowed. */
struct provider_way provider_memory_way(struct provider_memory *m);
void provider_memory_clear(struct provider_memory *m);

/* The newest is granted; one of this number in the order of requests is over. */
void provider_memory_grant(struct provider_memory *m);
void provider_memory_end(struct provider_memory *m, size_t i);

#endif
