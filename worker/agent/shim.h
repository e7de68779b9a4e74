/* shim - the parent of one rank, which outlives the agent
 *
 * `muster-agent shim --run FOLDER --rank N [--chdir DIR] [--log-limit BYTES] [--cgroup DIR] [--quota DIR --share S]
 * [--grace S] [--ready FD] [--with-parent PID] -- PROGRAM ARGUMENT…`, started by the agent in a session of its own with
 * the rank's log as standard output. It starts the program in a process group of its own, carries its output into the
 * log, waits, ends whatever the program has left behind, and then publishes `rank-NNNNN.exit`: the file is there only
 * once no process of the rank is. It tells the status and the signal, and the cause: what the program has left in its
 * flight page, else what follows from whether it was told to end before it did (exit_judge).
 *
 * `muster-agent shim --wait TRAIN` starts the program before it is known what it is to run (shim_wait.h).
 *
 * SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go on to the rank's group; after SIGTERM the shim waits until
 * nothing of the group is left or --grace is over. SHIM_KILL ends the rank at once. The shim holds the unreaped rank,
 * so no signal can reach a stranger. A shim that is killed takes its rank with it (PDEATHSIG).
 */
#ifndef MUSTER_WORKER_AGENT_SHIM_H
#define MUSTER_WORKER_AGENT_SHIM_H

#include <signal.h>
#include <stdint.h>

#include "api/protocol/exit.h"
#include "base/merr.h"
#include "worker/agent/proc.h"

#define SHIM_KILL (SIGRTMIN + 1)
#define SHIM_LOG_LIMIT (1ull << 30) /* bytes of one rank's log that lie on its node */
#define SHIM_READY_FD 3
#define SHIM_GRACE_S 10
#define SHIM_WIRE_FD 4

/* The program `muster-agent shim`. Returns the exit status: 0 when the exit file has been written. */
int shim_main(int argc, char **argv);

/* rank-00003.pid and the like: path of a rank's file in a run's folder. Returns path. */
const char *shim_path(char *path, size_t size, const char *folder, int rank, const char *suffix);

struct shim_pids {
    struct proc_id shim, rank;
};

/* Read rank-NNNNN.pid or rank-NNNNN.exit. -ENOENT when it is not there, -EPROTO when it is not what a shim
 * writes. */
int shim_read_pids(const char *folder, int rank, struct shim_pids *ret, struct merr *err);
int shim_read_exit(const char *folder, int rank, struct rank_exit *ret, struct merr *err);

/* Publish rank-NNNNN.exit: done by the shim, or by an agent that finds the shim gone. */
int shim_write_exit(const char *folder, int rank, const struct rank_exit *e, struct merr *err);

#endif
