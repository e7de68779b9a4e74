/* simulate sequence: what policies would make of the lengths in a file, or of a workload's, without running any. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/simulate.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/sequence/plan.h"
#include "scheduler/sequence/workload.h"

#define FILE_MAX ((size_t)64 << 20)
#define PLAN_MAX ((size_t)256 << 20) /* of a printed plan */

struct ask {
    struct seq_config config;
    enum seq_policy policy[SEQ_POLICIES];
    int n_policy;
    int64_t *tokens; /* every length there is, a batch after the other */
    size_t n, batch;
    size_t cut; /* sequences that the group cannot hold and were cut to what it can */
};

struct means { /* over the batches */
    double step_s, bound_s, replica, rank, sharded, padding, again, peak;
    int64_t micros; /* most */
};

/* --- what is asked ---------------------------------------------------------------------------------------------- */

/* "hidden,kv_hidden,layers" */
static int read_model(const struct cli *c, struct seq_cost *cost)
{
    const char *text = cli_option(c, "model");
    long v[3];
    char *end = (char *)(uintptr_t)text;

    for (int i = 0; i < 3; i++) {
        const char *at = end;

        errno = 0;
        v[i] = strtol(at, &end, 10);
        if (errno || end == at || v[i] < 1 || v[i] > 1000000 || *end != (i < 2 ? ',' : '\0'))
            return cli_fail(CLI_USAGE, "--model wants hidden,kv_hidden,layers as 896,128,24, got '%s'", text);
        end += i < 2;
    }
    seq_cost_reference(cost, &(struct seq_model){.hidden = v[0], .kv_hidden = v[1], .layers = (int)v[2]});
    return 0;
}

static int read_policies(const struct cli *c, struct ask *a)
{
    const char *name = cli_option(c, "policy");
    struct merr err;

    if (!name || strcmp(name, "all") == 0) {
        for (int p = 0; p < SEQ_POLICIES; p++)
            a->policy[a->n_policy++] = (enum seq_policy)p;
        return 0;
    }
    a->n_policy = 1;
    return seq_policy_find(name, &a->policy[0], &err) ? cli_fail(CLI_USAGE, "--policy: %s; or all", err.text) : 0;
}

static int read_config(const struct cli *c, struct ask *a)
{
    a->config = (struct seq_config){.replicas = (int)cli_number(c, "replicas", 0),
                                    .ranks = (int)cli_number(c, "ranks", 0),
                                    .capacity = cli_number(c, "capacity", 0),
                                    .micro = (int)cli_number(c, "micro", 0),
                                    .chunk_tokens = cli_number(c, "chunk-tokens", 0),
                                    .keep_chunks = (int)cli_number(c, "keep-chunks", 0),
                                    .seed = (uint64_t)cli_number(c, "seed", 0)};
    a->batch = (size_t)cli_number(c, "batch", 0);
    return read_model(c, &a->config.cost);
}

/* --- lengths ---------------------------------------------------------------------------------------------------- */

static int add_line(const char *file, size_t line, const char *text, size_t len, struct ask *a)
{
    char number[32], *end;
    long long v;

    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    if (len == 0)
        return 0;
    (void)snprintf(number, sizeof(number), "%.*s", len < sizeof(number) ? (int)len : (int)sizeof(number) - 1, text);
    errno = 0;
    v = strtoll(number, &end, 10);
    if (errno || end == number || *end || v < 1 || v > SEQ_TOKENS_MAX)
        return cli_fail(CLI_FAILED, "%s line %zu: want a length from 1 to %" PRId64 ", got '%s'", file, line,
                        SEQ_TOKENS_MAX, number);
    a->tokens[a->n++] = v;
    return 0;
}

static int read_all(const char *file, struct buf *text, struct merr *err)
{
    bool standard = strcmp(file, "-") == 0;

    while (standard) {
        char *room = buf_reserve(text, 65536);
        ssize_t n = room ? io_read_full(STDIN_FILENO, room, 65536) : -EMSGSIZE;

        if (n < 0)
            return merr_errno(err, (int)n, "cannot read standard input");
        buf_commit(text, (size_t)n);
        if (n < 65536)
            return 0;
    }
    return io_read_file(file, text, err);
}

