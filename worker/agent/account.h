/* account - what of a run belongs to whom, where a helper starts ranks under other accounts (worker/helper/helper.h)
 *
 * The folder of a run, and what the agent and the shims make in it, stay the agent's; the rank's user may make files
 * there beside them, but neither remove nor replace what is not its own (sticky, with its group). The job's folder, its
 * folder in the node's memory, and the rank's /tmp are the user's, with the agent's group. Nobody else gets in.
 */
#ifndef MUSTER_WORKER_AGENT_ACCOUNT_H
#define MUSTER_WORKER_AGENT_ACCOUNT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

struct account {
    int helper;         /* the socket (guard.h); 0: none: all is the agent's */
    char shm[PATH_MAX]; /* folder of folders that are a run's /dev/shm; "": none */
};

/* The folder in it that becomes the /dev/shm of a run. Returns ret; NULL: none. */
const char *account_shm(const struct account *a, const char *folder, char ret[PATH_MAX]);

/* Make what a run of user has of its own, and share its folder, whose rendezvous is there, and the job's, dir. */
int account_share_run(const struct account *a, const char *folder, const char *dir, const char *user, struct merr *err);

/* Likewise a file of it that the agent has made: writable or only to be read. */
int account_share_file(const struct account *a, const char *path, bool writable, struct merr *err);

/* An upload that a run of user is to read; one that is not there is its rank's to tell. */
int account_share_upload(const struct account *a, const char *path, const char *user, struct merr *err);

/* Likewise the job's folder in the node's memory; those of its runs see it in their /dev/shm. */
int account_share_memory(const struct account *a, const char *path, const char *folder, const char *user,
                         struct merr *err);

/* Remove what is the user's in a folder of theirs or of a run: as that user. What is not permitted stays, and what
 * there is no time for, or when stop_fd (-1: none) becomes readable. */
void account_clean(const struct account *a, const char *folder, int64_t budget_us, int stop_fd);

/* Remove all of a folder of folders that are users' or of a run. */
void account_drop(const struct account *a, const char *root);

#endif
