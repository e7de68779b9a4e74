/* net - how fast the nodes of a site reach each other, where not all pairs are alike
 *
 * A part is what a job has of one node. Ranks fill the places in order, and which part is at which place can be changed
 * among parts of the same kind and size (dedicate.h). Values; freed by plan_net_free.
 */
#ifndef MUSTER_SCHEDULER_PLAN_NET_H
#define MUSTER_SCHEDULER_PLAN_NET_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_PARTS_MAX 256
#define PLAN_NIC_GBIT_MAX 1e5

enum plan_nic { PLAN_NIC_UNKNOWN, PLAN_NIC_ETHERNET, PLAN_NIC_ROCE, PLAN_NIC_INFINIBAND, PLAN_NICS };

/* "ethernet", ...: PLAN_NIC_UNKNOWN for any other text and for NULL. */
enum plan_nic plan_nic_parse(const char *text);
const char *plan_nic_name(enum plan_nic nic);

struct plan_part {
    int devices;
    int kind; /* parts of unlike kinds are never exchanged */
    enum plan_nic nic;
    double bytes_per_s; /* of its NIC; 0: not told */
};

struct plan_net {
    int n;
    struct plan_part part[PLAN_PARTS_MAX];
    uint16_t at[PLAN_PARTS_MAX];   /* the part at each place; at first each at its own */
    int first[PLAN_PARTS_MAX + 1]; /* the first rank of each place, and of none */
    double bytes_per_s[];          /* [n·n] between parts, the slower of both directions */
};

/* Links as the NICs have them: within a family the slower of both, between families a quarter of that, for there they
 * have no protocol in common but TCP; a NIC that did not tell has fallback. 1 <= n <= PLAN_PARTS_MAX. NULL: no memory.
 */
struct plan_net *plan_net_new(const struct plan_part *part, int n, double fallback_bytes_per_s);
struct plan_net *plan_net_copy(const struct plan_net *net); /* NULL: no memory */
void plan_net_free(struct plan_net *net);

/* What was measured from a to b. The slower direction counts, whichever is set first. */
void plan_net_measured(struct plan_net *net, int a, int b, double bytes_per_s);

/* Whether all pairs are as fast as each other and of one family: then no order is better than another. */
bool plan_net_even(const struct plan_net *net);

/* The place of a rank; ranks past the last count to the last. */
int plan_net_place(const struct plan_net *net, int rank);

/* Between the parts at two places; of the ring through places [begin, end) its slowest hop. 0: they are one. */
double plan_net_pair(const struct plan_net *net, int a, int b);
double plan_net_ring(const struct plan_net *net, int begin, int end);

/* Whether two parts may take each other's place; exchange those at two places that may. */
bool plan_parts_alike(const struct plan_part *a, const struct plan_part *b);
void plan_net_swap(struct plan_net *net, int a, int b);

/* Put families side by side, InfiniBand first, and next to each part the one of its family that it reaches fastest. */
void plan_net_chain(struct plan_net *net);

/* Whether parts at places [begin, end) have NICs of several families. */
bool plan_net_mixed(const struct plan_net *net, int begin, int end);

#endif
