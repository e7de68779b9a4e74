/* parcel - a command line, an environment and descriptors, handed to a process that has started already
 *
 * Over a stream socket whose other end has been made by the same program. One parcel a socket.
 */
#ifndef MUSTER_BASE_PARCEL_H
#define MUSTER_BASE_PARCEL_H

#include <stddef.h>

#define PARCEL_FDS 2
#define PARCEL_BYTES (8 << 20)

struct parcel {
    char **args, **env; /* owned, as is what they point to; each ends with NULL */
    char *text;
    int n_args, fds[PARCEL_FDS]; /* owned; -1: none */
};

/* Returns 0, or a negative errno: some of it may have been sent, so the socket is to be closed. */
int parcel_send(int fd, char *const *args, char *const *env, const int *fds, int n_fds);

/* Wait for one. 0, -EPIPE when the other end has gone, -EPROTO when it is none, -ENOMEM; ret is untouched then. */
int parcel_receive(int fd, struct parcel *ret);

#endif
