#include "scheduler/plan/work.h"

#define REMAKE 0.05       /* selective recomputation, of a block's forward */
#define LEAF_BYTES 16.0   /* moved for an element of each leaf's gradient: zeroed, added to the tree */
#define UPDATE_BYTES 28.0 /* and by the optimizer: weight and two moments read and written, the gradient */
#define OP_BYTES 12.0     /* and of other work on arrays, of which nothing was measured: two read, one written */

struct at { /* what is asked of, and of which device */
    const struct plan_job *job;
    const struct plan_shape *s;
    const struct plan_device *d;
    const struct profile_rates *rates; /* NULL: nothing was measured */
    const struct profile_rates *far;   /* of arrays in no cache; NULL: nothing was measured */
    double missed;                     /* share of what a pass takes that is in no cache any more */
    struct plan_cut cut;
    double rows, times;
};

/* A rank goes through weights, gradients and activations, and then through the same again: what its cache cannot hold
 * of them is not there when its turn comes. */
static double missed(const struct plan_job *job, const struct plan_shape *s, const struct plan_cut *cut, double cache)
{
    int slots[SCHEDULE_CHUNKS_MAX];
    struct plan_memory m;
    double all;

    for (int i = 0; i < s->chunks && i < SCHEDULE_CHUNKS_MAX; i++)
        slots[i] = 1;
    plan_memory_of(job, s, cut, 0, -1, slots, &m);
    all = (double)(m.weights + m.gradients + m.activations);
    return all > cache ? 1 - cache / all : 0;
}

static struct at at_of(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d)
{
    struct at at = {.job = job,
                    .s = s,
                    .d = d,
                    .rates = d->measured ? profile_rates(d->measured, job->bf16) : NULL,
                    .rows = (double)plan_rows(job, s),
                    .times = d->times > 0 ? d->times : 1};

    (void)plan_cut(&job->model, s->tp, &at.cut);
    if (at.rates && at.rates->products == 0)
        at.rates = NULL;
    if (at.rates && d->measured->cache_bytes > 0)
        at.far = profile_far(d->measured, job->bf16);
    if (at.far)
        at.missed = missed(job, s, &at.cut, d->measured->cache_bytes);
    return at;
}

/* --- measured parts ------------------------------------------------------------------------------------------ */

/* Between what something takes where caches have all of it and where they have nothing. */
static double blend(double near_s, double far_s, double missed)
{
    return far_s > near_s ? near_s + missed * (far_s - near_s) : near_s;
}

/* Of arrays so much of which is in no cache. Of a device whose table has only products by memory: what is moved. */
static double op_missed_s(const struct at *at, enum profile_op op, double elements, double missed)
{
    double rate = at->d->measured->copy_bytes_per_s, seconds, far;

    if (profile_op_s(at->rates, op, elements, &seconds))
        return at->far && profile_op_s(at->far, op, elements, &far) ? blend(seconds, far, missed) : seconds;
    return rate > 0 ? elements * (op == PROFILE_ADAMW ? UPDATE_BYTES : OP_BYTES) / rate : 0;
}

/* Work on activations: half of what it takes or makes was made just before. */
static double op_s(const struct at *at, enum profile_op op, double elements)
{
    return op_missed_s(at, op, elements, at->missed / 2);
}

static double attention_s(const struct at *at, bool back)
{
    const struct plan_job *job = at->job;
    double sequences = at->rows / job->length, seen = plan_seen(&job->model, job->length), seconds;

    if (profile_attention_s(at->rates, back, job->length, at->cut.dim, &seconds))
        return sequences * at->cut.heads * seconds * seen / job->length;
    /* causal: half of a square, back twice as much */
    return (back ? 2 : 1) * 2 * at->rows * seen * at->cut.q / profile_flops(at->rates);
}

/* A product of so many rows. Families keep weights [in, out] or, with out_in, [out, in]: then the forward runs over
 * memory as the others' gradient of the input does, and the other way round. */
