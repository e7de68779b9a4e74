/* queue - the operations that a program has begun and that are not done, told through the flight page of its rank
 *
 * Operations may overlap and end in any order. The rank waits in the oldest that is not done: that is the one in the
 * page, and those behind it are not entered yet. Calls may come from any thread, and none of them fails, for a failure
 * here must not be the program's.
 */
#ifndef MUSTER_WORKER_PROFILER_QUEUE_H
#define MUSTER_WORKER_PROFILER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct queue_group {
    char name[16];
    uint64_t key, calls, messages;
    int size;
};

struct queue_call {
    uint32_t op;           /* enum comm_call */
    int peer;              /* the rank whose message is waited for; -1: a call of all members */
    uint64_t bytes, agree; /* agree: a hash of what members must agree on */
    unsigned parts;        /* that are to be done */
};

/* Whether this process has a page: it is a rank that Muster started. */
bool queue_open(void);

void queue_group_init(struct queue_group *g, const char *name, uint64_t key, int size);

/* An operation begins; its number, from 1. */
uint64_t queue_begin(struct queue_group *g, const struct queue_call *call);

/* A part of it begins, or goes on. */
void queue_moved(void);

/* A part of it is done; one whose end was told before, or that was forgotten, is passed over. */
void queue_part_done(uint64_t number);

/* The group is gone, and with it what it had open. */
void queue_forget(const struct queue_group *g);

#endif
