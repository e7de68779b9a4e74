#include "worker/agent/solo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/profile.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/options.h"
#include "base/try.h"
#include "worker/agent/ranks.h"
#include "worker/agent/solo_plan.h"
#include "worker/agent/shim.h"
#include "worker/flight/flight.h"

#define SHOW_US 2000000    /* between two lines of progress */
#define FOLLOW_US 100000   /* between two looks at what a command writes */
#define SETTLE_US 60000000 /* for what is left of an earlier run to end */
#define DEVICES_MOST 256

struct follow { /* a file of the run that is read as it grows */
    char path[PATH_MAX];
    off_t at;
};

struct attempt {
    struct machine *machine;
    struct ranks *ranks;
    const struct job_spec *spec;
    const struct plan_profile *profile; /* of the devices; NULL: none */
    char dir[PATH_MAX];
    uint64_t generation;
    int devices, threads, signal_fd;
    int stops; /* SIGINT and SIGTERM so far */
    struct follow shown;
    int64_t show_us;
};

/* --- showing how it goes ------------------------------------------------------------------------ */

/* Copy what a command's rank 0 has written since the last look. */
static void show_log(struct follow *f)
{
    IO_CLOSE_AUTO int fd = io_open_plain(f->path, O_RDONLY);
    char text[16384];
    ssize_t n;

    while (fd >= 0 && (n = pread(fd, text, sizeof(text), f->at)) > 0) {
        if (io_write_all(STDOUT_FILENO, text, (size_t)n) < 0)
            break;
        f->at += n;
    }
}

/* One line from the newest whole line of metrics.jsonl. */
static void show_metrics(struct follow *f, const struct job_spec *spec)
{
    IO_CLOSE_AUTO int fd = io_open_plain(f->path, O_RDONLY);
    json_auto_t *o = NULL;
    char text[4097], *end, *begin;
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END), from = size > 4096 ? size - 4096 : 0;
    ssize_t n;

    if (size <= f->at)
        return;
    n = pread(fd, text, sizeof(text) - 1, from);
    f->at = size;
    text[n > 0 ? n : 0] = '\0';
    end = strrchr(text, '\n');
    if (!end)
        return;
    *end = '\0';
    begin = strrchr(text, '\n');
    o = json_loads(begin ? begin + 1 : text, 0, NULL);
    if (!o)
        return;
    fprintf(stderr, "step %" JSON_INTEGER_FORMAT "/%d  loss %.4f  %.0f tokens/s\n",
            json_integer_value(json_object_get(o, "step")) + 1, spec->train.steps, /* metrics count from 0 */
            json_number_value(json_object_get(o, "loss")), json_number_value(json_object_get(o, "tokens_per_s")));
}

static void show(struct attempt *a, bool last)
{
    int64_t now_us = clock_mono_us();

    if (now_us < a->show_us && !last)
        return;
    if (a->spec->kind == JOB_COMMAND)
        show_log(&a->shown);
    else
        show_metrics(&a->shown, a->spec);
    a->show_us = now_us + (a->spec->kind == JOB_COMMAND ? FOLLOW_US : SHOW_US);
}

/* --- one generation ----------------------------------------------------------------------------- */

