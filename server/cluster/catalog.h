/* catalog - the numbers of all jobs that are known, those that have ended too, in order, by user, project and state
 *
 * So a list is found without looking at jobs that are not in it, and what a user keeps here is known at once. A row is
 * some hundred bytes; the rest of an ended job is in the store. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_CATALOG_H
#define MUSTER_SERVER_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/cluster/job.h"

#define CATALOG_SETS_MAX 512 /* that one condition of a search may name; names beyond it are left out */

struct catalog_set { /* rows by rising number, v[first] to v[first + n - 1] */
    struct catalog_row **v;
    size_t first, n, cap;
};

struct catalog_name { /* of a user, or of a project */
    char name[SPEC_NAME_MAX];
    struct catalog_name *next; /* of its bucket */
    struct catalog_set active, ended;
    size_t n_of[JOB_STATES];
    uint64_t active_bytes, ended_bytes;
    uint64_t shipped, ended_logs;
    uint64_t logs_from; /* no ended job of a lower number has logs */
};

struct catalog_row {
    uint64_t id;
    struct catalog_name *user, *project;
    uint64_t bytes;   /* that are kept of it: its spec, its record, its events */
    uint64_t shipped; /* bytes of logs and metrics that were kept of it; not counted in bytes */
    uint64_t logs;    /* bytes of logs that the spool has, when last counted, and */
    uint64_t counted; /* shipped + 1 at that time; 0: they never were */
    enum job_state state;
    bool task;     /* of an array: in no list of jobs */
    uint16_t late; /* notes that came after it had ended */
};

#define CATALOG_BUCKETS 1024

struct catalog {
    struct catalog_name *users[CATALOG_BUCKETS], *projects[CATALOG_BUCKETS];
    struct catalog_set of_state[JOB_STATES], tasks[JOB_STATES];
    size_t n_ended;
    uint64_t active_bytes, ended_bytes;
    uint64_t shipped, logs;
};

void catalog_clear(struct catalog *c); /* of a zeroed one, too */

/* Put a new job in. Returns 0; -EEXIST; -ENOMEM: then it is not in. */
int catalog_add(struct catalog *c, uint64_t id, const char *user, const char *project, enum job_state state,
                uint64_t bytes);

/* The same for a task of an array, which catalog_next() passes over. */
int catalog_add_task(struct catalog *c, uint64_t id, const char *user, const char *project, enum job_state state,
                     uint64_t bytes);

/* Borrowed until the job is dropped; NULL: it is not in. */
struct catalog_row *catalog_find(const struct catalog *c, uint64_t id);

/* What is known of a user or project; NULL: it has no job. Borrowed until the next change. */
const struct catalog_name *catalog_user(const struct catalog *c, const char *name);
const struct catalog_name *catalog_project(const struct catalog *c, const char *name);

int catalog_move(struct catalog *c, struct catalog_row *row, enum job_state to); /* 0; -ENOMEM: it is as it was */
void catalog_ship(struct catalog *c, struct catalog_row *row, uint64_t bytes);   /* so many more were kept */
void catalog_count_logs(struct catalog *c, struct catalog_row *row, uint64_t bytes);
void catalog_resize(struct catalog *c, struct catalog_row *row, uint64_t bytes);
void catalog_drop(struct catalog *c, struct catalog_row *row);

/* The oldest ended job of the user who keeps the most ended jobs, or the most bytes of such: so that nobody's many jobs
 * make others' be forgotten. NULL: none has ended. */
struct catalog_row *catalog_surplus(const struct catalog *c, bool by_bytes);

/* The oldest ended job that has logs, of the user whose ended jobs have the most bytes of them; NULL: none has. */
struct catalog_row *catalog_most_logs(struct catalog *c);

/* --- searching --------------------------------------------------------------------------------------- */

struct catalog_any { /* a job in any of these sets */
    const struct catalog_set *of[CATALOG_SETS_MAX];
    size_t n;
};

struct catalog_query { /* a job that is in one of each */
    struct catalog_any all[4];
    size_t n;
    size_t looks; /* rows that were looked at */
};

/* Conditions; in a query of zeros there is none yet. A name that has no job is found nowhere. */
struct catalog_any *catalog_query_any(struct catalog_query *q); /* a new one, of no set */
void catalog_any_user(const struct catalog *c, struct catalog_any *any, const char *name);
void catalog_any_project(const struct catalog *c, struct catalog_any *any, const char *name);
void catalog_query_states(const struct catalog *c, struct catalog_query *q, const bool states[JOB_STATES]);

/* The job with the highest number below that one; NULL: none is left, or `most` rows were looked at meanwhile (then
 * *ret_below is where to go on, else 0). */
struct catalog_row *catalog_next(struct catalog_query *q, uint64_t below, size_t most, uint64_t *ret_below);

#endif
