#include "worker/agent/shim_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "base/parcel.h"
#include "worker/agent/shim.h"

extern char **environ;

static void child_run(const char *train, pid_t parent, int fd) __attribute__((noreturn));

static void child_run(const char *train, pid_t parent, int fd)
{
    char *const argv[] = {(char *)(uintptr_t) "muster-train", (char *)(uintptr_t) "--wait", NULL};
    sigset_t all;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(fd, STDIN_FILENO) < 0)
        _exit(1);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_UNBLOCK, &all, NULL);
    (void)execvp(train, argv);
    _exit(127);
}

/* Until the agent says something, or ends, or the program does. True: the agent. */
static bool wait_agent(int image_fd)
{
    struct pollfd fds[2] = {{.fd = SHIM_READY_FD, .events = POLLIN}, {.fd = image_fd, .events = POLLIN}};

    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return !fds[1].revents && (fds[0].revents & POLLIN);
}

int shim_wait(const char *train, struct shim_image *ret, int *ret_argc, char ***ret_argv)
{
    struct parcel given;
    pid_t self = getpid();
    int pair[2], r;

    (void)syscall(SYS_close_range, (unsigned)SHIM_READY_FD + 1, ~0u, 0);
    (void)fcntl(SHIM_READY_FD, F_SETFD, FD_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ret->pid = fork();
    if (ret->pid < 0)
        return -errno;
    if (ret->pid == 0)
        child_run(train, self, pair[1]);
    (void)setpgid(ret->pid, ret->pid);
    (void)close(pair[1]);
    ret->fd = pair[0];
    r = wait_agent(ret->fd) ? parcel_receive(SHIM_READY_FD, &given) : -EPIPE;
    if (r == 0 && (dup2(given.fds[0], STDOUT_FILENO) < 0 || dup2(given.fds[0], STDERR_FILENO) < 0 ||
                   dup2(given.fds[1], SHIM_READY_FD) < 0))
        r = -EPROTO;
    if (r < 0)
        return r;
    io_close(&given.fds[0]);
    io_close(&given.fds[1]);
    environ = given.env;
    *ret_argc = given.n_args;
    *ret_argv = given.args;
    return 0;
}

int shim_wait_go(struct shim_image *image, const char *workdir, char *const *argv, int output_fd)
{
    size_t n = 0;
    char **args;
    int r;

    while (argv[n])
        n++;
    args = calloc(n + 2, sizeof(*args));
    if (!args)
        return -ENOMEM;
    args[0] = (char *)(uintptr_t)(workdir ? workdir : ".");
    for (size_t i = 0; i < n; i++)
        args[i + 1] = argv[i];
    r = parcel_send(image->fd, args, environ, &output_fd, 1);
    free(args);
    io_close(&image->fd);
    return r;
}
