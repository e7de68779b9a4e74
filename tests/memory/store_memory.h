/* store_memory - the store in this process's memory, for tests and for simulating the server
 *
 * It stands for the Redis, not for one who uses it: it outlives the servers that open a store on it (one that is killed
 * and one that takes over), several may at once, and who leads is decided as Redis decides it. The same commands give
 * the same data and replies as in Redis, with one difference: a table's rows come in the order in which they were first
 * put. Where something goes wrong is the choice of a hook. One thread.
 */
#ifndef MUSTER_TESTS_MEMORY_STORE_MEMORY_H
#define MUSTER_TESTS_MEMORY_STORE_MEMORY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/clock.h"
#include "server/store/store_ops.h"

struct store_memory;

enum store_moment { STORE_AT_LEAD, STORE_AT_COMMIT, STORE_AT_READ, STORE_AT_CONNECT };

enum store_fault {
    STORE_FINE,
    STORE_REFUSED,    /* a commit: it answers, but cannot write; else as STORE_LOST */
    STORE_LOST,       /* the connection breaks before it arrives; when connecting: nobody answers */
    STORE_UNANSWERED, /* it is carried out, and the connection breaks before the answer */
};

struct store_memory_hooks { /* any may be NULL */
    /* Asked before each call: what is to happen. A slow store lets time pass in here; a server that is to die sets its
     * stop flag and answers STORE_LOST or STORE_UNANSWERED, so that store_commit() returns -ECANCELED. */
    enum store_fault (*fault)(void *arg, enum store_moment at);
    /* One who uses the store waits for so long: the clock is to go on. */
    void (*wait)(void *arg, int64_t us);
    void *arg;
};

/* clock: for leases and what else ends by itself; borrowed. NULL: no memory. */
struct store_memory *store_memory_new(const struct clock *clock);

/* All stores on it are closed before. NULL is fine. */
void store_memory_free(struct store_memory *m);

void store_memory_set_hooks(struct store_memory *m, const struct store_memory_hooks *hooks);

/* A connection to it, for one store_open(). Returns it with *ret_backend, which is good until store_connection_free();
 * NULL: no memory. */
struct store_connection *store_memory_connect(struct store_memory *m, struct store_backend *ret_backend);
void store_connection_free(struct store_connection *c);

/* The one who holds it dies: nothing more goes through it, the lease is not given back. */
void store_connection_break(struct store_connection *c);

/* How long the lease of whoever leads has to live; 0: nobody leads. */
int64_t store_memory_lease_us(struct store_memory *m);

/* All that is in it, as values_dump(). New. Two memories hold the same if json_equal() says so. */
json_t *store_memory_dump(struct store_memory *m);

#endif
