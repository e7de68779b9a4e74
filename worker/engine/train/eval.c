/* The loss on held-out samples: forward only, the same number whatever the layout. */
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "worker/engine/train/train_impl.h"

#define UNIGRAM_TOKENS_MAX (UINT64_C(1) << 28) /* a longer stream's entropy is not worth reading it twice */

static int load_samples(struct train *t, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    int first = micro * t->micro, count = t->eval_sequences - first, length = t->info.length;
    int32_t *tokens, *targets;

    if (count > t->micro)
        count = t->micro;
    train_number_samples(t, slot, (uint64_t)first);
    if (!text)
        return 0;
    train_sample_room(t, slot, &tokens, &targets);
    memset(tokens, 0, sizeof(*tokens) * t->micro * length);
    for (int i = 0; i < t->micro * length; i++)
        targets[i] = -1;
    TRY(data_heldout(t->data, first, count, tokens, targets, err));
    train_take_samples(t, slot);
    return 0;
}

static int load(void *arg, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    struct train *t = arg;
    int number = t->eval_begin + micro;

    if (t->docs)
        train_load_pack(t, &t->heldout, (size_t)number, text, slot);
    else
        TRY(load_samples(t, number, text, slot, err));
    if (text && t->mesh->last && t->mesh->tp_index == 0)
        for (int i = 0; i < slot->rows; i++)
            t->eval_sums[t->eval_micros + number] += slot->targets[i] >= 0;
    return 0;
}

/* What the loss is held against; not when a run begins, which may be one that others wait for to go on. */
static int count_unigram(struct train *t, struct merr *err)
{
    if (t->unigram_known || !t->data || t->info.train_tokens > UNIGRAM_TOKENS_MAX)
        return 0;
    t->unigram_known = true;
    return data_unigram(t->data, &t->unigram, err);
}

static json_t *event(const struct train *t, double loss, double tokens)
{
    json_t *e = json_pack("{s:s, s:I, s:f, s:I}", "type", "eval", "step", (json_int_t)t->step, "loss", loss, "tokens",
                          (json_int_t)tokens);

    if (e && t->unigram > 0)
        (void)json_object_set_new(e, "unigram", json_real(t->unigram));
    return e;
}

int train_evaluate(struct train *t, struct merr *err)
{
    struct pipe_run run = {.schedule = t->eval_schedule, .load = load, .arg = t, .step = t->step};
    int n = t->eval_micros;
    double tokens = 0, loss;

    if (n == 0)
        return 0;
    flight_phase_set(t->flight, FLIGHT_EVAL, t->step);
    memset(t->eval_sums, 0, sizeof(*t->eval_sums) * 2 * n);
    run.loss = t->eval_sums + t->eval_begin;
    run.rows = t->docs ? t->heldout.rows + t->eval_begin : NULL;
    if (t->eval_schedule)
        TRY(pipe_go(t->pipe, &run, err));
    if (!t->mesh->last || t->mesh->tp_index != 0)
        memset(t->eval_sums, 0, sizeof(*t->eval_sums) * 2 * n);
    TRY(comm_all_reduce(t->all, t->eval_sums, 2 * (size_t)n, COMM_F64, COMM_SUM, err));
    for (int i = 0; i < n; i++)
        tokens += t->eval_sums[n + i];
    loss = tree_sum(t->eval_sums, n) / tokens;
    if (t->mesh->rank != 0)
        return 0;
    TRY(count_unigram(t, err));
    log_info("step %llu: held-out loss %.4f over %.0f tokens", (unsigned long long)t->step, loss, tokens);
    return report_event_take(t->report, event(t, loss, tokens), err);
}
