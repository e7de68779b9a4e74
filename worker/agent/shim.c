#include "worker/agent/shim.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/options.h"
#include "base/try.h"
#include "base/utf8.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/guard.h"
#include "worker/agent/launch.h"
#include "worker/agent/lines.h"
#include "worker/agent/program.h"
#include "worker/agent/quota.h"
#include "worker/agent/shim_wait.h"
#include "worker/flight/flight_read.h"

extern char **environ;

#define SWEEP_US 50000 /* between two looks at what is left */
#define PIPE_READ 65536
#define PUMP_ROUNDS 8

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

struct shim {
    const char *folder, *workdir;
    const char *cgroup; /* the rank's control groups, a list (cgroup.h); NULL: it has none */
    struct cgroup_limits limits;
    uint64_t cpu_milli;
    struct guard_rank guard; /* with wire: how the rank is to be under another account */
    int wire;                /* to the guard that starts it; -1: it is our own child */
    const char *quota;       /* a cgroup with a share of the processor, that the rank must be in; NULL: none */
    double share;
    int rank, ready_fd;
    char *const *argv;
    uint64_t log_limit;
    struct shim_image image;  /* pid 0: it starts the rank's program */
    pid_t child, parent;      /* parent: not 0 when the rank ends with it */
    int signal_fd, output_fd; /* output_fd -1: the rank's output has ended */
    int failed_fd;            /* what the child says that could not become the rank's program */
    bool ended;               /* the rank itself is gone and reaped */
    bool lingers;             /* what it left may end by itself, since it was told to */
    bool swept;               /* all it left is gone, too */
    struct exit_seen seen;
    struct rank_exit exit;
    struct flight *flight; /* the rank's page; NULL: it has none */
    int64_t stopped_us;    /* since when its process is stopped; 0: it is not */
    int64_t was_stopped_us;
    int64_t asked_us; /* when it was told to end first; INT64_MAX: not yet */
    int64_t sweep_us; /* next look at what is left, once ended */
    int each;         /* ranks of the program that it starts */
    int grace_s;      /* that what it leaves has once it was told to end */
    struct lines lines;
    struct buf out;
};

/* In the log; and in words of an exit, where there is one. */
static void say(struct rank_exit *e, const char *what, const char *subject, int code)
{
    char text[MERR_TEXT_MAX];

    (void)snprintf(text, sizeof(text), "%s '%s': %s", what, subject, strerror(code));
    dprintf(STDERR_FILENO, "muster: %s\n", text);
    if (e)
        utf8_copy(e->why, sizeof(e->why), text);
}

/* --- the child: from fork to exec --------------------------------------------------------------- */

/* The rank's program cannot be started: by whose fault, the shim is told. */
static void child_fail(struct rank_exit e, enum exit_cause cause, int status, int failed_fd) __attribute__((noreturn));

static void child_fail(struct rank_exit e, enum exit_cause cause, int status, int failed_fd)
{
    e.cause = cause;
    (void)io_write_all(failed_fd, &e, sizeof(e));
    _exit(status);
}

static void end_by_signal(int number)
{
    sigset_t set;

    (void)signal(number, SIG_DFL);
    (void)sigemptyset(&set);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    (void)raise(number);
}

/* Stand for a rank that is not our child, but its guard's: end as it does. */
static void child_stand(const struct shim *s, int output_fd, int failed_fd) __attribute__((noreturn));

