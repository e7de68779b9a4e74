/* What memory.policy costs under a budget: forward and backward of micro-batches of one sequence each, whose lengths
 * are those of a known data set, with all activations kept, all blocks made again, runs of them (sqrt), and Mimose.
 *
 *   activations [--quick]
 *
 * The budget is 60 % of what keeping everything takes at the longest sequence. Sides take turns at each micro-batch;
 * times are CPU times of the one thread at work. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scheduler/sequence/workload.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage.h"

#define LONGEST 1024 /* of the set, */
#define FIXED 512    /* where all are alike */
#define VOCAB 256
#define LEARN 12 /* micro-batches before any is timed: what Mimose learns from */
#define MICROS 16
#define BUDGET 0.60

enum side { KEEP, ALL, SQRT, MIMOSE, SIDES };

static const char *const names[SIDES] = {"none", "all", "sqrt", "mimose"};

struct bench {
    struct model_cfg model;
    struct params p;
    const struct kern_ops *k;
    struct kern_stream *s;
    float *w, *g;
    struct stage *st[SIDES];
    double seconds[SIDES], most_mib[SIDES];
    uint64_t dropped[SIDES], blocks;
};

static void must(int code, const struct merr *err)
{
    if (code >= 0)
        return;
    (void)fprintf(stderr, "bench activations: %s\n", err->text);
    exit(1);
}

static double cpu_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void open_model(struct bench *b)
{
    struct kern_cfg kc = {.threads = 1};
    struct merr err;

    b->k = kern_cpu();
    b->model = (struct model_cfg){.family = &family_gpt2,
                                  .layers = 12,
                                  .hidden = 128,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .ffn = 512,
                                  .context = LONGEST,
                                  .vocab = VOCAB,
                                  .tied = true,
                                  .norm_eps = 1e-5,
                                  .seed = 1};
    must(model_cut(&b->model, 1, 0, &err), &err);
    must(b->k->stream_new(&kc, &b->s, &err), &err);
    must(params_init(&b->p, &b->model, &(struct layer_range){0, b->model.layers}, 1, true, true, &err), &err);
    b->w = calloc(b->p.weight_n, sizeof(*b->w));
    b->g = calloc(b->p.grad_n, sizeof(*b->g));
    must(b->w && b->g ? 0 : -1, &(struct merr){"no memory"});
    params_fill(&b->p, 1, 1, b->w);
}

static void open_stages(struct bench *b, int longest, size_t *ret_budget)
{
    struct stage_cfg cfg[SIDES];
    struct merr err;

    for (int i = 0; i < SIDES; i++)
        cfg[i] = (struct stage_cfg){.k = b->k,
                                    .stream = b->s,
                                    .model = &b->model,
                                    .params = &b->p,
                                    .weights = b->w,
                                    .part = {.layers = b->p.chunk[0], .first = true, .last = true},
                                    .sizes = {.micro = 1, .length = longest, .slots = 1}};
    *ret_budget = (size_t)(BUDGET * (double)stage_bytes(&cfg[KEEP], true));
    cfg[ALL].retain.policy = "full";
    cfg[SQRT].retain = (struct retain_cfg){.policy = "sqrt", .run = (int)ceil(sqrt(b->model.layers))};
    cfg[MIMOSE].retain.policy = "mimose";
    cfg[MIMOSE].retain.keep_bytes = *ret_budget - stage_bytes(&cfg[MIMOSE], true);
    for (int i = 0; i < SIDES; i++)
        must(stage_new(&cfg[i], &b->st[i], &err), &err);
}

static void run(struct bench *b, enum side side, int length, bool timed)
{
    struct stage_slot *slot = stage_slot(b->st[side], 0);
    struct stage_usage u;
    struct merr err;
    double began = cpu_s(), mib;

    stage_slot_layout(b->st[side], slot, &length, 1);
    for (int r = 0; r < length; r++) {
        slot->tokens[r] = r * 7 % VOCAB;
        slot->targets[r] = (r + 1) * 7 % VOCAB;
    }
    must(stage_forward(b->st[side], slot, b->g, 1.0f / (float)length, &err), &err);
    must(stage_backward(b->st[side], slot, b->g, &err), &err);
    stage_usage_take(b->st[side], &u);
    mib = (double)u.peak_bytes / (1 << 20);
    b->most_mib[side] = mib > b->most_mib[side] ? mib : b->most_mib[side];
    if (!timed)
        return;
    b->seconds[side] += cpu_s() - began;
    b->dropped[side] += u.dropped;
    b->blocks += side == KEEP ? u.blocks : 0;
}

static void report(const char *metric, double value, const char *unit, const char *reference, double against)
{
    (void)printf("{\"bench\": \"activations\", \"metric\": \"%s\", \"value\": %.5g, \"unit\": \"%s\", "
                 "\"reference\": \"%s\", \"ratio\": %.4f}\n",
                 metric, value, unit, reference, value / against);
}

static void report_all(const struct bench *b, const char *set, size_t budget)
{
    char metric[64];

    for (int i = 0; i < SIDES; i++) {
        (void)snprintf(metric, sizeof(metric), "%s_%s_s", set, names[i]);
        report(metric, b->seconds[i], "s", "policy mimose", b->seconds[MIMOSE]);
        (void)snprintf(metric, sizeof(metric), "%s_%s_peak_mib", set, names[i]);
        report(metric, b->most_mib[i], "MiB", "budget", (double)budget / (1 << 20));
        (void)snprintf(metric, sizeof(metric), "%s_%s_recomputed", set, names[i]);
        report(metric, (double)b->dropped[i], "blocks", "all blocks", (double)b->blocks);
    }
    (void)snprintf(metric, sizeof(metric), "%s_mimose_vs_sqrt", set);
    report(metric, 100 * (b->seconds[SQRT] / b->seconds[MIMOSE] - 1), "% faster", "12 %", 12);
    (void)snprintf(metric, sizeof(metric), "%s_mimose_vs_all", set);
    report(metric, 100 * (b->seconds[ALL] / b->seconds[MIMOSE] - 1), "% faster", "25 %", 25);
}

/* set NULL: every sequence is of the longest length. */
static void bench(const char *set, bool quick)
{
    struct bench b = {0};
    int64_t lengths[LEARN + MICROS];
    size_t n = LEARN + (quick ? 4 : MICROS), budget;
    int longest = set ? LONGEST : FIXED;
    struct merr err;

    for (size_t i = 0; i < n; i++)
        lengths[i] = longest - (i < LEARN ? (int64_t)i * 8 : 0);
    if (set) {
        const struct seq_workload *w = seq_workload_find(set, &err);

        must(w ? 0 : -1, &err);
        (void)seq_workload_draw(w, 1000, longest, lengths, n);
    }
    open_model(&b);
    open_stages(&b, longest, &budget);
    for (size_t i = 0; i < n; i++)
        for (int side = 0; side < SIDES; side++)
            run(&b, (enum side)side, (int)lengths[i], i >= LEARN);
    report_all(&b, set ? set : "fixed", budget);
    for (int i = 0; i < SIDES; i++)
        stage_free(b.st[i]);
    params_clear(&b.p);
    b.k->stream_free(b.s);
    free(b.w);
    free(b.g);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;

    bench("lmsys", quick);
    bench(NULL, quick);
    return 0;
}
