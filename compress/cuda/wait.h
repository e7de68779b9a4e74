/* wait - for what a GPU does, with an end: CUDA's own waits have none
 *
 * Each gives 0, -ETIMEDOUT with words that name the GPU, or what cuda_failed() makes of a failure.
 */
#ifndef MUSTER_COMPRESS_CUDA_WAIT_H
#define MUSTER_COMPRESS_CUDA_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

#define WAIT_KERNELS_US 600000000 /* for what a step queues: longer is no kernel of ours */

/* Until all that is queued on a cudaStream_t has run. The processor stays at it, for others wait for it. */
int wait_stream(void *stream, int ordinal, int64_t within_us, struct merr *err);

/* A GPU of this process is given up: CUDA's frees wait for all that it does, and so do CUDA's handlers of exit(), which
 * then come to nothing. */
void wait_lose(void);
bool wait_lost(void);

/* Until a cudaEvent_t is reached. The processor does other things: a look from time to time. */
int wait_event(void *event, int ordinal, int64_t within_us, struct merr *err);

#endif