static void child_stand(const struct shim *s, int output_fd, int failed_fd)
{
    struct guard_rank rank = s->guard;
    struct merr err = {""};
    bool by_user;
    int status;

    if (s->ready_fd >= 0)
        (void)close(s->ready_fd); /* no other program takes our place, with which it would be closed */
    rank.groups = s->cgroup ? s->cgroup : "";
    rank.folder = s->workdir;
    rank.argv = s->argv;
    status = guard_run(s->wire, &rank, output_fd, passed_on, (int)(sizeof(passed_on) / sizeof(passed_on[0])), &by_user,
                       &err);
    if (status < 0) {
        struct rank_exit e = {.status = 0};

        dprintf(STDERR_FILENO, "muster: %s\n", err.text);
        utf8_copy(e.why, sizeof(e.why), err.text);
        child_fail(e, by_user ? EXIT_CAUSE_USER : EXIT_CAUSE_NODE, by_user ? EXIT_USER : EXIT_NODE, failed_fd);
    }
    if (WIFSIGNALED(status)) {
        (void)prctl(PR_SET_DUMPABLE, 0); /* the rank's core is not ours */
        end_by_signal(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

static void child_run(const struct shim *s, pid_t parent, int go_fd, int output_fd, int failed_fd)
    __attribute__((noreturn));

static void child_run(const struct shim *s, pid_t parent, int go_fd, int output_fd, int failed_fd)
{
    struct rank_exit e = {.why = "its process could not be set up"};
    sigset_t none;
    char go;
    int code;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        child_fail(e, EXIT_CAUSE_NODE, EXIT_NODE, failed_fd);
    launch_unseal(environ);
    if (s->cgroup && s->wire < 0)
        (void)cgroup_enter(s->cgroup, 0); /* best effort: without it the process group and the sweep do */
    if (s->quota && (code = quota_join(s->quota)) < 0) {
        say(&e, "cannot enter the control group", s->quota, -code);
        child_fail(e, EXIT_CAUSE_NODE, EXIT_NODE, failed_fd);
    }
    /* Nothing runs before rank-NNNNN.pid tells of it. */
    if (io_read_full(go_fd, &go, 1) != 1)
        child_fail(e, EXIT_CAUSE_NODE, EXIT_NODE, failed_fd);
    if (s->wire >= 0)
        child_stand(s, output_fd, failed_fd);
    if (dup2(output_fd, STDOUT_FILENO) < 0 || dup2(output_fd, STDERR_FILENO) < 0)
        child_fail(e, EXIT_CAUSE_NODE, EXIT_NODE, failed_fd);
    if (s->workdir && chdir(s->workdir) < 0) {
        say(&e, "cannot enter the folder", s->workdir, errno);
        child_fail(e, EXIT_CAUSE_USER, 126, failed_fd);
    }
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        (void)signal(passed_on[i], SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execvp(s->argv[0], s->argv);
    code = errno;
    say(&e, "cannot run", s->argv[0], code);
    child_fail(e, EXIT_CAUSE_USER, code == ENOENT ? 127 : 126, failed_fd);
}

/* --- the shim ----------------------------------------------------------------------------------- */

static int publish_pids(const struct shim *s)
{
    uint64_t shim_start, child_start;
    char path[PATH_MAX], text[256];
    struct merr err;
    int n, r;

    r = proc_start_time(getpid(), &shim_start);
    if (r == 0)
        r = proc_start_time(s->child, &child_start);
    if (r < 0) {
        say(NULL, "cannot read", "/proc", -r);
        return r;
    }
    n = snprintf(text, sizeof(text), "{\"shim\": %d, \"shim_start\": %llu, \"pid\": %d, \"pid_start\": %llu}\n",
                 (int)getpid(), (unsigned long long)shim_start, (int)s->child, (unsigned long long)child_start);
    r = io_publish_file(shim_path(path, sizeof(path), s->folder, s->rank, "pid"), text, (size_t)n, 0600, &err);
    if (r < 0)
        dprintf(STDERR_FILENO, "muster: %s\n", err.text);
    return r;
}

/* Signals wait in the mask from the first moment on and come out of the descriptor. */
static int catch_signals(struct shim *s)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SHIM_KILL);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        (void)sigaddset(&set, passed_on[i]);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return -errno;
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signal_fd < 0 ? -errno : 0;
}

static int start(struct shim *s)
{
    int output[2], go[2], failed[2];
    pid_t self = getpid();
    struct merr err;
    int r;

    s->limits.cpus = (double)s->cpu_milli / 1000;
    if (s->cgroup && (r = cgroup_make(s->cgroup, &s->limits)) < 0) {
        say(NULL, "cannot make control groups with the rank's limits", s->cgroup, -r);
        return r;
    }
    if (s->quota && (r = quota_make(s->quota, s->share, &err)) < 0) {
        dprintf(STDERR_FILENO, "muster: %s\n", err.text);
        return r;
    }
    if (pipe2(output, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0 || pipe2(failed, O_CLOEXEC) < 0)
        return -errno;
    s->child = s->image.pid ? s->image.pid : fork();
    if (s->image.pid && s->cgroup)
        (void)cgroup_enter(s->cgroup, s->child);
    if (s->child < 0)
        return -errno;
    if (s->child == 0) {
        (void)close(go[1]); /* or the wait for it would never end if the shim died */
        child_run(s, self, go[0], output[1], failed[1]);
    }
    (void)setpgid(s->child, s->child); /* both do it, so that it holds whoever comes first */
    (void)close(go[0]);
    (void)close(failed[1]);
    s->failed_fd = failed[0];
    if (s->wire >= 0)
        (void)close(s->wire); /* its stand-in has it: all of the rank ends with that */
    s->output_fd = output[0];
    (void)fcntl(s->output_fd, F_SETFL, O_NONBLOCK);
    r = publish_pids(s);
    if (r == 0)
        r = s->image.pid ? shim_wait_go(&s->image, s->workdir, s->argv, output[1]) : io_write_all(go[1], "g", 1);
    (void)close(output[1]);
    (void)close(go[1]);
    if (s->ready_fd >= 0)
        (void)close(s->ready_fd); /* tells the agent that rank-NNNNN.pid is there */
    return r;
}

static void write_log(struct shim *s)
{
    struct stat st;

    /* A full disk loses log text, never the rank. */
    if (s->out.len)
        (void)io_write_all(STDOUT_FILENO, s->out.data, s->out.len);
    buf_reset(&s->out);
    if (fstat(STDOUT_FILENO, &st) == 0) /* the agent takes out of the log what the server has */
        lines_room(&s->lines, (uint64_t)st.st_blocks * 512, &s->out);
}

/* Carry what the rank has written into the log: a few pieces, so that a rank that never pauses does not keep
 * signals waiting, or all there is. */
static void pump(struct shim *s, bool all)
{
    static char chunk[PIPE_READ];
    ssize_t n;

    for (int round = 0; s->output_fd >= 0 && (all || round < PUMP_ROUNDS); round++) {
        n = read(s->output_fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            io_close(&s->output_fd);
            break;
        }
        lines_feed(&s->lines, chunk, (size_t)n, clock_mono_us(), &s->out);
        write_log(s);
    }
}

static void end_rank(struct shim *s)
{
    (void)kill(-s->child, SIGKILL); /* the rank is not reaped: its group's number is still its own */
    if (s->cgroup)
        (void)cgroup_end(s->cgroup);
}

/* The rank is dead and not reaped: take down how, and end its group before its number is given back. What was told to
 * end may take its time: a shell dies at once while its program saves. */
static void take_end(struct shim *s, const siginfo_t *info)
{
    s->exit.signal = info->si_code == CLD_EXITED ? 0 : info->si_status;
    s->exit.status = info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
    s->seen.out_of_memory = s->cgroup && cgroup_oom(s->cgroup, s->exit.why, sizeof(s->exit.why));
    s->lingers = s->seen.asked && !s->seen.killed;
    if (!s->lingers)
        end_rank(s);
    s->ended = true;
}

/* Is the grace of what the rank has left over, or nothing of its group left? */
static bool lingered(const struct shim *s, int64_t now_us)
{
    return now_us >= s->asked_us + (int64_t)s->grace_s * 1000000 || (kill(-s->child, 0) < 0 && errno == ESRCH);
}

/* The rank's process is stopped, or goes on. */
static void note_stops(struct shim *s)
{
    siginfo_t info = {.si_pid = 0};

    if (s->ended || waitid(P_PID, (id_t)s->child, &info, WSTOPPED | WCONTINUED | WNOHANG) < 0 || !info.si_pid)
        return;
    if (s->stopped_us > 0)
        s->was_stopped_us += clock_mono_us() - s->stopped_us;
    s->stopped_us = info.si_code == CLD_CONTINUED ? 0 : clock_mono_us();
    if (s->flight)
        flight_stopped_set(s->flight, s->was_stopped_us);
}

static void reap(struct shim *s)
{
    siginfo_t info = {.si_pid = 0};
    int status;
    pid_t pid;

    if (!s->ended && waitid(P_PID, (id_t)s->child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
        take_end(s, &info);
    }
    for (;;) {
        if (!s->ended) { /* orphans of a living rank are reaped, the rank itself is left to the look above */
            (void)memset(&info, 0, sizeof(info));
            if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid || info.si_pid == s->child)
                return;
            (void)waitpid(info.si_pid, &status, WNOHANG);
            continue;
        }
        pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            s->swept = true;
        if (pid <= 0)
            return;
    }
}

static void take_signals(struct shim *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int signal = (int)info.ssi_signo;

        if (signal == SHIM_KILL)
            s->lingers = false;
        if (signal == SIGCHLD || s->ended)
            continue;
        if (signal == SHIM_KILL) {
            s->seen.killed = true;
            end_rank(s);
            continue;
        }
        if (signal == SIGTERM && !s->seen.asked) {
            s->seen.asked = true;
            s->asked_us = clock_mono_us();
        }
        (void)kill(-s->child, signal);
    }
}

/* All of the rank is gone: find the cause of its end. */
static void judge(struct shim *s)
{
    char path[PATH_MAX];
    struct rank_exit failed;
    struct stat st;

    s->exit.at_ms = clock_wall_us() / 1000;
    if (io_read_full(s->failed_fd, &failed, sizeof(failed)) == (ssize_t)sizeof(failed)) {
        s->seen.told = failed.cause;
        utf8_copy(s->exit.why, sizeof(s->exit.why), failed.why);
    } else if (s->flight) {
        s->seen.told = flight_read_cause(s->flight);
        s->exit.lost = flight_read_lost(s->flight);
    }
    (void)snprintf(path, sizeof(path), "%s/" EXIT_FINISHED, s->folder);
    s->seen.finished = lstat(path, &st) == 0 && S_ISREG(st.st_mode);
    program_hear(s->folder, s->rank * s->each, s->guard.alone ? 0 : s->each, &s->seen);
    exit_judge(&s->exit, &s->seen);
}

/* Until neither the rank nor anything it left is there. */
static void watch(struct shim *s)
{
    /* A guard holds the rank's output until all of the rank is gone. */
    while (!s->swept || (s->wire >= 0 && s->output_fd >= 0)) {
        struct pollfd fds[2] = {{.fd = s->signal_fd, .events = POLLIN}, {.fd = s->output_fd, .events = POLLIN}};
        int64_t deadline_us = lines_deadline(&s->lines), now_us;

        if (s->ended && s->sweep_us < deadline_us)
            deadline_us = s->sweep_us;
        (void)poll(fds, 2, deadline_us == INT64_MAX ? -1 : clock_poll_ms(deadline_us));
        now_us = clock_mono_us();
        note_stops(s);
        reap(s); /* first: what has ended by itself does not answer an order that came after */
        take_signals(s);
        pump(s, false);
        lines_pause(&s->lines, now_us, &s->out);
        write_log(s);
        reap(s);
        s->lingers = s->lingers && !lingered(s, now_us);
        if (s->ended && !s->swept && now_us >= s->sweep_us) {
            if (!s->lingers)
                proc_kill_children();
            s->sweep_us = now_us + SWEEP_US;
        }
    }
    pump(s, true);
    lines_end(&s->lines, &s->out);
    write_log(s);
    if (s->cgroup)
        (void)cgroup_end(s->cgroup);
    if (s->quota)
        quota_remove(s->quota);
}

#define AT(member) .at = OPTION_AT(struct shim, member)

static const struct option_row rows[] = {
    {"run", 0, "FOLDER", "of the run", OPTION_TEXT, .needed = true, AT(folder)},
    {"rank", 0, "N", "which one this is", OPTION_INT, 0, INT_MAX, .needed = true, AT(rank)},
    {"chdir", 0, "DIR", "where it works", OPTION_TEXT, AT(workdir)},
    {"log-limit", 0, "BYTES", "of its log", OPTION_WHOLE, AT(log_limit)},
    {"cgroup", 0, "LIST", "control groups that it goes into, parted by ':'", OPTION_TEXT, AT(cgroup)},
    {"memory", 0, "BYTES", "that it may take", OPTION_WHOLE, AT(limits.memory_bytes)},
    {"cpu-milli", 0, "N", "thousandths of a processor that it may take", OPTION_WHOLE, AT(cpu_milli)},
    {"pids", 0, "N", "processes and threads that it may have", OPTION_WHOLE, AT(limits.pids)},
    {"wire", 0, "FD", "socket to a guard that starts it under another account", OPTION_INT, 0, INT_MAX, AT(wire)},
    {"user", 0, "NAME", "of that account (default the jobs')", OPTION_TEXT, .def = "", AT(guard.user)},
    {"tmp", 0, "DIR", "folder for its /tmp", OPTION_TEXT, AT(guard.tmp)},
    {"shm", 0, "DIR", "folder for its /dev/shm", OPTION_TEXT, AT(guard.shm)},
    {"keep", 0, "DIR", "folder below /dev/shm that it sees all the same", OPTION_TEXT, AT(guard.keep)},
    {"alone", 0, NULL, "no other rank of its job is on this node: it may launch some", OPTION_FLAG, AT(guard.alone)},
    {"each", 0, "N", "ranks that it starts, numbered from N times its own", OPTION_INT, 1, SPEC_RANKS_MAX, "1",
     AT(each)},
    {"quota", 0, "DIR", "cgroup with a share of the processor, with --share", OPTION_TEXT, AT(quota)},
    {"share", 0, "S", "how much of a processor", OPTION_REAL_OVER, 0, INFINITY, AT(share)},
    {"grace", 0, "S", "that its children have to end, once it was told to", OPTION_INT, 0, INT_MAX, AT(grace_s)},
    {"ready", 0, "FD", "where it says that the rank has started", OPTION_INT, 0, INT_MAX, AT(ready_fd)},
    {"with-parent", 0, "PID", "end with this process", OPTION_INT, 1, INT_MAX, AT(parent)},
    {"help", 'h', NULL, "say this", .kind = OPTION_HELP},
    {0},
};

static const struct options options = {
    .name = "muster-agent shim",
    .args = "--run FOLDER --rank N -- PROGRAM ARGUMENT...",
    .passes = true,
    .about = "Start one rank, be its parent, and write down how it ends. Called by the agent.",
    .rows = rows,
};

/* Returns 0, or 1 with *ret_status set to what the program ends with. */
static int parse(struct shim *s, int argc, char **argv, int *ret_status)
{
    struct options_given given;

    *s = (struct shim){.rank = -1,
                       .ready_fd = -1,
                       .wire = -1,
                       .log_limit = SHIM_LOG_LIMIT,
                       .signal_fd = -1,
                       .output_fd = -1,
                       .failed_fd = -1,
                       .asked_us = INT64_MAX,
                       .each = 1,
                       .grace_s = SHIM_GRACE_S};
    if (options_main(&options, argc, argv, s, &given, ret_status))
        return 1;
    s->argv = given.rest;
    if (s->argv && (!s->quota || s->share > 0))
        return 0;
    *ret_status = options_refuse(&options, s->argv ? "--quota wants --share S too" : "want -- PROGRAM ARGUMENT...");
    return 1;
}

/* Descriptors that the agent had open while it started us are none of ours. */
static void close_others(int keep, int wire)
{
    if (keep > SHIM_READY_FD || keep < 0)
        keep = SHIM_READY_FD - 1;
    if (wire == SHIM_WIRE_FD)
        keep = wire;
    (void)syscall(SYS_close_range, (unsigned)keep + 1, ~0u, 0);
}

static void clear(struct shim *s)
{
    if (s->flight)
        flight_close(s->flight);
    buf_clear(&s->out);
    io_close(&s->failed_fd);
}

/* The parent of all that the rank starts, until the agent is gone where that is asked for; then the rank itself. */
static int take_post(struct shim *s)
{
    TRY(catch_signals(s));
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return -errno;
    if (s->parent && (prctl(PR_SET_PDEATHSIG, SHIM_KILL) < 0 || getppid() != s->parent))
        return -ESRCH;
    return start(s);
}

int shim_main(int argc, char **argv)
{
    struct shim_image image = {.pid = 0};
    char page[PATH_MAX];
    struct shim s;
    struct merr err;
    int r;

    if (argc == 3 && strcmp(argv[1], "--wait") == 0 && shim_wait(argv[2], &image, &argc, &argv) < 0)
        return EXIT_NODE;
    if (image.pid) { /* "muster-agent" stands before what is for us */
        argc--;
        argv++;
    }
    if (parse(&s, argc, argv, &r))
        return r;
    s.image = image;
    if (!image.pid)
        close_others(s.ready_fd, s.wire);
    if (s.wire >= 0)
        (void)fcntl(s.wire, F_SETFD, FD_CLOEXEC);
    if (s.ready_fd >= 0)
        (void)fcntl(s.ready_fd, F_SETFD, FD_CLOEXEC);
    if (flight_watch(shim_path(page, sizeof(page), s.folder, s.rank, "flight"), &s.flight, NULL) < 0)
        s.flight = NULL;
    lines_init(&s.lines, s.log_limit);
    buf_init(&s.out, 8 * PIPE_READ);
    r = take_post(&s);
    if (r < 0) {
        s.exit = (struct rank_exit){.status = -1, .cause = EXIT_CAUSE_NODE, .at_ms = clock_wall_us() / 1000};
        say(&s.exit, "cannot start", s.argv[0], -r);
        if (s.child > 0)
            (void)kill(s.child, SIGKILL);
        (void)shim_write_exit(s.folder, s.rank, &s.exit, NULL);
        clear(&s);
        return EXIT_NODE;
    }
    watch(&s);
    judge(&s);
    r = shim_write_exit(s.folder, s.rank, &s.exit, &err);
    if (r < 0)
        dprintf(STDERR_FILENO, "muster: %s\n", err.text);
    clear(&s);
    return r < 0 ? EXIT_NODE : 0;
}
