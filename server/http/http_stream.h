/* http_stream - server-sent events over a connection that sleeps while there is nothing to send */
#ifndef MUSTER_SERVER_HTTP_STREAM_H
#define MUSTER_SERVER_HTTP_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct http_req;
struct http_stream;

/* Turn the request into a stream of server-sent events; the request is gone, the stream takes its place. */
struct http_stream *http_stream_begin(struct http_req *r);
/* Queue an event (id 0: none). Returns 0, -EPIPE once the client is gone, -ENOBUFS when it is too slow (more than
 * 1 MiB waits: the stream is ended after a "lagging" event, the client resumes by Last-Event-ID). Any thread. */
int http_stream_event(struct http_stream *s, uint64_t id, const char *event, const char *data);
/* Whether events have become useless: the client has left (noticed within seconds), or the stream has ended. */
bool http_stream_over(struct http_stream *s);
/* No more events; frees the stream. Must be called once for each stream, also after an error. */
void http_stream_end(struct http_stream *s);

#endif
