/* survey - what the memories of all nodes hold of a job between them, and the newest snapshot that can be had from it
 *
 * Each node scans its own folder into a piece of bytes; with the pieces of all nodes every rank comes to the same
 * answer. A snapshot can be had when each of its data files is whole on some node, or when of each group of nodes that
 * lost some, one member alone lost any and all others have their data files and parity (parity.h).
 */
#ifndef MUSTER_WORKER_SNAPSHOT_SURVEY_H
#define MUSTER_WORKER_SNAPSHOT_SURVEY_H

#include "base/buf.h"
#include "worker/snapshot/parity.h"

#define SURVEY_BYTES_MAX (64u << 20) /* of a node's piece */

struct survey;

/* A group of nodes, of which one stream is to be made again from parity, or none is lost. */
struct survey_loss {
    uint32_t member;              /* of p: the lost one; p.nodes: none */
    int holder[PARITY_NODES_MAX]; /* node of each other member, by index */
    struct parity p;              /* the head of any of their parities: its index and sums mean nothing; borrowed */
};

struct survey_plan {
    uint8_t id[16];
    uint64_t step;
    uint32_t writers;
    struct parity_part *part;         /* [writers], by rank */
    int *node;                        /* [writers]: which node has it, or -1: lost */
    struct survey_loss *loss, *whole; /* groups that lost a member; those whose data files and parity are all there */
    int losses, wholes;
};

/* Append what the snapshots in dir come to. Damaged files are left out. -ENOMEM, -EMSGSIZE. */
int survey_scan(const char *dir, struct buf *ret, struct merr *err);

struct survey *survey_new(int nodes); /* NULL: no memory */
void survey_free(struct survey *s);
/* Take in the piece of a node. -EPROTO when it is none. */
int survey_add(struct survey *s, int node, const void *data, size_t len, struct merr *err);

/* The newest snapshot of a step below limit that can be had. 1 with a new *ret (survey_plan_clear; borrows from s), 0
 * when there is none, -ENOMEM. ret_lost, unless NULL, gets words for the newest that is newer and cannot be had
 * although it was committed (one node has parity of it), or "". */
int survey_newest(const struct survey *s, uint64_t limit, struct survey_plan *ret, struct merr *ret_lost,
                  struct merr *err);
void survey_plan_clear(struct survey_plan *p);

#endif
