/* muster-train - one rank of a training job; also samples text, prints pipeline schedules and plans of batches */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/version.h"
#include "scheduler/plan/schedule.h"
#include "worker/flight/flight.h"
#include "worker/engine/train/batch.h"
#include "worker/engine/train/sample.h"
#include "worker/engine/train/train.h"

#define SCHEDULE_TEXT_MAX (256u << 20)
#define TOKENS_MAX 1000000
#define STEPS_MAX 100000

static const char usage[] =
    "usage: muster-train --run FOLDER --rank N\n"
    "       muster-train --sample --checkpoint DIR[:STEP] [--prompt TEXT | --prompt-tokens 'N N ...']\n"
    "                    [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed S] [--threads N]\n"
    "       muster-train --print-schedule --pp P --micro-batches M [--chunks V]\n"
    "                    [--schedule 1f1b|interleaved|zb-h1|gpipe|forward]\n"
    "       muster-train --print-batches --steps N    of a job on documents; its spec on standard input\n"
    "       muster-train --help | --version\n";

enum { USAGE = 2 }; /* exit status for a wrong command line */

struct args {
    const char *run, *schedule;
    long rank, pp, micros, chunks, steps;
    bool sample, print_schedule, print_batches, help, version;
    struct sample_cfg text;
};

enum {
    RUN = 256,
    RANK,
    SAMPLE,
    CHECKPOINT,
    PROMPT,
    TOKENS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    PROMPT_TOKENS,
    SEED,
    THREADS,
    PRINT,
    PP,
    MICROS,
    CHUNKS,
    SCHEDULE,
    BATCHES,
    STEPS,
    HELP,
    VERSION
};

static const struct option options[] = {
    {"run", required_argument, NULL, RUN},
    {"rank", required_argument, NULL, RANK},
    {"sample", no_argument, NULL, SAMPLE},
    {"checkpoint", required_argument, NULL, CHECKPOINT},
    {"prompt", required_argument, NULL, PROMPT},
    {"tokens", required_argument, NULL, TOKENS},
    {"temperature", required_argument, NULL, TEMPERATURE},
    {"top-k", required_argument, NULL, TOP_K},
    {"top-p", required_argument, NULL, TOP_P},
    {"prompt-tokens", required_argument, NULL, PROMPT_TOKENS},
    {"seed", required_argument, NULL, SEED},
    {"threads", required_argument, NULL, THREADS},
    {"print-schedule", no_argument, NULL, PRINT},
    {"pp", required_argument, NULL, PP},
    {"micro-batches", required_argument, NULL, MICROS},
    {"chunks", required_argument, NULL, CHUNKS},
    {"schedule", required_argument, NULL, SCHEDULE},
    {"print-batches", no_argument, NULL, BATCHES},
    {"steps", required_argument, NULL, STEPS},
    {"help", no_argument, NULL, HELP},
    {"version", no_argument, NULL, VERSION},
    {NULL, 0, NULL, 0},
};

static bool whole_number(const char *name, long least, long most, long *ret)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(optarg, &end, 10);
    if (errno || end == optarg || *end || n < least || n > most) {
        (void)fprintf(stderr, "muster-train: --%s '%s': want a number from %ld to %ld\n", name, optarg, least, most);
        return false;
    }
    *ret = n;
    return true;
}

static bool number_into(const char *name, long least, long most, int *ret)
{
    long n;

    if (!whole_number(name, least, most, &n))
        return false;
    *ret = (int)n;
    return true;
}

/* above: least itself is too little. */
static bool number(const char *name, double least, bool above, double most, double *ret)
{
    char *end;
    double n = strtod(optarg, &end);

    if (end == optarg || *end || !isfinite(n) || n < least || (above && n <= least) || n > most) {
        (void)fprintf(stderr, "muster-train: --%s '%s': want a number from %g%s to %g\n", name, optarg, least,
                      above ? " (not itself)" : "", most);
        return false;
    }
    *ret = n;
    return true;
}

static bool seed(uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(optarg, &end, 10);
    if (errno || end == optarg || *end || *optarg == '-') {
        (void)fprintf(stderr, "muster-train: --seed '%s': want a number\n", optarg);
        return false;
    }
    return true;
}

static bool take(int c, struct args *a)
{
    switch (c) {
    case RUN:
        a->run = optarg;
        return true;
    case RANK:
        return whole_number("rank", 0, INT_MAX, &a->rank);
    case SAMPLE:
        a->sample = true;
        return true;
    case CHECKPOINT:
        a->text.checkpoint = optarg;
        return true;
    case PROMPT:
        a->text.prompt = optarg;
        return true;
    case TOKENS:
        return number_into("tokens", 1, TOKENS_MAX, &a->text.tokens);
    case PROMPT_TOKENS:
        a->text.prompt_tokens = optarg;
        return true;
    case TEMPERATURE:
        return number("temperature", 0, false, 100, &a->text.temperature);
    case TOP_P:
        return number("top-p", 0, true, 1, &a->text.top_p);
    case TOP_K:
        return number_into("top-k", 0, INT_MAX, &a->text.top_k);
    case SEED:
        return seed(&a->text.seed);
    case THREADS:
        return number_into("threads", 1, 1024, &a->text.threads);
    case PRINT:
        a->print_schedule = true;
        return true;
    case PP:
        return whole_number("pp", 1, SCHEDULE_RANKS_MAX, &a->pp);
    case MICROS:
        return whole_number("micro-batches", 1, SCHEDULE_MICROS_MAX, &a->micros);
    case CHUNKS:
        return whole_number("chunks", 1, SCHEDULE_CHUNKS_MAX, &a->chunks);
    case SCHEDULE:
        a->schedule = optarg;
        return true;
    case BATCHES:
        a->print_batches = true;
        return true;
    case STEPS:
        return whole_number("steps", 1, STEPS_MAX, &a->steps);
    case HELP:
        a->help = true;
        return true;
    case VERSION:
        a->version = true;
        return true;
    default:
        return false; /* getopt has said what is wrong */
    }
}

