/* enter - how a session's program comes into the container of its rank: by nsenter, as a program of the rank's user
 *
 * What runs in the container is found by its environment, which names job and rank, and its root, which is not the
 * node's. Its namespaces of mounts, processes and users are entered, so the program sees what the rank's does, and is
 * still a child of who started it, in the rank's control group.
 */
#ifndef MUSTER_WORKER_AGENT_ENTER_H
#define MUSTER_WORKER_AGENT_ENTER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/merr.h"

#define ENTER_MAX 4096
#define ENTER_WORD_MAX (ENTER_MAX + 32)

struct enter {
    pid_t pid;                             /* of the first process in the container */
    bool users;                            /* it has a namespace of users of its own */
    char path[ENTER_MAX], home[ENTER_MAX]; /* PATH and HOME there; "": none */
};

/* proc: "/proc". -ESRCH: there is none, or this process may not look into it. */
int enter_find(const char *proc, const char *job, const char *rank, struct enter *ret, struct merr *err);

/* The command line that runs argv there, in folder. New; NULL: no memory. Its words are borrowed but for those in
 * room. */
char **enter_words(const struct enter *e, const char *folder, char *const *argv, char room[2][ENTER_WORD_MAX]);

/* The environment with PATH and HOME of the container. New; NULL: no memory. Texts are borrowed but for those in
 * room. */
char **enter_environment(const struct enter *e, char *const *env, char room[2][ENTER_WORD_MAX]);

#endif
