/* bundles - the calls about uploads, which jobs of them may name, and which go
 *
 * What is uploaded is kept by store/bundle_store.h, on a thread that parses large bodies (readers.h), and stays as long
 * as a job that has not ended names it. The other functions are the core's.
 */
#ifndef MUSTER_SERVER_BUNDLES_H
#define MUSTER_SERVER_BUNDLES_H

#include <stdbool.h>

#include "base/merr.h"

struct call;
struct core;
struct entry;

/* PUT and GET /v1/bundles/{name}, on any thread: the call has its answer then. Whether a bundle has become complete,
 * which is noted as a change. */
bool bundles_take(const struct core *c, struct call *call);

/* Whether the user of a new job has the bundle that it names, from now on kept for it; else why not, in words. */
bool bundles_are_there(const struct core *c, const struct entry *e, struct merr *why);

/* Now and then, let those go that no job needs any more. */
void bundles_tick(struct core *c);

#endif
