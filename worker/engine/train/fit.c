#include "worker/engine/train/fit.h"

#include <errno.h>
#include <stdbool.h>

/* What makes the largest part smaller, recomputation first where it does or where it is enough. */
static const char *advice(const struct fit *f, double lacking_each)
{
    bool most = f->activations >= f->weights && f->activations >= f->gradients && f->activations >= f->optimizer;
    double saved = (double)f->activations - (double)f->activations_least;

    if (saved > 0 && saved >= lacking_each)
        return "parallel.recompute 'full', which would be enough, or a smaller train.batch.micro";
    if (saved > 0 && most)
        return "parallel.recompute 'full' and a smaller train.batch.micro or batch.length";
    if (most)
        return "a smaller train.batch.micro or batch.length";
    if (f->gradients > f->weights && f->gradients > f->optimizer)
        return "fewer parallel.virtual_workers, more tp or more pp";
    return "more tp, more pp or, with zero 1, more replicas";
}

int fit_head_rows(uint64_t gpu_bytes, int vocab)
{
    uint64_t most = gpu_bytes / 64 < FIT_HEAD_BYTES ? gpu_bytes / 64 : FIT_HEAD_BYTES;
    uint64_t row = (uint64_t)vocab * sizeof(float), rows = FIT_HEAD_LEAST;

    while (row > 0 && 2 * rows * row <= most && rows < FIT_HEAD_MOST)
        rows *= 2;
    return (int)rows;
}

int fit_check(const struct fit *need, int ranks, const struct capacity *have, const char *whose, struct merr *err)
{
    const double gib = 1u << 30;
    uint64_t one = fit_all(need);
    double all = (double)one * ranks, bytes;
    int code = 0;

    if (have->total > 0 && all > (double)have->total)
        code = -EINVAL;
    else if (have->free > 0 && all > (double)have->free)
        code = -ENOMEM;
    if (code == 0)
        return 0;
    bytes = (double)(code == -EINVAL ? have->total : have->free);
    return merr_set(err, code,
                    "%.2f GiB too little memory: %d rank%s here want %.2f GiB each (weights %.2f, gradients "
                    "%.2f, optimizer %.2f, activations %.2f, rest %.2f) and %s has %.2f GiB%s; %s would help",
                    (all - bytes) / gib, ranks, ranks > 1 ? "s" : "", (double)one / gib, (double)need->weights / gib,
                    (double)need->gradients / gib, (double)need->optimizer / gib, (double)need->activations / gib,
                    (double)need->rest / gib, whose, bytes / gib, code == -EINVAL ? "" : " free",
                    advice(need, (all - bytes) / ranks));
}
