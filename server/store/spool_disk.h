/* spool_disk - the spool as a folder of files, <jobs>/.spool/j17/rank-00000.g2.log, beside the jobs' own, <jobs>/j17
 *
 * It lies where all machines of the cluster see it, so that another server finds it, and not in a job's own folder,
 * where the job may write. An append is on disk (fdatasync) when it returns; twice the same one is one. Where less than
 * min_free bytes would be left for others on that disk, nothing is appended (-ENOSPC). Threads as spool.h says.
 */
#ifndef MUSTER_SERVER_SPOOL_DISK_H
#define MUSTER_SERVER_SPOOL_DISK_H

#include "server/store/spool.h"

struct spool_disk;

struct spool_disk_cfg {
    const char *jobs;   /* where jobs have folders of their own; it must be there */
    const char *before; /* where older servers kept the spool: moved from there; NULL: nowhere */
    int64_t min_free;
};

/* Returns 0 with *ret, and *ret_spool that is good until spool_disk_close(); or a negative errno with words. */
int spool_disk_open(const struct spool_disk_cfg *cfg, struct spool_disk **ret, struct spool *ret_spool,
                    struct merr *err);
void spool_disk_close(struct spool_disk *d); /* NULL is fine */

#endif
