/* The blocks' part of a pass: what is queued for it is the same for each micro-batch of a layout, so a table of kernels
 * may record it (kern_recorded). */
#include <string.h>

#include "base/try.h"
#include "worker/model/stage_impl.h"

struct pass {
    struct stage *st;
    struct stage_slot *slot;
    enum stage_pass what;
    float *grad;
    int from, to; /* blocks */
};

static int forward(const struct pass *p, int i, struct merr *err)
{
    struct stage *st = p->st;
    struct stage_slot *slot = p->slot;
    bool end = i == st->blocks - 1;
    float *out = !end ? slot->block[i + 1].x : st->cfg.last ? st->tmp : slot->out;

    stage_keep_block(st, slot, i);
    return block_forward(st, i, slot, out, p->what == PASS_FORWARD, err);
}

static int run(void *arg, struct merr *err)
{
    const struct pass *p = arg;

    if (p->what == PASS_EVALUATE || p->what == PASS_FORWARD) {
        for (int i = p->from; i < p->to; i++)
            TRY(forward(p, i, err));
        return 0;
    }
    for (int i = p->to - 1; i >= p->from; i--) {
        if (p->what == PASS_WEIGHTS)
            TRY(block_weights(p->st, i, p->slot, p->grad, err));
        else
            TRY(block_backward(p->st, i, p->slot, p->slot->out, p->what == PASS_BACKWARD, p->grad, err));
    }
    return 0;
}

/* Whether blocks neither meet other ranks nor decide anew what they keep, nor go on where another piece ended. */
static bool is_alike(const struct stage *st, const struct stage_slot *slot)
{
    return !st->cfg.tp && !st->cfg.some && slot->shared == 0 && slot->piece.tokens == 0;
}

static int run_some(const struct pass *p, struct merr *err)
{
    struct { /* compared byte by byte */
        const struct stage *st;
        const struct stage_slot *slot;
        const struct block_saves *block;
        const float *grad;
        int what, from, to;
    } head;
    struct kern_key key = {
        .head = &head, .head_bytes = sizeof(head), .list = p->slot->cu,
        .list_bytes = ((size_t)p->slot->docs + 1) * sizeof(*p->slot->cu),
    };
    struct pass some = *p;

    if (!is_alike(p->st, p->slot))
        return run(&some, err);
    memset(&head, 0, sizeof(head));
    head.st = p->st;
    head.slot = p->slot;
    head.block = p->slot->block;
    head.grad = p->grad;
    head.what = (int)p->what;
    head.from = p->from;
    head.to = p->to;
    return kern_recorded(p->st->cfg.k, p->st->cfg.stream, &key, run, &some, err);
}

int stage_blocks(struct stage *st, struct stage_slot *slot, enum stage_pass what, float *grad, struct merr *err)
{
    bool tells = st->done && (what == PASS_BACKWARD || what == PASS_WEIGHTS);
    struct pass p = {.st = st, .slot = slot, .what = what, .grad = grad, .to = st->blocks};

    for (; p.to > 0; p.to = p.from) {
        p.from = tells ? p.to - 1 : 0;
        TRY(run_some(&p, err));
        if (tells)
            TRY(st->done(st->done_arg, st->cfg.layers.begin + p.from, err));
    }
    return 0;
}
