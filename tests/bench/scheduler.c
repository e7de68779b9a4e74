/* bench scheduler - full and fast rounds at 10,000 and 100,000 devices, their growth and their gap; a long queue; cold
 * starts of gangs; a month's trace
 *
 * Synthetic: nodes of eight devices in eight types; a fifth as many jobs as devices, a quarter of them waiting, each
 * with a range of counts on two to four types. The jobs that run were placed by full rounds. Times are processor time
 * of the one thread that decides: what else the machine does is not the scheduler's.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"
#include "scheduler/plan/search.h"
#include "scheduler/sim/sim.h"

#define TYPES 8
#define KINDS 24
#define ROUNDS_MAX 100
#define TURNS_MAX 8
#define S INT64_C(1000000)

struct world {
    struct sched_node *nodes;
    struct sched_job *jobs;
    struct sched_place **places;
    struct rates_profile *kinds;
    struct sched_tenant tenants[2];
    struct sched_input in;
};

static uint32_t draws, seed = 1;
static bool own_order; /* each kind has an order of the types of its own, so that none is the fastest for all */

static int64_t cpu_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint32_t draw(uint32_t below)
{
    uint32_t key[2] = {seed, 2}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n, size);

    if (!p) {
        (void)fprintf(stderr, "bench scheduler: no memory\n");
        exit(1);
    }
    return p;
}

static void make_kinds(struct world *w)
{
    w->kinds = room(KINDS, sizeof(*w->kinds));
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < TYPES; t++)
            for (int i = 0, n = 1; i < 8; i++, n *= 2) {
                struct rates_point *p = &w->kinds[k].points[t][i];
                double speed = 1 + 0.4 * (own_order ? (t * 7 + k * 5) % TYPES : t) + 0.05 * k, serial = 0.002 * (k + 1);

                *p = (struct rates_point){.count = n, .rate_ups = (int64_t)(1e6 * speed / (serial + 1.0 / n))};
                w->kinds[k].n[t] = (uint8_t)(i + 1);
            }
}

static struct sched_job make_job(struct world *w, size_t i)
{
    int32_t min = 1 << draw(4), types = 0;

    while (__builtin_popcount((unsigned)types) < 2)
        types |= (int32_t)draw(1 << TYPES) & (int32_t)draw(1 << TYPES);
    return (struct sched_job){.id = i + 1,
                              .tenant = draw(2),
                              .class_ = draw(4) ? SCHED_ELASTIC : SCHED_OPPORTUNISTIC,
                              .submit_us = draw(80000) * S,
                              .min = min,
                              .max = min << draw(4),
                              .workers = draw(2) ? min * 8 : 0,
                              .types = (uint32_t)types,
                              .hetero_ok = draw(3) == 0,
                              .home = -1,
                              .weight_milli = 500 + draw(1000),
                              .restart_us = 30 * S,
                              .remaining_us = 1000000 * S,
                              .rho_milli = 1000,
                              .profile = &w->kinds[draw(KINDS)]};
}

static void world_init(struct world *w, size_t devices, size_t jobs)
{
    size_t nodes = devices / 8;

    *w = (struct world){.nodes = room(nodes, sizeof(*w->nodes)),
                        .jobs = room(jobs, sizeof(*w->jobs)),
                        .places = room(jobs, sizeof(*w->places))};
    make_kinds(w);
    for (size_t i = 0; i < nodes; i++)
        w->nodes[i] =
            (struct sched_node){.type = (uint8_t)(i * TYPES / nodes), .devices = 8, .leaf = (uint32_t)(i / 16)};
    for (int t = 0; t < 2; t++)
        w->tenants[t] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    for (size_t i = 0; i < jobs; i++) {
        w->jobs[i] = make_job(w, i);
        w->jobs[i].waiting_us = w->jobs[i].changed_us = w->jobs[i].submit_us;
    }
    w->in = (struct sched_input){
        .config = {.now_us = 90000 * S,
                   .round_us = 60 * S,
                   .starve_us = 1000000 * S,
                   .grace_us = 30 * S,
                   .hold_us = 120 * S,
                   .mode = SCHED_FULL},
        .nodes = w->nodes,
        .n_nodes = nodes,
        .tenants = w->tenants,
        .n_tenants = 2,
        .jobs = w->jobs,
        .n_jobs = jobs * 3 / 4,
    };
}

