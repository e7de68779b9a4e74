/* audit - what people changed, and what they were refused, kept and told to admins
 *
 * Every call that changes something leaves an entry in the same write as its change, and every refusal for want of a
 * right one of its own (beyond so many a second of an address they are counted only). An entry says who, with which
 * token, from where, in which request, and what was before and after; it never holds a token, nor a value of a spec's
 * environment. Entries stay for so many days and bytes; a file of the operator's gets each as a line. Owned by the
 * core's thread.
 */
#ifndef MUSTER_SERVER_AUDIT_H
#define MUSTER_SERVER_AUDIT_H

#include <jansson.h>

#include "base/buf.h"
#include "base/merr.h"

struct audit;
struct call;
struct core;
struct http_req;

struct audit *audit_new(void); /* NULL: no memory */
void audit_free(struct audit *a);
int audit_load(struct core *c, struct merr *err); /* 0; -EIO with words */

/* A call was run: if it changed something, or was refused for want of a right, that is noted. */
void audit_call(struct core *c, struct call *call);

/* What happened without a call: to what user had begun. note (borrowed) names it as "what", and tells the rest. */
void audit_note(struct core *c, const char *user, const json_t *note);

/* HTTP's own refusal of a request, told on any thread; its call for the core, to be run there. New; NULL: no memory. */
struct call *audit_refusal(const struct http_req *r, int status, const char *code);

void audit_put(struct core *c);     /* how much there is goes into the batch of the turn */
void audit_publish(struct core *c); /* the turn is durable: the file gets its lines */
void audit_tick(struct core *c);    /* forget what is too old, or too much */
void audit_metrics(const struct core *c, struct buf *b);

void audit_list(struct core *c, struct call *call); /* GET /v1/audit */

#endif
