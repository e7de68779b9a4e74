/* spec_after - what a spec says of the jobs that it comes after
 *
 * `after` lists such jobs, by id, and what is wanted of each. `${{after.0.dir}}` is the folder of the first, and
 * train.init.from may be {job: j17}, which is that job's newest checkpoint, or {job: j17, step: 200}. Pure.
 */
#ifndef MUSTER_API_SPEC_AFTER_H
#define MUSTER_API_SPEC_AFTER_H

#include "api/spec.h"

extern const char *const spec_when_names[]; /* "ok", "ended", "failed", "started", NULL */

/* Read v, a list of {job, when}, as it is kept: new, each with its when. NULL with a fault under pointer. */
json_t *spec_after_read(const json_t *v, const char *pointer, struct faults *f);

/* Put the folders of the jobs, which are below jobs_dir, where doc names them. */
void spec_after_fill(json_t *doc, const char *jobs_dir, struct faults *f);

#endif
