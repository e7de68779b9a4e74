/* call - one request: what its handler read from it, and the answer once there is one
 *
 * It belongs to one thread at a time; putting it into a queue hands it on.
 */
#ifndef MUSTER_SERVER_CALL_H
#define MUSTER_SERVER_CALL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "server/http/http_req.h"

struct call {
    struct call *next;
    void (*run)(void *owner, struct call *call); /* on the thread whose queue it is in */
    const struct http_identity *who;             /* borrowed: on whose behalf; NULL: its request's */
    struct http_req *req;  /* NULL: none waits for an answer, or it has been turned into a stream */
    json_t *body;          /* owned, may be NULL */
    struct job_spec *spec; /* owned: a submit's */
    char *text;            /* owned: its spec as JSON, or bytes of a body */
    uint64_t hash;         /* of the body */
    uint64_t job;
    uint32_t generation;
    bool flag;
    int64_t began_us;

    json_t *acks, *fresh; /* owned: a report's, from the files' thread: what is durable; what was new in it */

    json_t *before, *after; /* owned, NULL: none: of what it changed, for the audit log */
    bool unchanged;         /* it changed nothing, though its method may */
    bool hidden;            /* it was answered 404 of something that its caller may not see */

    int status; /* 0: not answered yet */
    json_t *reply;
    char *whole_spec; /* owned: the reply's member "spec", as JSON that was read before; NULL: none */
    char etag[32];
    char *page; /* owned: an answer as text */
    bool page_is_json;
    struct http_page *shared; /* likewise; a reference */
};

/* One for a request (may be NULL), to be run on the thread whose queue it is put into. New; NULL: no memory. */
struct call *call_new(struct http_req *req, void (*run)(void *owner, struct call *call));
/* Free what it owns; its request, if it has one, stays as it is. */
void call_free(struct call *call);

/* Set the answer; the first one stands. reply is taken over. */
void call_answer_new(struct call *call, int status, json_t *reply);
void call_problem(struct call *call, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* On whose behalf it is made. */
const struct http_identity *call_who(const struct call *call);

/* Answer 422 with this code: a field of the body, and what it is to be. False, so that a reader can return it. */
bool call_refuse(struct call *call, const char *code, const char *field, const char *wants);

/* A text of the body, of `most` bytes without NULs; usual where there is none. NULL: the call is answered. */
const char *call_text(struct call *call, const char *code, const char *field, const char *usual, size_t most);

/* Whether all fields of the body are among those known, " name url " with spaces around each. what: "a webhook". False:
 * the call is answered. */
bool call_only_known(struct call *call, const char *code, const char *what, const char *known);

/* A parameter of its route that is a number; none without it. */
int64_t call_number(const struct call *call, const char *name, int64_t none);

/* What the audit log shall tell of a change; both are taken over, NULL: none. */
void call_changed_new(struct call *call, json_t *before, json_t *after);

/* Send the answer and free the call. */
void call_deliver(struct call *call);

#endif
