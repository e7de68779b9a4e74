#include "api/client/sse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void sse_init(struct sse *s)
{
    memset(s, 0, sizeof(*s));
    buf_init(&s->line, SSE_EVENT_MAX);
    buf_init(&s->data, SSE_EVENT_MAX);
}

void sse_clear(struct sse *s)
{
    buf_clear(&s->line);
    buf_clear(&s->data);
}

void sse_restart(struct sse *s)
{
    sse_clear(s); /* also a failed one may be used again */
    s->type[0] = s->id[0] = '\0';
    s->cr = 0;
}

/* An empty line: the event is whole. */
static int dispatch(struct sse *s, sse_event_fn *fn, void *arg)
{
    int r = 0;

    if (s->id[0])
        memcpy(s->last_id, s->id, sizeof(s->last_id));
    if (s->data.len > 0) {
        s->data.data[--s->data.len] = '\0'; /* the newline of its last line */
        r = fn(arg, s->type[0] ? s->type : "message", s->data.data);
    }
    buf_reset(&s->data);
    s->type[0] = s->id[0] = '\0';
    return r;
}

static int take_line(struct sse *s, sse_event_fn *fn, void *arg)
{
    char *line = s->line.data, *value;

    if (s->line.len == 0)
        return dispatch(s, fn, arg);
    value = strchr(line, ':');
    if (value == line)
        return 0; /* a comment */
    if (value) {
        *value++ = '\0';
        value += *value == ' ';
    } else {
        value = line + s->line.len;
    }
    if (strcmp(line, "data") == 0) {
        (void)buf_addstr(&s->data, value);
        (void)buf_add(&s->data, "\n", 1);
        return buf_failed(&s->data) ? -EMSGSIZE : 0;
    }
    if (strcmp(line, "event") == 0)
        (void)snprintf(s->type, sizeof(s->type), "%s", value);
    else if (strcmp(line, "id") == 0 && strlen(value) < sizeof(s->id))
        (void)snprintf(s->id, sizeof(s->id), "%s", value);
    return 0;
}

int sse_feed(struct sse *s, const char *bytes, size_t len, sse_event_fn *fn, void *arg)
{
    size_t at = 0;

    while (at < len) {
        size_t n = 0;
        int r;

        if (s->cr && bytes[at] == '\n') { /* the second half of CR LF */
            s->cr = 0;
            at++;
            continue;
        }
        s->cr = 0;
        while (at + n < len && bytes[at + n] != '\n' && bytes[at + n] != '\r')
            n++;
        if (buf_add(&s->line, bytes + at, n) < 0)
            return -EMSGSIZE;
        at += n;
        if (at == len)
            return 0;
        s->cr = bytes[at++] == '\r';
        r = take_line(s, fn, arg);
        buf_reset(&s->line);
        if (r)
            return r;
    }
    return 0;
}
