/* recode - one data file of a committed checkpoint written anew with another codec, for one thread */
#ifndef MUSTER_CHECKPOINT_TOOLS_RECODE_H
#define MUSTER_CHECKPOINT_TOOLS_RECODE_H

#include <stdatomic.h>

#include "checkpoint/read/read.h"

struct recoder;

/* codec: "plane", "zstd", "lz4"; or "optq": as plane, but AdamW's moments in f32 within bounds, no longer bit for bit,
 * where that takes less than half. bounds NULL: the usual ones. Ends early, with -ECANCELED, once *stop is set. 0,
 * -EINVAL or -ENOMEM. */
int recoder_new(const char *codec, const struct mck_bounds *bounds, const atomic_bool *stop, struct recoder **ret,
                struct merr *err);
void recoder_free(struct recoder *r);

/* A number that says how it writes, other for other codecs and bounds. */
uint32_t recoder_key(const struct recoder *r);

/* Write file f of c into a folder under its old name, as of attempt uuid, and sync it. -EBADMSG when what is read is
 * damaged, -ECANCELED, -errno; what is half written stays. */
int recode_file(struct recoder *r, struct mck *c, uint32_t f, const char *folder, const uint8_t uuid[16],
                struct merr *err);

#endif
