/* auth_load - the tokens of auth.h as files and the store keep them */
#ifndef MUSTER_SERVER_AUTH_LOAD_H
#define MUSTER_SERVER_AUTH_LOAD_H

#include "server/control/auth.h"
#include "server/store/store.h"

/* Read the token files of the state folder, make them when missing (mode 0600), and the other tokens from the store; a
 * token whose file is gone or changed is no longer good. shared: agents may use the token of the file agent-token;
 * else it is not made. Returns 0 or a negative errno with words. */
int auth_start(const char *state_dir, bool shared, struct store *store, struct auth **ret, struct merr *err);

/* Whether a token's record, as the store keeps it, can be read; auth_start() leaves out those that cannot. */
bool auth_reads(const struct store_row *row);

/* Take in such a record, which is to be stored again. 0; -EINVAL: it cannot be read; -ENOSPC; with words. */
int auth_take(struct auth *a, const struct store_row *row, struct merr *err);

/* Put what has changed since the last call into the store's batch. 0; -ENOMEM: not all of it. */
int auth_keep(struct auth *a, struct store *store);

#endif
