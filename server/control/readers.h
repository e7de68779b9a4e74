/* readers - threads on which people's reads of logs and metrics wait for a disk, each user with a share of them
 *
 * Reports never wait for them: these are stored on the thread of files (files.h). These threads are patient
 * (base/thread.h): where processors are short, what is decided goes first. A user has one read running at a time
 * and READERS_WAITING_MAX in the queue, the next is refused; users take turns. A read whose client has left is dropped.
 * Without threads a call is run before readers_post() returns: so a simulation of the server has one thread. Large
 * reports of agents are parsed on such a thread of their own, and nodes take turns there.
 */
#ifndef MUSTER_SERVER_READERS_H
#define MUSTER_SERVER_READERS_H

#include "base/merr.h"

#define READERS_THREADS 2
#define READERS_WAITING_MAX 32 /* of a user */
#define READERS_QUEUE_MAX 1024 /* of all users */

struct call;
struct readers;

/* owner is given to the calls that are run. Returns 0 with *ret, which is freed by readers_free(), or a negative errno
 * with words. */
int readers_start(unsigned threads, void *owner, struct readers **ret, struct merr *err);
void readers_stop(struct readers *r); /* what waits is refused, and what comes later. NULL is fine */
void readers_free(struct readers *r); /* stopped before. NULL is fine */

/* Any thread. Takes the call over, which has a request: it is answered when it is run, or refused with 429. */
void readers_post(struct readers *r, struct call *call);

#endif
