#include "worker/engine/train/eval.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"

#define UNIGRAM_TOKENS_MAX (UINT64_C(1) << 28) /* a longer stream's entropy is not worth reading it twice */

int eval_init(struct eval *eval, struct shard *shard, struct source *source, struct merr *err)
{
    int n = source->heldout.micros;

    eval->shard = shard;
    eval->source = source;
    eval->sums = calloc(2 * (size_t)n + 1, sizeof(*eval->sums));
    return eval->sums ? 0 : merr_set(err, -ENOMEM, "no memory for %d held-out micro-batches", n);
}

void eval_clear(struct eval *eval)
{
    free(eval->sums);
}

static int load(void *arg, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    struct eval *eval = arg;
    struct source *source = eval->source;
    const struct mesh *mesh = source->rank->mesh;
    int number = source->heldout.begin + micro;

    TRY(source_load_heldout(source, number, text, slot, err));
    if (text && mesh->last && mesh->tp_index == 0)
        for (int i = 0; i < slot->rows; i++)
            eval->sums[source->heldout.micros + number] += slot->targets[i] >= 0;
    return 0;
}

/* What the loss is held against; not when a run begins, which may be one that others wait for to go on. */
static int count_unigram(struct eval *eval, struct merr *err)
{
    struct source *source = eval->source;

    if (eval->unigram_known || !source->data || source->info.train_tokens > UNIGRAM_TOKENS_MAX)
        return 0;
    eval->unigram_known = true;
    return data_unigram(source->data, &eval->unigram, err);
}

static json_t *event(const struct eval *eval, double loss, double tokens)
{
    json_t *e = json_pack("{s:s, s:I, s:o, s:I}", "type", "eval", "step", (json_int_t)eval->shard->step, "loss",
                          isfinite(loss) ? json_real(loss) : json_null(), "tokens", (json_int_t)tokens);

    if (e && eval->unigram > 0)
        (void)json_object_set_new(e, "unigram", json_real(eval->unigram));
    return e;
}

int eval_run(struct eval *eval, struct merr *err)
{
    struct source *source = eval->source;
    struct shard *shard = eval->shard;
    const struct rank *rank = eval->source->rank;
    struct pipe_run run = {.schedule = source->heldout.schedule, .load = load, .arg = eval, .step = shard->step};
    int n = source->heldout.micros;
    double tokens = 0, loss;

    if (n == 0)
        return 0;
    flight_phase_set(rank->flight, FLIGHT_EVAL, shard->step);
    memset(eval->sums, 0, sizeof(*eval->sums) * 2 * n);
    run.loss = eval->sums + source->heldout.begin;
    run.rows = source->docs ? source->heldout.pack.rows + source->heldout.begin : NULL;
    if (source->heldout.schedule)
        TRY(pipe_go(shard->pipe, &run, err));
    if (!rank->mesh->last || rank->mesh->tp_index != 0)
        memset(eval->sums, 0, sizeof(*eval->sums) * 2 * n);
    TRY(comm_all_reduce(rank->all, eval->sums, 2 * (size_t)n, COMM_F64, COMM_SUM, err));
    for (int i = 0; i < n; i++)
        tokens += eval->sums[n + i];
    loss = tree_sum(eval->sums, n) / tokens;
    if (rank->mesh->rank != 0)
        return 0;
    TRY(count_unigram(eval, err));
    log_info("step %llu: evaluation loss %.4f over %.0f tokens", (unsigned long long)shard->step, loss, tokens);
    return report_event_take(rank->report, event(eval, loss, tokens), err);
}
