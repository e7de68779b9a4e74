#include "worker/engine/model/stage.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/philox.h"
#include "base/try.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/site.h"
#include "worker/engine/model/stage_priv.h"

/* --- memory -------------------------------------------------------------------------------------------- */

/* The tables of a rotation, of what is made again and of a cache, where there are such. */
static int optional_memory(struct stage *st)
{
    const struct model_cfg *g = st->cfg.model;

    if (g->rope.theta > 0) {
        st->freq = calloc(g->dim / 2, sizeof(*st->freq));
        if (!st->freq)
            return -ENOMEM;
        rope_frequencies(&g->rope, g->dim, st->freq);
    }
    st->again = calloc((size_t)retain_together(&st->cfg.retain) + 1, sizeof(*st->again));
    if (!st->again || context_open(&st->context, NULL) != 0)
        return -ENOMEM;
    if (st->cfg.sizes.cache == 0)
        return 0;
    st->keys_cached = calloc(st->blocks, sizeof(*st->keys_cached));
    st->values_cached = calloc(st->blocks, sizeof(*st->values_cached));
    return st->keys_cached && st->values_cached ? 0 : -ENOMEM;
}

static int slot_memory(struct stage *st, struct stage_slot *slot)
{
    int rows = st->room, docs = st->docs_room;

    slot->cu = calloc(docs + 1, sizeof(*slot->cu));
    slot->position = calloc(rows, sizeof(*slot->position));
    slot->tokens = calloc(rows, sizeof(*slot->tokens));
    slot->targets = calloc(rows, sizeof(*slot->targets));
    slot->sample = calloc(docs, sizeof(*slot->sample));
    slot->row_sample = calloc(rows, sizeof(*slot->row_sample));
    if (!slot->cu || !slot->position || !slot->tokens || !slot->targets || !slot->sample || !slot->row_sample)
        return -ENOMEM;
    if (context_share_init(&slot->shared, docs) != 0)
        return -ENOMEM;
    stage_slot_layout(st, slot, NULL, 0);
    return 0;
}

static int host_memory(struct stage *st)
{
    st->host_loss = calloc(st->room, sizeof(*st->host_loss));
    st->keys = calloc(st->blocks, sizeof(*st->keys));
    st->slot = calloc(st->cfg.sizes.slots, sizeof(*st->slot));
    st->body = calloc(stage_bodies(st), sizeof(*st->body));
    st->store = calloc((size_t)st->cfg.sizes.stores * st->blocks + 1, sizeof(*st->store));
    if (!st->host_loss || !st->keys || !st->slot || !st->body || !st->store)
        return -ENOMEM;
    for (int i = 0; i < st->blocks; i++) {
        st->keys[i].attention = calloc(st->cfg.model->heads_local, 2 * sizeof(uint32_t));
        if (!st->keys[i].attention)
            return -ENOMEM;
    }
    for (int i = 0; i < st->cfg.sizes.slots; i++)
        if (slot_memory(st, &st->slot[i]) < 0)
            return -ENOMEM;
    for (int i = 0; i < stage_bodies(st); i++) {
        st->body[i].block = calloc(st->blocks, sizeof(*st->body[i].block));
        if (!st->body[i].block)
            return -ENOMEM;
    }
    return optional_memory(st);
}

static void set_constants(struct stage *st)
{
    const struct model_cfg *g = st->cfg.model;

    st->threshold = (uint32_t)(g->dropout * 0x1p32);
    philox_key(g->seed, SITE_EMBEDDING, 0, 0, st->embedding_key);
    for (int i = 0; i < st->blocks; i++) {
        uint32_t layer = (uint32_t)(st->cfg.part.layers.begin + i);

        philox_key(g->seed, SITE_ATTENTION_OUT, layer, 0, st->keys[i].attention_out);
        philox_key(g->seed, SITE_MLP_OUT, layer, 0, st->keys[i].mlp_out);
        for (int h = 0; h < g->heads_local; h++)
            philox_key(g->seed, SITE_ATTENTION, layer, (uint32_t)(g->tp_index * g->heads_local + h),
                       st->keys[i].attention + 2 * h);
    }
}

