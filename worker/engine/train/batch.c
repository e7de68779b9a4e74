#include "worker/engine/train/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "scheduler/sequence/zigzag.h"

#define PLAN_TEXT_MAX ((size_t)256 << 20)
#define CONTEXT_CALLS 3 /* keys and values forward, again in backward, and their gradients */
#define HEADS_CALLS 4   /* with ulysses, there and back in each direction */

int batch_rows_of_shared(int length, int cp)
{
    return ZIGZAG_PIECES * (int)zigzag_size(length, cp);
}

/* What planners reckon with: a processor's or a GPU's usual speed, not this one's, for plans must be the same on every
 * rank and after every restart. */
static struct seq_cost cost_of(const struct model_cfg *m, bool gpu, int cp, enum cp_mode mode)
{
    double rate = gpu ? 2e14 : 1e11, layer_s = gpu ? 600e-6 : 50e-6, byte_s = gpu ? 6e-12 : 2e-10, call_s = 50e-6;
    double line = model_flops_per_token(m, 0), kv = 2.0 * m->kv_heads * m->dim, q = (double)m->heads * m->dim;
    bool heads = mode == CP_ULYSSES; /* a rank's are all of its rows; queries and results travel too, 3 times each */
    struct seq_cost c = {
        .lin_s = line / rate,
        .quad_s = (model_flops_per_token(m, 1) - line) / rate,
        .micro_s = layer_s * m->layers,
        .forward_share = 1.0 / 3,
    };

    if (cp == 1)
        return c;
    c.half_tokens = gpu ? 256 : 16;
    c.comm_call_s = (heads ? HEADS_CALLS : CONTEXT_CALLS) * m->layers * call_s;
    c.comm_token_s = m->layers * (heads ? 3 * (kv + 2 * q) / cp : CONTEXT_CALLS * kv) * sizeof(float) * byte_s;
    if (!gpu) /* into messages and out; keys of all rows are put in order twice, their gradients cleared and cut up */
        c.copy_token_s = m->layers * (heads ? 12 * (kv + 2 * q) / cp : (4 + 6.0 / cp) * kv) * sizeof(float) * byte_s;
    return c;
}

int batch_feed_config(const struct job_spec *spec, const struct model_cfg *model, const struct docset *docs, bool gpu,
                      struct feed_cfg *ret, struct merr *err)
{
    const typeof(spec->train.batch) *b = &spec->train.batch;
    int cp = spec->parallel.cp, rows = cp > 1 ? batch_rows_of_shared(b->length, cp) : b->length;
    struct feed_cfg f = {
        .docs = docs,
        .order = spec->train.data.order,
        .seed = spec->train.init.seed,
        .sequences = b->sequences,
        .end = (uint64_t)spec->train.steps,
        .multiple = 1,
        .dp = 1,
        .plan = {.replicas = spec->parallel.virtual_workers,
                 .ranks = cp,
                 .capacity = b->capacity,
                 .micro = b->micro == SPEC_AUTO ? b->capacity / rows : b->micro,
                 .seed = spec->train.init.seed,
                 .cost = cost_of(model, gpu, cp, spec->parallel.cp_mode)},
    };

    TRY(seq_policy_find(spec->sequence.policy, &f.plan.policy, err));
    if (f.plan.policy == SEQ_CHUNK) { /* what a rank holds follows the parts, not the micro-batches of other policies */
        f.plan.chunk_tokens = spec->sequence.chunk_tokens;
        f.plan.keep_chunks = spec->sequence.keep_chunks;
        f.plan.capacity = (int64_t)f.plan.chunk_tokens * f.plan.keep_chunks;
    }
    *ret = f;
    return 0;
}

static int print_steps(const struct feed_cfg *f, int steps, FILE *out, struct merr *err)
{
    for (uint64_t step = 0; step < (uint64_t)steps; step++) {
        struct seq_plan plan;
        struct buf text;
        int r;

        TRY(feed_plan(f, step, &plan, err));
        buf_init(&text, PLAN_TEXT_MAX);
        seq_plan_print(&plan, &text);
        seq_plan_clear(&plan);
        r = buf_failed(&text) || fprintf(out, "%s\n", buf_text(&text)) < 0 ? -EIO : 0;
        buf_clear(&text);
        if (r != 0)
            return merr_set(err, r, "cannot print the plan of step %llu", (unsigned long long)step);
    }
    return 0;
}

int batch_print(const struct job_spec *spec, int steps, FILE *out, struct merr *err)
{
    struct model_cfg model;
    struct docset *docs = NULL;
    struct feed_cfg f;
    int r;

    if (spec->kind != JOB_TRAIN || spec->train.data.samples != SAMPLES_DOCUMENTS)
        return merr_set(err, -EINVAL,
                        "only a job on documents has plans to print; set train.data.samples to "
                        "'documents'");
    TRY(model_from_spec(spec, NULL, 1, 0, &model, err));
    TRY(docset_open(spec, &docs, err));
    r = batch_feed_config(spec, &model, docs, false, &f, err);
    if (r == 0)
        r = print_steps(&f, steps, out, err);
    docset_close(docs);
    return r;
}
