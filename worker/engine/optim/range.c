/* A range of the arena, updated and rounded: the part of each tensor that lies in it. */
#include "base/try.h"
#include "worker/engine/optim/optim_priv.h"

struct update { /* of a range of the arena */
    struct optim *o;
    const struct optim_range *r;
    float *w; /* weights or masters, and gradients: element r->begin first */
    const float *g;
};

bool optim_in_range(const struct optim_range *r, const struct param *q, size_t *ret_at, size_t *ret_n)
{
    size_t begin = q->at > r->begin ? q->at : r->begin, end = q->at + q->n < r->end ? q->at + q->n : r->end;

    if (begin >= end)
        return false;
    *ret_at = begin - r->begin;
    *ret_n = end - begin;
    return true;
}

/* Wait until tensor i of those by place may change. */
static int pass_gate(const struct optim *o, int i, struct merr *err)
{
    return o->cfg.gate ? o->cfg.gate(o->cfg.gate_arg, i, err) : 0;
}

static int pass_all_gates(const struct optim *o, const struct optim_range *r, struct merr *err)
{
    const struct params *p = o->cfg.params;
    size_t at, n;

    for (int i = 0; i < p->n; i++)
        if (optim_in_range(r, p->by_place[i], &at, &n))
            TRY(pass_gate(o, i, err));
    return 0;
}

/* AdamW on the parts that belong to one tensor each. */
static int update_tensors(void *arg, struct merr *err)
{
    const struct update *u = arg;
    struct optim *o = u->o;
    const struct params *p = o->cfg.params;
    struct kern_adamw a = {
        .beta1 = (float)o->cfg.beta1, .beta2 = (float)o->cfg.beta2, .eps = (float)o->cfg.eps, .step = &o->now};
    size_t at;

    for (int i = 0; i < p->n; i++) {
        if (!optim_in_range(u->r, p->by_place[i], &at, &a.n))
            continue;
        if (!o->cfg.k->recorded)
            TRY(pass_gate(o, i, err));
        a.w = u->w + at;
        a.m = o->m + u->r->state + at;
        a.v = o->v + u->r->state + at;
        a.g = u->g + at;
        a.weight_decay = p->by_place[i]->decay ? (float)o->cfg.weight_decay : 0;
        TRY(o->cfg.k->adamw(o->cfg.stream, &a, err));
    }
    return 0;
}

/* Where updates are recorded they are queued all at once: then all gates come before. */
int optim_update_range(struct optim *o, const struct optim_range *r, const float *g, struct merr *err)
{
    struct update u = {.o = o, .r = r, .w = o->master ? o->master + r->state : o->cfg.weights + r->begin, .g = g};
    const struct kern_key key = {.head = &u, .head_bytes = sizeof(u)};

    if (r->begin == r->end)
        return 0;
    if (o->cfg.k->recorded)
        TRY(pass_all_gates(o, r, err));
    return kern_recorded(o->cfg.k, o->cfg.stream, &key, update_tensors, &u, err);
}

int optim_round_range(struct optim *o, const struct optim_range *r, struct merr *err)
{
    const struct params *p = o->cfg.params;
    const size_t all = r->end - r->begin;
    size_t at, n;

    if (all > 0)
        TRY(o->cfg.k->to_bf16(o->cfg.stream, o->master + r->state, all,
                              (char *)o->cfg.matrices + r->begin * kern_size(KERN_BF16), err));
    for (int i = 0; i < p->n; i++) {
        const struct param *q = p->by_place[i];

        if (q->ndim == 1 && optim_in_range(r, q, &at, &n))
            TRY(o->cfg.k->copy(o->cfg.stream, o->cfg.vectors + q->vector_at + (r->begin + at - q->at),
                               o->master + r->state + at, n * sizeof(float), err));
    }
    return 0;
}