static double product_s(const struct at *at, bool out_in, enum profile_form form, double rows, double outputs,
                        double inputs)
{
    static const enum profile_form swapped[PROFILE_FORMS] = {PROFILE_INPUT, PROFILE_FORWARD, PROFILE_WEIGHTS};
    double n = out_in ? inputs : outputs, k = out_in ? outputs : inputs, near;

    form = out_in ? swapped[form] : form;
    near = profile_product_s(at->rates, form, rows, n, k);
    return at->far ? blend(near, profile_product_s(at->far, form, rows, n, k), at->missed) : near;
}

static double layers_s(const struct at *at, enum profile_form form)
{
    const struct plan_cut *c = &at->cut;
    double h = at->job->model.hidden, n = at->rows;
    bool llama = at->job->model.family == PLAN_LLAMA;
    double seconds = product_s(at, llama, form, n, h, c->q) + product_s(at, llama, form, n, h, c->ffn) +
                     c->parts * product_s(at, llama, form, n, c->ffn, h);

    if (!llama)
        return seconds + product_s(at, false, form, n, c->qkv, h);
    if (at->job->model.fused)
        return product_s(at, true, form, n, h, c->q) + product_s(at, true, form, n, h, c->ffn) +
               product_s(at, true, form, n, 2 * c->ffn, h) + product_s(at, true, form, n, c->qkv, h);
    return seconds + product_s(at, true, form, n, c->q, h) + 2 * product_s(at, true, form, n, c->kv, h);
}

static double trunk(const struct at *at)
{
    return at->rows * at->job->model.hidden / (at->job->sequence_parallel ? at->s->tp : 1);
}

static struct work_block measured_block(const struct at *at)
{
    bool llama = at->job->model.family == PLAN_LLAMA;
    enum profile_op norm = llama ? PROFILE_RMSNORM : PROFILE_LAYERNORM, act = llama ? PROFILE_SWIGLU : PROFILE_GELU;
    const struct plan_cut *c = &at->cut;
    double normed = at->job->model.qk_norm ? at->rows * (c->qkv - c->kv) : 0; /* heads of queries and keys */
    double wide = at->rows * c->ffn, turned = llama ? op_s(at, PROFILE_ROPE, at->rows * (c->qkv - c->kv)) : 0;
    double typed = at->job->bf16 ? op_s(at, PROFILE_TO_BF16, trunk(at)) : 0; /* gradients are rounded */
    struct work_block w = {.cheap_s = 2 * op_s(at, norm, trunk(at)) + op_s(at, act, wide)};

    w.f_s = layers_s(at, PROFILE_FORWARD) + attention_s(at, false) + w.cheap_s + turned +
            op_s(at, PROFILE_RMSNORM, normed) + 2 * op_s(at, PROFILE_RESIDUAL, trunk(at)) + at->d->measured->call_s;
    w.again_s = w.f_s - product_s(at, llama, PROFILE_FORWARD, at->rows, at->job->model.hidden, c->ffn) -
                op_s(at, PROFILE_RESIDUAL, trunk(at));
    w.i_s = layers_s(at, PROFILE_INPUT) + attention_s(at, true) + 2 * op_s(at, (enum profile_op)(norm + 1), trunk(at)) +
            op_s(at, (enum profile_op)(act + 1), wide) + turned +
            op_s(at, (enum profile_op)(PROFILE_RMSNORM + 1), normed) + 2 * typed + at->d->measured->call_s;
    w.w_s = layers_s(at, PROFILE_WEIGHTS) + at->d->measured->call_s;
    if (!llama)
        w.w_s += op_s(at, PROFILE_BIAS_BACK, at->rows * (c->qkv + c->ffn)) +
                 2 * op_s(at, PROFILE_BIAS_BACK, at->rows * at->job->model.hidden);
    return w;
}

