/* keyed - the codecs of compress.dp where parallel.exact is strict: rounded by tensor, place, step and leaf, not rank
 *
 * Each PARAM_BLOCK floats of an arena are coded by themselves: a unit of fixed size, so the units of any piece lie
 * together and no cut over replicas changes a bit. A leaf's gradient is coded before it is added to another's; the
 * weights follow the masters by coded differences, as in SDP4Bit (arXiv 2410.15526). A job on one replica codes too,
 * though nothing travels: that is what makes its bits those of many. What pads a tensor to a whole block is left alone.
 *
 * Not thread safe: the rank's thread owns it.
 */
#ifndef MUSTER_WORKER_OPTIM_KEYED_H
#define MUSTER_WORKER_OPTIM_KEYED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/param.h"

struct keyed;

/* word: as in compress.dp. -EINVAL, -ENOTSUP: no codecs for gradients and weights by that word; -ENOMEM. */
int keyed_new(const char *word, uint64_t seed, const struct params *p, struct keyed **ret, struct merr *err);
void keyed_free(struct keyed *k);

/* Arenas lie in memory of these kernels: where that is a device's they come and go by copies on the stream, a mebibyte
 * at a time. -ENOMEM. */
int keyed_reach(struct keyed *k, const struct kern_ops *ops, struct kern_stream *stream, struct merr *err);

/* Bytes of the units of n floats, a multiple of PARAM_BLOCK, of gradients and of differences of weights. */
size_t keyed_gradient_bytes(const struct keyed *k, size_t n);
size_t keyed_weight_bytes(const struct keyed *k, size_t n);
const char *keyed_gradient_codec(const struct keyed *k); /* its name */
const char *keyed_weight_codec(const struct keyed *k);

/* Code floats [at, at + n) of a leaf's gradient arena, multiples of PARAM_BLOCK, into their units, and put in their
 * place what decoding gives. units: of [at, at + n); NULL: they are not wanted. */
int keyed_code_leaf(struct keyed *k, uint64_t step, int leaf, float *arena, size_t at, size_t n, char *units,
                    struct merr *err);

/* Decode the units of [at, at + n) of a gradient arena into out[n], padding as zeros. -EBADMSG: one is not good. */
int keyed_decode_leaf(struct keyed *k, const char *units, size_t at, size_t n, float *out, struct merr *err);

/* Code how far the masters of [at, at + n) of the weight arena are from it. */
int keyed_code_weights(struct keyed *k, uint64_t step, const float *master, const float *arena, size_t at, size_t n,
                       char *units, struct merr *err);

/* Move [at, at + n) of the weight arena by its units. -EBADMSG, with the arena unspecified. */
int keyed_move_weights(struct keyed *k, const char *units, float *arena, size_t at, size_t n, struct merr *err);

/* Whether values coded or decoded since the last call were not finite: they went as zeros. */
bool keyed_broken_take(struct keyed *k);

#endif