static void take_stop(struct attempt *a)
{
    struct signalfd_siginfo info;

    while (read(a->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        a->stops++;
        fprintf(stderr, "muster run: %s\n", a->stops == 1 ? "stopping; once more to kill" : "killing");
    }
    if (a->stops)
        (void)ranks_order(a->ranks, RUN_JOB, a->generation, ASSIGNMENT_STOP, a->stops > 1 ? 0 : -1);
}

static void wait_for_end(struct attempt *a, const struct run *run)
{
    while (!ranks_run_ended(run)) {
        struct pollfd fds[2] = {{.fd = machine_fd(a->machine), .events = POLLIN},
                                {.fd = a->signal_fd, .events = POLLIN}};
        int64_t deadline_us = ranks_deadline(a->ranks);

        if (a->show_us < deadline_us)
            deadline_us = a->show_us;
        (void)poll(fds, 2, clock_poll_ms(deadline_us));
        take_stop(a);
        (void)ranks_tick(a->ranks, clock_mono_us());
        show(a, false);
    }
    show(a, true);
}

/* D/logs leads to the folder of the newest generation. */
static void link_logs(const struct attempt *a)
{
    char target[64], temp[PATH_MAX + 32], path[PATH_MAX + 32];

    (void)snprintf(target, sizeof(target), RUN_JOB "-g%" PRIu64, a->generation);
    (void)snprintf(temp, sizeof(temp), "%s/.logs", a->dir);
    (void)snprintf(path, sizeof(path), "%s/logs", a->dir);
    (void)unlink(temp);
    if (symlink(target, temp) == 0 && rename(temp, path) < 0)
        (void)unlink(temp); /* something else is called logs: leave it */
}

static void tell_failure(const struct run *run, const struct rank *rank)
{
    const char *text;
    char how[EXIT_WHY_MAX];
    json_t *line;
    size_t i;

    exit_describe(&rank->exit, run->spec->kind, how, sizeof(how));
    fprintf(stderr, "muster run: rank %d of attempt %" PRIu64 ": %s; its last lines:\n", rank->rank, run->generation,
            how);
    json_array_foreach (rank->log_tail, i, line) {
        text = json_string_value(line);
        fprintf(stderr, "  | %s\n", text ? text : "");
    }
    fprintf(stderr, "  (%s/rank-%05d.log)\n", run->folder, rank->rank);
}

/* EXIT_CAUSE_DONE when every rank did its work, else whose fault it was. */
static enum exit_cause judge(const struct attempt *a, const struct run *run)
{
    const struct rank *bad = NULL;

    for (int i = 0; i < run->n && !bad; i++)
        if (!exit_done(&run->ranks[i].exit))
            bad = &run->ranks[i];
    if (!bad)
        return EXIT_CAUSE_DONE;
    if (run->first_bad >= 0)
        bad = &run->ranks[run->first_bad];
    if (!a->stops)
        tell_failure(run, bad);
    return exit_fault(&bad->exit, a->spec->kind);
}

/* 0 with whose fault the end was, or EXIT_CAUSE_DONE. */
static int run_generation(struct attempt *a, enum exit_cause *ret_fault, struct merr *err)
{
    json_auto_t *assignment = NULL;
    const struct run *run;
    int world, r;

    r = solo_plan_assign(a->spec, a->devices, a->threads, a->profile, a->generation, a->dir, &assignment, &world, err);
    if (r < 0)
        return r;
    r = ranks_start(a->ranks, assignment, err);
    if (r < 0)
        return r;
    link_logs(a);
    run = ranks_find(a->ranks, RUN_JOB, a->generation);
    (void)snprintf(a->shown.path, sizeof(a->shown.path), "%.3900s/%s", run->folder,
                   a->spec->kind == JOB_COMMAND ? "rank-00000.log" : "metrics.jsonl");
    a->shown.at = 0;
    fprintf(stderr, "muster run: attempt %" PRIu64 " on %d rank%s\n", a->generation, world, world == 1 ? "" : "s");
    wait_for_end(a, run);
    *ret_fault = judge(a, run);
    return 0;
}

/* Wait before a restart; a signal ends the wait and the job. */
static void back_off(struct attempt *a, int64_t wait_us)
{
    int64_t until_us = clock_mono_us() + wait_us;

    while (!a->stops && clock_mono_us() < until_us) {
        struct pollfd p = {.fd = a->signal_fd, .events = POLLIN};

        (void)poll(&p, 1, clock_poll_ms(until_us));
        take_stop(a);
    }
}

static int run_job(struct attempt *a, struct merr *err)
{
    struct solo_retries retries = {.user = 0};

    for (;; a->generation++) {
        enum exit_cause fault;
        int64_t wait_us;
        int r = run_generation(a, &fault, err);

        if (r < 0 || fault == EXIT_CAUSE_DONE)
            return r;
        if (a->stops)
            return merr_set(err, -ECANCELED, "stopped");
        if (!solo_plan_retry(&retries, a->spec, fault, &wait_us)) {
            merr_set(err, 0, "failed in attempt %" PRIu64 "; %s", a->generation,
                     fault == EXIT_CAUSE_USER ? "this is the job's own fault, which retry.user does not try again"
                                              : "no restart is left of retry.max");
            return fault == EXIT_CAUSE_USER ? EXIT_USER : -EIO;
        }
        back_off(a, wait_us);
        if (a->stops)
            return merr_set(err, -ECANCELED, "stopped");
        fprintf(stderr, "muster run: restarting as attempt %" PRIu64 "\n", a->generation + 1);
    }
}

/* --- before and after --------------------------------------------------------------------------- */

static int await_end(struct attempt *a, const struct run *run, int64_t until_us, struct merr *err)
{
    while (!ranks_run_ended(run)) {
        struct pollfd fds[2] = {{.fd = machine_fd(a->machine), .events = POLLIN},
                                {.fd = a->signal_fd, .events = POLLIN}};
        int64_t next_us = ranks_deadline(a->ranks);

        (void)poll(fds, 2, clock_poll_ms(next_us < until_us ? next_us : until_us));
        take_stop(a);
        (void)ranks_tick(a->ranks, clock_mono_us());
        if (a->stops)
            return merr_set(err, -ECANCELED, "stopped");
        if (clock_mono_us() > until_us)
            return merr_set(err, -ETIMEDOUT, "ranks of attempt %" PRIu64 ", which was killed, do not end",
                            run->generation);
    }
    return 0;
}

/* Ranks of an earlier run that was killed are ended; the next generation comes after all found. */
static int settle_earlier(struct attempt *a, bool resume, struct merr *err)
{
    int64_t until_us = clock_mono_us() + SETTLE_US;
    int r = ranks_adopt(a->ranks, err);

    if (r < 0)
        return r;
    if (ranks_count(a->ranks) && !resume)
        return merr_set(err, -EEXIST, "'%s' holds an earlier run; give --resume to go on with it, or another --dir",
                        a->dir);
    for (size_t i = 0; i < ranks_count(a->ranks); i++) {
        const struct run *run = ranks_at(a->ranks, i);

        if (run->generation > a->generation)
            a->generation = run->generation;
        (void)ranks_order(a->ranks, run->job, run->generation, ASSIGNMENT_STOP, 0);
    }
    for (size_t i = 0; i < ranks_count(a->ranks) && r == 0; i++)
        r = await_end(a, ranks_at(a->ranks, i), until_us, err);
    if (r < 0)
        return r;
    a->generation++;
    return 0;
}

static int lock_folder(const char *dir, int *ret_fd, struct merr *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", dir);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        io_close(&fd);
        return merr_set(err, -EBUSY, "'%s' is in use by another muster run", dir);
    }
    *ret_fd = fd;
    return 0;
}