static bool schedule_kind(const char *word, enum schedule_kind *ret)
{
    static const struct {
        const char *word;
        enum schedule_kind kind;
    } kinds[] = {{"1f1b", SCHEDULE_1F1B},
                 {"interleaved", SCHEDULE_1F1B},
                 {"zb-h1", SCHEDULE_ZB_H1},
                 {"gpipe", SCHEDULE_GPIPE},
                 {"forward", SCHEDULE_FORWARD}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(word, kinds[i].word) == 0) {
            *ret = kinds[i].kind;
            return true;
        }
    (void)fprintf(stderr, "muster-train: --schedule '%s': want 1f1b, interleaved, zb-h1, gpipe or forward\n", word);
    return false;
}

static int print_schedule(const struct args *a)
{
    const double part = 1.0 / (double)a->chunks;
    struct schedule_times times = {.f = part, .i = part, .w = part};
    enum schedule_kind kind;
    struct schedule *s;
    struct merr err;
    struct buf text;
    double span = 0;

    if (!schedule_kind(a->schedule, &kind))
        return USAGE;
    if (schedule_new(kind, (int)a->pp, (int)a->chunks, (int)a->micros, &s, &err) != 0) {
        (void)fprintf(stderr, "muster-train: %s\n", err.text);
        return USAGE;
    }
    if (schedule_simulate(s, &times, 1, &span, &err) != 0) {
        (void)fprintf(stderr, "muster-train: %s\n", err.text);
        schedule_free(s);
        return EXIT_INTERNAL;
    }
    buf_init(&text, SCHEDULE_TEXT_MAX);
    schedule_print(s, &text);
    (void)printf("%s", buf_text(&text));
    (void)printf("span %g (forward 1, backward 2 of a rank's layers), busy %ld, slots", span,
                 (kind == SCHEDULE_FORWARD ? 1 : 3) * a->micros);
    for (int r = 0; r < s->ranks; r++)
        for (int c = 0; c < s->chunks; c++)
            (void)printf("%c%d", c ? '+' : ' ', schedule_slots(s, r, c));
    (void)printf("\n");
    buf_clear(&text);
    schedule_free(s);
    return ferror(stdout) || fflush(stdout) != 0 ? EXIT_NODE : EXIT_DONE;
}

static int print_batches(const struct args *a)
{
    char *text = malloc(SPEC_TEXT_MAX);
    ssize_t n = text ? io_read_full(STDIN_FILENO, text, SPEC_TEXT_MAX) : -ENOMEM;
    struct job_spec *spec = NULL;
    struct faults f = {.n = 0};
    struct merr err = {""};
    int r = n < 0 ? (int)n : spec_from_text(text, (size_t)n, &spec, &f);

    free(text);
    for (size_t i = 0; i < f.n; i++)
        (void)fprintf(stderr, "muster-train: %s: %s\n", f.v[i].pointer, f.v[i].message);
    faults_clear(&f);
    if (r != 0)
        return r == -EINVAL ? EXIT_USER : EXIT_NODE;
    r = batch_print(spec, (int)a->steps, stdout, &err);
    spec_free(spec);
    if (r != 0)
        (void)fprintf(stderr, "muster-train: %s\n", err.text);
    return r == 0 && fflush(stdout) == 0 ? EXIT_DONE : r == -ENOMEM || r == -EIO || r == 0 ? EXIT_NODE : EXIT_USER;
}

static int sample(const struct args *a)
{
    struct merr err;
    int r;

    if (!a->text.checkpoint) {
        (void)fprintf(stderr, "muster-train: --sample needs --checkpoint DIR\n");
        return USAGE;
    }
    r = sample_text(&a->text, stdout, &err);
    if (r == 0)
        return EXIT_DONE;
    (void)fprintf(stderr, "muster-train: %s\n", err.text);
    return r == -ENOMEM || r == -EIO ? EXIT_NODE : EXIT_USER;
}

/* The OpenMP runtime reads this when it is loaded: threads that wait must sleep, a neighbour rank needs the core. */
static void wait_passively(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 0) != 0)
        return;
    (void)execv("/proc/self/exe", argv); /* the same process; if it cannot be, it goes on as it is */
}

int main(int argc, char **argv)
{
    struct args a = {
        .rank = -1,
        .schedule = "1f1b",
        .chunks = 1,
        .text = {.prompt = "", .tokens = 256, .temperature = 0.8, .top_k = 40, .top_p = 1, .seed = 1, .threads = 1}};
    int c;

    wait_passively(argv);
    log_init("muster-train", LOG_LEVEL_INFO);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (!take(c, &a))
            return USAGE;
    if (a.help) {
        (void)fputs(usage, stdout);
        return EXIT_DONE;
    }
    if (a.version) {
        (void)puts("muster-train " MUSTER_VERSION);
        return EXIT_DONE;
    }
    if (optind == argc && a.print_schedule && a.pp > 0 && a.micros > 0)
        return print_schedule(&a);
    if (optind == argc && a.print_batches && a.steps > 0)
        return print_batches(&a);
    if (optind == argc && a.sample)
        return sample(&a);
    if (optind == argc && a.run && a.rank >= 0)
        return train_main(a.run, (int)a.rank);
    (void)fputs(usage, stderr);
    return USAGE;
}