static void world_clear(struct world *w, size_t jobs)
{
    for (size_t i = 0; i < jobs; i++)
        free(w->places[i]);
    free(w->places);
    free(w->nodes);
    free(w->jobs);
    free(w->kinds);
}

static void apply(struct world *w, const struct sched_plan *p)
{
    for (size_t i = 0; i < w->in.n_jobs; i++) {
        const struct sched_verdict *v = &p->verdicts[i];
        struct sched_job *j = &w->jobs[i];

        if (v->action == SCHED_KEEP || v->action == SCHED_WAIT)
            continue;
        free(w->places[i]);
        w->places[i] = room(v->n + 1, sizeof(struct sched_place));
        memcpy(w->places[i], &p->places[v->first], v->n * sizeof(struct sched_place));
        j->places = w->places[i];
        j->n_places = v->n;
        j->changed_us = w->in.config.now_us;
        j->home = v->n ? v->shape.type[0] : j->home;
    }
    memcpy(w->in.prices, p->prices, sizeof(w->in.prices));
}

/* One round: its time; the plan is carried out when wanted. */
static int64_t one(struct world *w, enum sched_mode mode, bool carry_out, int64_t *io_gap)
{
    struct sched_plan p;
    struct merr err;
    int64_t t = cpu_us();

    w->in.config.mode = mode;
    if (sched_schedule(&w->in, &p, &err) < 0) {
        (void)fprintf(stderr, "bench scheduler: %s\n", err.text);
        exit(1);
    }
    t = cpu_us() - t;
    if (p.gap_ppm > *io_gap)
        *io_gap = p.gap_ppm;
    if (carry_out)
        apply(w, &p);
    sched_plan_clear(&p);
    return t;
}

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* A cluster that goes through rounds, again and again the same: what differs is what else the machine does. */
struct course {
    size_t devices;
    struct world w;
    int64_t full[ROUNDS_MAX * TURNS_MAX], fast[ROUNDS_MAX * TURNS_MAX]; /* every round's time */
    int64_t least[ROUNDS_MAX];                                          /* of each full round in all turns */
    size_t n;
    int64_t gap;
};

static void course_start(struct course *c, size_t devices)
{
    int64_t ignored = 0;

    c->devices = devices;
    draws = 0;
    world_init(&c->w, devices, devices / 5);
    for (int i = 0; i < 3; i++) { /* three quarters of the jobs find their places */
        (void)one(&c->w, SCHED_FULL, true, &ignored);
        c->w.in.config.now_us += 3600 * S;
    }
    c->w.in.n_jobs = devices / 5; /* the others arrive */
}

static void course_go_on(struct course *c, int round)
{
    int64_t ignored = 0, full;

    c->fast[c->n] = one(&c->w, SCHED_FAST, false, &ignored);
    c->full[c->n++] = full = one(&c->w, SCHED_FULL, true, &c->gap);
    c->least[round] = c->least[round] == 0 || full < c->least[round] ? full : c->least[round];
    c->w.in.config.now_us += 300 * S;
}

static double p99_ms(int64_t *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_time);
    return (double)v[(n * 99 - 1) / 100] / 1e3;
}

/* Two clusters through the same number of rounds, a round of one after a round of the other, all of it turn by turn. */
static void go_side_by_side(struct course *a, size_t devices_a, struct course *b, size_t devices_b, int rounds,
                            int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        course_start(a, devices_a);
        course_start(b, devices_b);
        for (int i = 0; i < rounds; i++) {
            course_go_on(a, i);
            course_go_on(b, i);
        }
        world_clear(&a->w, devices_a / 5);
        world_clear(&b->w, devices_b / 5);
    }
}

