/* auth - who a bearer token is: those of the state folder's files, those an admin has made, and those of nodes
 *
 * Only the SHA-256 of a token is kept, here and in the store; its text is told once, to whoever had it made. Looking
 * up is for any thread; making, revoking and listing are for the core's. What these change is stored by auth_load.h.
 */
#ifndef MUSTER_SERVER_AUTH_H
#define MUSTER_SERVER_AUTH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/chance.h"
#include "base/merr.h"
#include "server/control/agent_rights.h"
#include "server/http/http.h"

#define AUTH_TOKENS_MAX 1024  /* of people; each node may have one more */
#define AUTH_TOKEN_MAX 64     /* bytes of a token that is made, with its NUL */
#define AUTH_HASH_MAX 65      /* a SHA-256 as text */
#define AUTH_USED_US 60000000 /* how exactly it is known when a token was last used */

struct auth;

void auth_free(struct auth *a);

/* The cluster's key for proofs of runs (agent_rights.h), which the store has: the same for each server on it. */
const char *auth_run_key(const struct auth *a);

/* As http_auth_fn. */
enum http_auth auth_look_up(struct auth *a, const char *token, int64_t wall_us, struct http_identity *ret);

/* A user's rights at a time, by the strongest of their tokens that are good then. False: they have none. Any thread. */
bool auth_user(struct auth *a, const char *user, int64_t wall_us, struct http_identity *ret);

/* Whether an agent of this identity may speak for a node. Any thread. */
enum agent_verdict auth_agent_may(struct auth *a, const struct http_identity *who, const char *node);

struct auth_wanted {          /* a token */
    struct http_identity who; /* its token is not read */
    int64_t expires_us;       /* wall; 0: never */
};

/* A new token, made at the wall time, good at once.
 * *ret_view: new, what auth_list says of it. -ENOSPC: there are AUTH_TOKENS_MAX; -EIO, -ENOMEM. */
int auth_make(struct auth *a, const struct chance *chance, const struct auth_wanted *wanted, int64_t wall_us,
              char ret_token[AUTH_TOKEN_MAX], json_t **ret_view, struct merr *err);
/* Let a token that an agent has made itself be its node's, in place of those that the node had. Returns how many
 * these were; -EEXIST: the token is somebody's already; -ENOMEM. */
int auth_bind(struct auth *a, const char *node, const char hash[AUTH_HASH_MAX], int64_t wall_us, struct merr *err);
/* The token is no longer good. *ret_view: new, what it was. -ENOENT; -EPERM: it
 * is a file's. */
int auth_revoke(struct auth *a, const char *id, json_t **ret_view, struct merr *err);
/* Likewise those that are bound to a node. Returns how many there were. */
size_t auth_revoke_node(struct auth *a, const char *node);
/* A new array of all tokens without their text, files first. */
json_t *auth_list(struct auth *a);
/* Let the store know when tokens were last used, each at most every ten minutes. */
void auth_keep_used(struct auth *a);

/* The SHA-256 of a text. 0 or -EIO. */
int auth_hash(const char *text, char ret[AUTH_HASH_MAX]);
/* A text that nobody guesses, with this beginning of 4 bytes. 0 or -EIO. */
int auth_secret(const struct chance *chance, const char *prefix, char ret[AUTH_TOKEN_MAX], struct merr *err);

/* The role of a name a person writes; ROLE_NONE when it is none of theirs. */
enum http_role auth_role(const char *name);

/* Whether the caller may see what this user's job does. */
bool auth_sees(const struct http_identity *who, const char *user);

#endif
