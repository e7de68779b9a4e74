/* bench collectives - coded collectives beside raw ones over a link as slow as you like
 *
 * usage: collectives [--quick]. Two ranks, each in a network namespace of its own, joined by a veth pair that tc shapes
 * to 100 Mb/s, to 1 Gb/s and not at all; needs root. One JSON object a line (docs: README, benchmarks). Times
 * are medians of calls taken in turn, three at least and as many as two seconds hold: raw, coded, and as auto chose.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/io.h"
#include "worker/engine/comm/coded.h"
#include "worker/engine/comm/wire.h"

#define ROUNDS_MIN 3
#define ROUNDS_MAX 400
#define ENOUGH_MS 2000

extern char **environ;

static const struct link {
    const char *name, *rate; /* of tc; NULL: not shaped */
    const char *burst;
} links[] = {{"100mbit", "100mbit", "16kb"},
             {"1gbit", "1gbit", "64kb"},
             {"10gbit", "10gbit", "256kb"},
             {"unshaped", NULL, NULL}};

enum way { RAW, CODED, AUTO, WAYS };

struct bench {
    struct comm_group *g;
    size_t n;              /* values */
    float *x, *y, *master; /* [n], [n], [n] */
    uint16_t *h, *got;     /* [n] bf16, [n] */
    size_t cut[3];
    uint32_t flags;
    struct wire *tp[WAYS], *dp[WAYS];
    uint64_t step;
};

/* --- what is timed ------------------------------------------------------------------------------------------------ */

/* bf16 uncoded, in two shots as well: halves to their owners, sums back. */
static int raw_bf16(struct bench *b, struct merr *err)
{
    size_t half = b->n / 2;
    int me = comm_group_index(b->g);
    uint16_t *own = b->h + (size_t)me * half;
    const void *send[2] = {b->h, b->h + half};
    void *recv[2] = {b->got, b->got};
    size_t bytes[2] = {half * 2, half * 2};
    int r;

    bytes[me] = 0;
    r = comm_all_to_all_v(b->g, send, bytes, recv, bytes, err);
    for (size_t i = 0; i < half; i++)
        own[i] = bf16_from_float(bf16_to_float(own[i]) + bf16_to_float(b->got[i]));
    return r < 0 ? r : comm_all_gather(b->g, own, half * 2, b->h, err);
}

static int all_reduce_bf16(struct bench *b, enum way way, struct merr *err)
{
    struct coded how = {.type = CODEC_BF16};
    int r = codec_by_name("r8", &how.codec, err);

    if (way == RAW)
        return raw_bf16(b, err);
    return r < 0 ? r : coded_all_reduce(b->g, &how, b->h, b->n, &b->flags, err);
}

static int reduce_scatter(struct bench *b, enum way way, struct merr *err)
{
    if (way == RAW)
        return comm_reduce_scatter(b->g, b->x, b->x + b->cut[comm_group_index(b->g)], b->n / 2, COMM_F32, err);
    return wire_sum_shares(b->dp[CODED], 0, b->step++, b->x, b->cut, err);
}

static int tp(struct bench *b, enum way way, struct merr *err)
{
    return wire_all_reduce(b->tp[way], b->x, b->n, err);
}

/* Gradients to their owners and weights back. */
static int dp(struct bench *b, enum way way, struct merr *err)
{
    float *own = b->x + b->cut[comm_group_index(b->g)];
    int r;

    if (!wire_coded(b->dp[way])) {
        r = comm_reduce_scatter(b->g, b->x, own, b->n / 2, COMM_F32, err);
        return r < 0 ? r : comm_all_gather(b->g, b->master, b->n / 2 * sizeof(float), b->y, err);
    }
    r = wire_sum_shares(b->dp[way], 0, b->step, b->x, b->cut, err);
    return r < 0 ? r : wire_move_replicas(b->dp[way], 1, b->step++, b->master, b->y, b->cut, err);
}

