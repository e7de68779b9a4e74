#include "api/client/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"

#define WORDS_MAX 240 /* bytes of its standard error that are shown */
#define SLICE_MS 20   /* between two looks at whether it has ended */
#define PARTS 64      /* at a time: who never ends to print lets the deadline be looked at */

extern char **environ;

struct tool {
    pid_t pid;
    int in, out, said; /* -1: closed */
    const char *left;
    struct buf text, words;
    bool ended, too_much;
};

static int open_pipes(int in[2], int out[2], int said[2])
{
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(said, O_CLOEXEC) < 0)
        return -errno;
    (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(said[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int spawn(const char *const *argv, int in, int out, int said, pid_t *ret)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, usual;
    int r;

    (void)sigemptyset(&none);
    (void)sigfillset(&usual);
    if (posix_spawn_file_actions_init(&files) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attr) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -ENOMEM;
    }
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &usual);
    (void)posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, said, STDERR_FILENO);
    r = -posix_spawnp(ret, argv[0], &files, &attr, (char *const *)argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&files);
    return r;
}

static void feed(struct tool *t)
{
    ssize_t n = write(t->in, t->left, strlen(t->left));

    if (n > 0)
        t->left += n;
    if (!*t->left || (n < 0 && errno != EAGAIN && errno != EINTR))
        io_close(&t->in);
}

/* Take what is there. Of what it says on its standard error only the beginning is kept. */
static void drain(struct tool *t, int *fd, struct buf *to)
{
    char part[4096];
    ssize_t n;

    for (int i = 0; *fd >= 0 && i < PARTS; i++) {
        n = read(*fd, part, sizeof(part));
        if (n == 0)
            io_close(fd);
        if (n <= 0)
            return;
        if (to == &t->words)
            n = (ssize_t)to->len + n > WORDS_MAX ? WORDS_MAX - (ssize_t)to->len : n;
        t->too_much = n > 0 && buf_add(to, part, (size_t)n) < 0;
        if (t->too_much)
            return;
    }
}

static void look(struct tool *t, int wait_ms)
{
    struct pollfd p[] = {
        {.fd = t->out, .events = POLLIN}, {.fd = t->said, .events = POLLIN}, {.fd = t->in, .events = POLLOUT}};

    siginfo_t info = {.si_pid = 0};

    if (poll(p, 3, wait_ms) > 0 && p[2].revents)
        feed(t);
    t->ended = waitid(P_PID, (id_t)t->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == t->pid;
    drain(t, &t->out, &t->text);
    drain(t, &t->said, &t->words);
}

/* What it said, on one line. */
static const char *words_of(struct tool *t)
{
    char *at = t->words.len ? t->words.data : NULL;

    for (size_t i = 0; i < t->words.len; i++)
        if ((unsigned char)at[i] < ' ' || (unsigned char)at[i] >= 127)
            at[i] = ' ';
    while (t->words.len && at[t->words.len - 1] == ' ')
        t->words.len--;
    if (at)
        at[t->words.len] = '\0';
    return at ? at : "";
}

static int judge(struct tool *t, const char *path, int timeout_ms, int status, struct merr *err)
{
    const char *words = words_of(t), *colon = *words ? ": " : "";

    if (t->too_much)
        return merr_set(err, -EMSGSIZE, "'%s' printed more than %d bytes and was ended", path, TOOL_OUT_MAX);
    if (!t->ended)
        return merr_set(err, -ETIMEDOUT, "'%s' did not end within %d s and was ended%s%s", path, timeout_ms / 1000,
                        colon, words);
    if (WIFSIGNALED(status))
        return merr_set(err, -EIO, "'%s' was ended by signal %d%s%s", path, WTERMSIG(status), colon, words);
    if (WEXITSTATUS(status) != 0)
        return merr_set(err, -EIO, "'%s' ended with status %d%s%s", path, WEXITSTATUS(status), colon, words);
    return 0;
}

static int follow(struct tool *t, const char *path, int timeout_ms, const _Atomic int *stop, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + timeout_ms * INT64_C(1000);
    bool hurried = false;
    int status = 0;

    while (!t->ended && !t->too_much && clock_mono_us() < deadline_us) {
        if (stop && *stop && !hurried) {
            hurried = true;
            deadline_us = clock_mono_us() + TOOL_STOP_MS * INT64_C(1000);
        }
        look(t, SLICE_MS);
    }
    (void)kill(-t->pid, SIGKILL); /* before it is waited for, so that nobody else can have the number */
    while (waitpid(t->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return judge(t, path, timeout_ms, status, err);
}

static int run(struct tool *t, const char *const *argv, int timeout_ms, const _Atomic int *stop, struct merr *err)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1}, said[2] = {-1, -1};
    int r = open_pipes(to, from, said);

    r = r < 0 ? r : spawn(argv, to[0], from[1], said[1], &t->pid);
    io_close(&to[0]);
    io_close(&from[1]);
    io_close(&said[1]);
    t->in = to[1];
    t->out = from[0];
    t->said = said[0];
    r = r < 0 ? merr_errno(err, r, "cannot run '%s'", argv[0]) : follow(t, argv[0], timeout_ms, stop, err);
    io_close(&t->in);
    io_close(&t->out);
    io_close(&t->said);
    return r;
}

int tool_run(const char *const *argv, const char *in, int timeout_ms, const _Atomic int *stop, char **ret,
             struct merr *err)
{
    struct tool t = {.left = in};
    char *text = NULL;
    int r;

    buf_init(&t.text, TOOL_OUT_MAX);
    buf_init(&t.words, WORDS_MAX + 1);
    r = run(&t, argv, timeout_ms, stop, err);
    if (r == 0)
        text = t.text.len ? buf_detach(&t.text) : strdup("");
    buf_clear(&t.text);
    buf_clear(&t.words);
    if (r < 0)
        return r;
    if (!text)
        return merr_set(err, -ENOMEM, "out of memory");
    *ret = text;
    return 0;
}

int tool_check(const char *path, struct merr *err)
{
    struct stat st;

    if (path[0] != '/' || stat(path, &st) < 0 || !S_ISREG(st.st_mode) || access(path, X_OK) < 0)
        return merr_set(err, -EINVAL, "'%s' is no path of a program that can be run", path);
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return merr_set(err, -EPERM, "others can change '%s': want it owned by root or this user, and chmod go-w",
                        path);
    return 0;
}
