/* Where a stage's activations lie, and which of them a micro-batch keeps until its backward. */
#include <assert.h>
#include <string.h>

#include "base/try.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage_priv.h"

/* What is cheap to make again: outputs of norms and activations. */
static void carve_cheap(const struct stage *st, struct carve *c, struct block_saves *b)
{
    const struct model_cfg *g = st->cfg.model;
    size_t rows = st->rows, trunk = trunk_rows(st);

    b->norm1 = carve_typed(c, st->cfg.precision.type, trunk * g->hidden);
    b->norm2 = carve_typed(c, st->cfg.precision.type, trunk * g->hidden);
    b->act = carve_typed(c, st->cfg.precision.type, rows * g->ffn_local);
}

/* The rest but the block's input. */
static void carve_rest(const struct stage *st, struct carve *c, struct block_saves *b)
{
    const struct model_cfg *g = st->cfg.model;
    size_t rows = st->rows, trunk = trunk_rows(st);

    b->mean1 = carve_floats(c, trunk);
    b->rstd1 = carve_floats(c, trunk);
    b->qkv = carve_typed(c, st->cfg.precision.type, rows * g->qkv_local);
    b->raw[0] = g->qk_norm ? carve_typed(c, st->cfg.precision.type, rows * g->q_local) : NULL;
    b->raw[1] = g->qk_norm ? carve_typed(c, st->cfg.precision.type, rows * g->kv_heads_local * g->dim) : NULL;
    b->att = carve_typed(c, st->cfg.precision.type, rows * g->q_local);
    b->lse = carve_floats(c, rows * g->heads_local);
    b->mid = carve_floats(c, trunk * g->hidden);
    b->mean2 = carve_floats(c, trunk);
    b->rstd2 = carve_floats(c, trunk);
    b->pre = carve_typed(c, st->cfg.precision.type, rows * g->family->parts * g->ffn_local);
}

static struct retain_bytes block_bytes(const struct stage *st)
{
    struct block_saves b;
    struct carve cheap = {NULL, 0}, rest = {NULL, 0};

    carve_cheap(st, &cheap, &b);
    carve_rest(st, &rest, &b);
    return (struct retain_bytes){.cheap = cheap.at * sizeof(float), .rest = rest.at * sizeof(float)};
}

static size_t keep_floats(const struct stage *st)
{
    return retain_plans(&st->cfg.retain) ? st->cfg.retain.keep_bytes / sizeof(float) : 0;
}

/* Places for all of block i that stays but its input. Of what does not, the places are those that all share. */
static void carve_stay(const struct stage *st, struct carve *c, struct block_saves *b, int i, struct retain_stay stay)
{
    float *x = b->x;

    if (stay.again != AGAIN_NOTHING && st->again)
        *b = st->again[stay.again == AGAIN_WHOLE ? i - stay.first : 0];
    b->x = x;
    b->stay = stay;
    if (stay.again == AGAIN_NOTHING)
        carve_cheap(st, c, b);
    if (stay.again != AGAIN_WHOLE)
        carve_rest(st, c, b);
}

static void carve_slot(const struct stage *st, struct carve *c, struct stage_slot *slot)
{
    size_t n = (size_t)trunk_rows(st) * st->cfg.model->hidden;

    slot->in = carve_floats(c, n);
    slot->out = carve_floats(c, n);
    if (keep_floats(st) > 0)
        slot->keep = carve_floats(c, keep_floats(st));
}

static void carve_body(const struct stage *st, struct carve *c, struct block_saves *block)
{
    size_t n = (size_t)trunk_rows(st) * st->cfg.model->hidden;

    for (int i = 0; i < st->blocks; i++) {
        struct block_saves counted = {0}, *b = block ? &block[i] : &counted;
        struct retain_stay stay = retain_block(&st->cfg.retain, st->blocks, i);

        if (stay.again == AGAIN_WHOLE && i != stay.first)
            b->x = st->again ? st->again[i - stay.first].x : NULL;
        else
            b->x = i == 0 ? NULL : carve_floats(c, n); /* the first one's is the slot's */
        carve_stay(st, c, b, i, stay);
    }
}

static void carve_store(const struct stage *st, struct carve *c, struct store *s)
{
    size_t n = (size_t)st->cfg.sizes.store_tokens * kv_columns(st);

    s->kv = carve_typed(c, st->cfg.precision.type, n);
    s->dkv = carve_floats(c, n);
}

size_t stage_head_rows(const struct stage *st)
{
    int most = st->cfg.sizes.head_rows > 0 ? st->cfg.sizes.head_rows : STAGE_HEAD_ROWS;

    return st->rows < most ? st->rows : most;
}

