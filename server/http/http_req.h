/* http_req - a request in the hands of its handler: what it asks, who asks, and its one answer
 *
 * Whoever holds it answers it once, from any thread, at any later time. What is returned is borrowed and lives until
 * the answer. Faults are RFC 9457 problem documents.
 */
#ifndef MUSTER_SERVER_HTTP_REQ_H
#define MUSTER_SERVER_HTTP_REQ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct http_req;

enum http_role { ROLE_NONE, ROLE_VIEWER, ROLE_USER, ROLE_ADMIN, ROLE_AGENT }; /* admin may all but agent's */

const char *http_role_name(enum http_role role); /* "viewer", ...; never NULL */

struct http_identity {
    enum http_role role;
    char user[64];      /* of the token; "" for ROLE_NONE */
    char token[13];     /* the token's id */
    char node[64];      /* that the token is bound to; "": to none */
    char unix_user[33]; /* account of its jobs' ranks; "": the jobs' account */
};

/* --- what it asks --- */

const char *http_path(const struct http_req *r);
const char *http_method(const struct http_req *r);
const char *http_address(const struct http_req *r);      /* of the client, as text; "" where it is not known */
const char *http_param(const struct http_req *r, int i); /* i-th {…} of the pattern, decoded */
const char *http_query(const struct http_req *r, const char *name); /* decoded, NULL if absent */
const char *http_header(const struct http_req *r, const char *name);
const char *http_body(const struct http_req *r, size_t *ret_len);
const struct http_identity *http_identity(const struct http_req *r);
const char *http_request_id(const struct http_req *r); /* X-Request-Id, made when none came; for tests */
bool http_wants_stream(const struct http_req *r);      /* Accept: text/event-stream */

/* Nobody waits for the answer any more. Any thread, while the request is held. */
bool http_gone(struct http_req *r);

/* --- its answer --- */

/* An extra header of the answer (ETag, Location, …); both copied. */
void http_set_header(struct http_req *r, const char *name, const char *value);

/* Answer. body is taken over ("stolen"), also on failure; NULL: an empty answer. */
void http_reply_new(struct http_req *r, int status, json_t *body);
/* The same with one member more, an object's that has some: member is JSON and borrowed. NULL: none. */
void http_reply_with_new(struct http_req *r, int status, json_t *body, const char *name, const char *member);
/* Answer with text; copied. */
void http_reply_text(struct http_req *r, int status, const char *content_type, const char *text, size_t len);
/* The same with text from malloc(), which is taken over. */
void http_reply_text_new(struct http_req *r, int status, const char *content_type, char *text, size_t len);
/* Answer with a problem: type "urn:muster:problem:CODE", title from the status. */
void http_problem(struct http_req *r, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* 422 "spec-invalid" with errors [{pointer, message}], taken over. */
void http_problem_errors_new(struct http_req *r, const char *detail, json_t *errors);

#endif
