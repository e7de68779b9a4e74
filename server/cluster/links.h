/* links - how nodes reach each other, by the NICs that their agents tell of and by what runs have measured, and which
 * node of a run its ranks are laid on
 *
 * Plain data: links are kept in the nodes (node.h), each in both of its ends.
 */
#ifndef MUSTER_SERVER_LINKS_H
#define MUSTER_SERVER_LINKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "scheduler/diagnose/cells.h"
#include "scheduler/plan/search.h"
#include "server/cluster/cluster.h"

#define LINKS_PAIR_MAX (2 * JOB_NODE_MAX) /* of the name of a pair of nodes: "first/second" by name */

struct link_nic {
    enum plan_nic family;
    double gbit_s; /* 0: not told */
};

/* "nic" of a registration. 0, or -EINVAL with words. */
int links_read_nic(const json_t *body, struct link_nic *ret, struct merr *err);

/* It is the node's. True: it was another before. */
bool links_take_nic(struct node *n, const struct link_nic *nic);

json_t *links_nic_view(const struct node *n); /* new; NULL: nothing was told */
json_t *links_view(const struct node *n);     /* new; NULL: nothing was measured */

/* --- what was measured --- */

struct links_measured {
    struct node *a, *b;
    double bytes_per_s;
};

/* The i-th measurement of an event in which a rank of the job's run tells what it measured. False: it is of no two
 * nodes that are there, or no rate. */
bool links_read_measured(const struct cluster *cl, const struct job *j, const json_t *event, size_t i,
                         struct links_measured *ret);

struct links_news { /* what the store is to know of a measurement */
    char pair[LINKS_PAIR_MAX];
    bool other;                        /* the rate is another than was thought, by more than noise */
    char forgotten[2][LINKS_PAIR_MAX]; /* pairs that made room for it */
    size_t n_forgotten;
};

/* Both nodes know of the measurement, which was made at the wall time. */
void links_keep(struct node *a, struct node *b, double bytes_per_s, int64_t at_us, struct links_news *ret);

/* Neither knows of the other any more. False: neither did, and *ret_pair is unchanged. */
bool links_forget(struct node *a, struct node *b, char ret_pair[LINKS_PAIR_MAX]);

/* What the nodes of the job's run have measured since then says of their links. Returns the node of a finding, and the
 * other end of one link to *ret_other (else NULL); NULL: all is well, no node is to be blamed, or not all of them have,
 * and ret->known is 0. */
struct node *links_judge(const struct cluster *cl, const struct job *j, int64_t since_us, struct cells_finding *ret,
                         struct node **ret_other);

/* Whether the job's run should measure, as things stand at the wall time. */
bool links_due(const struct cluster *cl, const struct job *j, int64_t wall_us);

/* --- nets: new; NULL: all links are taken to be alike, or no memory --- */

struct plan_net *links_of_places(const struct cluster *cl, const struct job_place *p, size_t n,
                                 const struct plan_site *site);
struct plan_net *links_of_class(const struct cluster *cl, int class_, int devices, const struct plan_site *site);

/* Put the places, those of links_of_places(), into the order of the plan. False: no memory, and they are as before. */
bool links_put_in_order(const struct plan_result *plan, struct job_place *p, size_t n);

#endif
