#include "worker/agent/checkout.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/git_source.h"
#include "base/clock.h"
#include "base/try.h"

#define END_MS 2000 /* that a git has to end once it is told to */

extern char **environ;

/* Wait for a child until deadline_us; its wait status, or -ETIMEDOUT. */
static int wait_for(pid_t pid, int64_t deadline_us)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0), status = -1;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (poll(&p, 1, clock_poll_ms(deadline_us)) < 0 && errno == EINTR)
        ;
    (void)close(fd);
    if (p.revents == 0)
        return -ETIMEDOUT;
    return waitpid(pid, &status, 0) == pid ? status : -ECHILD;
}

/* Run git in the folder with these arguments. */
static int git(const char *folder, char *const *arguments, int64_t deadline_us, struct merr *err)
{
    char *argv[24] = {"git",
                      "-C",
                      (char *)folder,
                      "-c",
                      "core.hooksPath=/dev/null",
                      "-c",
                      "core.fsmonitor=false",
                      "-c",
                      "advice.detachedHead=false",
                      "-c",
                      "gc.auto=0"};
    size_t n = 11;
    pid_t pid;
    int r;

    for (; *arguments && n < sizeof(argv) / sizeof(argv[0]) - 1; arguments++)
        argv[n++] = *arguments;
    r = posix_spawnp(&pid, "git", NULL, NULL, argv, environ);
    if (r == ENOENT)
        return merr_set(err, -ENOENT, "there is no git on this node, which the job's files come by");
    if (r)
        return merr_errno(err, -r, "cannot run git");
    r = wait_for(pid, deadline_us);
    if (r == -ETIMEDOUT) {
        (void)kill(pid, SIGTERM);
        if (wait_for(pid, clock_mono_us() + (int64_t)END_MS * 1000) == -ETIMEDOUT) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
        }
        return merr_set(err, -ETIMEDOUT, "git was not done in time; its last words are in the log");
    }
    return r == 0 ? 0 : merr_set(err, -EIO, "git failed; its words are in the log");
}

int checkout_commit(const char *url, const char *commit, const char *folder, int64_t deadline_us, struct merr *err)
{
    char *const init[] = {"init", "-q", "--template=", NULL};
    char *const one[] = {"fetch", "-q",        "--depth=1",    "--no-tags", "--no-recurse-submodules",
                         "--",    (char *)url, (char *)commit, NULL};
    char *const all[] = {
        "fetch", "-q", "--no-tags", "--no-recurse-submodules", "--", (char *)url, "+refs/*:refs/muster/*", NULL};
    char *const out[] = {"checkout", "-q", "--detach", (char *)commit, "--", NULL};
    int r;

    TRY(git_source_check_url(url, err));
    if (!git_source_is_commit(commit))
        return merr_set(err, -EINVAL, "'%.80s' is no commit", commit);
    (void)setenv("GIT_ALLOW_PROTOCOL", GIT_SOURCE_PROTOCOLS, 1);
    (void)setenv("GIT_TERMINAL_PROMPT", "0", 1);
    (void)setenv("GIT_SSH_COMMAND", "ssh -oBatchMode=yes -oConnectTimeout=20", 0);
    (void)unsetenv("GIT_ASKPASS");
    (void)unsetenv("SSH_ASKPASS");
    (void)unsetenv("GIT_DIR"); /* of whom the agent was started by */
    (void)unsetenv("GIT_WORK_TREE");
    TRY(git(folder, init, deadline_us, err));
    r = git(folder, one, deadline_us, err);
    if (r == -EIO) /* some servers give branches and tags alone */
        r = git(folder, all, deadline_us, err);
    return r < 0 ? r : git(folder, out, deadline_us, err);
}
