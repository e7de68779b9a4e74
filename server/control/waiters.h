/* waiters - long-polls that wait for something with a number, found by it
 *
 * A waiter waits for one thing, a 64-bit number (of a node or of a job). To wake a thing costs as much as there are
 * waiters for it, however many wait for others; waiters_take() then looks at those that were woken and no more. A new
 * waiter is awake, and so is one past its deadline after waiters_wake_due(). Not thread safe: the core owns it.
 */
#ifndef MUSTER_SERVER_WAITERS_H
#define MUSTER_SERVER_WAITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct waiters;

/* Room for at most limit waiters, each with size bytes of its own. NULL: no memory. */
struct waiters *waiters_new(size_t limit, size_t size);
void waiters_free(struct waiters *w); /* those that wait are dropped */

size_t waiters_count(const struct waiters *w);

/* One that waits for a thing; own is copied. 0, -ENOSPC (the limit) or -ENOMEM. */
int waiters_add(struct waiters *w, uint64_t thing, int64_t deadline_us, const void *own);

/* A node as a thing to wait for; a job is its number. That two are taken for one costs a look, no more. */
uint64_t waiters_node(const char *name);

void waiters_wake(struct waiters *w, uint64_t thing);
void waiters_wake_due(struct waiters *w, int64_t now_us);
void waiters_wake_all(struct waiters *w);

/* Look at one that is awake, in the order in which they woke. True: it has its answer and is dropped; else it sleeps
 * again. due: it is past its deadline. The set must not be changed from within. */
typedef bool waiters_fn(void *arg, void *own, bool due);
void waiters_take(struct waiters *w, int64_t now_us, waiters_fn *fn, void *arg);

#endif
