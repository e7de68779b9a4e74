/* auth - tokens: made at the first start, kept as hashes, looked up for each request
 *
 * The table does not change after auth_start(), so any thread may look.
 */
#ifndef MUSTER_SERVER_AUTH_H
#define MUSTER_SERVER_AUTH_H

#include <stdbool.h>

#include "base/merr.h"
#include "server/http.h"
#include "server/store.h"

#define AUTH_TOKENS_MAX 1024

struct auth;

/* Read the token files of the state folder, make them when missing (mode 0600), and keep their SHA-256 in the store;
 * a token whose file is gone or changed is no longer good. Returns 0 or a negative errno with words. */
int auth_start(const char *state_dir, struct store *store, struct auth **ret, struct merr *err);
void auth_free(struct auth *a);

/* As http_auth_fn. */
bool auth_look_up(const struct auth *a, const char *token, struct http_identity *ret);

#endif
