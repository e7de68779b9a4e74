#include "api/protocol/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FIN 0x80
#define MASKED 0x80
#define LEN_16 126
#define LEN_64 127
#define CONTROL_MAX 125 /* bytes of a frame that is no message */

static void mask_bytes(char *data, size_t len, const unsigned char *mask)
{
    uint64_t word, wide = 0;

    for (size_t i = 0; i < 8; i++)
        ((unsigned char *)&wide)[i] = mask[i % 4];
    for (; len >= 8; data += 8, len -= 8) {
        memcpy(&word, data, 8);
        word ^= wide;
        memcpy(data, &word, 8);
    }
    for (size_t i = 0; i < len; i++)
        data[i] = (char)((unsigned char)data[i] ^ mask[i % 4]);
}

/* A frame of two parts. */
static int write_parts(struct buf *b, enum frame_kind kind, const void *first, size_t first_len, const void *data,
                       size_t data_len, const unsigned char *mask)
{
    size_t len = first_len + data_len;
    unsigned char head[FRAME_HEAD_MAX] = {(unsigned char)(FIN | kind)};
    size_t n = 2;
    char *to;

    if (len > FRAME_MAX || (kind != FRAME_BINARY && len > CONTROL_MAX))
        return -EMSGSIZE;
    head[1] = (unsigned char)(len <= CONTROL_MAX ? len : len <= UINT16_MAX ? LEN_16 : LEN_64);
    if (head[1] == LEN_64) {
        frame_put_number(head + n, 0);
        n += 4;
        frame_put_number(head + n, (uint32_t)len);
        n += 4;
    } else if (head[1] == LEN_16) {
        head[n++] = (unsigned char)(len >> 8);
        head[n++] = (unsigned char)len;
    }
    if (mask) {
        head[1] |= MASKED;
        memcpy(head + n, mask, 4);
        n += 4;
    }
    to = buf_reserve(b, n + len);
    if (!to)
        return -ENOMEM;
    memcpy(to, head, n);
    if (first_len > 0)
        memcpy(to + n, first, first_len);
    if (data_len > 0)
        memcpy(to + n + first_len, data, data_len);
    if (mask)
        mask_bytes(to + n, len, mask);
    buf_commit(b, n + len);
    return 0;
}

int frame_write(struct buf *b, enum frame_kind kind, const void *data, size_t len, const unsigned char *mask)
{
    return write_parts(b, kind, NULL, 0, data, len, mask);
}

int frame_write_message(struct buf *b, unsigned char kind, const void *data, size_t len, const unsigned char *mask)
{
    return write_parts(b, FRAME_BINARY, &kind, 1, data, len, mask);
}

static bool is_known(unsigned kind)
{
    return kind == FRAME_BINARY || kind == FRAME_CLOSE || kind == FRAME_PING || kind == FRAME_PONG;
}

ssize_t frame_read(char *text, size_t len, bool masked, struct frame *ret)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = 2, body;

    if (len < 2)
        return 0;
    if (!is_known(p[0] & 0x7f) || !(p[0] & FIN) || !(p[1] & MASKED) == masked)
        return -EPROTO;
    body = p[1] & 0x7f;
    if (body > CONTROL_MAX && (p[0] & 0x7f) != FRAME_BINARY)
        return -EPROTO;
    if (body == LEN_16) {
        n += 2;
        if (len < n)
            return 0;
        body = (size_t)p[2] << 8 | p[3];
    } else if (body == LEN_64) {
        n += 8;
        if (len < n)
            return 0;
        if (frame_number(text + 2) != 0)
            return -EMSGSIZE;
        body = frame_number(text + 6);
    }
    if (body > FRAME_MAX)
        return -EMSGSIZE;
    n += masked ? 4 : 0;
    if (len < n + body)
        return 0;
    if (masked)
        mask_bytes(text + n, body, p + n - 4);
    *ret = (struct frame){.kind = (enum frame_kind)(p[0] & 0x7f), .data = text + n, .len = body};
    return (ssize_t)(n + body);
}

int frame_write_close(struct buf *b, enum frame_close code, const char *text, const unsigned char *mask)
{
    char body[CONTROL_MAX];
    int n = snprintf(body + 2, sizeof(body) - 2, "%s", text);

    body[0] = (char)(code >> 8);
    body[1] = (char)code;
    return frame_write(b, FRAME_CLOSE, body, 2 + (n < (int)sizeof(body) - 2 ? (size_t)n : sizeof(body) - 3), mask);
}

enum frame_close frame_read_close(const struct frame *f, char *ret, size_t size)
{
    size_t n = 0;

    for (size_t i = 2; i < f->len && n + 1 < size; i++)
        if ((unsigned char)f->data[i] >= 0x20 && (unsigned char)f->data[i] < 0x7f)
            ret[n++] = f->data[i];
    ret[n] = '\0';
    if (f->len < 2)
        return FRAME_CLOSE_DONE;
    return (enum frame_close)((unsigned char)f->data[0] << 8 | (unsigned char)f->data[1]);
}

void frame_put_number(unsigned char ret[4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        ret[i] = (unsigned char)(value >> (24 - 8 * i));
}

uint32_t frame_number(const char *data)
{
    const unsigned char *p = (const unsigned char *)data;

    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
