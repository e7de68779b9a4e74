/* webhook - notices of what happens to jobs and nodes, sent to addresses that people name
 *
 * A webhook is its user's and hears of their own jobs; one of an admin may hear of the whole cluster. Each notice is a
 * delivery: a row of the store, written with the event that it tells of, sent once that is durable, and tried again
 * until its receiver has taken it or there have been WEBHOOK_TRIES. So each is sent at least once, also when the server
 * ends in between, and always with the same id. What there may be of everything is limited: a notice above that is
 * counted, not sent. Nothing here waits for a receiver (struct post_way). Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_WEBHOOK_H
#define MUSTER_SERVER_WEBHOOK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

#define WEBHOOK_USER_MAX 64        /* webhooks of a user */
#define WEBHOOK_MAX 1024           /* of all */
#define WEBHOOK_WAITING 500        /* deliveries of one that wait, */
#define WEBHOOK_USER_WAITING 2000  /* of all of a user, */
#define WEBHOOK_ALL_WAITING 20000  /* and of all */
#define WEBHOOK_KEPT 100           /* deliveries of one that are over and still shown */
#define WEBHOOK_TRIES 8            /* of a delivery */
#define WEBHOOK_AT_ONCE 4          /* deliveries of one that are on their way, */
#define WEBHOOK_USER_AT_ONCE 16    /* of a user, */
#define WEBHOOK_ALL_AT_ONCE 256    /* and of all */
#define WEBHOOK_DEAD_S (3 * 86400) /* one that has taken nothing for so long is switched off */
#define WEBHOOK_URL_MAX 2048
#define WEBHOOK_ID_MAX 20

struct call;
struct core;

enum webhook_format { WEBHOOK_JSON, WEBHOOK_SLACK, WEBHOOK_MAIL, WEBHOOK_FORMATS };

struct webhook_kind {
    const char *name; /* as people say it: "job.failed" */
    const char *type; /* of an event, */
    const char *word; /* and its new state, or the code of its cause */
    const char *says; /* in a sentence, after the job or node */
};

#define WEBHOOK_TEST 31                                     /* a kind that nothing but a test has */
#define WEBHOOK_USUAL (UINT32_C(1) << 1 | UINT32_C(1) << 2) /* where nothing is said: job.succeeded, job.failed */
extern const struct webhook_kind webhook_kinds[];
extern const size_t webhook_kinds_n; /* at most WEBHOOK_TEST */

struct delivery {
    uint64_t number; /* of its event; of a test the time */
    int kind;
    int64_t at_us, next_us; /* wall: since when it is there, when it is tried next */
    int tries, status, ms;  /* status, ms: of the last try */
    char *body, *why;       /* owned; body: while it waits; why: the last try failed; NULL: it did not */
    bool waits, failed, on_way;
};

struct webhook {
    char id[WEBHOOK_ID_MAX], name[SPEC_NAME_MAX], user[SPEC_NAME_MAX];
    char project[SPEC_NAME_MAX]; /* "": any */
    char *url, *sealed;          /* owned; sealed: the secret; NULL: it signs nothing */
    enum webhook_format format;
    uint32_t on; /* mask of kinds */
    bool cluster, off, changed;
    int64_t made_us, failing_us; /* wall; failing_us: since when nothing was taken, 0: the last one was */
    uint64_t dropped;            /* notices for which there was no room */
    struct delivery *v;          /* n, the oldest first */
    size_t n, cap, waits, on_way;
};

struct sent {
    uint64_t id, number;
    char hook[WEBHOOK_ID_MAX];
};

struct webhook_set {
    struct webhook **v; /* n of them, owned */
    size_t n, cap;
    size_t waits;                          /* deliveries of all */
    int64_t due_us;                        /* wall: nothing is to be sent earlier */
    size_t turn;                           /* which hook is looked at first */
    uint64_t next;                         /* id of what is sent */
    struct sent sent[WEBHOOK_ALL_AT_ONCE]; /* n_sent, on their way */
    size_t n_sent;
};

/* The kind of this name; -1: there is none. */
int webhook_kind(const char *name);
const char *webhook_kind_name(int kind);
extern const char *const webhook_format_names[WEBHOOK_FORMATS + 1];

/* Names of kinds as a mask, and the other way round. -1: the value is no list of such names. */
int64_t webhook_read_on(const json_t *names);
json_t *webhook_on_json(uint32_t on);

struct webhook *webhook_find(const struct core *c, const char *user, const char *name); /* NULL: none */
struct webhook *webhook_find_id(const struct core *c, const char *id);

int webhook_insert(struct webhook_set *all, struct webhook *h); /* it is taken over, also on -ENOMEM */
void webhook_remove(struct core *c, struct webhook *h);         /* with its deliveries, and their rows */

bool webhook_put(struct core *c, struct webhook *h);                                    /* false: no memory */
void webhook_put_delivery(struct core *c, struct webhook *h, const struct delivery *d); /* memory is state_fatal's */

/* One more delivery of a hook; body is taken over. NULL: there is no room, which is counted, or no memory. */
struct delivery *webhook_deliver_new(struct core *c, struct webhook *h, uint64_t number, int kind, char *body);
struct delivery *webhook_delivery(struct webhook *h, uint64_t number); /* NULL: none */
void webhook_forget_oldest(struct core *c, struct webhook *h);         /* of what is over, beyond WEBHOOK_KEPT */

/* "<id of the hook>.<number>": the same for each try. */
#define WEBHOOK_MESSAGE_ID_MAX 48
void webhook_message_id(const struct webhook *h, uint64_t number, char ret[WEBHOOK_MESSAGE_ID_MAX]);

struct webhook_set *webhook_new(void); /* NULL: no memory */
void webhook_free(struct webhook_set *all);
int webhook_load(struct core *c, struct merr *err);

/* Whether a user has one of this name, and it is switched on. */
bool webhook_is_there(const struct core *c, const char *user, const char *name);

#endif
