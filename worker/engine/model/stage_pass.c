/* Passes through a stage: what is queued for one is the same for each micro-batch of a layout, so a table of kernels
 * may record it (kern_recorded). */
#include <string.h>

#include "base/try.h"
#include "worker/engine/model/stage_priv.h"

struct walk {
    struct stage *st;
    struct stage_slot *slot;
    enum pass what;
    float *grad;
    float weight;
    int from, to; /* blocks */
};

static int forward(const struct walk *w, struct merr *err)
{
    struct stage *st = w->st;
    struct stage_slot *slot = w->slot;
    bool train = w->what == PASS_FORWARD;

    if (st->cfg.part.first)
        TRY(stage_embed(st, slot, train, err));
    for (int i = 0; i < st->blocks; i++) {
        bool end = i == st->blocks - 1;
        float *out = !end ? slot->block[i + 1].x : st->cfg.part.last ? st->tmp : slot->out;

        stage_keep_block(st, slot, i);
        TRY(block_forward(st, i, slot, out, train, err));
    }
    return st->cfg.part.last ? stage_head(st, slot, w->grad, w->weight, err) : 0;
}

static int go(void *arg, struct merr *err)
{
    const struct walk *w = arg;

    if (w->what == PASS_EVALUATE || w->what == PASS_FORWARD)
        return forward(w, err);
    for (int i = w->to - 1; i >= w->from; i--) {
        if (w->what == PASS_WEIGHTS)
            TRY(block_weights(w->st, i, w->slot, w->grad, err));
        else
            TRY(block_backward(w->st, i, w->slot, w->slot->out, w->what == PASS_BACKWARD, w->grad, err));
    }
    return 0;
}

/* Whether a pass neither meets other ranks nor decides anew what it keeps, nor goes on where another piece ended. */
static bool is_alike(const struct stage *st, const struct stage_slot *slot)
{
    return !st->cfg.part.tp && !retain_plans(&st->cfg.retain) && slot->shared.n == 0 && slot->piece.tokens == 0;
}

static int go_recorded(struct walk *w, struct merr *err)
{
    const struct stage_slot *slot = w->slot;
    struct { /* compared byte by byte */
        const struct stage *st;
        const struct stage_slot *slot;
        const struct block_saves *block;
        const float *grad;
        float weight;
        int what, from, to;
    } head;
    struct kern_key key = {.head = &head,
                           .head_bytes = sizeof(head),
                           .list = slot->cu,
                           .list_bytes = ((size_t)slot->docs + 1) * sizeof(*slot->cu)};

    if (!is_alike(w->st, slot))
        return go(w, err);
    memset(&head, 0, sizeof(head));
    head.st = w->st;
    head.slot = slot;
    head.block = slot->block;
    head.grad = w->grad;
    head.weight = w->weight;
    head.what = (int)w->what;
    head.from = w->from;
    head.to = w->to;
    return kern_recorded(w->st->cfg.k, w->st->cfg.stream, &key, go, w, err);
}

int stage_pass(struct stage *st, struct stage_slot *slot, enum pass what, float *grad, float weight, struct merr *err)
{
    bool tells = st->done && (what == PASS_BACKWARD || what == PASS_WEIGHTS);
    struct walk w = {.st = st, .slot = slot, .what = what, .grad = grad, .weight = weight, .to = st->blocks};

    for (; w.to > 0; w.to = w.from) {
        w.from = tells ? w.to - 1 : 0;
        TRY(go_recorded(&w, err));
        if (tells)
            TRY(st->done(st->done_arg, st->cfg.part.layers.begin + w.from, err));
    }
    return 0;
}
