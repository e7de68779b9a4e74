/* container - the command line by which podman or apptainer runs a job's program in an image
 *
 * The program is in the control group of its rank. It sees the job's folder, the run's and the one that it works in
 * under their own names, the node's network, and of GPUs those of its devices, by CDI. It has no capability, and gets
 * none. Of the environment names alone stand in the command line: all on the node may read that.
 */
#ifndef MUSTER_WORKER_AGENT_CONTAINER_H
#define MUSTER_WORKER_AGENT_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/merr.h"

#define CONTAINER_FOLDERS_MAX 4

enum container_runtime { CONTAINER_PODMAN, CONTAINER_APPTAINER };

struct container {
    const char *image; /* docker://NAME, or the absolute path of a file */
    const char *cwd;
    const char *folders[CONTAINER_FOLDERS_MAX]; /* that it sees; NULL: none */
    const char *gpus;                           /* UUIDs, parted by commas; NULL or "": none */
    bool root;                                  /* it is started by root */
    char *const *env;                           /* "NAME=value" */
    char *const *argv;
};

/* Which of the two is in path ("/usr/bin:/bin") and takes the image: podman before apptainer, and apptainer alone of
 * .sif. -ENOENT, with words. */
int container_find(const char *path, const char *image, enum container_runtime *ret, struct merr *err);

/* The command line, NULL at its end; the caller frees it and each word. NULL: no memory. */
char **container_words(enum container_runtime runtime, const struct container *c);

#endif
