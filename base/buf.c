#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t limit)
{
    *b = (struct buf){.limit = limit};
}

void buf_clear(struct buf *b)
{
    if (b->data)
        free(b->data - b->dropped);
    buf_init(b, b->limit);
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

/* Let the contents begin where the memory does. */
static void move_back(struct buf *b)
{
    if (!b->dropped)
        return;
    memmove(b->data - b->dropped, b->data, b->len + 1);
    b->data -= b->dropped;
    b->cap += b->dropped;
    b->dropped = 0;
}

/* Room for n more bytes and the NUL. */
static int grow(struct buf *b, size_t n)
{
    size_t cap;
    char *data;

    if (n > b->limit || b->len > b->limit - n) {
        b->failed = true;
        return -EMSGSIZE;
    }
    if (b->data && b->len + n < b->cap)
        return 0;
    cap = b->dropped >= b->len ? 64 : 2 * (b->cap + b->dropped); /* else few bytes could be had for many moved */
    move_back(b);
    if (b->data && b->len + n < b->cap && b->cap >= cap)
        return 0;
    while (cap <= b->len + n || cap < b->cap)
        cap *= 2;
    data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return -ENOMEM;
    }
    if (!b->data)
        data[0] = '\0';
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
    int r = grow(b, len);

    if (r < 0)
        return r;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_addstr(struct buf *b, const char *text)
{
    return buf_add(b, text, strlen(text));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n, r;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    r = n < 0 ? -EINVAL : grow(b, (size_t)n);
    if (r == 0) {
        (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return r;
}

char *buf_reserve(struct buf *b, size_t n)
{
    return grow(b, n) < 0 ? NULL : b->data + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(b->len + n < b->cap);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_drop(struct buf *b, size_t n)
{
    assert(n <= b->len);
    if (!n)
        return;
    b->data += n;
    b->cap -= n;
    b->dropped += n;
    b->len -= n;
    if (b->len == 0)
        move_back(b);
}

char *buf_detach(struct buf *b)
{
    char *data = NULL;

    if (!b->failed && grow(b, 0) == 0) {
        move_back(b);
        data = b->data;
        b->data = NULL;
    }
    buf_clear(b);
    return data;
}

const char *buf_text(const struct buf *b)
{
    return b->data ? b->data : "";
}

bool buf_failed(const struct buf *b)
{
    return b->failed;
}
