/* frame - WebSocket frames (RFC 6455) and the messages in them: what carries a session inside a job's run
 *
 * A session has two ends, a client's and one at the rank, and the server between them passes messages on. A message is
 * one binary frame: a byte that says what it is, then its bytes, numbers in network order. Of SESSION_INPUT, OUTPUT and
 * ERROR_OUTPUT an end has at most SESSION_WINDOW bytes on the way that the other has not said to have used up
 * (SESSION_USED), so that everything else passes at any time, and nobody holds more. Frames are whole (FIN): nothing is
 * sent in parts. Those of a client are masked, those of a server are not.
 */
#ifndef MUSTER_API_PROTOCOL_FRAME_H
#define MUSTER_API_PROTOCOL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

#define FRAME_MAX (64 << 10) /* bytes of one message */
#define FRAME_HEAD_MAX 14
#define FRAME_PROTOCOL "muster.exec.v1" /* Sec-WebSocket-Protocol of sessions */

enum frame_kind { FRAME_BINARY = 2, FRAME_CLOSE = 8, FRAME_PING = 9, FRAME_PONG = 10 };

#define SESSION_WINDOW (256 << 10)
#define SESSION_PIECE (60 << 10) /* bytes of input or output in a message, at most */

enum session_message {
    SESSION_INPUT,        /* to the program */
    SESSION_OUTPUT,       /* of it */
    SESSION_ERROR_OUTPUT, /* likewise of its standard error; never of a terminal */
    SESSION_RESIZE,       /* columns, rows: two bytes each */
    SESSION_EXIT,         /* the program's exit code and the signal that ended it, or 0: four bytes each. The last */
    SESSION_SIGNAL,       /* its number, one byte, to the program */
    SESSION_END,          /* of the input, or of the output of a forwarded connection */
    SESSION_USED,         /* so many bytes of the other's: four bytes */
    SESSION_BEGIN,        /* of the server, first, to the end at the rank: what is asked, as JSON */
    SESSION_WORDS,        /* for the person: why it could not begin. SESSION_EXIT follows */
    SESSION_MESSAGES
};

/* Codes of FRAME_CLOSE, besides those of the RFC. Its text says the same to people. */
enum frame_close {
    FRAME_CLOSE_DONE = 1000,
    FRAME_CLOSE_LEAVING = 1001,
    FRAME_CLOSE_PROTOCOL = 1002,
    FRAME_CLOSE_NO_NODE = 4001, /* nobody at the rank has answered */
    FRAME_CLOSE_IDLE = 4002,
    FRAME_CLOSE_LOST = 4003, /* the other end has gone without a word */
};

struct frame {
    enum frame_kind kind;
    char *data; /* unmasked; borrowed of what it was read from */
    size_t len;
};

/* Append a frame of at most FRAME_MAX bytes; mask: four bytes by chance of a client, NULL of a server. Returns as
 * buf_add. */
int frame_write(struct buf *b, enum frame_kind kind, const void *data, size_t len, const unsigned char *mask);

/* The same of a session's message: its kind, then data. */
int frame_write_message(struct buf *b, unsigned char kind, const void *data, size_t len, const unsigned char *mask);

/* The frame that text begins with, unmasked in place. Returns how many bytes it takes, 0 while it is not whole, -EPROTO
 * when it is none, or masked where it should not be or the other way round, -EMSGSIZE beyond FRAME_MAX. */
ssize_t frame_read(char *text, size_t len, bool masked, struct frame *ret);

/* Append FRAME_CLOSE with a code and text, of which some 120 bytes are sent. */
int frame_write_close(struct buf *b, enum frame_close code, const char *text, const unsigned char *mask);

/* What a close said: its code (FRAME_CLOSE_DONE without one), and its text less what is not printable. */
enum frame_close frame_read_close(const struct frame *f, char *ret, size_t size);

/* Numbers of messages. */
void frame_put_number(unsigned char ret[4], uint32_t value);
uint32_t frame_number(const char *data);

#endif
