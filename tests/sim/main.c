/* The simulator of the whole cluster: `make sim`, and what tests/sim/ and docs/simulator.md say of it. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/sim/cluster.h"
#include "tests/sim/shrink.h"
#include "tests/sim/world.h"

struct options {
    struct cluster_wish wish;
    const char *faults, *fault_file;
    size_t n_faults;
    double for_s;       /* wall time: seed after seed */
    int seeds, servers; /* the latter 0: by the seed */
    bool trace, shrink;
};

static void usage(FILE *to)
{
    fputs("usage: sim [OPTION…]\n"
          "Run a cluster of simulated nodes under faults and say whether all held.\n\n"
          "  --seed N       the first seed (1)\n"
          "  --seeds N      so many, one after another (1)\n"
          "  --for SECONDS  seed after seed for so long, in real time\n"
          "  --agents N     nodes (8)\n"
          "  --slots N      devices of each (4)\n"
          "  --jobs N       that are submitted (60)\n"
          "  --servers N    1 or 2 (by the seed)\n"
          "  --spares N     devices of the first class that are kept for runs that lose one (0)\n"
          "  --hostile N    agents and users who lie and storm (4)\n"
          "  --over SECONDS in which they are submitted and faults happen, simulated (300)\n"
          "  --steps N      end after so many events, all well or not\n"
          "  --faults LIST  kinds of faults with commas, all (default) or none\n"
          "  --n-faults N   how many (40)\n"
          "  --fault-file F faults as a failed run printed them\n"
          "  --trace        print all that happens\n"
          "  --shrink       when a seed fails, look for the fewest faults with which it does\n",
          to);
}

static int parse(int argc, char **argv, struct options *o)
{
    enum {
        SEED = 1,
        SEEDS,
        FOR,
        AGENTS,
        SLOTS,
        JOBS,
        OVER,
        STEPS,
        FAULTS,
        N_FAULTS,
        FILE_,
        TRACE,
        SHRINK,
        HOSTILE,
        SERVERS,
        SPARES,
        HELP
    };
    static const struct option known[] = {
        {"seed", 1, NULL, SEED},         {"seeds", 1, NULL, SEEDS},      {"for", 1, NULL, FOR},
        {"agents", 1, NULL, AGENTS},     {"slots", 1, NULL, SLOTS},      {"jobs", 1, NULL, JOBS},
        {"over", 1, NULL, OVER},         {"steps", 1, NULL, STEPS},      {"faults", 1, NULL, FAULTS},
        {"n-faults", 1, NULL, N_FAULTS}, {"fault-file", 1, NULL, FILE_}, {"trace", 0, NULL, TRACE},
        {"shrink", 0, NULL, SHRINK},     {"hostile", 1, NULL, HOSTILE},  {"servers", 1, NULL, SERVERS},
        {"spares", 1, NULL, SPARES},     {"help", 0, NULL, HELP},        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) > 0) {
        double v = optarg ? strtod(optarg, NULL) : 0;

        switch (c) {
        case SEED:
            o->wish.seed = strtoull(optarg, NULL, 10);
            break;
        case SEEDS:
            o->seeds = (int)v;
            break;
        case FOR:
            o->for_s = v;
            break;
        case AGENTS:
            o->wish.agents = (int)v;
            break;
        case SLOTS:
            o->wish.slots = (int)v;
            break;
        case JOBS:
            o->wish.jobs = (int)v;
            break;
        case OVER:
            o->wish.over_us = (int64_t)(v * SECOND);
            break;
        case STEPS:
            o->wish.steps_max = strtoull(optarg, NULL, 10);
            break;
        case FAULTS:
            o->faults = optarg;
            break;
        case N_FAULTS:
            o->n_faults = (size_t)v;
            break;
        case FILE_:
            o->fault_file = optarg;
            break;
        case TRACE:
            o->trace = true;
            break;
        case HOSTILE:
            o->wish.hostile = (int)v;
            break;
        case SERVERS:
            o->servers = (int)v;
            break;
        case SPARES:
            o->wish.spares = (int)v;
            break;
        case SHRINK:
            o->shrink = true;
            break;
        case HELP:
            usage(stdout);
            exit(0);
        default:
            return -1;
        }
    }
    if (optind != argc || o->wish.agents < 1 || o->wish.slots < 1 || o->wish.slots > 64 || o->wish.jobs < 0 ||
        o->servers < 0 || o->servers > 2 || o->wish.over_us < 2 * SECOND)
        return -1;
    return 0;
}

