/* listing - which jobs are asked for, by user, project, state, name and labels, and lists of them
 *
 * User, project and state are found in the catalog, so jobs of others cost nothing; a name or labels are looked for in
 * the jobs that are left, so many for a page that the core's thread is never held up: the cursor goes on from there.
 * Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_LISTING_H
#define MUSTER_SERVER_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "server/cluster/catalog.h"
#include "server/cluster/job.h"

struct call;
struct core;

struct listing_label {
    char key[SPEC_LABEL_BYTES + 1], value[SPEC_LABEL_BYTES + 1];
    bool differs; /* "a!=b": it has no such label, or another value */
};

struct listing_wish {
    bool states[JOB_STATES];
    const char *user, *project, *name; /* borrowed; NULL: any. name: a part of it */
    struct listing_label labels[SPEC_LABELS_MAX];
    size_t n_labels;
};

/* The value of a filter, "user", "project", "state", "label" or "name~"; borrowed, NULL: it is not given. */
typedef const char *listing_get_fn(const void *arg, const char *name);

/* Read the filters. False: the call is answered. */
bool listing_read(struct call *call, listing_get_fn *get, const void *arg, struct listing_wish *ret);

/* Those of the caller's jobs that the catalog can tell. */
void listing_query(const struct core *c, const struct call *call, const struct listing_wish *w,
                   struct catalog_query *ret);

/* Whether a job has the name and labels. */
bool listing_fits(const struct listing_wish *w, const struct job *j);

void listing_jobs(struct core *c, struct call *call); /* GET /v1/jobs */

#endif