/* How many times as long the rounds of b take, each at its least: what the machine adds to a short round is of another
 * share than what it adds to a long one, and differs from minute to minute. */
static double growth(const struct course *a, const struct course *b, int rounds)
{
    int64_t sum_a = 0, sum_b = 0;

    for (int i = 0; i < rounds; i++) {
        sum_a += a->least[i];
        sum_b += b->least[i];
    }
    return (double)sum_b / (double)sum_a;
}

/* A full round of an overloaded cluster: 512 devices, 8,000 jobs, nearly all of them waiting. */
static double backlog_ms(int rounds)
{
    int64_t us = 0, gap = 0;
    struct world w;

    draws = 0;
    world_init(&w, 512, 8000);
    for (int i = 0; i < rounds + 3; i++) {
        int64_t t = one(&w, SCHED_FULL, true, &gap);

        us += i < 3 ? 0 : t;
        w.in.config.now_us += 600 * S;
    }
    world_clear(&w, 8000);
    return (double)us / rounds / 1e3;
}

/* First rounds of clusters where nothing runs and n gangs wait, a third of them larger than a node: their mean gap,
 * and how often the limit of what a round looks at ended the search above 1 %. */
static void cold_starts(size_t n, int runs)
{
    int64_t worst = 0, sum = 0, longest = 0;
    int limited = 0;

    for (int run = 0; run < runs; run++) {
        struct world w;
        int64_t gap = 0, us;

        draws = 0;
        seed = 100 + (uint32_t)run;
        own_order = true;
        world_init(&w, 1024, n);
        w.in.n_jobs = n;
        for (size_t i = 0; i < n; i++) {
            w.jobs[i].min <<= draw(6);
            w.jobs[i].max = draw(2) ? w.jobs[i].min : 2 * w.jobs[i].min;
            w.jobs[i].workers = 0;
        }
        us = one(&w, SCHED_FULL, false, &gap);
        longest = us > longest ? us : longest;
        worst = gap > worst ? gap : worst;
        sum += gap;
        limited += gap > 10000;
        world_clear(&w, n);
    }
    own_order = false;
    seed = 1;
    (void)printf("{\"bench\":\"scheduler\",\"metric\":\"gap_cold_%zu_gangs\",\"value\":%.6g,\"unit\":\"share\","
                 "\"worst\":%.6g,\"longest_ms\":%.4g,\"reference\":\"%d of %d rounds ended at their limit\","
                 "\"ratio\":1}\n",
                 n, (double)sum / runs / 1e6, (double)worst / 1e6, (double)longest / 1e3, limited, runs);
}

static int report(const char *metric, double value, const char *unit, double target)
{
    (void)printf("{\"bench\":\"scheduler\",\"metric\":\"%s\",\"value\":%.6g,\"unit\":\"%s\","
                 "\"reference\":\"target %g\",\"ratio\":%.4g}\n",
                 metric, value, unit, target, value / target);
    if (value > target)
        (void)fprintf(stderr, "bench scheduler: %s is %g %s, wanted at most %g\n", metric, value, unit, target);
    return value > target;
}

/* Laying 64 workers on devices of eight types. */
static double map_us(void)
{
    struct rates_est part[TYPES];
    int64_t t = cpu_us();

    for (int run = 0; run < 20000; run++) {
        for (int k = 0; k < TYPES; k++)
            part[k] = (struct rates_est){.devices = 1 + (run + k) % 5, .worker_ns = 1000000 + 300000 * k + run};
        if (rates_map_workers(part, TYPES, 64) == 0)
            exit(1);
    }
    return (double)(cpu_us() - t) / 20000;
}

/* --- a month's trace ------------------------------------------------------------------------------------- */

#define TRACE_TYPES 4
#define TRACE_NODES 64

