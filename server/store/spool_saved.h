/* spool_saved - which checkpoints lie in a job's folder, as the names and sizes of their files tell
 *
 * The folder is its user's, who may leave anything there: no file is opened, and no link followed.
 */
#ifndef MUSTER_SERVER_SPOOL_SAVED_H
#define MUSTER_SERVER_SPOOL_SAVED_H

#include <jansson.h>

#define SPOOL_SAVED_MAX 10000       /* steps told of */
#define SPOOL_SAVED_FILES_MAX 65600 /* files of one that are counted */

/* The steps below folder/dir, dir being relative: {"step", "complete", "disk_bytes", "files"} each, in no order. New in
 * *ret, empty where there is no such folder. 0; -ELOOP: a link is in the way; or another negative errno. */
int spool_saved_scan(const char *folder, const char *dir, json_t **ret);

#endif
