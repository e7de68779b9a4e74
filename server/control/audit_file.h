/* audit_file - the audit log as lines of JSON in a file of the operator's, who has them taken away from there
 *
 * Nothing waits for it and nothing fails with it: where the disk is full, lines are left out and counted, and the next
 * that is written says how many. They are in the store all the same. One thread writes; any may ask for a new file.
 */
#ifndef MUSTER_SERVER_AUDIT_FILE_H
#define MUSTER_SERVER_AUDIT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

struct audit_file;

/* Open it to append, mode 0600 when new. 0; a negative errno with words: it cannot be written, or is no plain file. */
int audit_file_open(const char *path, struct audit_file **ret, struct merr *err);
void audit_file_close(struct audit_file *f); /* NULL is fine */

/* Any thread: before the next line the path is opened anew, since the file was moved away. */
void audit_file_reopen(struct audit_file *f);

/* Append whole lines. */
void audit_file_write(struct audit_file *f, const char *lines, size_t len);

/* Any thread: lines that were left out, ever. */
uint64_t audit_file_lost(const struct audit_file *f);

#endif
