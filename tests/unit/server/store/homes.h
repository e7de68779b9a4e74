/* homes - both backends of the store, for tests that run on each: one private Redis a program, and memory
 *
 * HOMES(test) names the test twice in a table for cmocka_run_group_tests(tests, homes_start, homes_stop). Each run has
 * an empty home and one store open on it: *state is a struct home.
 */
#ifndef MUSTER_TESTS_UNIT_SERVER_STORE_HOMES_H
#define MUSTER_TESTS_UNIT_SERVER_STORE_HOMES_H

#include "tests/unit/test.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "server/store/redis.h"
#include "server/store/store_priv.h"
#include "tests/memory/store_memory.h"
#include "tests/unit/fake_clock.h"

#define HOMES(f)                                                                                                       \
    {#f "_in_redis", f, home_in_redis, home_leave, NULL},                                                              \
    {                                                                                                                  \
#f "_in_memory", f, home_in_memory, home_leave, NULL                                                           \
    }
#define HOME_STORES 4

struct home {
    struct fake_clock clock;     /* of the memory */
    struct store_memory *memory; /* NULL: it is the Redis */
    struct redis *redis[HOME_STORES];
    struct store_connection *connection[HOME_STORES];
    struct store_backend backend[HOME_STORES];
    struct store *store[HOME_STORES]; /* [0] is open from the start */
    struct store_mark mark;           /* for those that are opened later */
    bool accept_loss;
    int n;
};

static struct {
    char folder[32];
    struct redis *redis;
    redisContext *direct;
} homes;

static inline int homes_start(void **state)
{
    struct merr err = {""};
    char path[64];

    (void)state;
    (void)snprintf(homes.folder, sizeof(homes.folder), "/tmp/muster-store-XXXXXX");
    if (!mkdtemp(homes.folder) || redis_start(homes.folder, NULL, 0, &homes.redis, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/redis.sock", homes.folder);
    homes.direct = redisConnectUnix(path);
    return homes.direct && !homes.direct->err ? 0 : -1;
}

static inline int homes_stop(void **state)
{
    (void)state;
    if (homes.direct)
        redisFree(homes.direct);
    redis_stop(homes.redis);
    return io_remove_tree(homes.folder, NULL);
}

/* One more connection, with its backend. */
static inline int home_connect(struct home *h)
{
    int at = h->n++;
    char url[64];

    assert_true(at < HOME_STORES);
    if (h->memory) {
        h->connection[at] = store_memory_connect(h->memory, &h->backend[at]);
        assert_non_null(h->connection[at]);
        return at;
    }
    (void)snprintf(url, sizeof(url), "unix://%s/redis.sock", homes.folder);
    assert_int_equal(redis_start(NULL, url, 0, &h->redis[at], NULL), 0);
    h->backend[at] = redis_backend(h->redis[at]);
    return at;
}

/* One more store on the same data; NULL: it does not come to lead. */
static inline struct store *home_open(struct home *h, bool force)
{
    struct store_cfg cfg = {.force = force, .lease_s = STORE_LEASE_S, .mark = h->mark, .accept_loss = h->accept_loss};
    int at = home_connect(h);
    struct merr err = {""};

    if (store_open(&h->backend[at], &cfg, &h->store[at], &err) < 0) {
        print_message("%s\n", err.text);
        h->store[at] = NULL;
    }
    return h->store[at];
}

static inline void home_close(struct home *h, int at)
{
    store_close(h->store[at]);
    h->store[at] = NULL;
}

static inline int home_in_redis(void **state)
{
    struct home *h = calloc(1, sizeof(*h));

    *state = h;
    freeReplyObject(redisCommand(homes.direct, "FLUSHALL"));
    return home_open(h, true) ? 0 : -1;
}

static inline void home_wait(void *arg, int64_t us)
{
    fake_clock_pass(&((struct home *)arg)->clock, us);
}

static inline int home_in_memory(void **state)
{
    struct home *h = calloc(1, sizeof(*h));

    *state = h;
    h->memory = store_memory_new(fake_clock_init(&h->clock, 1, INT64_C(1700000000000000)));
    assert_non_null(h->memory);
    store_memory_set_hooks(h->memory, &(struct store_memory_hooks){.wait = home_wait, .arg = h});
    return home_open(h, true) ? 0 : -1;
}

static inline int home_leave(void **state)
{
    struct home *h = *state;

    for (int i = 0; i < h->n; i++) {
        home_close(h, i);
        store_connection_free(h->connection[i]);
        redis_stop(h->redis[i]);
    }
    store_memory_free(h->memory);
    free(h);
    return 0;
}

/* Commit what the store has collected. */
static inline int home_commit(struct store *s)
{
    _Atomic int stop = 0;

    return store_commit(s, &stop, NULL);
}

#endif
