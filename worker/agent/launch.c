#include "worker/agent/launch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/bundle.h"
#include "api/protocol/assignment.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/parcel.h"
#include "base/try.h"
#include "worker/agent/program.h"
#include "worker/agent/shim.h"

#define HAND_ON_S 2          /* that a started program may take to be handed its own */
#define TEXT_LIMIT (4 << 20) /* bytes of the words of one command line or environment */

extern char **environ;

/* A growing list of words: the words lie in one buffer, each with its NUL. */
struct words {
    struct buf text;
    size_t n;
};

static void words_add(struct words *w, const char *word)
{
    if (buf_add(&w->text, word, strlen(word) + 1) == 0)
        w->n++;
}

static void words_printf(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void words_printf(struct words *w, const char *fmt, ...)
{
    char *word = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&word, fmt, ap);
    va_end(ap);
    if (n < 0)
        w->text.failed = true;
    else
        words_add(w, word);
    if (n >= 0)
        free(word);
}

/* A NULL-terminated array into w, which must outlive it; NULL when memory was or is short. The caller
 * frees the array. */
static char **words_array(const struct words *w)
{
    char **v = buf_failed(&w->text) ? NULL : calloc(w->n + 1, sizeof(*v));
    char *p = w->text.data;

    for (size_t i = 0; v && i < w->n; i++, p += strlen(p) + 1)
        v[i] = p;
    return v;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* Whether a variable is named by a list such as "LANG,UCX_*". */
static bool is_named(const char *list, const char *variable)
{
    size_t n = strcspn(variable, "=");

    for (const char *p = list; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
        size_t len = strcspn(p, ",");
        bool prefix = len > 0 && p[len - 1] == '*';

        if (prefix ? len - 1 <= n && strncmp(p, variable, len - 1) == 0 : len == n && strncmp(p, variable, n) == 0)
            return true;
    }
    return false;
}

/* Whether a variable of the agent is for its ranks: an agent's secrets are nobody else's. */
static bool is_for_ranks(const struct launch *l, const char *variable)
{
    if (is_named(LAUNCH_ENV_MUSTER, variable))
        return true;
    if (strncmp(variable, "MUSTER_", 7) == 0 || is_named("OMP_NUM_THREADS", variable))
        return false;
    return !l->pass_env || is_named(LAUNCH_ENV, variable) || is_named(l->pass_env, variable);
}

/* The value of a variable that a rank would have without us: the spec's, else the agent's own. NULL: none. */
static const char *value_of(const struct launch *l, const char *name)
{
    size_t n = strlen(name);

    for (char **t = l->spec->command.env; t && *t; t++)
        if (strncmp(*t, name, n) == 0 && (*t)[n] == '=')
            return *t + n + 1;
    for (char **e = environ; *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=' && is_for_ranks(l, *e))
            return *e + n + 1;
    return NULL;
}

/* Where the libraries for programs lie: beside the folder of the agent's program. */
static void add_libraries(const struct launch *l, struct words *w)
{
    char self[PATH_MAX], lib[PATH_MAX + 32], python[PATH_MAX + 48];
    const char *path = value_of(l, "PYTHONPATH");
    char *slash = realpath(l->self, self) ? strrchr(self, '/') : NULL;

    if (!slash)
        return;
    *slash = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return;
    *slash = '\0';
    (void)snprintf(lib, sizeof(lib), "%s/lib/muster", self);
    (void)snprintf(python, sizeof(python), "%s/python", lib);
    if (access(lib, X_OK) == 0)
        words_printf(w, "MUSTER_LIB=%s", lib);
    if (access(python, X_OK) == 0)
        words_printf(w, "PYTHONPATH=%s%s%s", python, path && *path ? ":" : "", path ? path : "");
}

/* What tells a command of its job (docs/programs.md). */
static void add_program(const struct launch *l, struct words *w)
{
    const struct job_spec *s = l->spec;
    const char *dir = s->checkpoint.dir ? s->checkpoint.dir : "checkpoints";

    words_printf(w, "MUSTER_ABI=%d", PROGRAM_ABI);
    words_printf(w, "MUSTER_NODES=%d", l->nodes);
    words_printf(w, "MUSTER_NODE=%s", l->node);
    words_printf(w, "MUSTER_PROJECT=%s", s->project);
    words_printf(w, "MUSTER_NAME=%s", s->name);
    words_printf(w, "MUSTER_USER=%s", l->owner);
    if (l->trace && *l->trace)
        words_printf(w, "TRACEPARENT=%s", l->trace);
    words_printf(w, "MUSTER_ATTEMPT=%llu", (unsigned long long)l->generation);
    words_printf(w, "MUSTER_RESUME=%d", l->resumes);
    words_printf(w, "MUSTER_CHECKPOINT_DIR=%s%s%s", *dir == '/' ? "" : l->job_dir, *dir == '/' ? "" : "/", dir);
    if (l->ends_at_us > 0)
        words_printf(w, "MUSTER_ENDS_AT=%lld", (long long)(l->ends_at_us / 1000000));
    for (size_t i = 0; i < s->command.ports.n; i++) {
        char name[SPEC_NAME_MAX] = "";

        for (size_t k = 0; s->command.ports.v[i][k]; k++)
            name[k] = (char)toupper((unsigned char)s->command.ports.v[i][k]);
        words_printf(w, "MUSTER_PORT_%s=%d", name, assignment_port(l->master_port, i));
    }
    words_printf(w, "MUSTER_ELASTIC=%d", s->command.elastic);
    words_printf(w, "MUSTER_DEVICES_MIN=%d", s->devices.min);
    words_printf(w, "MUSTER_DEVICES_MAX=%d", s->devices.max);
    add_libraries(l, w);
}

/* Processes that share the rank's device. */
static int ranks_each(const struct launch *l)
{
    return l->spec->kind == JOB_COMMAND && l->spec->command.ranks > 1 ? l->spec->command.ranks : 1;
}

/* What of the agent's own environment is for ranks, then the spec's, then what tells the rank its place; of two with
 * one name only the later is given. */
static void collect_environment(const struct launch *l, struct words *w)
{
    struct words own = {0};
    int each = ranks_each(l);
    bool threads_given = false;
    const struct passwd *user = l->guard ? getpwnam(*l->guard->user ? l->guard->user : LAUNCH_JOBS) : NULL;
    char **ours, **theirs = l->spec->kind == JOB_COMMAND ? l->spec->command.env : NULL;

    buf_init(&own.text, TEXT_LIMIT);
    words_printf(&own, "RANK=%d", l->rank * each); /* of several that share the device the first (share.h) */
    words_printf(&own, "WORLD_SIZE=%d", l->world * each);
    words_printf(&own, "LOCAL_RANK=%d", l->local_rank * each);
    words_printf(&own, "LOCAL_WORLD_SIZE=%d", l->local_world * each);
    words_printf(&own, "NODE_RANK=%d", l->node_rank);
    words_printf(&own, "MASTER_ADDR=%s", l->master_addr);
    words_printf(&own, "MASTER_PORT=%d", l->master_port);
    words_printf(&own, "MUSTER_JOB=%s", l->job);
    words_printf(&own, "MUSTER_GENERATION=%llu", (unsigned long long)l->generation);
    words_printf(&own, "MUSTER_RUN_DIR=%s", l->folder);
    words_printf(&own, "MUSTER_JOB_DIR=%s", l->job_dir);
    if (l->visible)
        words_printf(&own, "CUDA_VISIBLE_DEVICES=%s", l->visible);
    if (user) {
        words_printf(&own, "HOME=%s", user->pw_dir);
        words_printf(&own, "USER=%s", user->pw_name);
    }
    if (l->spec->kind == JOB_COMMAND)
        add_program(l, &own);
    if (l->visible && *l->visible && l->spec->kind == JOB_TRAIN)
        words_printf(&own, "MUSTER_KERNELS=cuda");
    ours = words_array(&own);
    w->text.failed |= !ours;
    for (char **e = environ; ours && *e; e++) {
        bool hidden = !is_for_ranks(l, *e);

        for (char **o = ours; *o && !hidden; o++)
            hidden = same_name(*o, *e);
        for (char **t = theirs; t && *t && !hidden; t++)
            hidden = same_name(*t, *e);
        if (!hidden)
            words_add(w, *e);
    }
    for (char **t = theirs; ours && t && *t; t++) {
        bool hidden = false;

        threads_given |= strncmp(*t, "OMP_NUM_THREADS=", 16) == 0;
        for (char **o = ours; *o && !hidden; o++)
            hidden = same_name(*o, *t);
        if (!hidden)
            words_printf(w, "%c%s", (unsigned char)**t | LAUNCH_SEAL, *t + 1); /* names are ASCII and not empty */
    }
    if (!threads_given)
        words_printf(w, "OMP_NUM_THREADS=%d", l->threads > each ? l->threads / each : 1);
    for (char **o = ours; o && *o; o++)
        words_add(w, *o);
    free(ours);
    buf_clear(&own.text);
}

void launch_unseal_one(char *variable)
{
    variable[0] = (char)((unsigned char)variable[0] & ~LAUNCH_SEAL);
}

void launch_unseal(char **env)
{
    for (; *env; env++)
        launch_unseal_one(*env);
}

const char *launch_visible(const char *const *visible, const int *slots, int n, char ret[LAUNCH_VISIBLE_MAX])
{
    size_t len = 0;

    ret[0] = '\0';
    for (int i = 0; i < n && len < LAUNCH_VISIBLE_MAX; i++)
        if (*visible[slots[i]])
            len += (size_t)snprintf(ret + len, LAUNCH_VISIBLE_MAX - len, "%s%s", len > 0 ? "," : "", visible[slots[i]]);
    return ret;
}

static bool is_launcher(const struct launch *l)
{
    return l->spec->kind == JOB_COMMAND && l->spec->command.launcher == LAUNCH_TORCHRUN;
}

/* Torchrun by the Python that is to run the program, where that names one (api/python/muster/torchrun.py). */
static void add_torchrun(const char *program, struct words *w)
{
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;

    words_add(w, strncmp(name, "python", 6) == 0 ? program : "python3");
    words_add(w, "-m");
    words_add(w, "muster.torchrun");
}

/* Whether the job brings its files along. */
static bool has_source(const struct launch *l)
{
    return l->spec->kind == JOB_COMMAND && (l->spec->command.bundle || l->spec->command.git.url);
}

int launch_bundle(const char *job_dir, const char *owner, const struct job_spec *spec, char ret[PATH_MAX])
{
    char jobs[PATH_MAX], *slash;

    (void)snprintf(jobs, sizeof(jobs), "%s", job_dir);
    slash = strrchr(jobs, '/');
    if (!slash || spec->kind != JOB_COMMAND || !spec->command.bundle)
        return -ENOENT;
    *slash = '\0';
    return bundle_path(jobs, owner, spec->command.bundle, ret);
}

/* What lays out the job's files and becomes the program (prepare.h). */
static void add_prepare(const struct launch *l, struct words *w)
{
    char bundle[PATH_MAX];

    words_add(w, l->self);
    words_add(w, "prepare");
    words_printf(w, "--run=%s", l->folder);
    words_printf(w, "--rank=%d", l->rank);
    words_printf(w, "--job-dir=%s", l->job_dir);
    if (launch_bundle(l->job_dir, l->owner, l->spec, bundle) == 0) {
        words_printf(w, "--bundle=%s", bundle);
        words_printf(w, "--name=%s", l->spec->command.bundle);
    } else if (l->spec->command.git.url) {
        words_printf(w, "--git=%s", l->spec->command.git.url);
        words_printf(w, "--commit=%s", l->spec->command.git.commit);
    }
    if (has_source(l) && l->spec->command.workdir)
        words_printf(w, "--workdir=%s", l->spec->command.workdir);
    if (l->spec->command.image)
        words_printf(w, "--image=%s", l->spec->command.image);
    if (ranks_each(l) > 1)
        words_printf(w, "--ranks=%d", ranks_each(l));
    words_add(w, "--");
}

static void collect_arguments(const struct launch *l, struct words *w)
{
    const char *workdir = l->cwd;
    unsigned ranks = (unsigned)(is_launcher(l) ? l->local_world : ranks_each(l)); /* in its control group */

    if (has_source(l))
        workdir = l->job_dir;
    else if (l->spec->kind == JOB_COMMAND && l->spec->command.workdir)
        workdir = l->spec->command.workdir;
    words_add(w, "muster-agent");
    words_add(w, "shim");
    words_add(w, "--run");
    words_add(w, l->folder);
    words_add(w, "--rank");
    words_printf(w, "%d", l->rank);
    words_add(w, "--ready");
    words_printf(w, "%d", SHIM_READY_FD);
    words_add(w, "--chdir");
    words_add(w, workdir);
    if (l->cgroup) {
        words_add(w, "--cgroup");
        words_add(w, l->cgroup);
    }
    if (l->limits.memory_bytes)
        words_printf(w, "--memory=%llu", (unsigned long long)l->limits.memory_bytes * ranks);
    if (l->limits.cpus > 0)
        words_printf(w, "--cpu-milli=%.0f", l->limits.cpus * 1000 * ranks);
    if (l->limits.pids)
        words_printf(w, "--pids=%llu", (unsigned long long)l->limits.pids * ranks);
    if (l->guard) {
        words_printf(w, "--wire=%d", SHIM_WIRE_FD);
        words_printf(w, "--user=%s", l->guard->user);
        if (l->guard->tmp)
            words_printf(w, "--tmp=%s", l->guard->tmp);
        if (l->guard->shm)
            words_printf(w, "--shm=%s", l->guard->shm);
        if (l->guard->keep)
            words_printf(w, "--keep=%s", l->guard->keep);
    }
    if (l->local_world == 1 || is_launcher(l))
        words_add(w, "--alone");
    if (ranks_each(l) > 1)
        words_printf(w, "--each=%d", ranks_each(l));
    if (l->quota) {
        words_add(w, "--quota");
        words_add(w, l->quota);
        words_add(w, "--share");
        words_printf(w, "%.6f", l->share);
    }
    if (l->spec->kind == JOB_COMMAND) {
        words_add(w, "--grace");
        words_printf(w, "%d", l->spec->command.grace_s);
    }
    if (l->with_parent) {
        words_add(w, "--with-parent");
        words_printf(w, "%d", (int)getpid());
    }
    words_add(w, "--");
    if (l->spec->kind == JOB_COMMAND) {
        if (has_source(l) || ranks_each(l) > 1 || l->spec->command.image)
            add_prepare(l, w);
        if (is_launcher(l))
            add_torchrun(l->spec->command.argv[0], w);
        for (char **a = l->spec->command.argv; *a; a++)
            words_add(w, *a);
    } else {
        words_add(w, l->train);
        words_add(w, "--run");
        words_add(w, l->folder);
        words_add(w, "--rank");
        words_printf(w, "%d", l->rank);
    }
}

int launch_log_free(const char *folder, int rank)
{
    char path[PATH_MAX];
    IO_CLOSE_AUTO int fd = io_open_plain(shim_path(path, sizeof(path), folder, rank, "log"), O_RDONLY);

    if (fd < 0)
        return fd == -ENOENT || fd == -ELOOP || fd == -EMEDIUMTYPE ? 0 : fd; /* the last two: a rank has put it there */
    return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -EBUSY : 0;
}

/* 0, or a positive errno. */
static int say_how(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr, int log_fd, int ready_fd, int wire)
{
    sigset_t all;

    (void)sigfillset(&all);
    TRY(posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    TRY(posix_spawn_file_actions_adddup2(actions, log_fd, STDOUT_FILENO));
    TRY(posix_spawn_file_actions_adddup2(actions, log_fd, STDERR_FILENO));
    TRY(posix_spawn_file_actions_adddup2(actions, ready_fd, SHIM_READY_FD));
    if (wire >= 0)
        TRY(posix_spawn_file_actions_adddup2(actions, wire, SHIM_WIRE_FD));
    TRY(posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    TRY(posix_spawnattr_setsigmask(attr, &all));
    return posix_spawnattr_setsigdefault(attr, &all);
}

/* posix_spawn in a session of its own, with the signals held back that the shim wants to see: none can end
 * it before it looks. */
static int spawn(const char *self, char **argv, char **envp, int log_fd, int ready_fd, int wire, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int r;

    r = posix_spawn_file_actions_init(&actions);
    if (r)
        return -r;
    r = posix_spawnattr_init(&attr);
    if (r) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return -r;
    }
    r = say_how(&actions, &attr, log_fd, ready_fd, wire);
    if (!r)
        r = posix_spawn(ret, self, &actions, &attr, argv, envp);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* A descriptor above those that spawn() lays out, so that no dup2 overwrites one still needed. */
static int above(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);

    if (fd >= 0)
        (void)close(fd);
    return high;
}

/* Have the rank go on in a program that has started. */
static int go_on(const struct launch_image *image, char **argv, char **envp, int log_fd, int ready_fd, pid_t *ret)
{
    int fds[] = {log_fd, ready_fd}, r = image->pid ? parcel_send(image->fd, argv, envp, fds, 2) : -ENOENT;

    if (r == 0)
        *ret = image->pid;
    return r;
}

int launch_image(const struct launch *l, struct launch_image *ret, struct merr *err)
{
    IO_CLOSE_AUTO int null = -1, far = -1;
    struct timeval most = {.tv_sec = HAND_ON_S};
    char *argv[] = {(char *)(uintptr_t) "muster-agent", (char *)(uintptr_t) "shim", (char *)(uintptr_t) "--wait",
                    (char *)(uintptr_t)l->train, NULL};
    struct words env = {0};
    char **envp;
    int pair[2], r = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return merr_errno(err, -errno, "cannot make a socket");
    far = above(pair[1]);
    null = above(open("/dev/null", O_WRONLY | O_CLOEXEC));
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
    buf_init(&env.text, TEXT_LIMIT);
    collect_environment(l, &env);
    envp = words_array(&env);
    if (far < 0 || null < 0)
        r = merr_set(err, -EMFILE, "too many open files");
    else if (!envp)
        r = merr_set(err, -ENOMEM, "no memory");
    if (r == 0 && (r = spawn(l->self, argv, envp, null, far, -1, &ret->pid)) < 0)
        (void)merr_errno(err, r, "cannot start '%s'", l->self);
    free(envp);
    buf_clear(&env.text);
    if (r < 0)
        (void)close(pair[0]);
    else
        ret->fd = pair[0];
    return r;
}

int launch_rank(const struct launch *l, pid_t *ret_shim, int *ret_ready_fd, struct merr *err)
{
    IO_CLOSE_AUTO int log_fd = -1, read_fd = -1, write_fd = -1;
    struct words args = {0}, env = {0};
    char path[PATH_MAX], **argv, **envp;
    int ready[2], wire = l->guard ? l->wire : -1, r = 0;

    shim_path(path, sizeof(path), l->folder, l->rank, "log");
    r = io_open_plain(path, O_WRONLY | O_APPEND | O_CREAT);
    log_fd = above(r);
    if (log_fd < 0)
        return merr_errno(err, r < 0 ? r : -errno, "cannot make the log '%s'", path);
    r = 0;
    if (flock(log_fd, LOCK_EX | LOCK_NB) < 0)
        return merr_set(err, -EBUSY, "rank %d of '%s' has a shim already", l->rank, l->folder);
    if (pipe2(ready, O_CLOEXEC) < 0)
        return merr_errno(err, -errno, "cannot make a pipe");
    read_fd = ready[0];
    write_fd = above(ready[1]);

    buf_init(&args.text, TEXT_LIMIT);
    buf_init(&env.text, TEXT_LIMIT);
    collect_arguments(l, &args);
    collect_environment(l, &env);
    argv = words_array(&args);
    envp = words_array(&env);
    if (write_fd < 0)
        r = merr_errno(err, -EMFILE, "cannot start rank %d", l->rank);
    else if (!argv || !envp)
        r = merr_set(err, -ENOMEM, "the command line or environment of rank %d is too large", l->rank);
    if (r == 0) {
        r = go_on(&l->image, argv, envp, log_fd, write_fd, ret_shim) == 0
                ? 0
                : spawn(l->self, argv, envp, log_fd, write_fd, wire, ret_shim);
        if (r < 0)
            merr_errno(err, r, "cannot start '%s' for rank %d", l->self, l->rank);
    }
    free(argv);
    free(envp);
    buf_clear(&args.text);
    buf_clear(&env.text);
    if (r == 0) {
        *ret_ready_fd = read_fd;
        read_fd = -1;
    }
    return r;
}
