/* simulate: a trace of jobs through the scheduler's own functions. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/simulate.h"
#include "api/cli/simulate_read.h"
#include "api/cli/simulate_spec.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define TRACE_BYTES_MAX (64u << 20)
#define JSON_BYTES_MAX (16u << 20)
#define PICTURE_BYTES_MAX (16u << 20)

struct files { /* what the command reads */
    struct buf cluster, throughputs, trace;
};

/* Read the file that an option names and let the setup take it. Returns an exit status. */
static int take(struct cli *c, const char *option, struct buf *b, struct sim_setup *s,
                int (*read)(struct sim_setup *, const char *, size_t, struct merr *))
{
    const char *path = cli_option(c, option);
    struct merr err;
    int r;

    if (!path)
        return cli_fail(CLI_USAGE, "want --%s FILE; docs/simulator.md describes it", option);
    r = io_read_file(path, b, &err);
    if (r < 0)
        return cli_fail(r == -ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "%s", err.text);
    r = read ? read(s, buf_text(b), b->len, &err) : 0;
    return r < 0 ? cli_fail(r == -EINVAL ? CLI_REFUSED : CLI_FAILED, "%s: %s", path, err.text) : 0;
}

static json_t *times_of(const struct sim_times *t)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "rounds", (json_int_t)t->n, "total_us", (json_int_t)t->total_us,
                     "p50_us", (json_int_t)t->p50_us, "p99_us", (json_int_t)t->p99_us, "max_us", (json_int_t)t->max_us);
}

/* Counts between min and max, powers of two, whose throughput was not measured: "type class count". New. */
static json_t *modelled(const struct sim_setup *s)
{
    json_t *all = json_object();

    for (size_t p = 0; p < s->n_profiles; p++) {
        json_t *of = json_object();

        for (size_t t = 0; t < s->n_types; t++) {
            json_t *counts = json_array();
            bool guess = false;

            for (int n = 1; s->profiles[p].n[t] > 0 && n <= 1024; n *= 2) {
                (void)rates_at(&s->profiles[p], (int)t, n, &guess);
                if (guess)
                    (void)json_array_append_new(counts, json_integer(n));
            }
            (void)json_object_set_new(of, s->types[t], counts);
        }
        (void)json_object_set_new(all, s->profile_names[p], of);
    }
    return all;
}

static json_t *jobs_of(const struct sim_trace *t, const struct sim_result *r)
{
    json_t *jobs = json_array();

    for (size_t i = 0; i < r->n_jobs; i++)
        (void)json_array_append_new(
            jobs,
            json_pack("{s:s%, s:f, s:f, s:f, s:f, s:i, s:f}", "id", t->jobs[i].name, strlen(t->jobs[i].name),
                      "submit_s", (double)t->jobs[i].submit_us / 1e6, "start_s", (double)r->jobs[i].start_us / 1e6,
                      "finish_s", (double)r->jobs[i].finish_us / 1e6, "device_s", (double)r->jobs[i].attained_us / 1e6,
                      "restarts", r->jobs[i].restarts, "rho", r->jobs[i].rho));
    return jobs;
}

static json_t *document(const struct sim_setup *s, const struct sim_trace *t, const struct sim_result *r)
{
    json_t *cdf = json_array();

    for (int i = 0; i < SIM_CDF_POINTS; i++)
        (void)json_array_append_new(cdf, json_real(r->rho_cdf[i]));
    return json_pack(
        "{s:s, s:s, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:o}, s:f, s:f, s:f, s:f, s:i, s:f, s:i, s:f, "
        "s:f, s:{s:o, s:o}, s:o, s:o}",
        "policy", sched_policy_name(s->policy), "objective", sched_objective_names[s->objective], "as_server",
        s->as_server, "jobs_done", (int)r->n_jobs, "jct_avg_s", r->jct_avg_s, "jct_median_s", r->jct_median_s,
        "jct_p99_s", r->jct_p99_s, "wait_avg_s", r->wait_avg_s, "makespan_s", r->makespan_s, "fairness", "worst",
        r->rho_worst, "share_over_1_05", r->rho_over, "cdf", cdf, "utilisation", r->utilisation, "capacity_device_s",
        (double)r->capacity_us / 1e6, "used_device_s", (double)r->used_us / 1e6, "idle_device_s",
        (double)r->idle_us / 1e6, "restarts", (int)r->restarts, "restarts_per_job",
        r->n_jobs ? (double)r->restarts / (double)r->n_jobs : 0.0, "failures", (int)r->failures, "lost_steps",
        (double)r->lost_steps_u / 1e6, "gap_worst", (double)r->gap_worst_ppm / 1e6, "solve", "fast", times_of(&r->fast),
        "full", times_of(&r->full), "modelled", modelled(s), "jobs", jobs_of(t, r));
}

