/* profile - the profile of a class of devices as JSON: `muster profile`, what agents tell, "profile" of a cluster file
 *
 * Its fields are in docs/planning.md. Values only.
 */
#ifndef MUSTER_API_PROFILE_H
#define MUSTER_API_PROFILE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/merr.h"
#include "scheduler/plan/profile.h"

#define PROFILE_VERSION 1
#define PROFILE_TEXT_MAX (256u << 10) /* of its file */
#define PROFILE_FILE_MAX 4096

/* Read doc, borrowed. -EINVAL with the field at fault, -EPROTO of a version that is not known; *ret is unchanged
 * then. */
int profile_read(const json_t *doc, struct plan_profile *ret, struct merr *err);

/* New; NULL without memory. measured_s: when it was made, seconds of the wall clock; took_s: how long that took; both
 * 0: it is of several. */
json_t *profile_write(const struct plan_profile *p, bool quick, long long measured_s, double took_s);

/* Where a user's profile of this machine is kept: muster/profile.json of the cache folder. False: there is no home. */
bool profile_kept_file(char ret[PROFILE_FILE_MAX]);

/* Write doc to a file, with the folders that lead to it. 0 or as io_publish_file. */
int profile_keep(const char *file, const json_t *doc, struct merr *err);

/* Of n profiles (at least 1) each time's and rate's median, and the most and least memory. Those whose tables have
 * other sizes than those of the first are left out. *ret is none of them. */
void profile_median(const struct plan_profile *const *p, size_t n, struct plan_profile *ret);

#endif
