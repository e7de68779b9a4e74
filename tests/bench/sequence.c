/* How near plans come to what no plan can beat, on workloads like those of known data sets, and how long planning
 * takes.
 *
 *   sequence [--quick]
 *
 * One JSON object a line; ratio is value / reference, lower is better. A score is the predicted time of a step over the
 * bound of work and longest sequence; the references are those of docs/sequence.md, or of a planner in the same run. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/sequence/mimose.h"
#include "scheduler/sequence/plan.h"
#include "scheduler/sequence/workload.h"

#define BATCHES 12
#define SEEDS_FROM 1000
#define BATCH_MAX 512

static const struct seq_model small = {.hidden = 896, .kv_hidden = 128, .layers = 24};
static const struct seq_model large = {.hidden = 3584, .kv_hidden = 512, .layers = 28};

/* The comparison of docs/sequence.md: replicas, ranks, sequences a replica. The last six are its bound and scores. */
static const struct setting {
    const char *set, *size;
    const struct seq_model *model;
    int64_t capacity;
    int ranks, replicas, block;
    double bound_ms, b1, b3, b4, skrull, sweep;
} settings[] = {
    {"wiki-cn", "0.5b", &small, 26 * 1024, 8, 4, 64, 30, 29.7, 3.65, 3.37, 2.75, 1.31},
    {"lmsys", "0.5b", &small, 26 * 1024, 8, 4, 64, 33, 29.7, 3.64, 3.35, 2.51, 1.30},
    {"chatqa2", "0.5b", &small, 26 * 1024, 8, 4, 64, 1487, 1.90, 1.43, 1.25, 1.28, 1.23},
    {"wiki-cn", "7b", &large, 13 * 1024, 8, 4, 64, 294, 7.36, 4.69, 4.48, 2.42, 1.48},
    {"lmsys", "7b", &large, 13 * 1024, 8, 4, 64, 302, 7.43, 4.73, 4.49, 2.50, 1.47},
    {"chatqa2", "7b", &large, 13 * 1024, 16, 2, 40, 3445, 1.67, 1.54, 1.43, 1.41, 1.38},
};

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench sequence: %s: %s\n", what, why);
    exit(1);
}

static void report(const char *metric, double value, const char *unit, const char *reference, double against)
{
    (void)printf("{\"bench\": \"sequence\", \"metric\": \"%s\", \"value\": %.5g, \"unit\": \"%s\", "
                 "\"reference\": \"%s\", \"ratio\": %.4f}\n",
                 metric, value, unit, reference, value / against);
    (void)fflush(stdout);
}

static double reference_of(const struct setting *s, enum seq_policy p)
{
    switch (p) {
    case SEQ_STATIC:
        return s->b1;
    case SEQ_PACK:
        return s->b3;
    case SEQ_PACK_LPT:
        return s->b4;
    case SEQ_SKRULL:
        return s->skrull;
    case SEQ_SWEEP:
        return s->sweep;
    default:
        return 0;
    }
}

struct means {
    double step_s, plain_s, step_bound_s, score, replica, rank, sharded, padding, peak, micros, plan_ms;
};

static struct means measure(const struct setting *s, enum seq_policy policy, int batches)
{
    struct seq_config c = {.policy = policy,
                           .replicas = s->replicas,
                           .ranks = s->ranks,
                           .capacity = s->capacity,
                           .micro = policy == SEQ_PAD ? 8 : 1,
                           .seed = 1};
    int64_t tokens[BATCH_MAX];
    struct seq_batch b = {.tokens = tokens, .n = (size_t)(s->replicas * s->block)};
    struct means m = {0};

    seq_cost_reference(&c.cost, s->model);
    for (int i = 0; i < batches; i++) {
        struct seq_plan p;
        struct merr err;
        int64_t begin;

        (void)seq_workload_draw(seq_workload_find(s->set, NULL), SEEDS_FROM + (uint64_t)i, s->capacity * s->ranks,
                                tokens, b.n);
        begin = clock_mono_us();
        if (seq_plan_make(&c, &b, &p, &err) || seq_plan_check(&p, &b, &err))
            die(seq_policy_name(policy), err.text);
        m.plan_ms += (double)(clock_mono_us() - begin) * 1e-3 / batches;
        m.step_s += p.score.step_s / batches;
        m.plain_s += p.bounds.plain_s / batches;
        m.step_bound_s += p.bounds.step_s / batches;
        m.score += p.score.rho_plain / batches;
        m.replica += p.score.replica_imbalance / batches;
        m.rank += p.score.rank_imbalance / batches;
        m.sharded += p.score.sharded_share / batches;
        m.padding += p.score.padding_share / batches;
        m.peak = fmax(m.peak, p.score.peak_share);
        m.micros += (double)p.micros / batches;
        seq_plan_clear(&p);
    }
    return m;
}

static const struct {
    enum seq_policy policy;
    const char *metric;
} rows[] = {
    {SEQ_PAD, "pad"},         {SEQ_STATIC, "static"},     {SEQ_SORTED, "sorted"},
    {SEQ_PACK, "pack"},       {SEQ_PACK_LPT, "pack-lpt"}, {SEQ_ROUND_ROBIN, "round-robin"},
    {SEQ_DYNAMIC, "dynamic"}, {SEQ_CHUNK, "chunk"},       {SEQ_SKRULL, "skrull"},
    {SEQ_SWEEP, "sweep"},
};