static void make_cluster(struct sim_setup *s, struct world *w)
{
    make_kinds(w);
    sim_setup_init(s);
    s->n_types = TRACE_TYPES;
    s->n_nodes = TRACE_NODES;
    s->n_tenants = 2;
    s->n_profiles = KINDS;
    s->nodes = room(TRACE_NODES, sizeof(*s->nodes));
    for (int i = 0; i < TRACE_NODES; i++)
        s->nodes[i] = (struct sched_node){
            .type = (uint8_t)(i * TRACE_TYPES / TRACE_NODES), .devices = 8, .leaf = (uint32_t)(i / 16)};
    s->tenant_names = room(2, SIM_NAME_MAX);
    s->tenants = room(2, sizeof(*s->tenants));
    s->tenant_class = room(2, sizeof(*s->tenant_class));
    s->profile_names = room(KINDS, SIM_NAME_MAX);
    s->profiles = w->kinds;
    s->tenants[0] = s->tenants[1] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    s->tenant_class[1] = SCHED_OPPORTUNISTIC;
    s->clock_us = cpu_us;
}

/* Jobs that arrive evenly; their lengths differ by a factor of twenty times chance. load: work that arrives over what
 * the cluster does meanwhile, at the jobs' least counts; 0: all come at once. */
static void make_trace(struct sim_trace *t, const struct world *w, size_t jobs, double load)
{
    double span_s = 259.2 * (double)jobs, work = 0; /* 30 days for 10,000 */
    const double capacity = (load > 0 ? load : 0.9) * span_s * 8 * TRACE_NODES;

    *t = (struct sim_trace){.jobs = room(jobs, sizeof(*t->jobs)), .n = jobs};
    for (size_t i = 0; i < jobs; i++) {
        struct sim_job *j = &t->jobs[i];
        double rate;

        *j = (struct sim_job){.submit_us = load > 0 ? (int64_t)(span_s * (double)i / (double)jobs) * S : 0,
                              .profile = draw(KINDS),
                              .tenant = draw(4) == 0,
                              .min = 1 << draw(4),
                              .weight_milli = 500 + draw(1000)};
        (void)snprintf(j->name, sizeof(j->name), "j%zu", i);
        j->max = j->min << draw(3);
        j->workers = draw(2) ? j->max : 0;
        j->hetero_ok = j->workers > 0 && draw(3) == 0;
        while (__builtin_popcount(j->types) < 2)
            j->types |= UINT32_C(1) << draw(TRACE_TYPES);
        j->steps = (int64_t)(exp(3e-3 * draw(1000)) * (1 + draw(1000)));
        rate = (double)rates_at(&w->kinds[j->profile], __builtin_ctz(j->types), j->min, NULL) / 1e6;
        work += (double)j->steps / rate * j->min;
    }
    for (size_t i = 0; i < jobs; i++)
        t->jobs[i].steps = 1 + (int64_t)((double)t->jobs[i].steps * capacity / work);
}

struct figures {
    double avg_s, p99_s, worst, restarts, makespan_s;
};

struct way { /* to schedule */
    enum sched_policy policy;
    enum sched_objective objective;
};

/* The same trace by a scheduler that knows all, or what a server knows. */
static struct figures play(size_t jobs, double load, bool as_server, struct way way)
{
    struct world w = {.nodes = NULL};
    struct sim_setup s;
    struct sim_trace t;
    struct sim_result r;
    struct merr err = {""};
    struct figures f;

    draws = 0;
    make_cluster(&s, &w);
    s.as_server = as_server;
    s.policy = way.policy;
    s.objective = way.objective;
    make_trace(&t, &w, jobs, load);
    if (sim_run(&s, &t, &r, &err) < 0) {
        (void)fprintf(stderr, "bench scheduler: %s\n", err.text);
        exit(1);
    }
    f = (struct figures){r.jct_avg_s, r.jct_p99_s, r.rho_worst, (double)r.restarts / (double)jobs, r.makespan_s};
    sim_result_clear(&r);
    sim_trace_clear(&t);
    sim_setup_clear(&s);
    return f;
}

