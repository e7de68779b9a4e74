#include "worker/agent/share.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/spec.h"
#include "base/clock.h"

#define GRACE_US 10000000 /* that ranks have to end once another has failed */
#define STOPPED 76        /* of a program that stops as it was ordered to (docs/programs.md) */

struct share {
    pid_t v[SPEC_RANKS_MAX]; /* 0: it has ended */
    int n, left;
    int first; /* wait status of the first that failed; 0: none has */
    int signal_fd;
    int64_t kill_us;
};

static void signal_all(const struct share *s, int number)
{
    for (int i = 0; i < s->n; i++)
        if (s->v[i] > 0)
            (void)kill(s->v[i], number);
}

static void number(const char *name, int i)
{
    const char *first = getenv(name);
    char text[16];

    (void)snprintf(text, sizeof(text), "%ld", (first ? strtol(first, NULL, 10) : 0) + i);
    (void)setenv(name, text, 1);
}

static void reap(struct share *s)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < s->n; i++)
            if (s->v[i] == pid) {
                s->v[i] = 0;
                s->left--;
                if (status == 0 || s->first != 0)
                    continue;
                s->first = status;
                if (WIFEXITED(status) && WEXITSTATUS(status) == STOPPED)
                    continue;
                signal_all(s, SIGTERM);
                s->kill_us = clock_mono_us() + GRACE_US;
            }
}

static void watch(struct share *s)
{
    struct pollfd p = {.fd = s->signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;

    for (reap(s); s->left > 0; reap(s)) {
        (void)poll(&p, 1, s->kill_us == INT64_MAX ? -1 : clock_poll_ms(s->kill_us));
        while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
            ; /* the ranks were sent the same; what counts is that they end */
        if (clock_mono_us() >= s->kill_us) {
            signal_all(s, SIGKILL);
            s->kill_us = INT64_MAX;
        }
    }
}

/* In a rank: as it would be without a parent of this kind. */
static void be_rank(int i, pid_t parent, const sigset_t *was)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(74);
    number("RANK", i);
    number("LOCAL_RANK", i);
    (void)sigprocmask(SIG_SETMASK, was, NULL);
}

int share_device(int n, int *ret_status, struct merr *err)
{
    struct share s = {.n = n, .kill_us = INT64_MAX};
    pid_t parent = getpid();
    sigset_t all, was;
    int r = 0;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &was);
    s.signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int i = 0; i < n && r == 0 && s.signal_fd >= 0; i++) {
        s.v[i] = fork();
        if (s.v[i] == 0) {
            be_rank(i, parent, &was);
            return 0;
        }
        r = s.v[i] < 0 ? -errno : 0;
        s.left += r == 0;
    }
    if (s.signal_fd < 0 || r < 0) {
        r = r < 0 ? r : -errno;
        signal_all(&s, SIGKILL);
        return merr_errno(err, r, "cannot start %d ranks on a device", n);
    }
    watch(&s);
    if (WIFSIGNALED(s.first)) {
        (void)prctl(PR_SET_DUMPABLE, 0); /* the rank's core is not ours */
        (void)signal(WTERMSIG(s.first), SIG_DFL);
        (void)sigprocmask(SIG_SETMASK, &was, NULL);
        (void)raise(WTERMSIG(s.first));
    }
    *ret_status = WIFEXITED(s.first) ? WEXITSTATUS(s.first) : 0;
    return 1;
}
