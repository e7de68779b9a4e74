/* http_loops - the threads that serve connections, each a loop of libmicrohttpd of its own
 *
 * A loop of libmicrohttpd takes 128 events at a time and, where there were as many, waits for more before it handles
 * any: until something else happens on its connections, or one of them has been idle for too long, those 128 get no
 * answer. So each loop is woken every HTTP_LOOPS_WAKE_MS.
 */
#ifndef MUSTER_SERVER_HTTP_LOOPS_H
#define MUSTER_SERVER_HTTP_LOOPS_H

#include <microhttpd.h>

#include "base/merr.h"

#define HTTP_LOOPS 2
#define HTTP_LOOPS_WAKE_MS 100

struct http_loops;

/* A loop of its own thread, by epoll, that accepts from a listening socket, which it takes over; NULL: it fails. */
typedef struct MHD_Daemon *http_loop_fn(void *arg, int listener);

/* All of them accept from the listener, which stays the caller's. 0 or a negative errno. */
int http_loops_start(int listener, http_loop_fn *start, void *arg, struct http_loops **ret, struct merr *err);

void http_loops_quiesce(struct http_loops *l); /* no more connections are accepted */
void http_loops_stop(struct http_loops *l);    /* as MHD_stop_daemon; NULL is fine */

#endif
