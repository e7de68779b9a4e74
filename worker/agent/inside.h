/* inside - a session's end inside a run: a program beside a rank, or a connection to a port of it
 *
 * The process has the rank's user, control group and folder. It speaks packets (packets.h) with the session's process
 * (session.h), which has the connection to the server. It ends when its program has, when both directions of its
 * connection have, or when the other end has gone: then the program gets SIGHUP, and SIGKILL INSIDE_GRACE_US later.
 * What a program leaves running is for the caller to end.
 */
#ifndef MUSTER_WORKER_AGENT_INSIDE_H
#define MUSTER_WORKER_AGENT_INSIDE_H

#include <stdbool.h>

#define INSIDE_NAME                                                                                                    \
    "muster-inside" /* argv[0] by which `muster-agent rank` becomes it; its standard output: the socket */
#define INSIDE_GRACE_US INT64_C(2000000)

struct inside_ask {
    int cols, rows; /* of a terminal; 0: it gets none, but pipes */
    bool image;     /* the rank's program is in a container, which this one is to enter (enter.h) */
    int port;       /* to connect to (listener.h); 0: a program is to run */
    char *const *argv;
};

/* wire: a SOCK_SEQPACKET. Returns an exit status. Environment, folder and groups are the caller's work. */
int inside_run(int wire, const struct inside_ask *ask);

/* The same of arguments that inside_words has made, with standard output as the wire. */
int inside_main(int argc, char **argv);

/* Those arguments: INSIDE_NAME, columns, rows, port, image, and the program's. New; NULL: no memory. The texts are
 * borrowed but for the numbers, which are in room. */
char **inside_words(const struct inside_ask *ask, char room[4][8]);

#endif
