/* spool - what jobs print and measure, as their agents ship it: taken in piece by piece, each once
 *
 *   j17/rank-00000.g2.log    what rank 0 of generation 2 of job 17 printed
 *   j17/metrics.g2.jsonl     its metrics, a line a step
 *
 * The length of a file is the offset up to which all is durable; a piece that does not begin there is left out, and
 * the ack says where to go on. Of a file that grows long the first and the newest are kept (spool_parts.h), of a job's
 * generations the newest SPOOL_GENERATIONS; who calls says which goes. Beside them each job has a folder of its own,
 * where its ranks keep what they share: it is made here and never removed.
 * Where the files are says a table: in a folder (spool_disk.h) or, for tests, in memory (tests/memory/spool_memory.h).
 * One thread takes pieces in and drops them; on a disk others may read meanwhile (spool_read.h) and make places for
 * jobs.
 */
#ifndef MUSTER_SERVER_SPOOL_H
#define MUSTER_SERVER_SPOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/merr.h"
#include "server/store/spool_names.h"

#define SPOOL_FILE_MAX (64 << 20)
#define SPOOL_GENERATIONS 256

typedef void spool_name_fn(void *arg, const char *name);

struct spool_ops {
    /* Make a place for a job's files, and the folder of its own that its ranks share; both may be there, and both are
     * tried. 0, or a negative errno with words. */
    int (*make)(void *self, uint64_t job, struct merr *err);

    /* The highest number of a job that has a folder of its own; 0: none has. 0, or a negative errno with words. */
    int (*newest)(void *self, uint64_t *ret_job, struct merr *err);

    /* Remove a job's files and their place, not its own folder; or one of them; what is not there or cannot be removed
     * is left. */
    void (*drop)(void *self, uint64_t job);
    void (*drop_file)(void *self, uint64_t job, const char *name);

    /* Whether there is a place for a job's files. */
    bool (*known)(void *self, uint64_t job);

    /* Tell of each of a job's files, in no order. -ENOENT: it is not known; or another errno. fn changes nothing. */
    int (*list)(void *self, uint64_t job, spool_name_fn *fn, void *arg);

    /* Append to a file, made when missing, if it is offset long: durable when it returns, with *ret_new set. Otherwise
     * nothing is appended, nor set. Returns the length that the file has now; where it is full, offset + len, as if it
     * were there; or a negative errno. */
    int64_t (*append)(void *self, uint64_t job, const char *name, int64_t offset, const char *text, size_t len,
                      bool *ret_new);

    /* Make an empty file, whatever room is to be left. 0, also where it is there; or a negative errno. */
    int (*mark)(void *self, uint64_t job, const char *name);

    /* Write a whole file in place of the one that is there: who reads sees one of the two. It need not outlast a crash,
     * and room is left as for what is appended. 0 or a negative errno. */
    int (*put)(void *self, uint64_t job, const char *name, const char *text, size_t len);

    /* Read up to n bytes at an offset. Returns how many, 0 at the end, with the file's length; or a negative errno. */
    ssize_t (*read)(void *self, uint64_t job, const char *name, int64_t offset, char *to, size_t n,
                    int64_t *ret_length);

    /* Which checkpoints lie in a folder of a job's own one, as spool_saved_scan() tells (spool_saved.h). */
    int (*saved)(void *self, uint64_t job, const char *dir, json_t **ret);
};

struct spool {
    const struct spool_ops *ops;
    void *self;                /* borrowed from who opened it */
    int64_t job_bytes;         /* of one job that are kept, about; 0: no limit */
    int64_t all_bytes;         /* of all jobs' logs that are kept, about; 0: no limit */
    const struct clock *clock; /* by which it is noted when logs came; NULL: it is not */
};

/* Make the place of a job's files, without which nothing is kept of it, and the folder of its own, where its ranks keep
 * what they share (checkpoints). 0, or a negative errno with words; the other of the two may be made all the same. */
int spool_make_job(const struct spool *s, uint64_t job, struct merr *err);

/* The highest number of a job that has a folder of its own; 0: none has. These outlive what the store knows of a job.
 * Returns 0, or a negative errno with words. */
int spool_newest_job(const struct spool *s, uint64_t *ret_job, struct merr *err);

/* Remove what is kept of a job, or of one generation of it. */
void spool_drop_job(const struct spool *s, uint64_t job);
void spool_drop_generation(const struct spool *s, uint64_t job, uint32_t generation);

/* Take in a piece of a report's "logs" (log) or "metrics". What to acknowledge is appended to acks, and to fresh the
 * piece with "next_offset", if it was new. Returns 0; -EINVAL: it is malformed; another negative errno: it cannot be
 * kept now. Then nothing is appended. */
int spool_take_piece(const struct spool *s, const json_t *piece, bool log, json_t *acks, json_t *fresh);

#endif
