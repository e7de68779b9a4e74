/* copy - memory to memory without taking the cache away from those who compute */
#ifndef MUSTER_CHECKPOINT_WRITE_COPY_H
#define MUSTER_CHECKPOINT_WRITE_COPY_H

#include <stddef.h>

/* As memcpy. What is written goes to memory itself: it need not be read there first, and nothing that others work with
 * leaves the cache for it. */
void copy_past_cache(void *to, const void *from, size_t n);

#endif
