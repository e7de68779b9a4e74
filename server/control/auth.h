/* auth - who a bearer token is: those of the state folder's files, and those an admin has made
 *
 * Only the SHA-256 of a token is kept, here and in the store; its text is told once, to whoever had it made. Looking
 * up is for any thread; making, revoking and listing are for the core's.
 */
#ifndef MUSTER_SERVER_AUTH_H
#define MUSTER_SERVER_AUTH_H

#include <jansson.h>
#include <stdbool.h>

#include "base/merr.h"
#include "server/http/http_req.h"
#include "server/store/store.h"

#define AUTH_TOKENS_MAX 1024
#define AUTH_TOKEN_MAX 64 /* bytes of a token that is made, with its NUL */

struct auth;

/* Read the token files of the state folder, make them when missing (mode 0600), and the other tokens from the store; a
 * token whose file is gone or changed is no longer good. Returns 0 or a negative errno with words. */
int auth_start(const char *state_dir, struct store *store, struct auth **ret, struct merr *err);
void auth_free(struct auth *a);

/* Whether a token's record, as the store keeps it, can be read; auth_start() leaves out those that cannot. */
bool auth_reads(const struct store_row *row);

/* Take in such a record, which is put into the store again. 0; -EINVAL: it cannot be read; -ENOSPC; with words. */
int auth_take(struct auth *a, struct store *store, const struct store_row *row, struct merr *err);

/* As http_auth_fn. */
bool auth_look_up(struct auth *a, const char *token, struct http_identity *ret);

/* A new token of who's user and role (its token is not read), made at the wall time, good at once and kept with the
 * store's next commit.
 * *ret_view: new, what auth_list says of it. -ENOSPC: there are AUTH_TOKENS_MAX; -EIO, -ENOMEM. */
int auth_make(struct auth *a, struct store *store, const struct http_identity *who, int64_t wall_us,
              char ret_token[AUTH_TOKEN_MAX], json_t **ret_view, struct merr *err);
/* The token is no longer good, and gone with the store's next commit. *ret_view: new, what it was. -ENOENT; -EPERM: it
 * is a file's. */
int auth_revoke(struct auth *a, struct store *store, const char *id, json_t **ret_view, struct merr *err);
/* A new array of all tokens without their text: [{"id", "user", "role", "made_at", "file"}], files first. */
json_t *auth_list(struct auth *a);

/* The role of a name a person writes; ROLE_NONE when it is none of theirs. */
enum http_role auth_role(const char *name);

/* Whether the caller may see what this user's job does. */
bool auth_sees(const struct http_identity *who, const char *user);

#endif
