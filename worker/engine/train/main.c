/* muster-train - one rank of a training job (--wait: once it is told which)
 *
 * It also samples text, prints pipeline schedules and plans of batches.
 */
#include <errno.h>
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
#include "base/options.h"
#include "scheduler/plan/schedule.h"
#include "worker/flight/flight.h"
#include "worker/engine/train/batch.h"
#include "worker/engine/train/gpu_check.h"
#include "worker/engine/train/image.h"
#include "worker/engine/train/measure.h"
#include "worker/engine/train/sample.h"
#include "worker/engine/train/train.h"

#define SCHEDULE_TEXT_MAX (256u << 20)
#define TOKENS_MAX 1000000
#define STEPS_MAX 100000

struct args {
    const char *run;
    int schedule; /* its place in schedules */
    int rank, pp, micros, chunks, steps;
    bool sample, print_schedule, print_batches, profile, gpu_check;
    struct sample_cfg text;
    struct measure_cfg measure;
};

#define AT(member) .at = OPTION_AT(struct args, member)

static const char *const schedules[] = {"1f1b", "interleaved", "zb-h1", "gpipe", "forward", NULL};

static const struct option_row rows[] = {
    {"run", 0, "FOLDER", "train: the run's folder", OPTION_TEXT, AT(run)},
    {"rank", 0, "N", "of the run", OPTION_INT, 0, INT_MAX, AT(rank)},
    {"sample", 0, NULL, "write text", OPTION_FLAG, AT(sample)},
    {"checkpoint", 0, "DIR[:STEP]", "with these weights", OPTION_TEXT, AT(text.checkpoint)},
    {"prompt", 0, "TEXT", "what it goes on from", OPTION_TEXT, .def = "", AT(text.prompt)},
    {"prompt-tokens", 0, "'N N ...'", "token numbers instead of text, and numbers written", OPTION_TEXT,
     AT(text.prompt_tokens)},
    {"tokens", 0, "N", "how many", OPTION_INT, 1, TOKENS_MAX, "256", AT(text.tokens)},
    {"temperature", 0, "T", "0: always the likeliest", OPTION_REAL, 0, 100, "0.8", AT(text.temperature)},
    {"top-k", 0, "K", "choose among the K likeliest; 0: among all", OPTION_INT, 0, INT_MAX, "40", AT(text.top_k)},
    {"top-p", 0, "P", "of these, among the likeliest that make up P of the probability", OPTION_REAL_OVER, 0, 1, "1",
     AT(text.top_p)},
    {"seed", 0, "S", "the same seed writes the same text", OPTION_WHOLE, .def = "1", AT(text.seed)},
    {"threads", 0, "N", "of this process", OPTION_INT, 1, 1024, "1", AT(text.threads)},
    {"print-schedule", 0, NULL, "print the lists of pipeline actions of all ranks", OPTION_FLAG, AT(print_schedule)},
    {"pp", 0, "P", "ranks", OPTION_INT, 1, SCHEDULE_RANKS_MAX, AT(pp)},
    {"micro-batches", 0, "M", "in a step", OPTION_INT, 1, SCHEDULE_MICROS_MAX, AT(micros)},
    {"chunks", 0, "V", "runs of layers a rank", OPTION_INT, 1, SCHEDULE_CHUNKS_MAX, "1", AT(chunks)},
    {"schedule", 0, "NAME", "1f1b, interleaved, zb-h1, gpipe or forward", OPTION_WORD, .words = schedules,
     .def = "1f1b", AT(schedule)},
    {"print-batches", 0, NULL, "print batches of a job on documents; its spec on standard input", OPTION_FLAG,
     AT(print_batches)},
    {"steps", 0, "N", "how many of them", OPTION_INT, 1, STEPS_MAX, AT(steps)},
    {"profile", 0, NULL, "measure this machine's devices; JSON", OPTION_FLAG, AT(profile)},
    {"gpu-check", 0, NULL, "say what there is for training on a GPU; exit status 77: something is missing", OPTION_FLAG,
     AT(gpu_check)},
    {"devices", 0, "N", "side by side", OPTION_INT, 1, 64, "1", AT(measure.devices)},
    {"quick", 0, NULL, "in some two seconds instead of thirty", OPTION_FLAG, AT(measure.quick)},
    {"keep", 0, "FILE", "write the profile there, too", OPTION_TEXT, AT(measure.keep)},
    {"help", 'h', NULL, "say this", .kind = OPTION_HELP},
    {"version", 0, NULL, "say which version this is", .kind = OPTION_VERSION},
    {0},
};