struct context stage_context(const struct stage_cfg *cfg)
{
    return (struct context){.cfg = cfg->context,
                            .k = cfg->k,
                            .stream = cfg->stream,
                            .model = cfg->model,
                            .type = cfg->precision.type,
                            .room = cfg->sizes.micro * cfg->sizes.length};
}

/* What a pass works in, one micro-batch at a time. */
static void carve_scratch(struct stage *st, struct carve *c)
{
    const struct model_cfg *g = st->cfg.model;
    size_t rows = st->rows, trunk = trunk_rows(st);

    if (!st->cfg.reduce)
        st->own_reduce = carve_floats(c, rows * g->hidden);
    for (int i = 0; i < retain_together(&st->cfg.retain); i++) {
        struct block_saves counted = {0}, *b = st->again ? &st->again[i] : &counted;

        b->x = i > 0 ? carve_floats(c, trunk * g->hidden) : NULL;
        carve_cheap(st, c, b);
        if (retain_most(&st->cfg.retain) == AGAIN_WHOLE)
            carve_rest(st, c, b);
    }
    st->d_pre = carve_typed(c, st->cfg.precision.type, rows * g->family->parts * g->ffn_local);
    st->d_act = g->family->parts > 1 ? carve_typed(c, st->cfg.precision.type, rows * g->ffn_local) : st->d_pre;
    st->d_qkv = carve_typed(c, st->cfg.precision.type, rows * g->qkv_local);
    st->d_att = carve_typed(c, st->cfg.precision.type, rows * g->q_local);
    st->rounded = st->cfg.precision.type == KERN_F32 ? NULL : carve_typed(c, st->cfg.precision.type, rows * g->hidden);
    st->tmp = carve_floats(c, trunk * g->hidden);
    st->dy = st->cfg.split ? carve_floats(c, trunk * g->hidden) : NULL;
    st->whole = g->sequence_parallel ? carve_floats(c, rows * g->hidden) : NULL;
    context_carve(&st->context, c);
}

static void share_scratch(struct stage *st, const struct stage *from)
{
    assert(from->rows == st->rows && from->cfg.reduce == st->cfg.reduce && from->cfg.split == st->cfg.split &&
           from->cfg.precision.type == st->cfg.precision.type && retain_alike(&from->cfg.retain, &st->cfg.retain));
    st->own_reduce = from->own_reduce;
    for (int i = 0; i < retain_together(&st->cfg.retain); i++)
        st->again[i] = from->again[i];
    st->d_pre = from->d_pre;
    st->d_act = from->d_act;
    st->d_qkv = from->d_qkv;
    st->d_att = from->d_att;
    st->rounded = from->rounded;
    st->tmp = from->tmp;
    st->dy = from->dy;
    st->whole = from->whole;
    st->context.at = from->context.at;
}

static void carve_head(struct stage *st, struct carve *c)
{
    const struct model_cfg *g = st->cfg.model;
    size_t rows = st->rows, head = stage_head_rows(st);

    st->norm = carve_typed(c, st->cfg.precision.type, rows * g->hidden);
    st->norm_mean = carve_floats(c, trunk_rows(st));
    st->norm_rstd = carve_floats(c, trunk_rows(st));
    st->logits = carve_floats(c, head * g->vocab_local);
    st->dz =
        st->cfg.precision.type == KERN_F32 ? st->logits : carve_typed(c, st->cfg.precision.type, head * g->vocab_local);
    st->stats = carve_floats(c, head * 3 * g->tp);
    st->loss = carve_floats(c, rows);
}

void stage_carve(struct stage *st, float *base)
{
    const struct model_cfg *g = st->cfg.model;
    struct carve all = {base, 0}, *c = &all; /* in one order for counting and for placing */

    if (st->cfg.scratch)
        share_scratch(st, st->cfg.scratch);
    else
        carve_scratch(st, c);
    for (int i = 0; i < st->cfg.sizes.slots; i++)
        carve_slot(st, c, &st->slot[i]);
    for (int i = 0; i < stage_bodies(st); i++)
        carve_body(st, c, st->body[i].block);
    for (int i = 0; i < st->cfg.sizes.stores * st->blocks; i++)
        carve_store(st, c, &st->store[i]);
    if (st->cfg.part.last)
        carve_head(st, c);
    for (int b = 0; b < st->blocks && st->keys_cached; b++) {
        st->keys_cached[b] = carve_floats(c, (size_t)st->cfg.sizes.cache * g->kv_heads_local * g->dim);
        st->values_cached[b] = carve_floats(c, (size_t)st->cfg.sizes.cache * g->kv_heads_local * g->dim);
    }
    st->floats = c->at;
}

