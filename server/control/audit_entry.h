/* audit_entry - an entry of the audit log as a line of JSON, in ASCII alone
 *
 * It is written as text at once, since every call that changes something has one. Its first half is of the request,
 * and may be written on any thread; the rest is of the turn that takes it. What fails leaves a failed buffer.
 */
#ifndef MUSTER_SERVER_AUDIT_ENTRY_H
#define MUSTER_SERVER_AUDIT_ENTRY_H

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"

struct http_req;

/* Append who asked for what, from where, and the answer. code: of a refusal, or NULL. */
void audit_entry_begin(struct buf *b, const struct http_req *r, int status, const char *code);

/* The same of what came without a request: whose it was, and what. */
void audit_entry_begin_of(struct buf *b, const char *user, const char *what);

struct audit_entry_end {
    const json_t *before, *after; /* NULL: null */
    uint64_t left_out;            /* refusals that were only counted before this one; 0: not said */
    bool cut;                     /* before and after were too long */
    uint64_t id;
    int64_t wall_us;
};

/* Append the rest; no newline. */
void audit_entry_end(struct buf *b, const struct audit_entry_end *e);

#endif
