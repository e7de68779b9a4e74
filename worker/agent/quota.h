/* quota - a share of a processor, held by a control group: what a rank on a slot of an emulated class gets
 *
 * Version 2 (cpu.max) where its cpu controller is there, else version 1 (cpu.cfs_quota_us).
 *
 * In version 2 a group whose children share out a controller may hold no process of its own, unless the children are
 * threaded groups and the controllers such that threads may have (cpu is one). Ours are threaded: the agent and whoever
 * else is in its group stay where they are, and systemd can put a new agent there while ranks of the old one run on,
 * which it could not otherwise ("Failed at step CGROUP": busy). The price is that a threaded group has no cgroup.kill,
 * and that no group of another kind with a process in it can be beside it.
 */
#ifndef MUSTER_WORKER_AGENT_QUOTA_H
#define MUSTER_WORKER_AGENT_QUOTA_H

#include <limits.h>
#include <stdbool.h>

#include "base/merr.h"

#define QUOTA_LEAST 0.02
#define QUOTA_MOST 64.0

/* The control group of this process below which groups with a share can be made; one is made, entered by a child and
 * removed to see. -ENOTSUP: there is none; err says what is missing and how to have it. */
int quota_find(char ret[PATH_MAX], struct merr *err);

/* Whether groups with a share below root are threaded. */
bool quota_threaded(const char *root);

/* Make the group dir below the one found, or take one that is there, and give it share processors' time. */
int quota_make(const char *dir, double share, struct merr *err);

/* Move this process there. 0 or a negative errno. Safe between fork and exec. */
int quota_join(const char *dir);

/* Remove a group without processes; none is fine. */
void quota_remove(const char *dir);

#endif