static void report_more(const struct setting *s, const char *planner, const struct means *m, const struct means *base)
{
    static const char *const names[] = {"step_ms",       "rank_imbalance", "replica_imbalance", "sharded_share",
                                        "padding_share", "peak_share",     "micro_batches",     "plan_ms"};
    const double v[] = {1e3 * m->step_s, m->rank, m->replica, m->sharded, m->padding, m->peak, m->micros, m->plan_ms};
    const double against[] = {1e3 * m->step_bound_s, 1, 1, 1, 1, 1, 1, 1e3 * m->step_s};
    const char *const what[] = {"lower bound", "1", "1", "all tokens", "all tokens", "capacity", "1", "predicted step"};
    char metric[96];

    (void)base;
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        (void)snprintf(metric, sizeof(metric), "%s_%s_%s_%s", s->set, s->size, planner, names[i]);
        report(metric, v[i], i == 0 || i == 7 ? "ms" : "", what[i], against[i]);
    }
    (void)snprintf(metric, sizeof(metric), "%s_%s_%s_speedup", s->set, s->size, planner);
    report(metric, base->step_s / m->step_s, "x", "static in the same run", 1);
}

static void bench_setting(const struct setting *s, int batches)
{
    struct means base = measure(s, SEQ_STATIC, batches);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct means m = measure(s, rows[i].policy, batches);
        double reference = reference_of(s, rows[i].policy);
        char metric[96], words[96];

        (void)snprintf(metric, sizeof(metric), "%s_%s_%s_score", s->set, s->size, rows[i].metric);
        (void)snprintf(words, sizeof(words), reference > 0 ? "reference score %.2f" : "sweep's reference score %.2f",
                       reference > 0 ? reference : s->sweep);
        report(metric, m.score, "", words, reference > 0 ? reference : s->sweep);
        report_more(s, rows[i].metric, &m, &base);
    }
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

/* Median milliseconds of planning 256 sequences for 8 ranks, over batches of every workload. */
static void bench_planning(int batches, int replicas, const char *metric)
{
    double ms[64 * 8];
    size_t n = 0;

    for (size_t w = 0; w < seq_workloads_n; w++)
        for (int i = 0; i < batches; i++) {
            struct seq_config c = {.policy = SEQ_SWEEP, .replicas = replicas, .ranks = 8, .capacity = 26 * 1024};
            int64_t tokens[256], begin;
            struct seq_batch b = {.tokens = tokens, .n = 256};
            struct seq_plan p;
            struct merr err;

            seq_cost_reference(&c.cost, &small);
            (void)seq_workload_draw(&seq_workloads[w], SEEDS_FROM + (uint64_t)i, seq_longest(&c), tokens, b.n);
            begin = clock_mono_us();
            if (seq_plan_make(&c, &b, &p, &err))
                die("sweep", err.text);
            ms[n++] = (double)(clock_mono_us() - begin) * 1e-3;
            seq_plan_clear(&p);
        }
    qsort(ms, n, sizeof(ms[0]), by_value);
    report(metric, ms[n / 2], "ms", "goal of 2 ms", 2);
    {
        char worst[96];

        (void)snprintf(worst, sizeof(worst), "%s_p95", metric);
        report(worst, ms[n * 95 / 100], "ms", "goal of 2 ms", 2);
    }
}

/* Median milliseconds of a plan for 80 blocks that is not in the cache, and of one that is. */
static void bench_mimose(int rounds)
{
    enum { BLOCKS = 80 };
    double fresh[1000], bytes[BLOCKS];
    struct mimose_plan p;
    struct mimose *m;
    struct merr err;
    int64_t begin;

    if (mimose_new(BLOCKS, 4e9, 1e9, &m, &err))
        die("mimose", err.text);
    for (int i = 1; i <= MIMOSE_SAMPLES_MIN; i++) {
        double whole = 1e8;

        for (int l = 0; l < BLOCKS; l++)
            whole += bytes[l] = 1e5 + 2e4 * (1 + l % 7) * i * 64;
        if (mimose_sample(m, i * 64, bytes, whole, &err))
            die("mimose", err.text);
    }
    for (int i = 0; i < rounds; i++) {
        mimose_set_budget(m, 4e9 + i, 1e9);
        begin = clock_mono_us();
        for (int64_t x = 256; x < 656; x += 40)
            if (mimose_plan(m, x, &p, &err))
                die("mimose", err.text);
        fresh[i] = (double)(clock_mono_us() - begin) * 1e-4; /* ten plans */
    }
    qsort(fresh, (size_t)rounds, sizeof(fresh[0]), by_value);
    report("mimose_plan_ms_80_blocks", fresh[rounds / 2], "ms", "goal of 0.2 ms", 0.2);
    begin = clock_mono_us();
    for (int i = 0; i < 10000; i++)
        if (mimose_plan(m, 256, &p, &err))
            die("mimose", err.text);
    report("mimose_cached_plan_us", (double)(clock_mono_us() - begin) * 1e-4, "us", "a plan made anew",
           1e3 * fresh[rounds / 2]);
    mimose_free(m);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;

    if (argc > 1 && !quick)
        die(argv[1], "is no option; usage: sequence [--quick]");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        bench_setting(&settings[i], quick ? 2 : BATCHES);
    bench_planning(quick ? 2 : 40, 1, "plan_ms_k256_n8");
    bench_planning(quick ? 2 : 40, 4, "plan_ms_k256_n8_d4");
    bench_mimose(quick ? 20 : 500);
    return 0;
}
