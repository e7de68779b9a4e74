/* flush - a snapshot in the nodes' memories written to disk, a checkpoint like any other
 *
 * For state that was left in memory and cannot go on from there. Data files of a snapshot are those of a checkpoint, so
 * each node copies its own, and one rank writes the MANIFEST once all are there.
 */
#ifndef MUSTER_WORKER_SNAPSHOT_FLUSH_H
#define MUSTER_WORKER_SNAPSHOT_FLUSH_H

#include "worker/snapshot/survey.h"

struct flush_cfg {
    const char *dir;     /* this node's memory for the job */
    const char *disk;    /* the job's checkpoint folder; made when missing */
    uint64_t generation; /* that writes */
    const struct survey_plan *plan;
    int node; /* this one */
};

/* By one rank of each node: its data files, durable under their names. -ESTALE when a newer generation wrote there. */
int flush_parts(const struct flush_cfg *cfg, struct merr *err);

/* By one rank, once all nodes have: commit. */
int flush_commit(const struct flush_cfg *cfg, struct merr *err);

#endif