static const struct op {
    const char *name, *automatic; /* rows; NULL: auto is not timed */
    int (*run)(struct bench *b, enum way way, struct merr *err);
} ops[] = {
    {"allreduce_r8", NULL, all_reduce_bf16},
    {"reduce_scatter_sdp4bit", NULL, reduce_scatter},
    {"tp_r8_f32", "auto_tp", tp},
    {"dp_sdp4bit", "auto_dp", dp},
};

/* --- timing ------------------------------------------------------------------------------------------------------- */

static void fill(struct bench *b)
{
    for (size_t i = 0; i < b->n; i++) {
        b->x[i] = (float)(int32_t)((uint32_t)i * 2654435761u) * 0x1p-31f;
        b->y[i] = b->x[i];
        b->master[i] = b->x[i] * 1.01f;
        b->h[i] = bf16_from_float(b->x[i]);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* How long the slower rank takes for a call: the same number on both. */
static int time_call(struct bench *b, const struct op *op, enum way way, double *ret_ms, struct merr *err)
{
    int64_t began;
    int r;

    fill(b);
    r = comm_barrier(b->g, err);
    began = clock_mono_us();
    if (r == 0)
        r = op->run(b, way, err);
    *ret_ms = (double)(clock_mono_us() - began) * 1e-3;
    return r < 0 ? r : comm_all_reduce(b->g, ret_ms, 1, COMM_F64, COMM_MAX, err);
}

/* Medians of calls taken in turn, each way first as often as last, after a round that warms up. Where calls are short
 * there are many: a median of a few differs from another of the same calls by more than auto may. */
static int time_op(struct bench *b, const struct op *op, bool quick, double ms[WAYS], struct merr *err)
{
    static double took[WAYS][ROUNDS_MAX];
    const size_t ways = op->automatic ? WAYS : AUTO, least = quick ? 1 : ROUNDS_MIN;
    double spent = 0;
    size_t n = 0;
    int r = 0;

    for (size_t w = 0; w < ways && r == 0; w++)
        r = time_call(b, op, (enum way)w, &ms[w], err);
    for (; r == 0 && (n < least || (!quick && spent < ENOUGH_MS && n < ROUNDS_MAX)); n++)
        for (size_t i = 0, w = n % ways; i < ways && r == 0; i++, w = (w + 1) % ways) {
            r = time_call(b, op, (enum way)w, &took[w][n], err);
            spent += took[w][n];
        }
    for (size_t w = 0; w < ways && r == 0; w++) {
        qsort(took[w], n, sizeof(took[w][0]), by_value);
        ms[w] = took[w][n / 2];
    }
    return r;
}

/* The way auto goes may be the better one though its own calls took longer than those of the same way: the choice has a
 * row without that noise. */
static void print(const struct op *op, const struct link *l, const double ms[WAYS], enum way chosen)
{
    double better = ms[RAW] < ms[CODED] ? ms[RAW] : ms[CODED];

    (void)printf("{\"bench\": \"collectives\", \"metric\": \"%s_%s\", \"value\": %.2f, \"unit\": \"ms\", "
                 "\"reference\": \"raw %.2f ms\", \"ratio\": %.3f}\n",
                 op->name, l->name, ms[CODED], ms[RAW], ms[RAW] / ms[CODED]);
    if (op->automatic)
        (void)printf("{\"bench\": \"collectives\", \"metric\": \"%s_%s\", \"value\": %.2f, \"unit\": \"ms\", "
                     "\"reference\": \"better of raw and coded %.2f ms\", \"ratio\": %.3f}\n",
                     op->automatic, l->name, ms[AUTO], better, better / ms[AUTO]);
    if (op->automatic)
        (void)printf("{\"bench\": \"collectives\", \"metric\": \"%s_choice_%s\", \"value\": %.2f, \"unit\": \"ms\", "
                     "\"reference\": \"better of raw and coded %.2f ms\", \"ratio\": %.3f}\n",
                     op->automatic, l->name, ms[chosen], better, better / ms[chosen]);
    (void)fflush(stdout);
}

static int open_wires(struct bench *b, struct merr *err)
{
    static const char *const tp_word[WAYS] = {"none", "r8", "auto"}, *const dp_word[WAYS] = {"none", "sdp4bit", "auto"};
    int r = 0;

    for (enum way w = RAW; w < WAYS && r == 0; w++) {
        r = wire_new(&(struct wire_cfg){.group = b->g, .codec = tp_word[w]}, &b->tp[w], err);
        if (r == 0)
            r = wire_new(&(struct wire_cfg){.group = b->g, .codec = dp_word[w]}, &b->dp[w], err);
    }
    memset(b->x, 0, b->n * sizeof(*b->x));
    if (r == 0)
        r = wire_tune(b->tp[AUTO], WIRE_SUMS, b->x, b->n, err);
    memset(b->x, 0, b->n * sizeof(*b->x));
    return r < 0 ? r : wire_tune(b->dp[AUTO], WIRE_SHARES, b->x, b->n, err);
}

static int run_ops(struct comm_world *w, const struct link *l, bool quick, struct merr *err)
{
    const int both[2] = {0, 1};
    struct bench b = {.n = quick ? 65536 : 2u << 20};
    int r = comm_group_new(w, "bench", both, 2, &b.g, err);

    b.cut[1] = b.n / 2;
    b.cut[2] = b.n;
    b.x = malloc(b.n * sizeof(*b.x));
    b.y = malloc(b.n * sizeof(*b.y));
    b.master = malloc(b.n * sizeof(*b.master));
    b.h = malloc(b.n * sizeof(*b.h));
    b.got = malloc(b.n * sizeof(*b.got));
    if (r == 0 && (!b.x || !b.y || !b.master || !b.h || !b.got))
        r = merr_set(err, -ENOMEM, "no memory for %zu values", b.n);
    if (r == 0)
        r = open_wires(&b, err);
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && r == 0; i++) {
        double ms[WAYS];

        r = time_op(&b, &ops[i], quick, ms, err);
        if (r == 0 && comm_rank(w) == 0)
            print(&ops[i], l, ms, wire_coded(ops[i].run == tp ? b.tp[AUTO] : b.dp[AUTO]) ? CODED : RAW);
    }
    for (enum way k = RAW; k < WAYS; k++) {
        wire_free(b.tp[k]);
        wire_free(b.dp[k]);
    }
    free(b.x);
    free(b.y);
    free(b.master);
    free(b.h);
    free(b.got);
    return r;
}

/* --- the link ----------------------------------------------------------------------------------------------------- */

/* Run a program to its end. */
static int tool(const char *const *argv, struct merr *err)
{
    pid_t pid;
    int status = 1, r = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ);

    if (r != 0)
        return merr_errno(err, -r, "cannot start '%s'", argv[0]);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return merr_set(err, -EIO, "'%s %s %s' failed (status %d)", argv[0], argv[1], argv[2], status);
    return 0;
}

