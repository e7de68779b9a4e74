/* helper - the only part of Muster that is root: it starts ranks as their submitters
 *
 * `muster-helper AGENT-ACCOUNT JOB-ACCOUNT PROGRAM ARGUMENT...`, started by root, becomes PROGRAM (muster-agent) as
 * AGENT-ACCOUNT. A child of it stays root. It ends when nobody has the other end of its socket any more, whose number
 * stands in HELPER_ENV, and for who has that it does two things:
 *
 * - HELPER_GIVE: an open file or folder of the agent's, or of its group, goes to a user, with the agent's group, or to
 *   that user's group.
 * - HELPER_GUARD: a fork of this process, a guard, serves another socket. It starts one rank, passes signals on to it,
 *   and tells how it ended once nothing of it is left. When the other end is closed, all of the rank is killed.
 *
 * A rank begins as `PROGRAM rank` with the file of the order as descriptor 3, so that what is to be run, where, and
 * with which environment is read as its user (worker/agent/order.h). Refused are root, the agent's own account, and
 * those below UID_MIN of /etc/login.defs but for JOB-ACCOUNT. A rank has no capability, an empty bounding set,
 * no_new_privs, and of its user's groups those from that number on, but none that stands for root (docker), and those
 * of devices (video, render). Its /tmp and /dev/shm are folders that the agent handed over; mounts go nowhere else. It
 * is in the control groups that the agent handed over. Where it is alone on its node it has a pid namespace.
 *
 * At its start the helper makes control groups named muster-jobs that are the agent's: the agent sets limits there, and
 * no rank can leave what another account owns. It has no_new_privs and six capabilities, a guard CAP_KILL alone once
 * its rank is there. It looks up no path that it was given, and writes no log: what is refused is said to who asked.
 * Who sends what is no struct helper_call is hung up on.
 */
#ifndef MUSTER_WORKER_HELPER_HELPER_H
#define MUSTER_WORKER_HELPER_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HELPER_ENV "MUSTER_HELPER"
#define HELPER_GROUPS "muster-jobs"
#define HELPER_ORDER_FD 3 /* of a rank that begins */

/* Descriptors of a packet. HELPER_START has the first two at least; those from HELPER_CGROUP on are folders of control
 * groups; where there is no KEEP, SHM stands in for it. */
enum helper_fd { HELPER_FILE, HELPER_OUTPUT, HELPER_TMP, HELPER_SHM, HELPER_KEEP, HELPER_CGROUP, HELPER_FDS = 12 };

enum helper_kind {
    HELPER_GIVE = 'G',       /* FILE is to be .user's. DONE or FAILED */
    HELPER_GIVE_GROUP = 'g', /* likewise of .user's group */
    HELPER_GUARD = 'R',      /* FILE is a socket to serve. Nothing is told */
    HELPER_START = 'S',      /* to a guard: DONE or FAILED */
    HELPER_SIGNAL = 'K',     /* to a guard: .number goes to the rank's process group. Nothing is told */
    HELPER_DONE = 'D',
    HELPER_FAILED = 'F', /* .text says why */
    HELPER_ENDED = 'E',  /* of a guard, last: the rank has ended with the wait status .number */
};

struct helper_call {
    int32_t kind, number;
    char user[64];  /* "": JOB-ACCOUNT */
    char keep[256]; /* where KEEP is mounted, below /dev/shm; "": nowhere */
    uint32_t alone; /* in a pid namespace */
};

struct helper_told {
    int32_t kind, number;
    char text[200];
};

struct helper_user {
    char name[64];
    uid_t uid;
    gid_t gid;
};

struct helper {
    struct helper_user agent, job; /* the accounts of the command line */
    int program;                   /* muster-agent */
};

/* Whether a packet of so many bytes, with so many descriptors, can be acted upon: its texts end, its place is one. */
bool helper_check(const struct helper_call *c, size_t bytes, int n_fds);

/* Receive a packet into *ret, and the caller's descriptors, -1 where there is none. False: the socket has ended, or its
 * other end has sent what it should not. */
bool helper_receive(int fd, struct helper_call *ret, int fds[HELPER_FDS]);
void helper_tell(int fd, struct helper_told told);

/* The user that ranks may run as by that name. False: text says why there is none. */
bool user_find(const struct helper *h, const char *name, struct helper_user *ret, char text[200]);

/* Become that user for good, without any right beyond its own. False: errno says why not. */
bool user_become(const struct helper *h, const struct helper_user *u);

/* Keep those capabilities (bits 0 to 31), in the bounding set those of bound, and no others; never get new ones.
 * False: errno says why not. */
bool user_keep_capabilities(uint64_t bits, uint64_t bound);

/* Make the agent's control groups in the hierarchies below the mount point at, where self (/proc/self/cgroup) places
 * this process in them. What is not permitted is left out. */
void delegate_groups(const struct helper_user *agent, const char *at, const char *self);

/* Serve the socket as a guard, to the end of this process. */
_Noreturn void guard_serve(const struct helper *h, int fd);

#endif
