/* gpus - what agents tell of their GPUs: kept as they say it, the newest only
 *
 * Plain data: it is kept in the node (node.h).
 */
#ifndef MUSTER_SERVER_GPUS_H
#define MUSTER_SERVER_GPUS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "server/cluster/cluster.h"
#include "server/cluster/notes.h"

/* Take in "gpus" of a registration or a report. True: one is ill that was well, or the other way round; then the notes
 * say which. */
bool gpus_take(struct node *n, const json_t *body, struct notes *notes);

/* What is known of the GPU of a slot; new; NULL: no GPU, or nothing is known. */
json_t *gpus_view(const struct node *n, int slot);

/* Append the metrics of all GPUs in Prometheus' text format. */
void gpus_metrics(const struct cluster *cl, struct buf *b);

#endif