/* Until the other end is up too: UCX takes no device without a carrier. */
static int wait_up(const char *dev, struct merr *err)
{
    int64_t deadline = clock_mono_us() + 5000000;
    char path[64], state[16] = "";

    (void)snprintf(path, sizeof(path), "/sys/class/net/%s/operstate", dev);
    do {
        FILE *f = fopen(path, "re");

        if (f && fgets(state, sizeof(state), f) && strcmp(state, "up\n") == 0) {
            (void)fclose(f);
            return 0;
        }
        if (f)
            (void)fclose(f);
        (void)poll(NULL, 0, 5);
    } while (clock_mono_us() < deadline);
    return merr_set(err, -ETIMEDOUT, "the link of '%s' does not come up: '%s' says '%s'", dev, path, state);
}

/* This rank's end, in its namespace. */
static int set_up_end(int rank, const struct link *l, struct merr *err)
{
    const char *dev = rank ? "muster1" : "muster0", *at = rank ? "10.99.7.2/24" : "10.99.7.1/24";
    const char *const lo[] = {"ip", "link", "set", "lo", "up", NULL};
    const char *const addr[] = {"ip", "addr", "add", at, "dev", dev, NULL};
    const char *const up[] = {"ip", "link", "set", dev, "up", NULL};
    const char *const shape[] = {"tc",   "qdisc", "add",   "dev",    dev,       "root", "tbf",
                                 "rate", l->rate, "burst", l->burst, "latency", "50ms", NULL};
    int r = tool(lo, err);

    if (r == 0)
        r = tool(addr, err);
    if (r == 0)
        r = tool(up, err);
    if (r == 0 && l->rate)
        r = tool(shape, err);
    (void)setenv("UCX_TLS", "tcp", 1);
    (void)setenv("UCX_NET_DEVICES", dev, 1);
    return r < 0 ? r : wait_up(dev, err);
}