static int show(const struct cli *c, const struct sim_setup *s, const struct sim_trace *t, const struct sim_result *r)
{
    char avg[CLI_DURATION_MAX], median[CLI_DURATION_MAX], p99[CLI_DURATION_MAX], span[CLI_DURATION_MAX];

    if (c->json)
        return cli_print_json_new(document(s, t, r)) < 0 ? CLI_FAILED : CLI_DONE;
    cli_duration(r->jct_avg_s, avg);
    cli_duration(r->jct_median_s, median);
    cli_duration(r->jct_p99_s, p99);
    cli_duration(r->makespan_s, span);
    (void)printf("policy        %s\njobs          %zu\ncompletion    average %s, median %s, p99 %s\nmakespan      %s\n"
                 "fairness      worst %.2f, %.1f %% over 1.05\nutilisation   %.1f %%\n"
                 "restarts      %zu (%.2f a job), %zu node failures\n"
                 "rounds        %zu fast (p99 %.2f ms), %zu full (p99 %.2f ms), worst gap %.3f %%\n",
                 sched_policy_name(s->policy), r->n_jobs, avg, median, p99, span, r->rho_worst, r->rho_over * 100,
                 r->utilisation * 100, r->restarts, r->n_jobs ? (double)r->restarts / (double)r->n_jobs : 0.0,
                 r->failures, r->fast.n, (double)r->fast.p99_us / 1e3, r->full.n, (double)r->full.p99_us / 1e3,
                 (double)r->gap_worst_ppm / 1e4);
    return CLI_DONE;
}

/* Write FILE as CSV and FILE.svg beside it. */
static int write_timeline(const char *path, const struct sim_setup *s, const struct sim_result *r)
{
    char svg[PATH_MAX];
    struct merr err;
    BUF_CLEAR_AUTO struct buf b;

    buf_init(&b, PICTURE_BYTES_MAX);
    (void)snprintf(svg, sizeof(svg), "%s.svg", path);
    if (sim_print_csv(s, r, &b) < 0)
        return cli_fail(CLI_FAILED, "the timeline is larger than %u bytes", PICTURE_BYTES_MAX);
    if (io_write_file(path, buf_text(&b), b.len, 0644, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    buf_reset(&b);
    if (sim_print_svg(s, r, &b) < 0)
        return cli_fail(CLI_FAILED, "the picture is larger than %u bytes", PICTURE_BYTES_MAX);
    if (io_write_file(svg, buf_text(&b), b.len, 0644, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    return CLI_DONE;
}

static int play(struct cli *c, struct sim_setup *s, const struct buf *text)
{
    const char *timeline = cli_option(c, "timeline");
    struct sim_trace trace;
    struct sim_result result;
    struct merr err;
    int status, r = sim_trace_parse(s, buf_text(text), text->len, &trace, &err);

    if (r < 0)
        return cli_fail(CLI_REFUSED, "%s: %s", cli_option(c, "trace"), err.text);
    r = sim_run(s, &trace, &result, &err);
    if (r < 0) {
        sim_trace_clear(&trace);
        return cli_fail(r == -EINVAL ? CLI_REFUSED : CLI_FAILED, "%s", err.text);
    }
    status = timeline ? write_timeline(timeline, s, &result) : CLI_DONE;
    if (status == CLI_DONE)
        status = show(c, s, &trace, &result);
    sim_result_clear(&result);
    sim_trace_clear(&trace);
    return status;
}

static int take_all(struct cli *c, struct files *f, struct sim_setup *s, struct simulate_spec **ret_specs)
{
    TRY(simulate_spec_new(c, s, ret_specs));
    TRY(take(c, "trace", &f->trace, s, NULL));
    TRY(take(c, "cluster", &f->cluster, s, simulate_read_cluster));
    if (cli_option(c, "throughputs")) /* jobs with specs need none */
        TRY(take(c, "throughputs", &f->throughputs, s, simulate_read_throughputs));
    return play(c, s, &f->trace);
}

int simulate_cluster(struct cli *c)
{
    struct sim_setup s;
    struct files f;
    struct simulate_spec *specs = NULL;
    int status;

    if (cli_option(c, "snapshot"))
        return simulate_snapshot(c);
    sim_setup_init(&s);
    s.clock_us = clock_mono_us;
    s.policy = (enum sched_policy)cli_number(c, "policy", (long)s.policy);
    s.objective = (enum sched_objective)cli_number(c, "objective", (long)s.objective);
    s.round_us = cli_number(c, "round", 0) * 1000000;
    s.as_server = cli_option(c, "as-server") != NULL;
    s.seed = (uint64_t)cli_number(c, "seed", 0);
    buf_init(&f.cluster, JSON_BYTES_MAX);
    buf_init(&f.throughputs, JSON_BYTES_MAX);
    buf_init(&f.trace, TRACE_BYTES_MAX);
    status = take_all(c, &f, &s, &specs);
    buf_clear(&f.cluster);
    buf_clear(&f.throughputs);
    buf_clear(&f.trace);
    sim_setup_clear(&s);
    simulate_spec_free(specs);
    return status;
}