/* What a scheduler loses that has to learn: completion times over those of one that knows all. */
static int learn(size_t jobs)
{
    static const double loads[] = {0.6, 0.9, 1.2};
    int missed = 0;

    for (int run = 0; run < 18; run++) {
        double load = loads[run % 3];
        struct figures all, learns;
        char metric[64];

        seed = 1 + (uint32_t)run / 3 % 3;
        own_order = run >= 9;
        all = play(jobs, load, false, (struct way){SCHED_POLICY_MUSTER, SCHED_FAIR});
        learns = play(jobs, load, true, (struct way){SCHED_POLICY_MUSTER, SCHED_FAIR});
        (void)snprintf(metric, sizeof(metric), "as_server%s_load_%g_seed_%u", own_order ? "_own_order" : "", load,
                       seed);
        (void)printf("{\"bench\":\"scheduler\",\"metric\":\"%s\",\"jct_avg_s\":[%.0f,%.0f],\"jct_p99_s\":[%.0f,%.0f],"
                     "\"fairness_worst\":[%.2f,%.2f],\"restarts_per_job\":[%.2f,%.2f]}\n",
                     metric, all.avg_s, learns.avg_s, all.p99_s, learns.p99_s, all.worst, learns.worst, all.restarts,
                     learns.restarts);
        missed += learns.avg_s > 1.1 * all.avg_s || learns.p99_s > 1.1 * all.p99_s;
    }
    own_order = false;
    seed = 1;
    return missed;
}

/* Every policy and objective on the same traces, each told the truth and then what a server knows: means over seeds. */
static int policies(size_t jobs)
{
    static const double loads[] = {1.2, 0};

    own_order = true;
    for (int l = 0; l < 2; l++)
        for (int p = 0; p < SCHED_POLICY_MAX + SCHED_OBJECTIVE_MAX - 1; p++) {
            struct way way = {p < SCHED_POLICY_MAX ? (enum sched_policy)p : SCHED_POLICY_MUSTER,
                              p < SCHED_POLICY_MAX ? SCHED_FAIR : (enum sched_objective)(p - SCHED_POLICY_MAX + 1)};
            struct figures sum[2] = {{0}};

            for (seed = 1; seed <= 3; seed++)
                for (int told = 0; told < 2; told++) {
                    struct figures f = play(loads[l] > 0 ? jobs : jobs / 4, loads[l], told, way);

                    sum[told].avg_s += f.avg_s / 3;
                    sum[told].p99_s += f.p99_s / 3;
                    sum[told].worst += f.worst / 3;
                    sum[told].restarts += f.restarts / 3;
                    sum[told].makespan_s += f.makespan_s / 3;
                }
            (void)printf("{\"bench\":\"scheduler\",\"metric\":\"policy_%s_%s_load_%g\",\"jct_avg_s\":[%.0f,%.0f],"
                         "\"jct_p99_s\":[%.0f,%.0f],\"makespan_s\":[%.0f,%.0f],\"fairness_worst\":[%.2f,%.2f],"
                         "\"restarts_per_job\":[%.2f,%.2f]}\n",
                         sched_policy_name(way.policy), sched_objective_names[way.objective], loads[l], sum[0].avg_s,
                         sum[1].avg_s, sum[0].p99_s, sum[1].p99_s, sum[0].makespan_s, sum[1].makespan_s, sum[0].worst,
                         sum[1].worst, sum[0].restarts, sum[1].restarts);
            (void)fflush(stdout);
        }
    own_order = false;
    seed = 1;
    return 0;
}

