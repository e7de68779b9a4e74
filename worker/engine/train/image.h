/* image - this program started, before it is known which rank of which job it is to be
 *
 * `muster-train --wait`, with a socket of its shim (agent/shim_wait.h) as standard input. Its libraries are loaded; its
 * kernels have a context on the GPU that it sees, and have been called once. Then it waits for its command line,
 * environment, folder and output, as a process that is started has them, and goes on as that.
 */
#ifndef MUSTER_WORKER_ENGINE_TRAIN_IMAGE_H
#define MUSTER_WORKER_ENGINE_TRAIN_IMAGE_H

/* Be ready, and wait. Returns once there is a rank; else it ends the process. */
void image_wait(int *ret_argc, char ***ret_argv);

#endif
