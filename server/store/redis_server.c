#include "server/store/redis_server.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#define LOCK_WAIT_S 20
#define SOCKET_NAME "redis.sock"

struct redis_server {
    char dir[4096];
    int dir_fd;  /* O_PATH: keeps the socket's path short */
    int stop_fd; /* eventfd: the keeper shall end */
    pthread_t keeper;
    bool keeping;
};

void redis_server_socket(const struct redis_server *s, char ret[REDIS_SERVER_PATH_MAX])
{
    (void)snprintf(ret, REDIS_SERVER_PATH_MAX, "/proc/self/fd/%d/" SOCKET_NAME, s->dir_fd);
}

const char *redis_server_dir(const struct redis_server *s)
{
    return s->dir;
}

static redisContext *connect_to(const struct redis_server *s)
{
    char path[REDIS_SERVER_PATH_MAX];
    redisContext *c;

    redis_server_socket(s, path);
    c = redisConnectUnixWithTimeout(path, (struct timeval){.tv_sec = 1});
    if (c && c->err == 0) {
        (void)fcntl(c->fd, F_SETFD, FD_CLOEXEC);
        return c;
    }
    if (c)
        redisFree(c);
    return NULL;
}

/* Wait on fd or for ms milliseconds. True when fd became readable. */
static bool wait_fd(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

/* Take the folder's lock; a server left over by a killed predecessor is asked to go. */
static int lock_dir(const struct redis_server *s, struct merr *err)
{
    int64_t deadline = clock_mono_us() + LOCK_WAIT_S * 1000000LL;
    int fd = openat(s->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool asked = false;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s/lock'", s->dir);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (!asked) {
            redisContext *c = connect_to(s);

            asked = true;
            if (c) {
                log_info("ending the store process that an earlier musterd left behind");
                freeReplyObject(redisCommand(c, "SHUTDOWN NOSAVE"));
                redisFree(c);
            }
        }
        if (clock_mono_us() > deadline || wait_fd(s->stop_fd, 20)) {
            io_close(&fd);
            return merr_set(err, -EBUSY, "another redis-server uses '%s' and does not end; stop it first", s->dir);
        }
    }
    return fd;
}

/* Runs in the forked child: only calls that are safe there. */
static void exec_server(const struct redis_server *s, int lock_fd, pid_t parent)
{
    static char *const argv[] = {
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        SOCKET_NAME,
        "--unixsocketperm",
        "700",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--save",
        "",
        "--aof-load-truncated",
        "yes",
        "--maxmemory-policy",
        "noeviction",
        "--daemonize",
        "no",
        "--logfile",
        "redis.log",
        "--loglevel",
        "notice",
        "--dir",
        ".",
        "--always-show-logo",
        "no",
        "--set-proc-title",
        "no",
        NULL,
    };
    sigset_t none;

    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(126);
    (void)setpgid(0, 0); /* a Ctrl-C at the terminal is for musterd, which then ends it in order */
    if (fchdir(s->dir_fd) < 0 || fcntl(lock_fd, F_SETFD, 0) < 0)
        _exit(126);
    (void)execvp(argv[0], argv);
    _exit(127);
}

/* Start one. Returns a pidfd with *ret_pid, or a negative errno. */
static int spawn(const struct redis_server *s, pid_t *ret_pid, struct merr *err)
{
    int lock_fd = lock_dir(s, err), fd, saved;
    pid_t pid, parent = getpid();

    if (lock_fd < 0)
        return lock_fd;
    pid = fork();
    if (pid == 0)
        exec_server(s, lock_fd, parent);
    saved = errno;
    io_close(&lock_fd);
    if (pid < 0)
        return merr_errno(err, -saved, "cannot start redis-server");
    fd = pidfd_open(pid, 0);
    if (fd < 0) {
        saved = errno;
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return merr_errno(err, -saved, "cannot watch redis-server");
    }
    *ret_pid = pid;
    return fd;
}

/* Wait for the server's end or the order to stop. Returns true when it shall be started again. */
static bool watch(const struct redis_server *s, int pid_fd, pid_t pid)
{
    struct pollfd p[2] = {{.fd = pid_fd, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};
    int status;

    while (poll(p, 2, -1) < 0 && errno == EINTR)
        continue;
    if (p[1].revents) {
        (void)kill(pid, SIGTERM);
        if (!wait_fd(pid_fd, 10000))
            (void)kill(pid, SIGKILL);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (p[1].revents)
        return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        log_error("redis-server is not installed; install Redis 7 or give --redis URL");
    else
        log_warn("the store process ended by itself (%s %d); see '%s/redis.log'; starting it again",
                 WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                 s->dir);
    return true;
}

/* The keeper is the server's parent: the server dies with this thread, which lives until redis_server_stop. */
static void *keep(void *arg)
{
    const struct redis_server *s = arg;
    int pause_ms = 0;

    for (;;) {
        int64_t started = clock_mono_us();
        struct merr err;
        pid_t pid = 0;
        int fd = spawn(s, &pid, &err);

        if (fd < 0)
            log_error("%s", err.text);
        else if (!watch(s, fd, pid)) {
            io_close(&fd);
            return NULL;
        }
        io_close(&fd);
        pause_ms = clock_mono_us() - started > 10000000 ? 0
                   : pause_ms == 0                      ? 50
                   : pause_ms < 2000                    ? pause_ms * 2
                                                        : 2000;
        if (wait_fd(s->stop_fd, pause_ms))
            return NULL;
    }
}

int redis_server_start(const char *dir, struct redis_server **ret, struct merr *err)
{
    struct redis_server *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return merr_set(err, -ENOMEM, "out of memory");
    s->dir_fd = s->stop_fd = -1;
    (void)snprintf(s->dir, sizeof(s->dir), "%s", dir);
    r = io_mkdirs(dir, 0700, err);
    if (r < 0)
        goto fail;
    s->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (s->dir_fd < 0 || s->stop_fd < 0) {
        r = merr_errno(err, -errno, "cannot open '%s'", dir);
        goto fail;
    }
    r = -pthread_create(&s->keeper, NULL, keep, s);
    if (r < 0) {
        (void)merr_errno(err, r, "cannot start the store's thread");
        goto fail;
    }
    s->keeping = true;
    *ret = s;
    return 0;
fail:
    redis_server_stop(s);
    return r;
}

void redis_server_stop(struct redis_server *s)
{
    uint64_t one = 1;

    if (!s)
        return;
    if (s->keeping) {
        (void)io_write_all(s->stop_fd, &one, sizeof(one));
        (void)pthread_join(s->keeper, NULL);
    }
    io_close(&s->stop_fd);
    io_close(&s->dir_fd);
    free(s);
}
