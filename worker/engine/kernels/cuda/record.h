/* record - what calls queue on a stream, kept as CUDA graphs and queued again as a whole
 *
 * Calls with a key that is new run as they are: workspace grows, algorithms are chosen, and what they upload is
 * measured. The second time they are captured instead of run, and the graph is launched; from then on it alone is. What
 * captured calls upload has fixed places on the device. Arrays that are read again are found by their address in the
 * host's memory: before each launch one copy brings what they hold now. Others (struct upload, kept) go up once.
 *
 * A capture that fails is not tried again: its calls run as they are. Keys, and bytes of places, have limits.
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_RECORD_H
#define MUSTER_WORKER_KERNELS_CUDA_RECORD_H

#include <stdbool.h>

#include "worker/engine/kernels/kernels.h"

struct records; /* of one stream; all functions take NULL: nothing is recorded there */
struct upload;  /* stream.h */

/* NULL: no memory. */
struct records *records_new(void);
/* Frees what is on the device too; the stream has been waited for. */
void records_free(struct records *g);

/* kern_ops.recorded and kern_ops.recordings. */
int record_calls(struct kern_stream *s, const struct kern_key *key, kern_calls calls, void *arg, struct merr *err);
void record_told(const struct kern_stream *s, struct kern_recordings *ret);

/* Uploads of a call: 1 when they have places in the capture under way, 0 when they must be sent; -EAGAIN when captured
 * calls cannot have places. */
int record_upload(struct records *g, struct upload *v, int n, struct merr *err);

/* Are calls captured now? */
bool record_capturing(const struct records *g);

/* Addresses that recordings know may be others' from now on: drop all but the one under way, which is not captured. */
void records_forget(struct records *g);

#endif
