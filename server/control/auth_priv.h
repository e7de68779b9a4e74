/* auth_priv - the table of tokens, which auth.c answers from and auth_load.c keeps */
#ifndef MUSTER_SERVER_AUTH_PRIV_H
#define MUSTER_SERVER_AUTH_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "server/control/auth.h"

struct auth_entry {
    char hash[AUTH_HASH_MAX];
    char made_at[CLOCK_RFC3339_MAX]; /* "": a file's */
    int64_t expires_us;              /* wall; 0: never */
    _Atomic int64_t used_us;         /* wall, of its last use; 0: none is known */
    int64_t kept_us;                 /* the same as the store has it */
    bool elsewhere;                  /* a file's, of another server */
    bool changed;                    /* to be stored with this turn */
    struct http_identity who;
};

struct auth_gone { /* a token that leaves the store with this turn */
    char hash[AUTH_HASH_MAX];
    bool file; /* of another server */
};

struct auth {
    char run_key[AUTH_TOKEN_MAX];
    bool shared;           /* agents may use the token of the file */
    pthread_rwlock_t lock; /* guards the table */
    struct auth_entry *v;  /* n of them, in order of their hashes */
    size_t n, cap;
    struct auth_gone *gone; /* as all below of the core's thread */
    size_t n_gone;
    bool lost; /* one that is gone could not be noted */
};

/* Put an entry in. 0, -EEXIST, -ENOSPC, -ENOMEM. */
int auth_insert(struct auth *a, const struct auth_entry *e);

void auth_entry_init(struct auth_entry *e, const char *hash, const struct http_identity *who);

/* What people and the store are told of one; new. */
json_t *auth_view(const struct auth_entry *e);

#endif
