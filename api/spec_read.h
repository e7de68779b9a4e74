/* spec_read - a spec while it is being read: which fields were given, which were bad */
#ifndef MUSTER_API_SPEC_READ_H
#define MUSTER_API_SPEC_READ_H

#include "api/spec_priv.h"

#define SPEC_FIELDS_MAX 144

enum read_state { READ_ABSENT, READ_GIVEN, READ_BAD };

struct reading {
    struct job_spec *spec;
    struct faults *f;
    enum read_state state[SPEC_FIELDS_MAX]; /* by row of spec_fields */
};

/* Fill in the defaults that depend on other fields, with faults for needed ones. Returns 0 or -ENOMEM. */
int spec_complete(struct reading *r);

/* How many tasks an array has, and the faults of what says so. */
void spec_check_array(struct reading *r);

/* How many combinations a matrix has; SPEC_TASKS_MAX + 1: more than there may be. */
size_t spec_combinations(const json_t *matrix);

/* Whether texts at the path of an array's spec have places to be filled in. */
bool spec_is_filled(const char *path);

/* The document of a task, new; full has no short forms. NULL with faults, or without memory. */
json_t *spec_fill_task(const json_t *full, const struct job_spec *spec, size_t position, const char *job,
                       json_t **ret_params, struct faults *f);

/* Where a command's files come from, and how many processes share a device: the faults of that. */
void spec_check_source(struct reading *r);

/* Add the faults of fields that are right one by one but not together, and of what this version does not do.
 * Fields that were bad themselves are left out of it. */
void spec_check(struct reading *r);

#endif