size_t stage_reduce_floats(const struct stage_cfg *cfg)
{
    return (size_t)cfg->sizes.micro * cfg->sizes.length * cfg->model->hidden;
}

size_t stage_trunk_floats(const struct stage_cfg *cfg)
{
    return stage_reduce_floats(cfg) / (cfg->model->sequence_parallel ? cfg->model->tp : 1);
}

size_t stage_bytes(const struct stage_cfg *cfg, bool own_scratch)
{
    const struct model_cfg *g = cfg->model;
    struct stage st = {.cfg = *cfg,
                       .rows = cfg->sizes.micro * cfg->sizes.length,
                       .blocks = cfg->part.layers.end - cfg->part.layers.begin,
                       .context = stage_context(cfg)};
    struct stage_slot slot = {.block = NULL};
    struct store store;
    struct carve once = {NULL, 0}, each = {NULL, 0}, body = {NULL, 0}, kept = {NULL, 0};
    size_t cache = 2 * (size_t)cfg->sizes.cache * g->kv_heads_local * g->dim;

    st.cfg.reduce = NULL;
    if (own_scratch)
        carve_scratch(&st, &once);
    if (cfg->part.last)
        carve_head(&st, &once);
    carve_slot(&st, &each, &slot);
    carve_body(&st, &body, NULL);
    carve_store(&st, &kept, &store);
    return sizeof(float) * (once.at + cfg->sizes.slots * each.at + stage_bodies(&st) * body.at +
                            (size_t)cfg->sizes.stores * st.blocks * kept.at + st.blocks * cache);
}

size_t stage_block_bytes(const struct stage_cfg *cfg)
{
    struct stage st = {.cfg = *cfg, .rows = cfg->sizes.micro * cfg->sizes.length};
    struct retain_bytes each = block_bytes(&st);

    return each.cheap + each.rest;
}

/* --- what a micro-batch keeps ------------------------------------------------------------------------------ */

void stage_body_take(struct stage *st, struct stage_slot *slot)
{
    int i = st->cfg.sizes.bodies > 0 ? 0 : (int)(slot - st->slot);

    if (slot->block)
        return;
    while (i < stage_bodies(st) && st->body[i].taken)
        i++;
    assert(i < stage_bodies(st)); /* the schedule holds more activations at once than it was said to */
    st->body[i].taken = true;
    slot->block = st->body[i].block;
    slot->block[0].x = slot->in;
}

void stage_body_give(struct stage *st, struct stage_slot *slot)
{
    for (int i = 0; i < stage_bodies(st) && st->cfg.sizes.bodies > 0 && slot->block; i++)
        if (st->body[i].block == slot->block) {
            st->body[i].taken = false;
            slot->block = NULL;
        }
}

void stage_keep_forget(struct stage *st, struct stage_slot *slot)
{
    st->kept_now -= slot->kept;
    slot->kept = 0;
}

int stage_keep_begin(struct stage *st, struct stage_slot *slot, bool train, struct merr *err)
{
    struct retain_bytes each = block_bytes(st);

    stage_keep_forget(st, slot);
    return retain_begin(st->retain, st->rows, &each, train, err);
}

void stage_keep_block(struct stage *st, struct stage_slot *slot, int i)
{
    struct carve c = {slot->keep, slot->kept};
    struct retain_stay stay;

    if (!retain_plans(&st->cfg.retain))
        return; /* it has its places for good */
    stay = retain_next(st->retain, i);
    carve_stay(st, &c, &slot->block[i], i, stay);
    st->usage.lacking += stay.lacked;
    st->kept_now += c.at - slot->kept;
    slot->kept = c.at;
    st->kept_most = st->kept_now > st->kept_most ? st->kept_now : st->kept_most;
}

int stage_keep_end(struct stage *st, const struct stage_slot *slot, bool train, struct merr *err)
{
    for (int i = 0; i < st->blocks && train; i++) {
        st->usage.blocks++;
        st->usage.dropped += slot->piece.drop || slot->block[i].stay.again == AGAIN_WHOLE;
    }
    return retain_end(st->retain, train, err);
}

void stage_usage_take(struct stage *st, struct stage_usage *ret)
{
    size_t region = (size_t)st->cfg.sizes.slots * keep_floats(st);

    *ret = st->usage;
    ret->peak_bytes = (st->floats - region + st->kept_most) * sizeof(float);
    st->kept_most = st->kept_now;
    st->usage = (struct stage_usage){0};
}
