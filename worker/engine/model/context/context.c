#include "worker/engine/model/context/context.h"

#include <errno.h>
#include <stdlib.h>

#include "worker/engine/model/context/context_priv.h"

static const struct context_ops *ops_of(const struct context_cfg *cfg)
{
    static const struct context_ops *const modes[] = {[CP_ZIGZAG] = &context_zigzag, [CP_ULYSSES] = &context_ulysses};

    return modes[cfg->mode];
}

int context_check(const struct context_cfg *cfg, const struct model_cfg *model, struct merr *err)
{
    const struct context_ops *ops = ops_of(cfg);

    return context_size(cfg) > 1 && ops->check ? ops->check(cfg, model, err) : 0;
}

int context_open(struct context *cx, struct merr *err)
{
    cx->request = calloc(2 * (size_t)context_size(&cx->cfg), sizeof(struct comm_request *));
    return cx->request ? 0 : merr_set(err, -ENOMEM, "no memory for messages to %d ranks", context_size(&cx->cfg));
}

void context_close(struct context *cx)
{
    free(cx->request);
    cx->request = NULL;
}

int context_share_init(struct context_share *s, int docs)
{
    *s = (struct context_share){
        .whole = calloc(docs, sizeof(*s->whole)),
        .whole_cu = calloc(docs + 1, sizeof(*s->whole_cu)),
        .whole_sample = calloc(docs, sizeof(*s->whole_sample)),
        .past = calloc(docs, sizeof(*s->past)),
        .kv_at = calloc(docs, sizeof(*s->kv_at)),
        .own_cu = calloc(docs + 1, sizeof(*s->own_cu)),
    };
    return s->whole && s->whole_cu && s->whole_sample && s->past && s->kv_at && s->own_cu ? 0 : -ENOMEM;
}

void context_share_clear(struct context_share *s)
{
    free(s->whole);
    free(s->whole_cu);
    free(s->whole_sample);
    free(s->past);
    free(s->kv_at);
    free(s->own_cu);
    *s = (struct context_share){.n = 0};
}

void context_carve(struct context *cx, struct carve *c)
{
    if (context_size(&cx->cfg) > 1)
        ops_of(&cx->cfg)->carve(cx, c);
}

int context_forward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                    struct merr *err)
{
    return ops_of(&cx->cfg)->forward(cx, shared, a, err);
}

int context_backward_begin(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                           struct merr *err)
{
    const struct context_ops *ops = ops_of(&cx->cfg);

    return ops->backward_begin ? ops->backward_begin(cx, shared, a, err) : 0;
}

int context_backward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                     struct merr *err)
{
    return ops_of(&cx->cfg)->backward(cx, shared, a, err);
}
