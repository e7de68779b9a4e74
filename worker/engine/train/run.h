/* run - what a rank is told at its start: the assignment in the folder of the run (docs/protocol.md) */
#ifndef MUSTER_WORKER_TRAIN_RUN_H
#define MUSTER_WORKER_TRAIN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"
#include "worker/engine/comm/mesh.h"

#define RUN_PATH_MAX 4096

struct run {
    char folder[RUN_PATH_MAX], dir[RUN_PATH_MAX]; /* of this run, of the job */
    char checkpoints[RUN_PATH_MAX];
    char memory[RUN_PATH_MAX];     /* folder for snapshots in this node's memory; "": none */
    uint64_t memory_limit;         /* bytes of it that the snapshots of all jobs may take; 0: none is set */
    char no_memory[MERR_TEXT_MAX]; /* why the agent could make none; "": it was not to */
    char job[SPEC_NAME_MAX], node[SPEC_NAME_MAX], user[SPEC_NAME_MAX];
    uint64_t generation;
    int pass_over;      /* newest checkpoints, and all snapshots, that it does not go on from */
    bool measure_links; /* the server wants to know how fast nodes reach each other */
    struct mesh mesh;
    int rank, world, threads;
    int source_nodes; /* that the job has left and that have its state in memory: ranks from world on, one each */
    int *node_of;     /* [world]: ranks with equal numbers are on one node */
    int *share;       /* [dp]: virtual workers of each replica; NULL: evenly */
    struct job_spec *spec;
};

/* Read FOLDER/assignment.json for a rank; from world on it is a source node's (worker/engine/recover/sources.h),
 * whose mesh has sizes alone. -EINVAL (what is wrong with the assignment, the layout or the spec), -EPROTO (a version
 * of the protocol that is not known), -ENOENT, -ENOMEM. On failure nothing is left to clear. */
int run_read(const char *folder, int rank, struct run *ret, struct merr *err);
/* The same from the text of an assignment. */
int run_parse(const char *text, size_t len, const char *folder, int rank, struct run *ret, struct merr *err);
void run_clear(struct run *r);

/* Whether layout and spec go together, and nothing is left open: 0, or -EINVAL. Fields of the spec that do not go with
 * each other are refused where it is read (api/spec_check.c). */
int run_check(const struct run *r, struct merr *err);

/* Sequences a micro-batch: the spec's, or plan_micro(). -EINVAL when the spec's does not divide. */
int run_micro(const struct job_spec *spec, int *ret, struct merr *err);

#endif