static int catch_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

struct settings {
    const char *dir, *train, *profile;
    int devices, threads;
    bool resume;
};

#define AT(member) .at = OPTION_AT(struct settings, member)

static const struct option_row rows[] = {
    {"dir", 0, "DIR", "folder of the job; made when it is not there", OPTION_TEXT, .needed = true, AT(dir)},
    {"devices", 0, "N", "ranks to use at most (default devices.min of the spec)", OPTION_INT, 1, DEVICES_MOST,
     AT(devices)},
    {"resume", 0, NULL, "go on in a DIR that holds an earlier run, from its newest checkpoint", OPTION_FLAG,
     AT(resume)},
    {"threads", 0, "N", "threads a rank (default processors / devices, at least 1)", OPTION_INT, 1, 1024, AT(threads)},
    {"profile", 0, "FILE", "plan by this profile of the machine (default ~/.cache/muster/profile.json, where it is)",
     OPTION_TEXT, AT(profile)},
    {"train", 0, "PROGRAM", "the training engine (default muster-train beside this program)", OPTION_TEXT, AT(train)},
    {"help", 'h', NULL, "say this", .kind = OPTION_HELP},
    {0},
};

static const struct options options = {
    .name = "muster-agent run",
    .args = "FILE --dir DIR",
    .min = 1,
    .max = 1,
    .about = "Run the job of spec FILE on this machine, without a server. Checkpoints,\n"
             "metrics.jsonl and logs are left in DIR. The first SIGINT or SIGTERM stops the\n"
             "job, the second kills it.",
    .rows = rows,
};