/* What a stage cannot be, or not at once: the one place that says so. */
static int check(const struct stage_cfg *cfg, struct merr *err)
{
    const struct stage_sizes *n = &cfg->sizes;
    const char *policy = cfg->retain.policy;
    bool known = !policy || retain_known(policy), plans = known && retain_plans(&cfg->retain);
    bool drops = known && retain_most(&cfg->retain) != AGAIN_NOTHING, shares = context_size(&cfg->context) > 1;
    bool f32 = cfg->precision.type == KERN_F32, parallel = cfg->model->sequence_parallel;
    const struct {
        bool broken;
        const char *rule;
    } rules[] = {
        {n->micro * n->length <= 0 || n->slots <= 0, "it has rows and slots"},
        {cfg->part.layers.end <= cfg->part.layers.begin, "it has blocks"},
        {!known, "what stays of its activations is decided by a policy that there is"},
        {!f32 && !cfg->precision.matrices, "products in bf16 read matrices in bf16"},
        {!cfg->weights && (f32 || !cfg->precision.vectors), "it has weights"},
        {parallel && (!cfg->part.tp || n->micro * n->length % cfg->model->tp != 0),
         "sequence parallelism shares its rows evenly among the ranks of tp"},
        {cfg->split && drops, "a backward in two parts finds all activations kept"},
        {n->bodies > 0 && cfg->split, "a backward in two parts finds the activations of all slots kept"},
        {n->bodies > 0 && plans, "plans of what stays are for slots that all hold activations"},
        {shares && plans, "plans of what stays are for ranks that share no sequences"},
        {shares && n->stores > 0, "a sequence in pieces is not shared"},
        {n->cache > 0 && shares, "a stage that generates shares no sequences"},
        {n->cache > 0 && n->bodies > 0, "a stage that generates has one slot's activations"},
        {n->cache > 0 && !f32, "a stage that generates computes in f32"},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (rules[i].broken)
            return merr_set(err, -EINVAL, "such a stage cannot be: %s", rules[i].rule);
    if ((cfg->model->window > 0 || cfg->model->qk_norm) && !cfg->k->parts)
        return merr_set(err, -ENOTSUP, "%s not built for kernels '%s': such a model trains on processors alone",
                        cfg->model->qk_norm ? "norms of queries' and keys' heads are" : "attention in a window is",
                        cfg->k->name);
    return context_check(&cfg->context, cfg->model, err);
}

int stage_new(const struct stage_cfg *cfg, struct stage **ret, struct merr *err)
{
    struct stage *st;
    int r = check(cfg, err);

    if (r != 0)
        return r;
    st = calloc(1, sizeof(*st));
    if (!st)
        return merr_set(err, -ENOMEM, "no memory for a stage");
    st->cfg = *cfg;
    st->context = stage_context(cfg);
    st->rows = st->room = cfg->sizes.micro * cfg->sizes.length;
    st->docs_room = (cfg->sizes.docs > 0 ? cfg->sizes.docs : cfg->sizes.micro) * (stage_cp(st) > 1 ? ZIGZAG_PIECES : 1);
    st->blocks = cfg->part.layers.end - cfg->part.layers.begin;
    r = host_memory(st);
    if (r != 0) {
        (void)merr_set(err, r, "no memory for %d micro-batch slots", cfg->sizes.slots);
        goto fail;
    }
    r = retain_new(&cfg->retain, st->blocks, &st->retain, err);
    if (r != 0)
        goto fail;
    stage_carve(st, NULL);
    r = cfg->k->mem_alloc(cfg->stream, st->floats * sizeof(float), &st->activations, err);
    if (r != 0) {
        (void)merr_prefix(err, r, "activations of %zu MiB", st->floats * sizeof(float) >> 20);
        goto fail;
    }
    stage_carve(st, st->activations);
    for (int i = 0; i < cfg->sizes.slots && cfg->sizes.bodies == 0; i++)
        stage_body_take(st, &st->slot[i]);
    st->reduce = cfg->reduce ? cfg->reduce : st->own_reduce;
    set_constants(st);
    *ret = st;
    return 0;
fail:
    stage_free(st);
    return r;
}

void stage_free(struct stage *st)
{
    if (!st)
        return;
    if (st->activations)
        st->cfg.k->mem_free(st->cfg.stream, st->activations);
    for (int i = 0; st->slot && i < st->cfg.sizes.slots; i++) {
        free(st->slot[i].cu);
        context_share_clear(&st->slot[i].shared);
        free(st->slot[i].position);
        free(st->slot[i].tokens);
        free(st->slot[i].targets);
        free(st->slot[i].sample);
        free(st->slot[i].row_sample);
    }
    for (int i = 0; st->body && i < stage_bodies(st); i++)
        free(st->body[i].block);
    free(st->body);
    free(st->store);
    for (int i = 0; st->keys && i < st->blocks; i++)
        free(st->keys[i].attention);
    retain_free(st->retain);
    free(st->again);
    free(st->slot);
    free(st->keys);
    free(st->freq);
    free(st->keys_cached);
    free(st->values_cached);
    free(st->host_loss);
    context_close(&st->context);
    free(st);
}

struct stage_slot *stage_slot(struct stage *st, int i)
{
    assert(i >= 0 && i < st->cfg.sizes.slots);
    return &st->slot[i];
}

static void lay_begin(struct stage_slot *slot)
{
    slot->rows = slot->docs = 0;
    slot->shared.n = slot->shared.docs = slot->shared.rows = slot->shared.whole_rows = 0;
    slot->piece = (struct stage_piece){0};
}

/* The next rows are tokens of a document from past on. */
static void lay_document(const struct stage *st, struct stage_slot *slot, int past, int tokens)
{
    assert(slot->docs < st->docs_room && tokens > 0 && tokens <= st->room - slot->rows);
    for (int i = 0; i < tokens; i++)
        slot->position[slot->rows + i] = past + i;
    slot->cu[slot->docs++] = slot->rows;
    slot->rows += tokens;
}

/* The next rows are this rank's of a sequence that is shared. */
static void lay_shared(const struct stage *st, struct stage_slot *slot, int whole)
{
    struct context_share *shared = &slot->shared;

    assert(whole > 0 && shared->n < st->docs_room && slot->docs == shared->docs);
    for (int i = 0; i < ZIGZAG_PIECES; i++) {
        struct zigzag z = zigzag_piece(whole, stage_cp(st), st->cfg.context.index, i);

        if (z.tokens == 0)
            continue;
        shared->past[slot->docs] = (int32_t)z.start;
        shared->kv_at[slot->docs] = shared->whole_rows;
        lay_document(st, slot, (int)z.start, (int)z.tokens);
    }
    shared->whole_cu[shared->n] = shared->whole_rows;
    shared->whole[shared->n++] = whole;
    shared->whole_rows += whole;
    shared->whole_cu[shared->n] = shared->whole_rows;
    shared->docs = slot->docs;
    shared->rows = slot->rows;
}

static void lay_end(struct stage_slot *slot)
{
    slot->cu[slot->docs] = slot->rows;
    for (int d = slot->shared.docs; d <= slot->docs; d++)
        slot->shared.own_cu[d - slot->shared.docs] = slot->cu[d] - slot->shared.rows;
}

void stage_slot_layout(struct stage *st, struct stage_slot *slot, const int *length, int n)
{
    lay_begin(slot);
    for (int d = 0; d < (n > 0 ? n : st->cfg.sizes.micro); d++)
        if (n == 0 && stage_cp(st) > 1)
            lay_shared(st, slot, st->cfg.sizes.length * stage_cp(st));
        else
            lay_document(st, slot, 0, n > 0 ? length[d] : st->cfg.sizes.length);
    lay_end(slot);
}

void stage_slot_share(struct stage *st, struct stage_slot *slot, const int *whole, int shared, const int *length, int n)
{
    lay_begin(slot);
    for (int i = 0; i < shared; i++)
        lay_shared(st, slot, whole[i]);
    for (int d = 0; d < n; d++)
        lay_document(st, slot, 0, length[d]);
    lay_end(slot);
}

void stage_slot_piece(struct stage *st, struct stage_slot *slot, const struct stage_piece *p)
{
    int tokens = p->tokens;

    assert(p->store >= 0 && p->store < st->cfg.sizes.stores && p->past >= 0 &&
           p->past <= st->cfg.sizes.store_tokens - tokens);
    stage_slot_layout(st, slot, &tokens, 1);
    for (int i = 0; i < tokens; i++)
        slot->position[i] = p->past + i;
    slot->piece = *p;
}

/* What follows works on this slot. */
static void enter(struct stage *st, struct stage_slot *slot)
{
    st->rows = slot->rows;
    st->docs = slot->docs;
    st->cu = slot->cu;
    st->position = slot->position;
}

/* --- arithmetic ---------------------------------------------------------------------------------------- */

static int read_loss(struct stage *st, struct stage_slot *slot, struct merr *err)
{
    TRY(st->cfg.k->copy(st->cfg.stream, st->host_loss, st->loss, st->rows * sizeof(float), err));
    TRY(st->cfg.k->stream_sync(st->cfg.stream, err));
    slot->loss = 0;
    for (int i = 0; i < st->rows; i++)
        slot->loss += (double)st->host_loss[i];
    return 0;
}

int stage_forward(struct stage *st, struct stage_slot *slot, float *grad, float weight, struct merr *err)
{
    bool train = grad != NULL;

    enter(st, slot);
    stage_body_take(st, slot);
    for (int d = 0; d < slot->docs; d++)
        for (int i = slot->cu[d]; i < slot->cu[d + 1]; i++)
            slot->row_sample[i] = slot->sample[d];
    TRY(stage_keep_begin(st, slot, train, err));
    TRY(stage_pass(st, slot, train ? PASS_FORWARD : PASS_EVALUATE, st->cfg.part.last ? grad : NULL, weight, err));
    TRY(stage_keep_end(st, slot, train, err));
    if (!train || slot->piece.drop)
        stage_body_give(st, slot);
    return st->cfg.part.last ? read_loss(st, slot, err) : 0;
}

void stage_watch(struct stage *st, stage_layer_done done, void *arg)
{
    st->done = done;
    st->done_arg = arg;
}

/* Activations that forward dropped. The head is done with its part of the micro-batch. */
static int forward_again(struct stage *st, struct stage_slot *slot, struct merr *err)
{
    stage_body_take(st, slot);
    for (int i = 0; i < st->blocks - 1; i++)
        TRY(block_forward(st, i, slot, slot->block[i + 1].x, true, err));
    return block_inside(st, st->blocks - 1, slot, true, err);
}

int stage_backward(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err)
{
    enter(st, slot);
    if (!slot->block)
        TRY(forward_again(st, slot, err));
    TRY(stage_pass(st, slot, PASS_BACKWARD, grad, 0, err));
    stage_keep_forget(st, slot);
    stage_body_give(st, slot);
    return st->cfg.part.first ? stage_embed_backward(st, slot, grad, err) : 0;
}

int stage_backward_input(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err)
{
    assert(st->cfg.split);
    enter(st, slot);
    TRY(stage_pass(st, slot, PASS_INPUT, grad, 0, err));
    return st->cfg.part.first ? stage_embed_backward(st, slot, grad, err) : 0;
}

int stage_backward_weights(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err)
{
    assert(st->cfg.split);
    enter(st, slot);
    return stage_pass(st, slot, PASS_WEIGHTS, grad, 0, err);
}

/* --- generation ---------------------------------------------------------------------------------------- */

void stage_forget(struct stage *st)
{
    st->past = 0;
}

/* The next st->rows tokens through all blocks, into tmp. */
static int decode_some(struct stage *st, const int32_t *token, struct merr *err)
{
    struct stage_slot *slot = &st->slot[0];

    for (int i = 0; i < st->rows; i++) {
        slot->tokens[i] = token[i];
        slot->position[i] = st->past + i;
    }
    TRY(stage_embed(st, slot, false, err));
    TRY(stage_keep_begin(st, slot, false, err));
    for (int i = 0; i < st->blocks; i++) {
        stage_keep_block(st, slot, i);
        TRY(block_forward(st, i, slot, i < st->blocks - 1 ? slot->block[i + 1].x : st->tmp, false, err));
    }
    st->past += st->rows;
    return 0;
}

int stage_decode(struct stage *st, const int32_t *token, int n, float *ret, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    int most = st->cfg.sizes.length;

    assert(st->keys_cached && st->cfg.sizes.micro == 1 && st->cfg.part.first && st->cfg.part.last && !st->cfg.part.tp &&
           n > 0);
    if (n > st->cfg.sizes.cache - st->past)
        return merr_set(err, -EMSGSIZE, "%d tokens after %d are more than the cache's %d", n, st->past,
                        st->cfg.sizes.cache);
    for (int at = 0; at < n; at += st->rows) {
        int some = n - at < most ? n - at : most;

        stage_slot_layout(st, &st->slot[0], &some, 1);
        enter(st, &st->slot[0]);
        TRY(decode_some(st, token + at, err));
    }
    /* only the last row is asked for */
    TRY(c->family->norm_forward(st, st->tmp, st->cfg.params->norm, st->norm, st->norm_mean, st->norm_rstd, err));
    return stage_logits(st, &st->slot[0], st->rows - 1, ret, err);
}
