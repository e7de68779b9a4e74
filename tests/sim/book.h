/* book - what really became of every rank of the simulated cluster: the truth that verdicts are held against
 *
 * Machines write it; nobody of the production code reads it. It outlives machines' folders and wiped disks.
 */
#ifndef MUSTER_TESTS_SIM_BOOK_H
#define MUSTER_TESTS_SIM_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct book;

struct book_rank {
    uint64_t job, generation;
    int rank;
    bool alive;       /* its process; else it has ended */
    bool words;       /* it left an exit file */
    bool by_itself;   /* it did what it was to do and ended, unasked */
    int64_t hung_us;  /* since when it has stood still, by a fault; 0: it has not */
    bool files_lost;  /* with its machine's disk */
    int code, signal; /* of its end */
};

struct book *book_new(void);
void book_free(struct book *b);

/* A process begins. The entry is good until the next call. */
struct book_rank *book_begin(struct book *b, uint64_t job, uint64_t generation, int rank);

/* NULL: that rank has never run. */
const struct book_rank *book_find(const struct book *b, uint64_t job, uint64_t generation, int rank);
void book_end(struct book *b, uint64_t job, uint64_t generation, int rank, const struct book_rank *how);

/* It stands still from now on. */
void book_hang(struct book *b, uint64_t job, uint64_t generation, int rank, int64_t now_us);

/* Its machine's disk is wiped. Does nothing for one that has never run. */
void book_lose_files(struct book *b, uint64_t job, uint64_t generation, int rank);

#endif