static double measured_head_s(const struct at *at)
{
    bool llama = at->job->model.family == PLAN_LLAMA;
    enum profile_op norm = llama ? PROFILE_RMSNORM : PROFILE_LAYERNORM;
    double parts = at->rows > PLAN_HEAD_ROWS ? at->rows / PLAN_HEAD_ROWS : 1, seconds = 0;
    double rows = at->rows / parts, h = at->job->model.hidden, vocab = at->cut.vocab;

    for (int form = 0; form < PROFILE_FORMS; form++)
        seconds += parts * product_s(at, true, (enum profile_form)form, rows, vocab, h);
    return seconds + parts * op_s(at, PROFILE_LOSS, rows * vocab) + op_s(at, norm, trunk(at)) +
           op_s(at, (enum profile_op)(norm + 1), trunk(at));
}

static double measured_embed_s(const struct at *at)
{
    double n = at->rows * at->job->model.hidden, seconds;

    seconds = op_s(at, PROFILE_EMBED, n) + op_s(at, PROFILE_EMBED_BACK, n) + op_s(at, PROFILE_RESIDUAL, n);
    if (at->job->model.family == PLAN_GPT2)
        seconds += op_s(at, PROFILE_EMBED, n) + op_s(at, PROFILE_EMBED_BACK, n);
    return seconds;
}

static double measured_update_s(const struct at *at, double weights, double gradients, int leaves)
{
    double mine = weights / at->s->dp, updated = at->job->zero ? mine : weights, m = at->missed;
    double rounded = at->job->bf16 ? op_missed_s(at, PROFILE_TO_BF16, weights, m) : 0;

    return leaves * op_missed_s(at, PROFILE_FILL, gradients, m) +
           (leaves - 1) * op_missed_s(at, PROFILE_ADD, gradients, m) + op_missed_s(at, PROFILE_SQUARES, mine, m) +
           op_missed_s(at, PROFILE_ADAMW, updated, m) + rounded + at->d->measured->step_s;
}

/* --- by rates ------------------------------------------------------------------------------------------------ */

static double forward_s(const struct at *at)
{
    const struct plan_job *job = at->job;
    double flops = 2 * at->rows * plan_block_weights(&job->model) +
                   2 * at->rows * plan_seen(&job->model, job->length) * job->model.heads *
                       plan_dim(&job->model); /* causal: half of a square */

    return flops / at->s->tp / at->d->flops + at->d->call_s;
}

struct work_block work_block(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d)
{
    struct at at = at_of(job, s, d);
    struct work_block w;
    double f;

    if (at.rates) {
        w = measured_block(&at);
        return (struct work_block){w.f_s / at.times, w.i_s / at.times, w.w_s / at.times, w.again_s / at.times,
                                   w.cheap_s / at.times};
    }
    f = forward_s(&at);
    return (struct work_block){.f_s = f, .i_s = f, .w_s = f, .again_s = f, .cheap_s = REMAKE * f};
}

double work_embed_s(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d)
{
    struct at at = at_of(job, s, d);

    return at.rates ? measured_embed_s(&at) / at.times : 0;
}

double work_head_s(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d)
{
    struct at at = at_of(job, s, d);

    if (at.rates)
        return measured_head_s(&at) / at.times;
    return 6 * at.rows * job->model.vocab * job->model.hidden / s->tp / d->flops; /* it goes back at once */
}

double work_update_s(const struct plan_job *job, const struct plan_shape *s, int r, const struct plan_device *d)
{
    struct at at = at_of(job, s, d);
    int leaves = (job->virtual_workers + s->dp - 1) / s->dp;
    size_t weights, gradients;

    plan_elements(job, s, &at.cut, r, &weights, &gradients);
    if (at.rates)
        return measured_update_s(&at, (double)weights, (double)gradients, leaves) / at.times;
    return ((double)gradients * leaves * LEAF_BYTES + (double)weights / (job->zero ? s->dp : 1) * UPDATE_BYTES) /
           d->bytes_per_s;
}