static int rank_run(int rank, const struct link *l, const char *folder, bool quick, struct merr *err)
{
    const int node[2] = {0, 1};
    struct comm_cfg cfg = {
        .rank = rank, .size = 2, .generation = 1, .rendezvous = folder, .node_of = node, .timeout_us = 60000000};
    struct comm_world *w = NULL;
    int r = set_up_end(rank, l, err);

    if (r == 0)
        r = flight_private(&cfg.flight, err);
    if (r == 0)
        r = comm_world_open(&cfg, &w, err);
    if (r == 0)
        r = run_ops(w, l, quick, err);
    comm_world_close(w);
    flight_close(cfg.flight);
    return r;
}

/* A rank's process: into a namespace of its own, say so, go on when the wire is there. */
static void rank_main(int rank, const struct link *l, const char *folder, bool quick, int say, int hear)
{
    struct merr err = {""};
    char byte = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* UCX finds devices in /sys, which shows those of the namespace it was mounted in */
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("sysfs", "/sys", "sysfs", 0, NULL) != 0) {
        (void)fprintf(stderr, "bench collectives: cannot make a network namespace: %s; run it as root\n",
                      strerror(errno));
        exit(1);
    }
    if (write(say, &byte, 1) != 1 || read(hear, &byte, 1) != 1)
        exit(1);
    if (rank_run(rank, l, folder, quick, &err) == 0)
        exit(0);
    (void)fprintf(stderr, "bench collectives: rank %d, %s: %s\n", rank, l->name, err.text);
    exit(1);
}

static int join(const pid_t pid[2], struct merr *err)
{
    char ns[2][16];
    const char *const veth[] = {"ip",   "link", "add",  "muster0", "netns", ns[0], "type",
                                "veth", "peer", "name", "muster1", "netns", ns[1], NULL};

    for (int i = 0; i < 2; i++)
        (void)snprintf(ns[i], sizeof(ns[i]), "%d", (int)pid[i]);
    return tool(veth, err);
}

static int run_link(const struct link *l, bool quick)
{
    char folder[] = "/tmp/muster-bench-collectives.XXXXXX", bytes[2] = {0};
    int said[2], heard[2], bad = 0;
    struct merr err = {""};
    pid_t pid[2];

    if (!mkdtemp(folder) || pipe(said) != 0 || pipe(heard) != 0) {
        perror("bench collectives");
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            rank_main(i, l, folder, quick, said[1], heard[0]);
    }
    (void)close(said[1]);
    if (read(said[0], bytes, 1) != 1 || read(said[0], bytes, 1) != 1)
        bad = 1;
    else if (join(pid, &err) < 0)
        bad = fprintf(stderr, "bench collectives: %s\n", err.text) > 0;
    if (!bad && write(heard[1], bytes, 2) != 2)
        bad = 1;
    (void)close(heard[1]);
    (void)close(heard[0]);
    (void)close(said[0]);
    for (int i = 0; i < 2; i++) {
        int status = 1;

        bad |= pid[i] < 0 || waitpid(pid[i], &status, 0) < 0 || status != 0;
    }
    (void)io_remove_tree(folder, NULL);
    return bad;
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    int bad = 0;

    if (argc > 1 && !quick) {
        (void)fprintf(stderr, "usage: collectives [--quick]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        bad |= run_link(&links[i], quick);
    return bad;
}
