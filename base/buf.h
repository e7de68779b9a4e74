/* buf - a growing byte buffer with a limit given at its birth
 *
 * The bytes are always followed by a NUL, so a buffer of text is a C string. A write that would pass
 * the limit or finds no memory fails whole: the buffer keeps what it had and buf_failed() is true
 * from then on, so a chain of writes is checked once at its end.
 */
#ifndef MUSTER_BASE_BUF_H
#define MUSTER_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NULL until the first write; buf_text() never gives NULL */
    size_t len;
    size_t cap;     /* bytes from data on */
    size_t dropped; /* bytes before data that buf_drop left behind */
    size_t limit;   /* largest len, bytes */
    bool failed;
};

/* An empty buffer that may grow to limit bytes. Allocates nothing. */
void buf_init(struct buf *b, size_t limit);

/* Free the contents; the buffer is empty with the same limit and may be used again. */
void buf_clear(struct buf *b);

/* Clear a buffer when it goes out of scope. */
#define BUF_CLEAR_AUTO __attribute__((cleanup(buf_clear)))

/* Forget the contents, keep the memory. */
void buf_reset(struct buf *b);

/* Append. Return 0, -EMSGSIZE at the limit, -ENOMEM; on failure the contents stay as they were. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_addstr(struct buf *b, const char *text);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Make room for n more bytes and give their address; buf_commit() then counts those written. NULL as
 * buf_add fails. */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

/* Drop the first n bytes (n <= len). Nothing is moved for it: data changes. */
void buf_drop(struct buf *b, size_t n);

/* Give the contents away: the caller frees them. NULL when a write failed or memory is short. */
char *buf_detach(struct buf *b);

const char *buf_text(const struct buf *b);
bool buf_failed(const struct buf *b);

#endif
