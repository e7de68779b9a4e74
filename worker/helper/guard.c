/* A guard: one rank, from its start to the end of all it has left. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/helper/helper.h"

#define LOOK_MS 20   /* between two looks whether all of a rank is gone, once it has ended */
#define REAP_MS 1000 /* before: between two looks for orphans of it that have ended */

struct guard {
    const struct helper *h;
    struct helper_call order;
    struct helper_user user;
    pid_t child, init; /* init: of its pid namespace; 0: it has none */
    int status, wire;
    bool asked, ended, closed;
};

static _Noreturn void fail(int wire, const char *what, int code)
{
    struct helper_told told = {.kind = HELPER_FAILED, .number = code};

    (void)snprintf(told.text, sizeof(told.text), "cannot %s: %s", what, strerror(code));
    helper_tell(wire, told);
    _exit(1);
}

/* Folders of the agent's choice in place of /tmp and /dev/shm, and what of the node's memory is the job's. */
static int mount_all(const struct guard *g, const int fds[HELPER_FDS])
{
    const char *const targets[] = {"/tmp", "/dev/shm", g->order.keep};
    const gid_t groups[] = {g->h->agent.gid, g->user.gid}; /* who may pass through those folders */
    int trees[3];

    if (setgroups(2, groups) < 0)
        return -errno;

    for (int i = 0; i < 3; i++) /* before there is another namespace: in that one the folders are not */
        if ((trees[i] = open_tree(fds[HELPER_TMP + i], "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)) < 0)
            return -errno;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return -errno;
    for (int i = 0; i < 3; i++)
        if (*targets[i] && move_mount(trees[i], "", AT_FDCWD, targets[i], MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return -errno;
    return g->init && mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? -errno : 0;
}

static int enter_group(int folder)
{
    struct statfs fs;
    int fd = -1, r;

    if (fstatfs(folder, &fs) < 0 || (fs.f_type != CGROUP_SUPER_MAGIC && fs.f_type != CGROUP2_SUPER_MAGIC) ||
        (fd = openat(folder, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW)) < 0)
        return fd < 0 && errno ? -errno : -EINVAL;
    r = write(fd, "0", 1) == 1 ? 0 : -errno;
    (void)close(fd);
    return r;
}

static _Noreturn void run_child(const struct guard *g, const int fds[HELPER_FDS], pid_t parent)
{
    char *const argv[] = {"muster-agent", "rank", NULL}, *const envp[] = {NULL};
    int r = 0;

    (void)setpgid(0, 0);
    for (int i = HELPER_CGROUP; i < HELPER_FDS && fds[i] >= 0; i++)
        if ((r = enter_group(fds[i])) < 0)
            fail(g->wire, "enter the control group of the rank", -r);
    if (fds[HELPER_TMP] >= 0 && (r = mount_all(g, fds)) < 0)
        fail(g->wire, "give the rank a /tmp and /dev/shm of its own", -r);
    if ((r = user_become(g->h, &g->user)) < 0)
        fail(g->wire, "become the user of the rank", -r);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || (!g->init && getppid() != parent) ||
        dup2(fds[HELPER_OUTPUT], STDOUT_FILENO) < 0 || dup2(fds[HELPER_OUTPUT], STDERR_FILENO) < 0 ||
        dup2(fcntl(fds[HELPER_FILE], F_DUPFD_CLOEXEC, HELPER_ORDER_FD + 1), HELPER_ORDER_FD) < 0)
        fail(g->wire, "prepare the rank", errno);
    for (int i = 1; i < _NSIG; i++)
        (void)signal(i, SIG_DFL);
    (void)execveat(g->h->program, "", argv, envp, AT_EMPTY_PATH);
    fail(g->wire, "run muster-agent as the user of the rank", errno);
}

/* The first process of a pid namespace: orphans are its children, and all end with it. */
static _Noreturn void run_init(void)
{
    (void)signal(SIGCHLD, SIG_IGN); /* none is to be reaped */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || user_keep_capabilities(0, 0) < 0)
        _exit(1);
    (void)syscall(SYS_close_range, 0u, ~0u, 0);
    for (;;)
        (void)pause();
}

static void start(struct guard *g, int fds[HELPER_FDS])
{
    struct helper_told told = {.kind = HELPER_FAILED, .number = EPERM};
    pid_t self = getpid();
    int r;

    if (!user_find(g->h, g->order.user, &g->user, told.text)) {
        helper_tell(g->wire, told);
        _exit(1);
    }
    if (g->order.alone && fds[HELPER_TMP] >= 0 && unshare(CLONE_NEWPID) == 0 && (g->init = fork()) == 0)
        run_init();
    if (g->init < 0 || (g->child = fork()) < 0)
        fail(g->wire, "start a process", errno);
    if (g->child == 0)
        run_child(g, fds, self);
    for (int i = 0; i < HELPER_FDS; i++)
        if (i != HELPER_OUTPUT && fds[i] >= 0) /* that one is held until all of the rank is gone */
            (void)close(fds[i]);
    if ((r = user_keep_capabilities(1 << CAP_KILL, 0)) < 0)
        fail(g->wire, "drop capabilities", -r);
    helper_tell(g->wire, (struct helper_told){.kind = HELPER_DONE, .number = g->child});
}

/* Reap all that can be. True when none of the rank's processes is there any more. */
static bool reap(struct guard *g)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == g->child) {
            g->status = status;
            g->ended = true;
        }
    return pid < 0;
}

/* The children of a process of ours, as numbers that each end in a space. */
static void list_children(pid_t of, char *ret, size_t size)
{
    char path[64];
    int fd;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)of, (int)of);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, ret, size - 1);
    ret[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

/* SIGKILL to the rank's group, and to all our children: what the rank has left has come to us or to its init. */
static void kill_all(const struct guard *g)
{
    char text[4096], *end;

    if (!g->ended)
        (void)kill(-g->child, SIGKILL); /* it is not reaped: the number is its own */
    list_children(getpid(), text, sizeof(text));
    for (char *p = text; strtol(p, &end, 10) > 0 && *end == ' '; p = end)
        (void)kill((pid_t)strtol(p, NULL, 10), SIGKILL);
}

/* The rank has ended. What it has left goes with it, unless it was asked to end: then that may have work to finish. */
static bool is_over(const struct guard *g)
{
    char text[32] = "";

    if (g->asked && g->init)
        list_children(g->init, text, sizeof(text));
    return !g->asked || (g->init && !*text);
}

_Noreturn void guard_serve(const struct helper *h, int fd)
{
    static struct guard g;
    int fds[HELPER_FDS];
    struct helper_call c;
    int end;

    g.h = h;
    g.wire = fd;
    if (setsid() < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || !helper_receive(fd, &g.order, fds) ||
        g.order.kind != HELPER_START)
        _exit(1);
    start(&g, fds);
    end = (int)syscall(SYS_pidfd_open, g.child, 0);
    while (!reap(&g)) {
        struct pollfd p[2] = {{.fd = g.closed ? -1 : fd, .events = POLLIN},
                              {.fd = g.ended ? -1 : end, .events = POLLIN}};

        if (poll(p, 2, g.ended || g.closed || end < 0 ? LOOK_MS : REAP_MS) > 0 && p[0].revents) {
            if (!helper_receive(fd, &c, fds) || c.kind != HELPER_SIGNAL)
                g.closed = true;
            else if (!g.ended)
                (void)kill(-g.child, c.number);
            g.asked = g.asked || c.number == SIGTERM;
        }
        if (g.closed || (g.ended && is_over(&g)))
            kill_all(&g);
    }
    helper_tell(fd, (struct helper_told){.kind = HELPER_ENDED, .number = g.status});
    _exit(0);
}
