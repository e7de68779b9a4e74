/* bookings - times in which devices are not for everybody: maintenance of nodes, and reservations for some users' jobs
 *
 * What they say of a device now is its calendar (scheduler/cluster/calendar.h). Plain data: owned by the thread that
 * owns the cluster.
 */
#ifndef MUSTER_SERVER_BOOKINGS_H
#define MUSTER_SERVER_BOOKINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/cluster/cluster.h"

#define BOOKINGS_MAX 4096        /* each node that a cloud lends may have an end of its own */
#define BOOKINGS_PARTS_MAX 16384 /* of one */
#define BOOKINGS_REASON_MAX 200
#define BOOKINGS_LONGEST_US (INT64_C(366) * 86400 * 1000000) /* of one, and until it begins */
#define BOOKINGS_ALL (-1)

struct booking_part {
    char node[JOB_NODE_MAX];
    int slot; /* BOOKINGS_ALL: each of the node's */
};

struct booking {
    uint64_t id;               /* "m3" or "r3" is 3 */
    bool reserved;             /* for jobs that name it; else it is for nobody: maintenance */
    struct calendar_span span; /* wall; its holder is the id where it is reserved */
    int64_t every_us;          /* it comes again after so long; 0: it does not */
    char reason[BOOKINGS_REASON_MAX], by[SPEC_NAME_MAX];
    char project[SPEC_NAME_MAX], user[SPEC_NAME_MAX]; /* whose jobs may name it; "": everybody's */
    char class_[SPEC_NAME_MAX];                       /* of its devices; "": of several */
    struct booking_part *parts;                       /* owned */
    size_t n_parts;
};

struct bookings {
    struct booking *v; /* owned, by id */
    size_t n;
    uint64_t next; /* id */
};

void bookings_clear(struct bookings *all);

/* Take one over; its id is new where it has none. -ENOSPC: there are BOOKINGS_MAX; -ENOMEM. It stays the caller's then.
 */
int bookings_take(struct bookings *all, struct booking *b, uint64_t *ret_id);
void bookings_drop(struct bookings *all, struct booking *b);
struct booking *bookings_find(const struct bookings *all, uint64_t id); /* NULL: there is none */

/* "m3", "r3". */
void bookings_name(const struct booking *b, char ret[24]);
uint64_t bookings_parse(const char *name, bool reserved); /* 0: it is no such name */

/* As kept in the store, new; and back: -EINVAL, -ENOMEM. */
json_t *bookings_record(const struct booking *b);
int bookings_read(const json_t *o, struct booking *ret);

/* Set what all say of each slot of the cluster now. True: something is other than it was. */
bool bookings_mark(const struct bookings *all, struct cluster *cl, int64_t now_us);

/* Choose the n devices of a reservation from those of these classes that no other booking has at some time of its span.
 * False: there are only *ret_free, or no memory. */
bool bookings_choose(const struct bookings *all, const struct cluster *cl, uint64_t classes, int n, struct booking *b,
                     int *ret_free);

/* The next time after `since` at which something begins, ends or has to be left; INT64_MAX: never. */
int64_t bookings_edge_us(const struct bookings *all, int64_t since_us);

#endif
