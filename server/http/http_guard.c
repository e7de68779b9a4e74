#include "server/http/http_guard.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"

#define SETS 1024
#define WAYS 4

struct place {
    uint64_t key; /* 0: free */
    struct bucket bucket;
};

struct http_guard {
    struct bucket_rule rule;
    uint64_t seed; /* so that nobody can choose addresses that share a set */
    pthread_mutex_t lock;
    struct place v[SETS][WAYS]; /* guarded by lock */
};

struct http_guard *http_guard_new(const struct bucket_rule *rule)
{
    struct http_guard *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->rule = *rule;
    (void)getrandom(&g->seed, sizeof(g->seed), 0);
    (void)pthread_mutex_init(&g->lock, NULL);
    return g;
}

void http_guard_free(struct http_guard *g)
{
    if (g)
        (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

static uint64_t key_of(const struct http_guard *g, const struct sockaddr *address)
{
    unsigned char text[8 + 16] = {0};
    uint64_t key;

    memcpy(text, &g->seed, sizeof(g->seed));
    if (address && address->sa_family == AF_INET)
        memcpy(text + 8, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    else if (address && address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;

        if (IN6_IS_ADDR_V4MAPPED(v6))
            memcpy(text + 8, &v6->s6_addr[12], 4);
        else
            memcpy(text + 8 + 8, v6, 8);
    }
    key = hash_xxh3(text, sizeof(text));
    return key ? key : 1;
}

static int ceil_s(double s)
{
    return s > (int)s ? (int)s + 1 : (int)s;
}

static struct http_rate take(struct http_guard *g, uint64_t key, double n, int64_t now_us)
{
    struct place *set = g->v[key % SETS], *at = &set[0];
    struct http_rate ret = {.limit = (int)g->rule.burst};

    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < WAYS; i++) { /* its own, else a free one, else the one not seen for longest */
        if (set[i].key == key) {
            at = &set[i];
            break;
        }
        if (set[i].bucket.at_us < at->bucket.at_us)
            at = &set[i];
    }
    if (at->key != key)
        *at = (struct place){.key = key, .bucket.at_us = now_us};
    ret.wait_s = (int)((bucket_take(&at->bucket, &g->rule, n, now_us) + 999999) / 1000000);
    ret.left = (int)(g->rule.burst - at->bucket.spent);
    ret.reset_s = ceil_s(at->bucket.spent / g->rule.per_s);
    pthread_mutex_unlock(&g->lock);
    return ret;
}

struct http_rate http_guard_address(struct http_guard *g, const struct sockaddr *address, int64_t now_us)
{
    return take(g, key_of(g, address), 1, now_us);
}

struct http_rate http_guard_name(struct http_guard *g, const char *name, int64_t now_us)
{
    return http_guard_amount(g, name, 1, now_us);
}

struct http_rate http_guard_amount(struct http_guard *g, const char *name, double n, int64_t now_us)
{
    uint64_t key = hash_xxh3(name, strlen(name)) ^ g->seed;

    return take(g, key ? key : 1, n, now_us);
}
