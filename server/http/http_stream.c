#include "server/http/http_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/http/http_priv.h"

#define QUEUE_SLACK 4096      /* above the limit, for the last event of one that lags */
#define DROP_BYTES (64 << 10) /* sent bytes are dropped from the queue in lumps */

static struct http_req *req_of(struct http_stream *s)
{
    return (struct http_req *)((char *)s - offsetof(struct http_req, stream));
}

struct http_stream *http_stream_begin(struct http_req *r)
{
    pthread_mutex_lock(&r->lock);
    buf_init(&r->stream.queue, HTTP_STREAM_QUEUE_MAX + DROP_BYTES + QUEUE_SLACK);
    if (r->state == HTTP_HELD && !r->gone) {
        r->state = HTTP_STREAMING;
        r->stream.last_us = clock_mono_us();
        (void)buf_addstr(&r->stream.queue, "retry: 2000\n\n"); /* headers go out with the first bytes */
        http_wake(r);
    } else {
        r->stream.ended = true; /* too late: events are refused as from a client that left */
    }
    pthread_mutex_unlock(&r->lock);
    return &r->stream;
}

/* Append an event; data of several lines becomes as many fields. Returns as buf_add. */
static int add_event(struct buf *q, uint64_t id, const char *event, const char *data)
{
    if (id)
        (void)buf_printf(q, "id: %" PRIu64 "\n", id);
    (void)buf_printf(q, "event: %s\n", event);
    for (const char *at = data;;) {
        size_t len = strcspn(at, "\n");

        (void)buf_addstr(q, "data: ");
        (void)buf_add(q, at, len);
        (void)buf_addstr(q, "\n");
        if (!at[len])
            break;
        at += len + 1;
    }
    (void)buf_addstr(q, "\n");
    return buf_failed(q) ? -ENOMEM : 0;
}

int http_stream_event(struct http_stream *s, uint64_t id, const char *event, const char *data)
{
    struct http_req *r = req_of(s);
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    if (r->gone || s->ended || r->state != HTTP_STREAMING) {
        rc = -EPIPE;
    } else if (s->queue.len - s->sent + strlen(data) + 128 > HTTP_STREAM_QUEUE_MAX) {
        (void)add_event(&s->queue, 0, "lagging", "{\"detail\":\"more than 1 MiB waited; resume by Last-Event-ID\"}");
        s->ended = true;
        rc = -ENOBUFS;
    } else if (add_event(&s->queue, id, event, data) < 0) {
        s->ended = true; /* a torn event must not be followed by another */
        rc = -ENOBUFS;
    }
    if (rc != -EPIPE)
        http_wake(r);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

bool http_stream_over(struct http_stream *s)
{
    struct http_req *r = req_of(s);
    bool over;

    pthread_mutex_lock(&r->lock);
    over = r->gone || s->ended;
    pthread_mutex_unlock(&r->lock);
    return over;
}

void http_stream_end(struct http_stream *s)
{
    struct http_req *r = req_of(s);

    pthread_mutex_lock(&r->lock);
    s->ended = true;
    if (!r->gone)
        http_wake(r);
    pthread_mutex_unlock(&r->lock);
    http_req_unref(r);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *out, size_t max)
{
    struct http_req *r = cls;
    struct http_stream *s = &r->stream;
    size_t n;

    (void)pos;
    pthread_mutex_lock(&r->lock);
    n = s->queue.len - s->sent;
    if (n == 0) {
        ssize_t rc = MHD_CONTENT_READER_END_OF_STREAM;

        if (!s->ended && !atomic_load(&r->h->stopping)) {
            r->suspended = true;
            MHD_suspend_connection(r->conn);
            rc = 0;
        }
        pthread_mutex_unlock(&r->lock);
        return rc;
    }
    n = n < max ? n : max;
    memcpy(out, s->queue.data + s->sent, n);
    s->sent += n;
    s->last_us = clock_mono_us();
    if (s->sent == s->queue.len) {
        buf_clear(&s->queue); /* an idle follower keeps no queue */
        s->sent = 0;
    } else if (s->sent >= DROP_BYTES) {
        buf_drop(&s->queue, s->sent);
        s->sent = 0;
    }
    pthread_mutex_unlock(&r->lock);
    return (ssize_t)n;
}

struct MHD_Response *http_stream_response(struct http_req *r)
{
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_stream, r, NULL);
}

void http_stream_sweep(struct http_req *r, int64_t now_us)
{
    struct http_stream *s = &r->stream;

    if (!r->suspended)
        return; /* bytes are on their way: libmicrohttpd sees a client that left */
    if (http_closed(r)) {
        s->ended = true;
        http_wake(r);
        return;
    }
    if (now_us - s->last_us >= HTTP_HEARTBEAT_US) {
        s->last_us = now_us;
        (void)buf_addstr(&s->queue, ":\n\n");
        http_wake(r);
    }
}
