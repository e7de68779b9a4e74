/* bundle_store - what users have uploaded (api/bundle.h): a file a bundle in a folder of each user, beside the jobs'
 *
 * A bundle is its user's: another who names it has none of that name, so that a name opens nothing. It comes in pieces,
 * one behind the other; the whole is kept under its name once it is found to be that, and to stay in its folder. Who
 * has too many bytes or bundles is refused before anything is written. Safe from any thread.
 */
#ifndef MUSTER_SERVER_BUNDLE_STORE_H
#define MUSTER_SERVER_BUNDLE_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

#define BUNDLE_STORE_MAX 1000 /* bundles of a user */

struct bundle_store;

struct bundle_store_cfg {
    const char *jobs;    /* where jobs have folders of their own; it must be there */
    uint64_t bytes_max;  /* of a bundle */
    uint64_t user_bytes; /* of all bundles of a user */
    int64_t keep_us;     /* that one stays which no job needs, and one of which no more has come */
};

struct bundle_state {
    uint64_t stored; /* bytes of it that are there */
    bool complete;
};

/* Returns 0 with *ret, or a negative errno with words. */
int bundle_store_open(const struct bundle_store_cfg *cfg, struct bundle_store **ret, struct merr *err);
void bundle_store_close(struct bundle_store *b); /* NULL is fine */

/* What is there of a user's bundle. -ENOENT: nothing. */
int bundle_store_look(struct bundle_store *b, const char *user, const char *name, struct bundle_state *ret);

/* Append len bytes at offset to a bundle that is to have size bytes. Returns 0, also where it is complete already;
 * -ESTALE: it has *ret->stored bytes, not offset; -E2BIG, -EDQUOT: too large, or too much of this user; -EINVAL: more
 * than size; -EBADMSG: it is not what its name says, or it would leave its folder: nothing of it is kept. *ret is set
 * for 0 and -ESTALE. */
int bundle_store_put(struct bundle_store *b, const char *user, const char *name, uint64_t size, uint64_t offset,
                     const void *data, size_t len, struct bundle_state *ret, struct merr *err);

/* A job of the user needs it from now (wall) on. -ENOENT: it is not there, or not complete. */
int bundle_store_use(struct bundle_store *b, const char *user, const char *name, int64_t now_us);

/* Remove all that no job needs and that was used last, or grew last, longer ago than is kept. needed: an object with
 * "USER/NAME" of those that jobs need. Returns how many are gone. */
int bundle_store_sweep(struct bundle_store *b, const json_t *needed, int64_t now_us);

#endif
