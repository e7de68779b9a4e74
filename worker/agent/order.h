/* order - what a rank is to be, as its shim writes it and the rank reads it once it is its user
 *
 * `muster-agent rank` finds it as descriptor HELPER_ORDER_FD (worker/helper/helper.h): words that each end in NUL, the
 * folder to work in, the number of arguments, these, and the environment. It then becomes the program that it names.
 */
#ifndef MUSTER_WORKER_AGENT_ORDER_H
#define MUSTER_WORKER_AGENT_ORDER_H

#include <stddef.h>

#include "base/merr.h"

#define ORDER_BYTES_MAX (4 << 20)

struct order {
    char *folder;
    char **argv, **envp; /* NULL-terminated; their array is owned by argv */
};

/* A new descriptor of a file without a name that nobody can change any more. */
int order_write(const char *folder, char *const *argv, char *const *envp, int *ret_fd, struct merr *err);

/* Read it from text, in which its words lie from then on, and which ends in NUL. -EPROTO, -ENOMEM. */
int order_read(char *text, size_t len, struct order *ret, struct merr *err);
void order_clear(struct order *o);

/* What to say of a path that is not there for a rank since it lies where the rank has a folder of its own; else "". */
const char *order_hidden(const char *path);

/* The program `muster-agent rank`: returns a status only when it could not become another. */
int order_main(void);

#endif
