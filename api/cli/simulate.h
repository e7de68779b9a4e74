/* simulate - commands that show what would happen, without a server and without running anything */
#ifndef MUSTER_API_CLI_SIMULATE_H
#define MUSTER_API_CLI_SIMULATE_H

struct cli;

/* muster simulate sequence [FILE]: policies of sequence planning beside each other. */
int simulate_sequence(struct cli *c);

/* muster simulate --snapshot FILE --explain JOB: a round of a server that was kept, taken again. */
int simulate_snapshot(struct cli *c);

/* muster simulate: a trace of jobs through the scheduler. */
int simulate_cluster(struct cli *c);

#endif
