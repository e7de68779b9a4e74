/* recode - one data file of a committed checkpoint written anew with another codec, for one thread */
#ifndef MUSTER_CHECKPOINT_RECODE_H
#define MUSTER_CHECKPOINT_RECODE_H

#include <stdatomic.h>

#include "checkpoint/read.h"

struct recoder;

/* codec: "plane", "zstd", "lz4". Ends early, with -ECANCELED, once *stop is set. 0, -EINVAL or -ENOMEM. */
int recoder_new(const char *codec, const atomic_bool *stop, struct recoder **ret, struct merr *err);
void recoder_free(struct recoder *r);

/* The number of its codec (enum chunk_codec). */
int recoder_codec(const struct recoder *r);

/* Write file f of c into a folder under its old name, as of attempt uuid, and sync it. -EBADMSG when what is read is
 * damaged, -ECANCELED, -errno; what is half written stays. */
int recode_file(struct recoder *r, struct mck *c, uint32_t f, const char *folder, const uint8_t uuid[16],
                struct merr *err);

#endif
