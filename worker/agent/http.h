/* http - calls to the server, several at once, without a thread
 *
 * A call either fails at once or is answered by its callback from http_wait, never both and never neither.
 * One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_HTTP_H
#define MUSTER_WORKER_AGENT_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define HTTP_ANSWER_MAX (64 << 20)

struct http;

/* status 0: no answer, why says what happened; else the answer's. body is borrowed. */
typedef void http_done(void *arg, int status, const char *body, size_t len, const char *why);

/* url: "http://host:port", token_file: its first line is the bearer token, read again for each call;
 * ca_file: of the server's certificate, NULL: the system's. */
int http_new(const char *url, const char *token_file, const char *ca_file, struct http **ret, struct merr *err);

/* Calls still on their way end without a callback. */
void http_free(struct http *h);

/* Call path with a body (copied; NULL: none; type its content type). At most timeout_ms. */
int http_call(struct http *h, const char *method, const char *path, const char *type, const char *body, size_t len,
              int timeout_ms, http_done *done, void *arg, struct merr *err);

/* Run callbacks until nothing is left to do, then wait until there is, one of fds (n, at most 8) is
 * readable, or deadline_us. */
void http_wait(struct http *h, const int *fds, int n, int64_t deadline_us);

/* The address of this machine from which the server is reached. -errno when there is no way. */
int http_local_address(const char *url, char *ret, size_t size, struct merr *err);

#endif
