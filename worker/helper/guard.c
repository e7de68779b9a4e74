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
    pid_t child;
    int status, wire;
    bool is_init; /* of a pid namespace, which ends with us */
    bool asked, ended, closed;
};

/* Go on when it is done; else say what cannot be, and end. */
static void need(const struct guard *g, bool done, const char *what)
{
    struct helper_told told = {.kind = HELPER_FAILED};

    if (done)
        return;
    (void)snprintf(told.text, sizeof(told.text), "cannot %s: %s", what, strerror(errno));
    helper_tell(g->wire, told);
    _exit(1);
}

/* Folders of the agent's choice in place of /tmp and /dev/shm, and what of the node's memory is the job's. */
static bool mount_all(const struct guard *g, const int fds[HELPER_FDS])
{
    const char *const targets[] = {"/tmp", "/dev/shm", g->order.keep};
    const gid_t groups[] = {g->h->agent.gid, g->user.gid}; /* who may pass through those folders */
    bool good = setgroups(2, groups) == 0;
    int trees[3];

    for (int i = 0; good && i < 3; i++) { /* before there is another namespace: in that one the folders are not */
        trees[i] = open_tree(fds[HELPER_TMP + i], "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        good = trees[i] >= 0;
    }
    good = good && unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0;
    for (int i = 0; good && i < 3; i++)
        good = !*targets[i] || move_mount(trees[i], "", AT_FDCWD, targets[i], MOVE_MOUNT_F_EMPTY_PATH) == 0;
    return good && (!g->is_init || mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0);
}

static bool enter_group(int folder)
{
    int fd = openat(folder, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct statfs fs;
    bool good = fd >= 0 && fstatfs(fd, &fs) == 0 &&
                (fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC) && write(fd, "0", 1) == 1;

    (void)close(fd);
    return good;
}

static _Noreturn void run_child(const struct guard *g, const int fds[HELPER_FDS], pid_t parent)
{
    char *const argv[] = {"muster-agent", "rank", NULL}, *const envp[] = {NULL};

    (void)setpgid(0, 0);
    for (int i = HELPER_CGROUP; i < HELPER_FDS && fds[i] >= 0; i++)
        need(g, enter_group(fds[i]), "enter the control group of the rank");
    need(g, fds[HELPER_TMP] < 0 || mount_all(g, fds), "give the rank a /tmp and /dev/shm of its own");
    need(g, user_become(g->h, &g->user), "become the user of the rank");
    need(g,
         prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && dup2(fds[HELPER_OUTPUT], STDOUT_FILENO) >= 0 &&
             dup2(fds[HELPER_OUTPUT], STDERR_FILENO) >= 0 &&
             dup2(fcntl(fds[HELPER_FILE], F_DUPFD_CLOEXEC, HELPER_ORDER_FD + 1), HELPER_ORDER_FD) >= 0,
         "prepare the rank");
    for (int i = 1; i < _NSIG; i++)
        (void)signal(i, SIG_DFL);
    (void)execveat(g->h->program, "", argv, envp, AT_EMPTY_PATH);
    need(g, false, "run muster-agent as the user of the rank");
    _exit(1);
}

static void start(struct guard *g, int fds[HELPER_FDS])
{
    struct helper_told told = {.kind = HELPER_FAILED, .number = EPERM};
    pid_t self;

    if (!user_find(g->h, g->order.user, &g->user, told.text)) {
        helper_tell(g->wire, told);
        _exit(1);
    }
    /* Alone, we go on as the first process of a pid namespace: all that the rank leaves comes to us. */
    if (g->order.alone && fds[HELPER_TMP] >= 0 && unshare(CLONE_NEWPID) == 0) {
        g->child = fork();
        need(g, g->child >= 0, "start a process");
        if (g->child > 0)
            _exit(0);
        g->is_init = true;
    }
    self = getpid();
    need(g, prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && (g->child = fork()) >= 0, "start a process");
    if (g->child == 0)
        run_child(g, fds, self);
    for (int i = 0; i < HELPER_FDS; i++)
        if (i != HELPER_OUTPUT && fds[i] >= 0) /* that one is held until all of the rank is gone */
            (void)close(fds[i]);
    need(g, user_keep_capabilities(1 << CAP_KILL, 0), "drop capabilities");
    helper_tell(g->wire, (struct helper_told){.kind = HELPER_DONE});
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

/* SIGKILL to all that is of the rank: what its processes left behind has become our child. */
static void kill_all(const struct guard *g)
{
    char text[4096], *end;
    ssize_t n;
    int fd;

    if (g->is_init) {
        (void)kill(-1, SIGKILL); /* all of the namespace but us */
        return;
    }
    if (!g->ended)
        (void)kill(-g->child, SIGKILL); /* it is not reaped: the number is its own */
    fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    (void)close(fd);
    for (char *p = text; strtol(p, &end, 10) > 0 && *end == ' '; p = end)
        (void)kill((pid_t)strtol(p, NULL, 10), SIGKILL);
}

_Noreturn void guard_serve(const struct helper *h, int fd)
{
    static struct guard g;
    int fds[HELPER_FDS];
    struct helper_call c;
    int end;

    g.h = h;
    g.wire = fd;
    if (!helper_receive(fd, &g.order, fds) || g.order.kind != HELPER_START)
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
        if (g.closed || (g.ended && !g.asked)) /* who was asked to end may leave work to finish */
            kill_all(&g);
    }
    helper_tell(fd, (struct helper_told){.kind = HELPER_ENDED, .number = g.status});
    _exit(0);
}
