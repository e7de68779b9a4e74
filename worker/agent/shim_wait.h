/* shim_wait - a shim whose rank's program has started already, and waits with it for what it is to run
 *
 * `muster-agent shim --wait TRAIN`, with a socket of the agent as descriptor SHIM_READY_FD. It starts `TRAIN --wait`
 * (engine/train/image.h) and waits until the agent hands it what it would have been started with: its command line, its
 * environment, the rank's log and the descriptor for the word that all is ready. The agent closes the socket, or ends:
 * then both end, too.
 */
#ifndef MUSTER_WORKER_AGENT_SHIM_WAIT_H
#define MUSTER_WORKER_AGENT_SHIM_WAIT_H

#include <sys/types.h>

struct shim_image { /* the started program */
    pid_t pid;      /* our unreaped child; 0: there is none */
    int fd;         /* to hand it its own */
};

/* Wait. Returns 0 with what came: the descriptors are where a shim has them, and the environment is this process's. The
 * arguments live as long as the process. Or a negative errno: nothing is to be run. */
int shim_wait(const char *train, struct shim_image *ret, int *ret_argc, char ***ret_argv);

/* Let the program become the rank: where it works, its arguments, and what its output goes to. */
int shim_wait_go(struct shim_image *image, const char *workdir, char *const *argv, int output_fd);

#endif