static void print_found(const struct cluster_wish *wish, const struct cluster_found *f, double took_s)
{
    printf(
        "seed %" PRIu64 ": %s, hash %016" PRIx64 ", %" PRIu64 " events and %" PRIu64
        " turns of %d servers in %.0f s of the cluster and %.1f s of this machine (%.0f events/s); %d jobs: %d "
        "succeeded, %d failed, %d cancelled, %d replayed; %d calls of users, %d again; %d hostile calls, %d refused\n",
        wish->seed,
        f->broken[0]   ? "BROKEN"
        : f->cut_short ? "cut short"
                       : "all held",
        f->hash, f->events, f->turns, f->server_lives, (double)f->time_us / 1e6, took_s, (double)f->events / took_s,
        f->users.acknowledged, f->users.succeeded, f->users.failed, f->users.cancelled, f->users.replayed,
        f->users.calls, f->users.retries, f->hostile.calls, f->hostile.refused);
    if (f->broken[0])
        printf("  %s\n", f->broken);
    (void)fflush(stdout);
}

static void explain(const struct options *o, const struct cluster_wish *wish, struct faults_list *faults)
{
    struct cluster_wish quiet = *wish;

    quiet.trace = NULL;
    if (o->shrink) {
        size_t n = faults->n;

        shrink(&quiet, faults, 200);
        printf("  %zu of its %zu faults are enough:\n", faults->n, n);
        (void)fflush(stdout);
        faults_print(faults, STDOUT_FILENO);
    }
    printf("  again: sim --seed %" PRIu64
           " --agents %d --slots %d --jobs %d --servers %d --spares %d --hostile %d --over %.0f --faults %s "
           "--n-faults %zu --trace\n",
           o->wish.seed, o->wish.agents, o->wish.slots, o->wish.jobs, wish->servers, wish->spares, o->wish.hostile,
           (double)o->wish.over_us / 1e6, o->faults, o->n_faults);
}

/* One seed. False: something did not hold. */
static bool run_seed(const struct options *o)
{
    struct faults_list faults;
    struct cluster_found found;
    const char *bad;
    uint32_t mask;
    size_t line;
    struct cluster_wish wish = o->wish;
    int64_t began_us = clock_mono_us();
    bool held;

    wish.arrays = !o->fault_file && o->wish.seed % 3 == 0; /* what failed once is drawn as it was */
    wish.servers = o->servers ? o->servers : 1 + (int)(o->wish.seed % 2);
    if (o->fault_file) {
        if (faults_read(o->fault_file, &faults, &line) < 0) {
            fprintf(stderr, "sim: '%s' cannot be read as faults, at line %zu\n", o->fault_file, line);
            exit(2);
        }
    } else if (faults_mask(o->faults, &mask, &bad) < 0) {
        fprintf(stderr, "sim: '%s' is no kind of fault; there are:", bad);
        for (int k = 0; k < FAULT_KINDS; k++)
            fprintf(stderr, " %s", fault_name((enum fault_kind)k));
        fputs("\n", stderr);
        exit(2);
    } else {
        faults_draw(o->wish.seed, mask, o->n_faults, o->wish.over_us, o->wish.agents, &faults);
    }
    cluster_run(&wish, &faults, &found);
    print_found(&wish, &found, (double)(clock_mono_us() - began_us) / 1e6);
    held = !found.broken[0];
    if (!held)
        explain(o, &wish, &faults);
    faults_list_clear(&faults);
    return held;
}

int main(int argc, char **argv)
{
    struct options o = {.wish = {.seed = 1, .agents = 8, .slots = 4, .jobs = 60, .hostile = 4, .over_us = 300 * SECOND},
                        .faults = "all",
                        .n_faults = 40,
                        .seeds = 1};
    int64_t began_us = clock_mono_us();
    int broken = 0, ran = 0;

    if (parse(argc, argv, &o) < 0) {
        usage(stderr);
        return 2;
    }
    o.wish.trace = o.trace ? stdout : NULL;
    log_init("sim", (enum log_level)(LOG_LEVEL_ERROR + 1)); /* what is logged is of simulated faults */
    do {
        broken += !run_seed(&o);
        ran++;
        o.wish.seed++;
    } while (o.for_s > 0 ? (double)(clock_mono_us() - began_us) / 1e6 < o.for_s : ran < o.seeds);
    printf("%d passed, %d failed\n", ran - broken, broken);
    return broken > 0;
}
