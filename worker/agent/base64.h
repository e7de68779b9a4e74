/* base64 - bytes as text and back (RFC 4648, with padding) */
#ifndef MUSTER_WORKER_AGENT_BASE64_H
#define MUSTER_WORKER_AGENT_BASE64_H

#include <stddef.h>

#include "base/buf.h"

/* Append data as text. Returns 0, or as buf_add fails. */
int base64_encode(const void *data, size_t len, struct buf *out);

/* Append the bytes of text. -EPROTO when it is no base64. */
int base64_decode(const char *text, size_t len, struct buf *out);

#endif