static double trace_s(size_t jobs, double load)
{
    struct world w = {.nodes = NULL};
    struct sim_setup s;
    struct sim_trace t;
    struct sim_result r;
    struct merr err = {""};
    int64_t began;

    draws = 0;
    make_cluster(&s, &w);
    make_trace(&t, &w, jobs, load);
    began = cpu_us();
    if (sim_run(&s, &t, &r, &err) < 0) {
        (void)fprintf(stderr, "bench scheduler: %s\n", err.text);
        exit(1);
    }
    began = cpu_us() - began;
    sim_result_clear(&r);
    sim_trace_clear(&t);
    sim_setup_clear(&s);
    return (double)began / 1e6;
}

/* The layout of a model of eight billion parameters on 1,024 devices, all of it open. */
static double plan_ms(void)
{
    const struct plan_job job = {.model = {.family = PLAN_LLAMA,
                                           .layers = 32,
                                           .hidden = 4096,
                                           .heads = 32,
                                           .kv_heads = 8,
                                           .ffn = 14336,
                                           .context = 8192,
                                           .vocab = 128256},
                                 .sequences = 1024,
                                 .length = 4096,
                                 .virtual_workers = 64,
                                 .zero = 1,
                                 .bf16 = true};
    const struct plan_wish wish = {.any_schedule = true, .any_recompute = true};
    struct plan_site site = {
        .group = {{.device = {.flops = 4e14, .bytes_per_s = 2e12, .call_s = 1e-4, .memory_bytes = UINT64_C(80) << 30},
                   .n = 1024}},
        .groups = 1,
        .node_devices = 8,
        .inside = {1e-5, 3e11},
        .between = {2e-5, 2e11}};
    struct plan_result p;
    int64_t began = cpu_us();

    for (int i = 0; i < 5; i++)
        if (plan_search(&job, &wish, &site, &p, NULL) != 0)
            exit(1);
    return (double)(cpu_us() - began) / 5e3;
}

/* The most that this process has held so far: the cluster and its jobs, and what rounds over them take. */
static double memory_mib(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

int main(int argc, char **argv)
{
    static struct course small, mid, big;
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    int rounds = quick ? 3 : ROUNDS_MAX, missed = 0;
    double over_s;

    if (argc > 1 && strcmp(argv[1], "--learn") == 0)
        return learn(argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 2000) > 0;
    if (argc > 1 && strcmp(argv[1], "--policies") == 0)
        return policies(argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 1000);
    go_side_by_side(&small, 1000, &mid, 10000, rounds, quick ? 2 : TURNS_MAX);
    missed += report("memory_10k_mib", memory_mib(), "MiB", 64);
    missed += report("full_round_10k_p99_ms", p99_ms(mid.full, mid.n), "ms", 100);
    missed += report("fast_round_10k_p99_ms", p99_ms(mid.fast, mid.n), "ms", 5);
    missed += report("gap_10k", (double)mid.gap / 1e6, "share", 0.01);
    missed += report("growth_1k_10k", growth(&small, &mid, rounds), "times", 13);
    missed += report("full_round_backlog_8k_ms", backlog_ms(quick ? 3 : 20), "ms", 15);
    cold_starts(100, quick ? 2 : 40);
    cold_starts(300, quick ? 2 : 40);
    cold_starts(800, quick ? 2 : 40);
    missed += report("map_workers_us", map_us(), "us", 10);
    missed += report("plan_search_1024_ms", plan_ms(), "ms", 20);
    missed += report("trace_30d_s", trace_s(quick ? 200 : 10000, 0.9), "s", 60);
    over_s = trace_s(quick ? 200 : 10000, 1.5);
    (void)printf("{\"bench\":\"scheduler\",\"metric\":\"trace_30d_overload_s\",\"value\":%.6g,\"unit\":\"s\","
                 "\"reference\":\"1.5 times the work that the cluster does in 30 days\",\"ratio\":1}\n",
                 over_s);
    if (!quick) {
        course_start(&big, 100000);
        course_go_on(&big, 0);
        course_go_on(&big, 1);
        world_clear(&big.w, big.devices / 5);
        missed += report("full_round_100k_s", p99_ms(big.full, big.n) / 1e3, "s", 5);
    }
    return missed && !quick ? 1 : 0;
}