/* Read the profile that was named, or that is kept. One that is named must be good; the other is left out if not. */
static int read_profile(struct attempt *a, const char *named, struct plan_profile *p, struct merr *err)
{
    char kept[PROFILE_FILE_MAX];
    int r;

    if (!named && !profile_kept_file(kept))
        return 0;
    r = solo_plan_profile(named ? named : kept, a->threads, p, err);
    if (r < 0 && !named && r != -ENOENT)
        fprintf(stderr, "muster run: planned without a profile: %s\n", err->text);
    if (r == 0)
        a->profile = p;
    return named ? r : 0;
}

static int run_on(struct attempt *a, const struct machine_cfg *cfg, bool resume, struct merr *err)
{
    TRY(machine_new(cfg, &a->machine, err));
    TRY(ranks_new(&(struct ranks_cfg){.machine = a->machine, .node = RUN_NODE, .slots = DEVICES_MOST}, &a->ranks, err));
    TRY(settle_earlier(a, resume, err));
    return run_job(a, err);
}

static int run_in(struct attempt *a, const struct settings *o, const char *self, struct plan_profile *p,
                  struct merr *err)
{
    IO_CLOSE_AUTO int lock_fd = -1;
    char cwd[PATH_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct machine_cfg cfg = {
        .root = a->dir, .self = self, .train = o->train, .cwd = cwd, .cgroups = true, .with_parent = true};
    int r = io_mkdirs(o->dir, 0755, err);

    if (r < 0)
        return r;
    if (!realpath(o->dir, a->dir) || !getcwd(cwd, sizeof(cwd)))
        return merr_errno(err, -errno, "cannot use folder '%s'", o->dir);
    cfg.threads = o->threads ? o->threads : (int)(cores / a->devices);
    if (cfg.threads < 1)
        cfg.threads = 1;
    a->threads = cfg.threads;
    TRY(lock_folder(a->dir, &lock_fd, err));
    TRY(read_profile(a, o->profile, p, err));
    r = run_on(a, &cfg, o->resume, err);
    ranks_free(a->ranks);
    machine_free(a->machine);
    return r;
}

int solo_main(int argc, char **argv, const char *self, const char *train)
{
    struct settings o = {.train = train};
    struct options_given given;
    struct attempt a = {.signal_fd = -1};
    struct plan_profile *profile;
    struct job_spec *spec = NULL;
    struct faults faults = {.n = 0};
    struct merr err = {""};
    int r;

    if (options_main(&options, argc, argv, &o, &given, &r))
        return r;
    r = solo_plan_read(given.arg[0], &spec, &faults, &err);
    if (r < 0) {
        fprintf(stderr, "muster run: %s\n", err.text);
        for (size_t i = 0; i < faults.n; i++)
            fprintf(stderr, "  %s: %s\n", *faults.v[i].pointer ? faults.v[i].pointer : "/", faults.v[i].message);
        faults_clear(&faults);
        return 1;
    }
    a.spec = spec;
    a.devices = o.devices ? o.devices : spec->devices.min;
    a.signal_fd = catch_signals();
    profile = calloc(1, sizeof(*profile));
    r = a.signal_fd < 0 || !profile ? merr_errno(&err, -errno, "cannot wait for signals")
                                    : run_in(&a, &o, self, profile, &err);
    if (r != 0)
        fprintf(stderr, "muster run: %s\n", err.text);
    else
        fprintf(stderr, "muster run: done; metrics, logs and checkpoints are in '%s'\n", o.dir);
    io_close(&a.signal_fd);
    spec_free(spec);
    free(profile);
    return r == 0 ? 0 : r == EXIT_USER ? EXIT_USER : 1;
}
