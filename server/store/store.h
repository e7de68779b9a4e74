/* store - what the server keeps for good, and the one way it writes there
 *
 * Changes are collected into a batch, behind guards, by the functions here and in job_store.h and history.h. They
 * cannot fail: what goes wrong is told by store_commit(). That applies the whole batch at once or not at all, if this
 * server still leads (its epoch is the store's) and each guarded job has the version it was read with. A batch carries
 * a number that the store keeps: after a lost connection the batch is sent again, and one that was already applied is
 * not applied twice. When store_commit() returns 0 the batch is on disk. Reads see what was committed, nothing of the
 * batch. Owned by one thread, apart from store_up(). How the data is laid out in Redis: store_priv.h.
 */
#ifndef MUSTER_SERVER_STORE_H
#define MUSTER_SERVER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/store/store_ops.h"

#define STORE_BATCH_BYTES (64 << 20)

struct store;

#define STORE_LEASE_S 10 /* unless asked otherwise */
#define STORE_LEASE_MIN_S 2
#define STORE_LEASE_MAX_S 600

struct store_mark {        /* how far a store has come; those that compare lower lack something that was acknowledged */
    uint64_t epoch, batch; /* whose newest change, and which of theirs; 0: none */
    uint64_t next_job, next_event; /* numbers from which on none was given */
};

struct store_cfg {
    bool force;             /* nobody else can lead (the private server), and the lease need not be renewed */
    int lease_s;            /* to be renewed */
    struct store_mark mark; /* that the store had come to (watermark.h); 0: not known */
    bool accept_loss;       /* go on with a store that is behind it */
    bool at_once;           /* do not wait for another leader's lease to end: -EBUSY */
    const char *advertise;  /* told to those that stand by (store_leader()); NULL: nothing */
};

#define STORE_ADVERTISE_MAX 400

/* The address that who leads has given; "": none, or nobody leads, *ret_leads says which. Before store_open().
 * Returns 0; -ENOTCONN: the store does not answer now. */
int store_leader(const struct store_backend *backend, bool *ret_leads, char ret[STORE_ADVERTISE_MAX]);

/* Take the lead on what a backend keeps (redis.h; for tests store_memory.h). Waits for another leader's lease to end,
 * unless that is forced. Returns 0;
 *   -EBUSY    another musterd leads and renews its lease, or leads at all where there is no waiting
 *   -ENODATA  the store is behind its mark: what was acknowledged is lost, as the words say; nothing was changed
 * others; with words. Where a loss is accepted, it is logged, and no epoch and no number is given a second time.
 * What the backend points to is borrowed until store_close(). */
int store_open(const struct store_backend *backend, const struct store_cfg *cfg, struct store **ret, struct merr *err);
void store_close(struct store *s); /* gives the lease back */

/* How far it had come when it was opened, by itself or by its mark, whichever is more; and the newest commit. */
const struct store_mark *store_mark(const struct store *s);

/* How often somebody has taken the lead, up to now; no two that lead have the same. */
uint64_t store_epoch(const struct store *s);

/* Any thread: whether the store answered last. */
bool store_up(const struct store *s);

bool store_batch_empty(const struct store *s);

/* Whether notes of what was in the way of a batch have been stored (aside.h) since this was asked last. */
bool store_take_notes(struct store *s);
size_t store_batch_bytes(const struct store *s);

/* Make the batch durable and empty it. Waits as long as the store is away; *stop ends the waiting.
 * Returns 0, or
 *   -ESTALE   another musterd leads, the store has lost a change, or a job or the events are not as this one thinks:
 *             this process must end
 *   -ECANCELED  *stop was set while the store was away; the batch may or may not be applied
 *   -EMSGSIZE, -ENOMEM the batch could not be built */
int store_commit(struct store *s, const _Atomic int *stop, struct merr *err);

/* Renew the lease, which is to be done that often (INT64_MAX: never). Rides in the batch. */
void store_renew(struct store *s);
int64_t store_renew_every_us(const struct store *s);

/* --- tables of text by name -------------------------------------------------------------------------- */

enum store_table {
    STORE_NODES,
    STORE_PROJECTS,
    STORE_TOKENS,      /* by the SHA-256 of a token that an admin made */
    STORE_LINKS,       /* by the names of two nodes */
    STORE_SPEEDS,      /* by the name of a class of devices */
    STORE_JOINS,       /* by the SHA-256 of a join code */
    STORE_KEYS,        /* secrets of the cluster itself */
    STORE_ENDED,       /* by the number of a job that has ended */
    STORE_FILE_TOKENS, /* by the place of the file: its token's SHA-256 and role */
    STORE_SECRETS,     /* by "USER/NAME": sealed */
    STORE_ARRAYS,      /* by "JOB": what an array is; by "JOB/CHUNK": how some of its tasks are */
    STORE_USAGE,       /* by project and user: device time that they had lately */
    STORE_LEDGER,      /* by hour, project, user and class: what jobs used (ledger.h) */
    STORE_KINDS,       /* by the number of a kind of jobs: what runs have shown of it (kinds.h) */
    STORE_BOOKINGS,    /* by the name of a maintenance or a reservation (booking.h) */
    STORE_ESTIMATES,   /* by the basis of estimates: how good they were (estimates.h) */
    STORE_PREDICTIONS, /* by class, kind of job and rates: how far planned steps were off (predictions.h) */
    STORE_WEBHOOKS,    /* by its id: a webhook, its address and secret sealed (webhook.h) */
    STORE_DELIVERIES,  /* by "WEBHOOK/EVENT": what it is to tell, or has told */
    STORE_ALLOCATIONS, /* by "a3": nodes that were asked for; "cluster": by what the provider knows ours (supply.h) */
    STORE_SCHEDULES,   /* by its id: a schedule of jobs (schedules.h) */
    STORE_TABLES
};

void store_put(struct store *s, enum store_table table, const char *name, const char *text);
void store_drop(struct store *s, enum store_table table, const char *name);

struct store_row {
    char *name, *text;
    size_t len;  /* of text, which may hold NULs where it was damaged */
    uint64_t id; /* of an event (history_read.h) */
};

struct store_rows { /* owned: store_rows_clear() */
    struct store_row *v;
    size_t n;
    void *from; /* that the texts are in */
};

/* All rows, in no order; none where the key is of another kind, which the next batch sets aside. Returns 0; -EIO,
 * -ENOMEM with words, and *ret is unchanged. */
int store_read_rows(struct store *s, enum store_table table, struct store_rows *ret, struct merr *err);
void store_rows_clear(struct store_rows *rows);

/* Agents whose nodes were removed: the newest `most` stay, each for keep_s. */
void store_put_removed(struct store *s, const char *agent, int64_t at_s, int keep_s, int most);

/* Those, the oldest first: name is the agent, text the second. As store_read_rows(). */
int store_read_removed(struct store *s, struct store_rows *ret, struct merr *err);

/* Device time, in microseconds, of the jobs of a project that have ended. */
void store_add_device_us(struct store *s, const char *project, int64_t us);
int64_t store_read_device_us(struct store *s, const char *project); /* 0, too, while the store is away */

#endif
