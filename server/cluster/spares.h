/* spares - devices that are kept free for runs that lose one of theirs
 *
 * So many of a class are set aside as soon as they are free and well, and ordinary work gets none of them. Nodes on
 * which least runs are taken first, so that spares stand together, as what a lost node takes with it did. Plain data:
 * owned by the thread that owns the cluster.
 */
#ifndef MUSTER_SERVER_SPARES_H
#define MUSTER_SERVER_SPARES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/merr.h"
#include "server/cluster/cluster.h"

#define SPARES_CLASSES_MAX 16
#define SPARES_MAX 4096                   /* of a class */
#define SPARES_CALM_US INT64_C(600000000) /* nothing has failed on the node of one that is set aside for so long */

struct spares { /* how many are to be kept */
    struct {
        char class_[SPEC_NAME_MAX];
        int n;
        bool warm; /* programs that have started wait for ranks on devices of the class */
    } of[SPARES_CLASSES_MAX];
    size_t n;
};

/* Read "h100=8:warm,cpu=1"; NULL: none. Returns 0, or -EINVAL with words and *ret unchanged. */
int spares_read(const char *text, struct spares *ret, struct merr *err);

/* Of a class, by its name. */
int spares_of(const struct spares *s, const char *class_);

struct spares_claims {         /* what jobs are to get */
    int of_class[CLASSES_MAX]; /* spares: others are set aside in their place */
    const struct node **nodes; /* n nodes on which they are to get devices: nothing more is set aside there */
    size_t n;
};

bool spares_warm(const struct spares *s, const char *class_);

/* Set aside what is missing, and give back what is too much or not fit any more. */
void spares_settle(struct cluster *cl, const struct spares *s, const struct spares_claims *claims, int64_t wall_us);

/* Those set aside of a class on a node. */
int spares_on(const struct node *n, uint8_t class_);

#endif
