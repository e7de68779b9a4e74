/* users - people of the simulated cluster: they submit, watch, cancel, suspend, and remember what they were told
 *
 * What they were told must stay true: a job that was acknowledged is there, once; one that has ended stays as it ended;
 * a job that somebody asked to cancel ends. What is not answered is asked again with the same Idempotency-Key.
 *
 * A command job is "play MILLISECONDS EXIT-CODE [stubborn]", which the machines understand (machines.c).
 */
#ifndef MUSTER_TESTS_SIM_USERS_H
#define MUSTER_TESTS_SIM_USERS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/wire.h"
#include "tests/sim/world.h"

#define USERS_NAME "alice"
#define USERS_PROJECTS 3 /* beside the default one */

struct book;
struct users;

struct users_wish {
    int jobs;
    int64_t over_us; /* they are submitted over so long */
    int widest;      /* devices of a job at most */
    bool arrays;     /* some jobs are arrays */
};

/* The book says what really became of ranks: what users are told of their ends is held against it. */
struct users *users_new(struct world *w, struct wire *n, const struct book *book, const struct users_wish *wish);
void users_free(struct users *u);

/* Whether every job was acknowledged and is known to have ended. */
bool users_content(const struct users *u);

/* Say which job is not over, where one is not: a violation. */
void users_complain(const struct users *u);

struct users_sum {
    int acknowledged, succeeded, failed, cancelled, replayed, calls, retries;
};

struct users_sum users_sum(const struct users *u);

/* The number of an acknowledged job, by which the user knows it; 0: not acknowledged. */
uint64_t users_job(const struct users *u, int i);
int users_count(const struct users *u);

/* Jobs that one user may have at once: the honest one has never more. */
int users_limit(const struct users_wish *wish);

/* Whether the projects are there. */
bool users_ready(const struct users *u);

/* Devices of project "tight", which may not borrow: a few, more where there are many jobs. */
int users_quota(const struct users *u);

#endif