/* One length a line. */
static int read_lengths(const char *file, struct ask *a)
{
    struct merr err;
    BUF_CLEAR_AUTO struct buf text;
    size_t lines = 1, line = 1, begin = 0;

    buf_init(&text, FILE_MAX);
    if (read_all(file, &text, &err) < 0)
        return cli_fail(CLI_FAILED, "%s; want a file with one length a line", err.text);
    for (size_t i = 0; i < text.len; i++)
        lines += text.data[i] == '\n';
    a->tokens = malloc(lines * sizeof(a->tokens[0]));
    if (!a->tokens)
        return cli_fail(CLI_FAILED, "no memory for %zu lengths", lines);
    for (size_t i = 0; i <= text.len; i++)
        if (i == text.len || text.data[i] == '\n') {
            TRY(add_line(strcmp(file, "-") ? file : "standard input", line++, buf_text(&text) + begin, i - begin, a));
            begin = i + 1;
        }
    return a->n ? 0 : cli_fail(CLI_FAILED, "'%s' holds no length; want one a line", file);
}

/* Batches from seed, seed + 1, ... */
static int draw_lengths(const struct cli *c, struct ask *a)
{
    const char *name = cli_option(c, "workload") ? cli_option(c, "workload") : "lmsys";
    struct merr err;
    const struct seq_workload *w = seq_workload_find(name, &err);
    long batches = cli_number(c, "batches", 0);

    if (!w)
        return cli_fail(CLI_USAGE, "--workload: %s", err.text);
    a->n = a->batch * (size_t)batches;
    a->tokens = malloc(a->n * sizeof(a->tokens[0]));
    if (!a->tokens)
        return cli_fail(CLI_FAILED, "no memory for %zu lengths", a->n);
    for (long i = 0; i < batches; i++)
        (void)seq_workload_draw(w, a->config.seed + (uint64_t)i, 0, a->tokens + (size_t)i * a->batch, a->batch);
    return 0;
}

/* The same lengths for every policy: what the group cannot hold is cut, and counted. */
static void cut_lengths(struct ask *a)
{
    struct seq_config c = a->config;
    int64_t longest;

    c.policy = SEQ_SWEEP;
    longest = seq_longest(&c);
    for (size_t i = 0; i < a->n; i++)
        if (a->tokens[i] > longest) {
            a->tokens[i] = longest;
            a->cut++;
        }
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

static void add_means(struct means *m, const struct seq_plan *p, double batches)
{
    m->step_s += p->score.step_s / batches;
    m->bound_s += p->bounds.step_s / batches;
    m->replica += p->score.replica_imbalance / batches;
    m->rank += p->score.rank_imbalance / batches;
    m->sharded += p->score.sharded_share / batches;
    m->padding += p->score.padding_share / batches;
    m->again += p->score.recomputed_share / batches;
    m->peak = p->score.peak_share > m->peak ? p->score.peak_share : m->peak;
    m->micros = p->micros > m->micros ? p->micros : m->micros;
}

/* Plan every batch; with plans also append each as JSON. */
static int run_policy(struct ask *a, enum seq_policy policy, struct means *m, json_t *plans)
{
    size_t batches = (a->n + a->batch - 1) / a->batch;

    a->config.policy = policy;
    for (size_t i = 0; i < batches; i++) {
        size_t left = a->n - i * a->batch;
        struct seq_batch b = {.tokens = a->tokens + i * a->batch, .n = left < a->batch ? left : a->batch};
        struct seq_plan p;
        struct merr err;

        if (seq_plan_make(&a->config, &b, &p, &err))
            return cli_fail(CLI_FAILED, "%s: batch %zu: %s", seq_policy_name(policy), i, err.text);
        add_means(m, &p, (double)batches);
        if (plans) {
            struct buf text;
            int r;

            buf_init(&text, PLAN_MAX);
            seq_plan_print(&p, &text);
            r = json_array_append_new(plans, json_loadb(buf_text(&text), text.len, 0, NULL));
            buf_clear(&text);
            if (r < 0) {
                seq_plan_clear(&p);
                return cli_fail(CLI_FAILED, "the plan of batch %zu is too large to print: ask for fewer sequences", i);
            }
        }
        seq_plan_clear(&p);
    }
    return 0;
}

static json_t *row_of(enum seq_policy p, const struct means *m)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "policy", seq_policy_name(p), "step_s",
                     m->step_s, "bound_s", m->bound_s, "rho", m->step_s / m->bound_s, "replica_imbalance", m->replica,
                     "rank_imbalance", m->rank, "sharded_share", m->sharded, "padding_share", m->padding,
                     "recomputed_share", m->again, "peak_share", m->peak, "micro_batches", (json_int_t)m->micros);
}

