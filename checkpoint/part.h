/* part - one data file: its super block, footer and part index */
#ifndef MUSTER_CHECKPOINT_PART_H
#define MUSTER_CHECKPOINT_PART_H

#include "checkpoint/index.h"

/* Read the part index of a data file into a new *ret. -EBADMSG when it is no whole data file; -ENOENT. */
int part_read(const char *path, struct mck_index *ret, struct merr *err);

/* Does the file have this length (0: any), this attempt's id and an intact footer and super block? 0 or -EBADMSG. */
int part_check(const char *path, const uint8_t uuid[16], uint32_t file_id, uint64_t file_len, struct merr *err);

/* Fill the super block and footer of a file. */
void part_super(const struct mck_index *ix, struct mck_super *ret);
void part_footer(const struct mck_index *ix, const void *index, uint64_t index_len, uint64_t index_off,
                 uint64_t file_len, struct mck_footer *ret);

#endif
