/* guard - a rank under another account: the helper's other end (worker/helper/helper.h)
 *
 * The agent has a socket to the helper, a shim one to the guard of its rank. In the shim's child, where the rank would
 * be, a process stands for it: it passes on what it is sent, and ends as the rank does.
 */
#ifndef MUSTER_WORKER_AGENT_GUARD_H
#define MUSTER_WORKER_AGENT_GUARD_H

#include <stdbool.h>

#include "base/merr.h"

/* The socket to the helper that this process was started with; 0: it was started without one. */
int guard_helper(void);

/* Whether the helper has ended. Not to be asked while an answer is waited for. */
bool guard_lost(int helper);

/* A new guard: *ret_fd is the socket to it. */
int guard_open(int helper, int *ret_fd, struct merr *err);

/* Give a file or folder of ours to user ("": the jobs' account), with our group; group: its group alone, and let that
 * have mode. Waits for the answer. -EACCES, with the helper's words: it does not for that user. */
int guard_give(int helper, const char *path, const char *user, bool group, unsigned mode, struct merr *err);

struct guard_rank {
    const char *user;      /* "": the jobs' account */
    const char *tmp, *shm; /* folders for its /tmp and /dev/shm; NULL: as they are */
    const char *keep;      /* a folder below /dev/shm that it is to see all the same; NULL: none */
    const char *groups;    /* control groups (cgroup.h) */
    const char *folder;    /* where it works */
    char *const *argv;
    bool alone; /* no other rank of its job is on this node */
};

/* Have the guard start a rank that writes to output_fd, and stand for it with signals (blocked here) passed on. Returns
 * its wait status, or -1 with words in err: it was not started; *ret_user: by a fault of who asked for that user. */
int guard_run(int wire, const struct guard_rank *rank, int output_fd, const int *signals, int n_signals, bool *ret_user,
              struct merr *err);

#endif
