/* coding - names of the codecs of chunks */
#ifndef MUSTER_CHECKPOINT_FORMAT_CODING_H
#define MUSTER_CHECKPOINT_FORMAT_CODING_H

#include "compress/chunk.h"

/* "none", "plane", "zstd", "lz4": enum chunk_codec; others -EINVAL. */
int coding_parse(const char *name);

/* As inspect prints it: of any codec that a chunk may have. */
const char *coding_name(int codec);

#endif
