/* spool_parts - a file of the spool in parts, of which the first and the newest are kept
 *
 * Offsets count all bytes that came. The first SPOOL_PART of them are in the file of that name, each further SPOOL_PART
 * in one with ".1", ".2", ... behind it. When a part begins that is one too many, the oldest goes that is not of the
 * first quarter; so there is a gap in the middle, and who reads is told where. It is larger where the job keeps more
 * than job_bytes of the spool. Files of before parts are longer than SPOOL_PART, stay whole and grow as they did.
 */
#ifndef MUSTER_SERVER_SPOOL_PARTS_H
#define MUSTER_SERVER_SPOOL_PARTS_H

#include "server/store/spool.h"

#define SPOOL_PART (4 << 20)
#define SPOOL_LOG_PARTS 16     /* 64 MiB: the first 16 and the newest 48 */
#define SPOOL_METRICS_PARTS 64 /* 256 MiB */

struct spool_extent {
    int64_t length;           /* all that came */
    int64_t gap_from, gap_to; /* is not kept; both 0: all is */
    bool whole;               /* of before parts */
};

/* 0, -ENOENT or another negative errno. */
int spool_measure(const struct spool *s, uint64_t job, const char *name, struct spool_extent *ret);

/* Read up to n bytes of what was measured. Where *offset is in the gap it is set to the gap's end; what is read does
 * not span a gap. Returns how many; 0: none, or a part has gone since it was measured; or a negative errno. */
ssize_t spool_read(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e, int64_t *offset,
                   char *to, size_t n);

/* As append of spool_ops; most: of the file's parts that are kept (0: as many as above). Returns less than all where
 * the disk took only a part. */
int64_t spool_append_most(const struct spool *s, uint64_t job, const char *name, int64_t most, int64_t offset,
                          const char *text, size_t len, bool *ret_new);
int64_t spool_append(const struct spool *s, uint64_t job, const char *name, int64_t offset, const char *text,
                     size_t len, bool *ret_new);

#endif
