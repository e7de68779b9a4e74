/* profile - the profile of a class of devices as JSON: `muster profile`, what agents tell, "profile" of a cluster file
 *
 * Its fields are in docs/planning.md. Values only.
 */
#ifndef MUSTER_API_PROFILE_H
#define MUSTER_API_PROFILE_H

#include <jansson.h>

#include "base/merr.h"
#include "scheduler/plan/profile.h"

#define PROFILE_VERSION 1
#define PROFILE_TEXT_MAX (256u << 10) /* of its file */

/* Read doc, borrowed. -EINVAL with the field at fault, -EPROTO of a version that is not known; *ret is unchanged
 * then. */
int profile_read(const json_t *doc, struct plan_profile *ret, struct merr *err);

/* New; NULL without memory. measured_s: when it was made, seconds of the wall clock; took_s: how long that took; both
 * 0: it is of several. */
json_t *profile_write(const struct plan_profile *p, bool quick, long long measured_s, double took_s);

/* Of n profiles (at least 1) each time's and rate's median, and the most and least memory. Those whose tables have
 * other sizes than those of the first are left out. *ret is none of them. */
void profile_median(const struct plan_profile *const *p, size_t n, struct plan_profile *ret);

#endif
