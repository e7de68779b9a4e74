/* spool_disk - the spool as a folder of files, <folder>/j17/rank-00000.g2.log, beside the jobs' own, <jobs>/j17
 *
 * An append is on disk (fdatasync) when it returns. Threads as spool.h says.
 */
#ifndef MUSTER_SERVER_SPOOL_DISK_H
#define MUSTER_SERVER_SPOOL_DISK_H

#include "server/store/spool.h"

struct spool_disk;

/* The folder is made when missing; jobs, where jobs have folders of their own, must be there. Returns 0 with *ret, and
 * *ret_spool that is good until spool_disk_close(); or a negative errno with words. */
int spool_disk_open(const char *folder, const char *jobs, struct spool_disk **ret, struct spool *ret_spool,
                    struct merr *err);
void spool_disk_close(struct spool_disk *d); /* NULL is fine */

#endif