#define CELL 24

static int add_row(json_t *rows, enum seq_policy p, const struct means *m)
{
    char step[CELL], rho[CELL], replica[CELL], rank[CELL], sharded[CELL], padding[CELL], peak[CELL], micros[CELL];
    const char *const cells[] = {seq_policy_name(p), step, rho, replica, rank, sharded, padding, peak, micros};

    (void)snprintf(step, CELL, "%.1f", 1e3 * m->step_s);
    (void)snprintf(rho, CELL, "%.2f", m->step_s / m->bound_s);
    (void)snprintf(replica, CELL, "%.2f", m->replica);
    (void)snprintf(rank, CELL, "%.2f", m->rank);
    (void)snprintf(sharded, CELL, "%.0f%%", 100 * m->sharded);
    (void)snprintf(padding, CELL, "%.0f%%", 100 * m->padding);
    (void)snprintf(peak, CELL, "%.0f%%", 100 * m->peak);
    (void)snprintf(micros, CELL, "%" PRId64, m->micros);
    return cli_row(rows, cells, sizeof(cells) / sizeof(cells[0]));
}

static int answer(struct cli *c, struct ask *a)
{
    static const struct cli_table table = {
        .head = {"POLICY", "STEP MS", "OVER BOUND", "REPLICAS", "RANKS", "SHARDED", "PADDING", "PEAK", "MICRO-BATCHES"},
        .n = 9,
        .right = 0x1fe,
        .state = -1};
    json_t *plans = c->json && a->n_policy == 1 ? json_array() : NULL, *rows = json_array(), *list = json_array();
    int r = 0;

    for (int i = 0; r == 0 && i < a->n_policy; i++) {
        struct means m = {0};

        r = run_policy(a, a->policy[i], &m, plans);
        if (r == 0 &&
            (json_array_append_new(list, row_of(a->policy[i], &m)) < 0 || add_row(rows, a->policy[i], &m) < 0))
            r = cli_fail(CLI_FAILED, "no memory for the table");
    }
    if (r == 0 && c->json) {
        json_t *doc =
            json_pack("{s:I, s:I, s:O}", "sequences", (json_int_t)a->n, "cut", (json_int_t)a->cut, "policies", list);

        if (doc && plans)
            (void)json_object_set(doc, "plans", plans);
        r = cli_print_json_new(doc);
    } else if (r == 0) {
        if (a->cut)
            (void)printf("%zu of %zu sequences are longer than a group holds and were cut\n", a->cut, a->n);
        cli_print_table_new(&table, json_incref(rows));
    }
    json_decref(rows);
    json_decref(list);
    json_decref(plans);
    return r;
}

static int compare(struct cli *c, struct ask *a)
{
    TRY(read_config(c, a));
    TRY(read_policies(c, a));
    if (c->n && cli_option(c, "workload"))
        return cli_fail(CLI_USAGE, "lengths come from '%s' or from --workload, not from both", c->arg[0]);
    TRY(c->n ? read_lengths(c->arg[0], a) : draw_lengths(c, a));
    cut_lengths(a);
    return answer(c, a);
}

int simulate_sequence(struct cli *c)
{
    struct ask a = {0};
    int r = compare(c, &a);

    free(a.tokens);
    return r;
}
