/* parity - what each node of a group keeps, so that what any one other node held can be made again
 *
 * Source: RAID-5 with rotating parity, over snapshots in memory as in REFT. A node's *stream* is its data files of one
 * snapshot, back to back in order of rank. All streams of a group of n nodes are thought padded with zeros to the same
 * n-1 segments. Node j keeps the exclusive or of one segment of each other node, and none of its own:
 *
 *              node 0   node 1   node 2          parity of node 0 = b0 ^ c0
 *   segment 0    a0       b0       c0            parity of node 1 = a0 ^ c1
 *   segment 1    a1       b1       c1            parity of node 2 = a1 ^ b1
 *
 * so one lost node costs its stream and its own parity alone, and a node's share of parity is 1/(n-1) of a stream.
 *
 * On disk (a file PARITY beside the data files, little endian): a 4096-byte head, the table of data files of all
 * members, the checksums of the pieces of 1 MiB, padding to 4096 bytes, the parity. A file under its final name is
 * whole.
 */
#ifndef MUSTER_WORKER_SNAPSHOT_PARITY_H
#define MUSTER_WORKER_SNAPSHOT_PARITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"

#define PARITY_NAME "PARITY"
#define PARITY_NODES_MAX 8 /* of a group */
#define PARITY_PIECE (1u << 20)
#define PARITY_PARTS_MAX 1024
#define PARITY_BYTES_MAX (UINT64_C(1) << 44) /* of a segment */

struct parity_part { /* a data file of a stream; as on disk */
    uint32_t rank, zero;
    uint64_t bytes;
};

struct parity_member {     /* as on disk */
    uint32_t first, parts; /* in the table of parts */
    uint64_t bytes;        /* of its stream */
};

struct parity_sum { /* checksums of a piece; as on disk */
    uint32_t crc32c, zero;
    uint64_t xxh3;
};

struct parity {
    uint8_t id[16]; /* of the snapshot: the attempt that its data files name */
    uint64_t step, segment;
    uint32_t writers;      /* data files of the whole snapshot, on all groups */
    uint32_t nodes, index; /* of the group; which one this parity is of */
    uint32_t parts;
    struct parity_member member[PARITY_NODES_MAX];
    struct parity_part *part;
    struct parity_sum *sum; /* [parity_pieces()] */
};

/* The group of a node, of all the nodes of a job: at most PARITY_NODES_MAX of them, and two where there are two. */
void parity_group(int nodes, int node, int *ret_first, int *ret_n);

/* Bytes of a segment for streams as in p->member. */
uint64_t parity_segment(const struct parity *p);
uint32_t parity_pieces(const struct parity *p);
uint32_t parity_piece_bytes(const struct parity *p, uint32_t piece);

/* Where in the stream of a member the segment lies that is in a holder's parity; member != holder. */
uint64_t parity_at(const struct parity *p, uint32_t member, uint32_t holder);

void parity_xor(void *to, const void *from, size_t n);

/* Append head and tables, of which the file's first bytes are made. -ENOMEM. */
int parity_encode(const struct parity *p, struct buf *b, struct merr *err);
/* The same back into a new *ret; data may be longer. -EBADMSG says what is wrong. */
int parity_decode(const void *data, size_t len, struct parity *ret, struct merr *err);
void parity_clear(struct parity *p);

/* --- the file --- */

/* Make the file with room for all of p, and write pieces in order, their sums noted in p->sum. *ret_fd is the caller's.
 * -ENOSPC when the memory is full. */
int parity_create(const char *path, const struct parity *p, int *ret_fd, struct merr *err);
int parity_write(int fd, struct parity *p, uint32_t piece, const void *data, struct merr *err);
/* Write head and tables, last. */
int parity_seal(int fd, const struct parity *p, struct merr *err);

/* Head and tables of a file, new in *ret. -ENOENT, -EBADMSG. */
int parity_read(const char *path, struct parity *ret, struct merr *err);
/* A piece of an open file, checked. -EBADMSG. */
int parity_read_piece(int fd, const struct parity *p, uint32_t piece, void *data, struct merr *err);

#endif
