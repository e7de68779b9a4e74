/* muster-helper: see helper.h. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/helper/helper.h"

#define CAPABILITIES                                                                                                   \
    (1 << CAP_CHOWN | 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID | 1 << CAP_SETPCAP | 1 << CAP_SYS_ADMIN)

#define GUARD_FD 64 /* of the socket of a guard */

static struct helper helper;

/* An open file or folder of the agent's, or of its group (a job's, that the server has made), becomes a user's, or its
 * group that user's. */
static void give(const struct helper_call *c, int wire, int fd)
{
    struct helper_told told = {.kind = HELPER_FAILED, .number = EPERM};
    struct helper_user to;
    struct stat st;

    if (fstat(fd, &st) < 0 || (st.st_uid != helper.agent.uid && st.st_gid != helper.agent.gid) ||
        (S_ISREG(st.st_mode) ? st.st_nlink != 1 : !S_ISDIR(st.st_mode)))
        (void)snprintf(told.text, sizeof(told.text),
                       "only a file or folder of the agent or its group can be given away");
    else if (user_find(&helper, c->user, &to, told.text)) {
        bool all = c->kind == HELPER_GIVE;

        if (fchown(fd, all ? to.uid : (uid_t)-1, all ? helper.agent.gid : to.gid) == 0)
            told.kind = HELPER_DONE;
        else
            (void)snprintf(told.text, sizeof(told.text), "cannot give it to '%s': %s", to.name, strerror(errno));
    }
    helper_tell(wire, told);
}

/* One packet of the agent's. False: it has hung up. */
static bool serve(int wire)
{
    int fds[HELPER_FDS];
    struct helper_call c;

    if (!helper_receive(wire, &c, fds))
        return false;
    if (c.kind == HELPER_GUARD && fork() == 0) {
        int own = fcntl(fds[HELPER_FILE], F_DUPFD_CLOEXEC, GUARD_FD);

        (void)signal(SIGCHLD, SIG_DFL);
        (void)close_range(3, GUARD_FD - 1, 0); /* the agent's socket is none of a guard's */
        guard_serve(&helper, own);
    }
    if (c.kind == HELPER_GIVE || c.kind == HELPER_GIVE_GROUP)
        give(&c, wire, fds[HELPER_FILE]);
    for (int i = 0; i < HELPER_FDS; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    return true;
}

static void find_account(const char *name, struct helper_user *ret)
{
    const struct passwd *p = getpwnam(name);

    if (!p || p->pw_uid == 0 || p->pw_gid == 0 || strlen(name) >= sizeof(ret->name))
        errx(1, "'%s' is no account for Muster: want a user of this machine, not root", name);
    *ret = (struct helper_user){.uid = p->pw_uid, .gid = p->pw_gid};
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name);
}

/* This process, which whoever started it looks after, becomes the agent. */
static _Noreturn void become_agent(char **argv, int wire)
{
    char number[16];

    (void)snprintf(number, sizeof(number), "%d", fcntl(wire, F_DUPFD, 10));
    if (setenv(HELPER_ENV, number, 1) < 0 || setenv("USER", helper.agent.name, 1) < 0 ||
        !user_become(&helper, &helper.agent))
        err(1, "cannot become the user of the agent");
    (void)execv(argv[0], argv);
    err(1, "cannot run '%s'", argv[0]);
}

int main(int argc, char **argv)
{
    char self[4096] = "";
    int wires[2], fd;
    pid_t pid;

    if (argc < 4 || argv[3][0] != '/' || geteuid() != 0)
        errx(2, "usage, by root: muster-helper AGENT-ACCOUNT JOB-ACCOUNT /PATH/OF/muster-agent ARGUMENT...\n"
                "Runs a node's agent under one account, and starts its ranks under those of their users.");
    find_account(argv[1], &helper.agent);
    find_account(argv[2], &helper.job);
    if (helper.agent.uid == helper.job.uid || helper.agent.gid == helper.job.gid)
        errx(1, "agent and jobs want users and groups of their own");
    fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, self, sizeof(self) - 1) > 0)
        delegate_groups(&helper.agent, "/sys/fs/cgroup", self);
    /* No descriptor of ours has a number that those have which a rank begins with, or which a guard closes. */
    helper.program = fcntl(open(argv[3], O_PATH | O_CLOEXEC), F_DUPFD_CLOEXEC, GUARD_FD + 1);
    if (helper.program < 0)
        err(1, "cannot open '%s'", argv[3]);
    (void)umask(022);
    if (setgroups(1, &helper.agent.gid) < 0 || !user_keep_capabilities(CAPABILITIES, CAPABILITIES) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) < 0 || (pid = fork()) < 0)
        err(1, "cannot start");
    if (pid > 0)
        become_agent(argv + 3, wires[1]);
    (void)close(wires[1]);
    (void)setsid();                 /* what a terminal sends is the agent's */
    (void)signal(SIGCHLD, SIG_IGN); /* guards, of which nothing is asked */
    while (serve(wires[0]))
        ;
    return 0;
}
