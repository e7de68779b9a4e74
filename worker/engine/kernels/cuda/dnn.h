/* dnn - attention by cuDNN, where there is one that can: loaded at run time, with a plan for each class of shapes
 *
 * Documents are told by arrays on the device, so a plan serves all packings of up to so many documents of up to so many
 * rows, both rounded up. A plan that the library refuses is not asked for again, and our own kernels compute in its
 * place. Results of one call are the same each time; which engine computes may depend on what else is packed beside a
 * document (kern_cfg, own).
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_DNN_H
#define MUSTER_WORKER_KERNELS_CUDA_DNN_H

#include "worker/engine/kernels/kernels.h"

struct dnn;

/* Returns 0; -ENOENT: it is not installed; -EIO: it is too old, lacks a function or does not start; -ENOMEM. */
int dnn_new(struct dnn **ret, struct merr *err);
void dnn_free(struct dnn *d); /* NULL is fine */

/* Whether such a call may go by the library at all: bf16 of whole documents without dropout, heads of at most 128
 * dimensions by eights, rows on boundaries of 16 bytes. */
bool dnn_suits(const struct kern_attention *a);

/* A call that suits, queued on the stream: 1; or 0: the library has no way, our own kernels shall compute it. Negative:
 * it failed; -EAGAIN: captured calls cannot wait for a new plan. */
int dnn_attention(struct dnn *d, struct kern_stream *s, const struct kern_attention *a, bool backward,
                  struct merr *err);

/* Its version as the library numbers it, and why the first plan was refused ("": none was), which lives with d. */
size_t dnn_version(const struct dnn *d);
const char *dnn_refused(const struct dnn *d);

/* The class of a call, for tests. */
struct dnn_shape;
void dnn_shape_of(const struct kern_attention *a, bool backward, struct dnn_shape *ret);

#endif
