/* checkout - a commit of a repository, fetched by git into a folder */
#ifndef MUSTER_WORKER_AGENT_CHECKOUT_H
#define MUSTER_WORKER_AGENT_CHECKOUT_H

#include <stdint.h>

#include "base/merr.h"

/* Fetch commit of url (api/git_source.h) into the empty folder, and lay out its files, by deadline_us (monotonic).
 * git asks nobody for a password, runs no hook, and fetches over allowed protocols alone; submodules are left out. What
 * it says goes to stderr. Returns 0, -ENOENT without a git, -ETIMEDOUT, or -EIO when git fails. */
int checkout_commit(const char *url, const char *commit, const char *folder, int64_t deadline_us, struct merr *err);

#endif
