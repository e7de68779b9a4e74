/* gpus - what agents tell of their GPUs: kept as they say it, the newest only
 *
 * Plain data: it is kept in the node (node.h).
 */
#ifndef MUSTER_SERVER_GPUS_H
#define MUSTER_SERVER_GPUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/cluster/cluster.h"
#include "server/cluster/notes.h"

#define GPUS_ERRORS_MAX 32 /* taken from one report */

struct gpus_error { /* that a GPU's driver has told */
    int slot;
    int milli; /* thousandths of an incident that it is evidence against the node */
    bool stop; /* what runs there is to be ended */
    char why[160];
};

struct gpus_errors {
    struct gpus_error v[GPUS_ERRORS_MAX];
    size_t n;
};

/* Take in "gpus" of a registration or a report at the wall time. True: one is ill that was well, or the other way
 * round; then the notes say which. Errors that are new are added to *errors. */
bool gpus_take(struct node *n, const json_t *body, int64_t wall_us, struct notes *notes, struct gpus_errors *errors);

/* The wall clock was set by so much: what is measured with it goes along. */
void gpus_shift(struct node *n, int64_t by_us);

/* What is known of the GPU of a slot; new; NULL: no GPU, or nothing is known. */
json_t *gpus_view(const struct node *n, int slot);

/* Metrics in Prometheus' text format: append the lines before a metric, and one sample for each GPU of a node. */
enum gpus_metric {
    GPUS_UTILIZATION,
    GPUS_MEMORY,
    GPUS_POWER,
    GPUS_POWER_LIMIT,
    GPUS_CLOCK,
    GPUS_TEMPERATURE,
    GPUS_ECC,
    GPUS_METRICS
};

void gpus_print_head(struct buf *b, enum gpus_metric m);
void gpus_print_node(struct buf *b, enum gpus_metric m, const struct node *n);

#endif
