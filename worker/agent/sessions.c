#include "worker/agent/sessions.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/agent/node_cert.h"
#include "worker/agent/prepare.h"
#include "worker/agent/ranks_priv.h"
#include "worker/agent/session.h"

#define WAIT_US INT64_C(60000000) /* that one waits for its rank to run */
#define ARGS_MAX 48

struct one {
    struct assignment_session asked;
    pid_t pid;           /* 0: it waits, or has ended */
    bool over;           /* it has ended, or will not begin; it is kept so that it is not begun again */
    bool told;           /* it was asked to end */
    int64_t deadline_us; /* while it waits; once over, when it is forgotten */
};

struct sessions {
    struct sessions_cfg cfg;
    struct one v[SESSIONS_MOST];
    size_t n;
};

struct sessions *sessions_new(const struct sessions_cfg *cfg)
{
    struct sessions *s = calloc(1, sizeof(*s));

    if (s)
        s->cfg = *cfg;
    return s;
}

void sessions_free(struct sessions *s)
{
    free(s);
}

static bool is_known(const struct sessions *s, const char *session)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].asked.session, session) == 0)
            return true;
    return false;
}

void sessions_take(struct sessions *s, const json_t *list)
{
    const json_t *doc;
    size_t i;

    json_array_foreach (list, i, doc) {
        struct one one = {.deadline_us = 0};

        if (s && s->n < SESSIONS_MOST && assignment_session_read(doc, &one.asked, NULL) == 0 &&
            !is_known(s, one.asked.session))
            s->v[s->n++] = one;
    }
}

/* The rank that has the processes of the one that is asked for: its own, or its launcher. NULL: none is here. */
static const struct rank *find_rank(const struct run *run, int number)
{
    for (int i = 0; run && i < run->n; i++) {
        const struct rank *rank = &run->ranks[i];

        if (rank->rank != number)
            continue;
        return ranks_is_launched(run, rank) ? &run->ranks[0] : rank;
    }
    return NULL;
}

static int spawn(const char **args, int wire, pid_t *ret, struct merr *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int r;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions) || posix_spawnattr_init(&attr))
        return merr_set(err, -ENOMEM, "no memory for a session");
    r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    r = r ? r : posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
    if (!r && wire >= 0)
        r = posix_spawn_file_actions_adddup2(&actions, wire, SESSION_WIRE_FD);
    r = r ? r : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    r = r ? r : posix_spawnattr_setsigmask(&attr, &none);
    r = r ? r : posix_spawnattr_setsigdefault(&attr, &all);
    r = r ? r : posix_spawn(ret, args[0], &actions, &attr, (char *const *)args, environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return r ? merr_errno(err, -r, "cannot start '%s'", args[0]) : 0;
}

/* Where the rank's program works. */
static void find_folder(const struct run *run, char *ret, size_t size)
{
    const struct job_spec *spec = run->spec;
    const char *workdir = spec->kind == JOB_COMMAND ? spec->command.workdir : NULL;
    bool brings = spec->kind == JOB_COMMAND && (spec->command.bundle || spec->command.git.url); /* files of its own */

    if (workdir && *workdir == '/')
        (void)snprintf(ret, size, "%s", workdir);
    else
        (void)snprintf(ret, size, "%s%s%s%s", run->dir, brings ? "/" PREPARE_WORK : "", workdir ? "/" : "",
                       workdir ? workdir : "");
}

static int begin(struct sessions *s, struct one *one, const struct run *run, const struct rank *rank, struct merr *err)
{
    const struct sessions_cfg *cfg = &s->cfg;
    char cert[PATH_MAX], pid[16], start[24], fd[16], folder[2 * PATH_MAX];
    struct machine_place place;
    const char *args[ARGS_MAX] = {cfg->self, "session"};
    size_t n = 2;
    int r, wire;

    TRY(machine_rank_place(rank->on_machine,
                           &(struct machine_launch){.job = run->job,
                                                    .user = run->assignment.unix_user,
                                                    .generation = run->generation,
                                                    .slot = rank->slot,
                                                    .spec = run->spec},
                           &place, err));
    find_folder(run, folder, sizeof(folder));
    (void)snprintf(pid, sizeof(pid), "%d", (int)place.shim.pid);
    (void)snprintf(start, sizeof(start), "%llu", (unsigned long long)place.shim.start);
    (void)snprintf(fd, sizeof(fd), "%d", SESSION_WIRE_FD);
    wire = place.wire < 0 ? -1 : fcntl(place.wire, F_DUPFD_CLOEXEC, 16);
    io_close(&place.wire);
    const char *const pairs[][2] = {
        {"--server", cfg->server},
        {"--token-file", cfg->token_file},
        {"--ca-file", cfg->ca_file},
        {"--cert", node_cert_newest(cfg->state, cert)},
        {"--node", cfg->node},
        {"--session", one->asked.session},
        {"--shim", pid},
        {"--shim-start", start},
        {"--chdir", folder},
        {"--cgroup", *place.cgroup ? place.cgroup : NULL},
        {"--quota", *place.quota ? place.quota : NULL},
        {"--wire", wire >= 0 ? fd : NULL},
        {"--user", wire >= 0 ? place.guard.user : NULL},
        {"--tmp", wire >= 0 ? place.guard.tmp : NULL},
        {"--shm", wire >= 0 ? place.guard.shm : NULL},
        {"--keep", wire >= 0 ? place.guard.keep : NULL},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (pairs[i][1]) {
            args[n++] = pairs[i][0];
            args[n++] = pairs[i][1];
        }
    if (run->spec->kind == JOB_COMMAND && run->spec->command.image)
        args[n++] = "--image";
    r = spawn(args, wire, &one->pid, err);
    io_close(&wire);
    return r;
}

static void finish(struct one *one, int64_t now_us)
{
    one->pid = 0;
    one->over = true;
    one->deadline_us = now_us + 2 * WAIT_US; /* the server's list has it no longer than that */
}

static void look(struct sessions *s, struct one *one, struct ranks *ranks, int64_t now_us)
{
    const struct run *run = ranks_find(ranks, one->asked.job, (uint64_t)one->asked.generation);
    const struct rank *rank = find_rank(run, one->asked.rank);
    bool over = !rank || rank->state == RANK_EXITED;
    struct merr err = {""};

    if (one->deadline_us == 0)
        one->deadline_us = now_us + WAIT_US;
    if (one->pid > 0) {
        if (waitpid(one->pid, NULL, WNOHANG) == one->pid)
            finish(one, now_us);
        else if (over && !one->told) {
            one->told = true;
            (void)kill(one->pid, SIGTERM); /* unreaped: the number is its own */
        }
        return;
    }
    if (now_us > one->deadline_us) {
        finish(one, now_us);
    } else if (rank && (over || rank->state == RANK_RUNNING) && run->spec && /* one that has ended says so */
               begin(s, one, run, rank, &err) < 0) {
        log_warn("a session in %s could not begin: %s", one->asked.job, err.text);
        finish(one, now_us);
    }
}

void sessions_tick(struct sessions *s, struct ranks *ranks, int64_t now_us)
{
    for (size_t i = s ? s->n : 0; i-- > 0;) {
        struct one *one = &s->v[i];

        if (!one->over)
            look(s, one, ranks, now_us);
        else if (now_us > one->deadline_us)
            *one = s->v[--s->n];
    }
}
