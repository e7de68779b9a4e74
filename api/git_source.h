/* git_source - which repositories a job may name, and what of them
 *
 * What is accepted cannot be read by git, or by the ssh that it starts, as an option or as another way to fetch, and
 * holds no password: a spec is seen by more people than its owner. Pure.
 */
#ifndef MUSTER_API_GIT_SOURCE_H
#define MUSTER_API_GIT_SOURCE_H

#include <stdbool.h>

#include "base/merr.h"

#define GIT_SOURCE_PROTOCOLS "https:ssh:file" /* as GIT_ALLOW_PROTOCOL has them */

/* https://HOST/PATH, ssh://[USER@]HOST/PATH, file:///PATH or an absolute path. Returns 0 or -EINVAL. */
int git_source_check_url(const char *url, struct merr *err);

/* The name of a branch, a tag or a commit. Returns 0 or -EINVAL. */
int git_source_check_ref(const char *ref, struct merr *err);

/* Whether it is a commit in full: 40 hex digits, or 64. */
bool git_source_is_commit(const char *commit);

#endif
