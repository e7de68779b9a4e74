/* array - the tasks of the arrays that are known: which wait, which are jobs, how those have ended
 *
 * A task becomes a job with a number of its own when its turn has come; before that, and when that job is forgotten,
 * it is eight bytes here and some letters in a row of the store, which holds ARRAY_CHUNK tasks. Owned by the core's
 * thread.
 */
#ifndef MUSTER_SERVER_ARRAY_H
#define MUSTER_SERVER_ARRAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec_array.h"
#include "scheduler/tune/asha.h"
#include "server/cluster/job.h"

#define ARRAY_CHUNK 128
#define ARRAY_BUCKETS 1024
#define ARRAY_TASK_BYTES 8

enum array_state { ARRAY_WAITS, ARRAY_OPEN, ARRAY_SUCCEEDED, ARRAY_FAILED, ARRAY_CANCELLED, ARRAY_STATES };

struct array_task {
    uint64_t job : 60; /* 0: it never was one */
    uint64_t state : 4;
};

struct array {
    uint64_t job; /* its own number */
    struct array *next, *due_next,
        *dirty_next; /* of its bucket; of those that there is something to do for, to store */
    struct spec_indices indices;
    struct array_task *tasks;
    size_t n_of[ARRAY_STATES];
    size_t open[JOB_STATES]; /* of open tasks */
    size_t live;             /* open tasks that have devices: never more than may run */
    size_t max_running;
    size_t shown;     /* of a round (round.c) */
    size_t cursor;    /* no task before it waits */
    uint8_t *changed; /* by chunk: to be stored */
    bool due, dirty, is_new;
    bool resumed, reordered;   /* its open tasks are still to follow it in that */
    size_t fail_limit;         /* 0: it goes on whatever fails */
    struct asha_trial *trials; /* owned, by position: of a search that pauses them; NULL: it is none */
    struct asha_rules rules;
    char metric[64];
};

struct array_set {
    struct array *buckets[ARRAY_BUCKETS];
    struct array *due, *dirty;
};

/* A new one whose tasks all wait; indices are taken over, on failure, too. NULL: no memory, or it is there. */
struct array *array_add_take(struct array_set *all, uint64_t job, struct spec_indices *indices, size_t fail_limit);
struct array *array_find(const struct array_set *all, uint64_t job); /* NULL: it is not known */
void array_drop(struct array_set *all, struct array *a);
void array_set_clear(struct array_set *all);

static inline size_t array_size(const struct array *a)
{
    return a->indices.tasks;
}

void array_due(struct array_set *all, struct array *a);   /* there is something to do for it */
void array_dirty(struct array_set *all, struct array *a); /* it is to be stored */
struct array *array_take_due(struct array_set *all);      /* one that is due, and is not any more; NULL: none is */
struct array *array_take_dirty(struct array_set *all);

/* A task is of that state now; job stays as it is where it is 0. */
void array_set_task(struct array_set *all, struct array *a, size_t position, uint64_t job, enum array_state state);

/* Its job, which is open, has gone from one state to another; JOB_STATES as from: it is new here. */
void array_moved(struct array_set *all, struct array *a, size_t position, enum job_state from, enum job_state to);

/* The first task that waits; array_size(): none does. */
size_t array_first_waiting(struct array *a);

/* The state of a task as that of a job: what is open is JOB_STARTING. */
enum job_state array_job_state(enum array_state state);

/* --- as it is kept and shown --- */

size_t array_chunks(const struct array *a);
char *array_print_chunk(const struct array *a, size_t chunk);                      /* new; NULL: no memory */
int array_read_chunk(struct array *a, size_t chunk, const char *text, size_t len); /* 0, -EINVAL: it is unchanged */

/* It is a search whose trials are paused. 0 or -ENOMEM. */
int array_set_search(struct array *a, const struct asha_rules *rules, const char *metric);

/* What the trials of a chunk have come to, new (NULL: no memory), and back: 0, -EINVAL. */
json_t *array_trials_json(const struct array *a, size_t chunk);
int array_read_trials(struct array *a, size_t chunk, const json_t *list);

json_t *array_record(const struct array *a);                                      /* what does not change of it, new */
int array_read_record(struct array_set *all, uint64_t job, const json_t *record); /* -EINVAL, -ENOMEM */

/* The indices of the tasks of a state, as a spec names them, new; at most `most` bytes, then it ends with ",...". */
char *array_indices(const struct array *a, enum array_state state, size_t most);

/* How many tasks there are of each state, and which wait. New. */
json_t *array_view(const struct array *a, int max_running);

#endif
