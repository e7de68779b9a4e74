/* spec_array - the tasks of an array: which there are, and the spec of each
 *
 * A task has a position, from 0, and an index, which its owner chose. Its values are a row of the matrix, in the order
 * of nested loops whose last name turns fastest, or are drawn by its index and the search's seed: so they can be told
 * of any task without those before it. Pure.
 */
#ifndef MUSTER_API_SPEC_ARRAY_H
#define MUSTER_API_SPEC_ARRAY_H

#include <stddef.h>
#include <sys/types.h>

#include "api/spec.h"
#include "base/merr.h"

#define SPEC_TASKS_MAX 100000
#define SPEC_INDEX_MAX 9999999
#define SPEC_INDEX_BYTES 65535 /* of a list of indices */
#define SPEC_PARAMS_MAX 16
#define SPEC_TRIALS_MAX 4096 /* tasks of a search by asha */

struct spec_indices { /* owned: spec_indices_clear() */
    struct spec_range {
        int first, last, step;
        size_t before; /* tasks in the ranges before it */
    } * v;
    size_t n, tasks;
};

/* "0-99:2,120": numbers and ranges that grow. -EINVAL with words, -ENOMEM. */
int spec_indices_read(const char *text, struct spec_indices *ret, struct merr *err);
void spec_indices_clear(struct spec_indices *all);
int spec_index_at(const struct spec_indices *all, size_t position);
ssize_t spec_position_of(const struct spec_indices *all, int index); /* -1: there is no such task */

/* The indices of an array's spec: those that it names, or 0, 1, ... 0 or -ENOMEM. */
int spec_indices_of(const struct job_spec *spec, struct spec_indices *ret);

/* The values of a task by their names: new, without members where there are none. NULL: no memory. */
json_t *spec_task_params(const struct job_spec *spec, int index, size_t position);

/* The spec of a task, from its array's document and spec; job is the id of the array. Faults as spec_from_json();
 * *ret_params (may be NULL) is new. 0, -EINVAL, -ENOMEM. */
int spec_task(const json_t *doc, const struct job_spec *spec, size_t position, const char *job,
              struct job_spec **ret_spec, json_t **ret_params, struct faults *f);

/* Add the faults of tasks: of the first, the last and some between, and of each of the first values of each name. */
void spec_check_tasks(const json_t *doc, const struct job_spec *spec, struct faults *f);

#endif
