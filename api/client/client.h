/* client - talk to a Muster server: calls with JSON in and out, events as they come
 *
 * Errors: -EHOSTUNREACH the server is out of reach (or answers something else than Muster does), -ENOENT 404,
 * -EPERM another refusal (4xx: the words carry every fault), -EIO the server failed (5xx), -ENOMEM.
 * One client is for one thread.
 */
#ifndef MUSTER_API_CLIENT_CLIENT_H
#define MUSTER_API_CLIENT_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/merr.h"

struct client;

/* Where the state of the cluster of this machine is: given, else MUSTER_STATE, else $XDG_STATE_HOME/muster, else
 * ~/.local/state/muster (root: /var/lib/muster). Returns 0 or -ENAMETOOLONG, -ENOENT (no home). */
int client_state_dir(const char *given, char *ret, size_t size, struct merr *err);

/* Find server (or several, separated by commas: calls.h) and token (each given, else from the state folder) and make a
 * client. Nothing is sent. -EHOSTUNREACH when no server can be found. */
int client_new(const char *server, const char *token, const char *state, struct client **ret, struct merr *err);
void client_free(struct client *c);
const char *client_url(const struct client *c);
/* Whether its token goes over a network in the clear: to another host than this one, without TLS. */
bool client_bares_token(const struct client *c);

/* Forget the token: for addresses that want none. */
int client_new_at(const char *url, const char *token, struct client **ret, struct merr *err);

/* fn is told before a call waits since the server has had too many of this token or address (429 with Retry-After). */
void client_on_wait(struct client *c, void (*fn)(int wait_s));

/* One call. body (borrowed, may be NULL) is sent as JSON. key is the Idempotency-Key (may be NULL). GET, and calls
 * with a key, are tried again for a few seconds when the server cannot be reached. Each is made again when the server
 * has had too many and says after how many seconds to come, for half a minute in all. *ret_doc (may be NULL) is new;
 * JSON null when the answer has no body. */
int client_call(struct client *c, const char *method, const char *path, const json_t *body, const char *key,
                json_t **ret_doc, struct merr *err);

/* PUT len bytes; made again like a GET, so the same bytes sent twice must be as good as once. */
int client_put(struct client *c, const char *path, const void *data, size_t len, struct merr *err);

/* Of the last call: the status of its answer, 0 without one; and what an answer that was no success said, borrowed
 * until the next call, NULL when that was no problem document. */
long client_status(const struct client *c);
const json_t *client_problem(const struct client *c);

/* GET path as plain text into out. */
int client_text(struct client *c, const char *path, struct buf *out, struct merr *err);

/* One event. type and data are borrowed; data is NULL when it is not JSON. type "" is a tick: it comes at least
 * once a second. Return 0 to go on, 1 to end, a negative errno to end with it. */
typedef int client_event_fn(void *arg, const char *type, const json_t *data);

/* Follow a stream of events; after a loss of contact go on after the last one seen (the 'end' event of a stream ends
 * it). Gives up with -EHOSTUNREACH once the server has been out of reach for patience_s. Returns 0 at the end. */
int client_follow(struct client *c, const char *path, int patience_s, client_event_fn *fn, void *arg, struct merr *err);

/* The exit status of the CLI for a code: 0, 1 failed, 3 not found, 4 refused, 5 server out of reach. */
int client_exit_status(int code);

#endif