static const struct options options = {
    .name = "muster-train",
    .args = "",
    .about = "One of these, with the options that belong to it:\n"
             "  muster-train --run FOLDER --rank N\n"
             "  muster-train --sample --checkpoint DIR\n"
             "  muster-train --print-schedule --pp P --micro-batches M\n"
             "  muster-train --print-batches --steps N\n"
             "  muster-train --profile --devices N --threads N\n"
             "  muster-train --gpu-check",
    .rows = rows,
};

static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_1F1B, SCHEDULE_ZB_H1, SCHEDULE_GPIPE,
                                           SCHEDULE_FORWARD}; /* of schedules */

static int print_schedule(const struct args *a)
{
    const double part = 1.0 / (double)a->chunks;
    struct schedule_times times = {.f = part, .i = part, .w = part};
    enum schedule_kind kind = kinds[a->schedule];
    struct schedule *s;
    struct merr err;
    struct buf text;
    double span = 0;

    if (schedule_new(kind, a->pp, a->chunks, a->micros, &s, &err) != 0)
        return options_refuse(&options, "%s", err.text);
    if (schedule_simulate(s, &times, 1, &span, &err) != 0) {
        (void)fprintf(stderr, "muster-train: %s\n", err.text);
        schedule_free(s);
        return EXIT_INTERNAL;
    }
    buf_init(&text, SCHEDULE_TEXT_MAX);
    schedule_print(s, &text);
    (void)printf("%s", buf_text(&text));
    (void)printf("span %g (forward 1, backward 2 of a rank's layers), busy %d, slots", span,
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
    r = batch_print(spec, a->steps, stdout, &err);
    spec_free(spec);
    if (r != 0)
        (void)fprintf(stderr, "muster-train: %s\n", err.text);
    return r == 0 && fflush(stdout) == 0 ? EXIT_DONE : r == -ENOMEM || r == -EIO || r == 0 ? EXIT_NODE : EXIT_USER;
}

static int sample(const struct args *a)
{
    struct merr err;
    int r;

    if (!a->text.checkpoint)
        return options_refuse(&options, "--sample needs --checkpoint DIR");
    r = sample_text(&a->text, stdout, &err);
    if (r == 0)
        return EXIT_DONE;
    (void)fprintf(stderr, "muster-train: %s\n", err.text);
    return r == -ENOMEM || r == -EIO ? EXIT_NODE : EXIT_USER;
}

static int profile(struct args *a)
{
    struct merr err = {""};

    a->measure.threads = a->text.threads;
    if ((a->run && a->rank >= 0 ? measure_rank(&a->measure, a->rank, a->run, stdout, &err)
                                : measure_print(&a->measure, a->run, &err)) == 0)
        return EXIT_DONE;
    (void)fprintf(stderr, "muster-train: %s\n", err.text);
    return EXIT_NODE;
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
    struct args a = {.rank = -1};
    struct options_given given;
    int status;

    wait_passively(argv);
    if (argc == 2 && strcmp(argv[1], "--wait") == 0)
        image_wait(&argc, &argv);
    log_init("muster-train", LOG_LEVEL_INFO);
    if (options_main(&options, argc, argv, &a, &given, &status))
        return status;
    if (a.print_schedule && a.pp > 0 && a.micros > 0)
        return print_schedule(&a);
    if (a.print_batches && a.steps > 0)
        return print_batches(&a);
    if (a.sample)
        return sample(&a);
    if (a.profile)
        return profile(&a);
    if (a.gpu_check)
        return gpu_check(stdout);
    if (a.run && a.rank >= 0)
        return train_main(a.run, a.rank);
    options_print_help(&options, stderr);
    return OPTIONS_USAGE;
}
