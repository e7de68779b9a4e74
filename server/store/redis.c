#include "server/store/redis.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
#define START_WAIT_S 60 /* a long log takes a while to load */
#define COMMAND_TIMEOUT_S 10
#define SOCKET_NAME "redis.sock"
#define REDIS_PORT 6379

struct redis {
    redisContext *context;
    char where[256]; /* host or path */
    int port;        /* 0: a path */
    _Atomic bool up;

    bool private_;
    char dir[4096];
    int dir_fd;  /* O_PATH: keeps the socket's path short */
    int stop_fd; /* eventfd: the keeper shall end */
    pthread_t keeper;
    bool keeping;
};

int redis_url_parse(const char *url, char *ret_where, size_t size, int *ret_port, struct merr *err)
{
    const char *host, *colon;
    char *end;
    long port = REDIS_PORT;

    if (strncmp(url, "unix://", 7) == 0) {
        if (url[7] != '/' || strlen(url + 7) >= size)
            return merr_set(err, -EINVAL, "'%s' names no socket; write unix:///path/to/socket", url);
        (void)snprintf(ret_where, size, "%s", url + 7);
        *ret_port = 0;
        return 0;
    }
    if (strncmp(url, "redis://", 8) != 0)
        return merr_set(err, -EINVAL, "'%s' is no address of a Redis; write unix:///path or redis://host:port", url);
    host = url + 8;
    colon = strchr(host, ':');
    if (colon) {
        port = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || (*end && strcmp(end, "/") != 0) || port < 1 || port > 65535)
            return merr_set(err, -EINVAL, "'%s' has no port from 1 to 65535 after its colon", url);
    }
    size_t n = colon ? (size_t)(colon - host) : strcspn(host, "/");

    if (n == 0 || n >= size)
        return merr_set(err, -EINVAL, "'%s' names no host", url);
    memcpy(ret_where, host, n);
    ret_where[n] = '\0';
    *ret_port = (int)port;
    return 0;
}

/* --- the private server ------------------------------------------------------------------------------ */

static redisContext *connect_once(const struct redis *r)
{
    struct timeval timeout = {.tv_sec = 1};
    redisContext *c;
    char path[64];

    if (r->private_) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d/" SOCKET_NAME, r->dir_fd);
        c = redisConnectUnixWithTimeout(path, timeout);
    } else if (r->port == 0) {
        c = redisConnectUnixWithTimeout(r->where, timeout);
    } else {
        c = redisConnectWithTimeout(r->where, r->port, timeout);
    }
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
static int lock_dir(const struct redis *r, struct merr *err)
{
    int64_t deadline = clock_mono_us() + LOCK_WAIT_S * 1000000LL;
    int fd = openat(r->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool asked = false;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s/lock'", r->dir);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (!asked) {
            redisContext *c = connect_once(r);

            asked = true;
            if (c) {
                log_info("ending the store process that an earlier musterd left behind");
                freeReplyObject(redisCommand(c, "SHUTDOWN NOSAVE"));
                redisFree(c);
            }
        }
        if (clock_mono_us() > deadline || wait_fd(r->stop_fd, 20)) {
            io_close(&fd);
            return merr_set(err, -EBUSY, "another redis-server uses '%s' and does not end; stop it first", r->dir);
        }
    }
    return fd;
}

/* Runs in the forked child: only calls that are safe there. */
static void exec_server(const struct redis *r, int lock_fd, pid_t parent)
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
    if (fchdir(r->dir_fd) < 0 || fcntl(lock_fd, F_SETFD, 0) < 0)
        _exit(126);
    (void)execvp(argv[0], argv);
    _exit(127);
}

/* Start one. Returns a pidfd with *ret_pid, or a negative errno. */
static int spawn(const struct redis *r, pid_t *ret_pid, struct merr *err)
{
    int lock_fd = lock_dir(r, err), fd, saved;
    pid_t pid, parent = getpid();

    if (lock_fd < 0)
        return lock_fd;
    pid = fork();
    if (pid == 0)
        exec_server(r, lock_fd, parent);
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
static bool watch(const struct redis *r, int pid_fd, pid_t pid)
{
    struct pollfd p[2] = {{.fd = pid_fd, .events = POLLIN}, {.fd = r->stop_fd, .events = POLLIN}};
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
                 r->dir);
    return true;
}

/* The keeper is the server's parent: the server dies with this thread, which lives until redis_stop. */
static void *keep(void *arg)
{
    const struct redis *r = arg;
    int pause_ms = 0;

    for (;;) {
        int64_t started = clock_mono_us();
        struct merr err;
        pid_t pid = 0;
        int fd = spawn(r, &pid, &err);

        if (fd < 0)
            log_error("%s", err.text);
        else if (!watch(r, fd, pid)) {
            io_close(&fd);
            return NULL;
        }
        io_close(&fd);
        pause_ms = clock_mono_us() - started > 10000000 ? 0
                   : pause_ms == 0                      ? 50
                   : pause_ms < 2000                    ? pause_ms * 2
                                                        : 2000;
        if (wait_fd(r->stop_fd, pause_ms))
            return NULL;
    }
}

static int start_private(struct redis *r, const char *dir, struct merr *err)
{
    int s;

    r->private_ = true;
    (void)snprintf(r->dir, sizeof(r->dir), "%s", dir);
    s = io_mkdirs(dir, 0700, err);
    if (s < 0)
        return s;
    r->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    r->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (r->dir_fd < 0 || r->stop_fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", dir);
    s = pthread_create(&r->keeper, NULL, keep, r);
    if (s != 0)
        return merr_errno(err, -s, "cannot start the store's thread");
    r->keeping = true;
    return 0;
}

int redis_start(const char *dir, const char *url, struct redis **ret, struct merr *err)
{
    struct redis *r = calloc(1, sizeof(*r));
    int s;

    if (!r)
        return merr_set(err, -ENOMEM, "out of memory");
    r->dir_fd = r->stop_fd = -1;
    s = url ? redis_url_parse(url, r->where, sizeof(r->where), &r->port, err) : start_private(r, dir, err);
    if (s == 0)
        s = redis_connect(r, clock_mono_us() + START_WAIT_S * 1000000LL, err);
    if (s < 0) {
        redis_stop(r);
        return s;
    }
    *ret = r;
    return 0;
}

redisContext *redis_context(struct redis *r)
{
    return r->context;
}

bool redis_private(const struct redis *r)
{
    return r->private_;
}

bool redis_up(const struct redis *r)
{
    return atomic_load(&r->up);
}

void redis_set_up(struct redis *r, bool up)
{
    atomic_store(&r->up, up);
}

static bool answers(redisContext *c)
{
    redisReply *reply = redisCommand(c, "PING");
    bool yes = reply && reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return yes;
}

int redis_connect(struct redis *r, int64_t deadline_us, struct merr *err)
{
    struct timeval timeout = {.tv_sec = COMMAND_TIMEOUT_S};
    struct pollfd none = {.fd = -1};

    if (r->context)
        redisFree(r->context);
    r->context = NULL;
    redis_set_up(r, false);
    for (;;) {
        redisContext *c = connect_once(r);

        if (c && redisSetTimeout(c, timeout) == REDIS_OK && answers(c)) {
            r->context = c;
            redis_set_up(r, true);
            return 0;
        }
        if (c)
            redisFree(c);
        if (clock_mono_us() >= deadline_us)
            return r->private_
                       ? merr_set(err, -ETIMEDOUT, "the store process does not answer; see '%s/redis.log'", r->dir)
                       : merr_set(err, -ETIMEDOUT, "no Redis answers at '%s'; is it running?", r->where);
        (void)poll(&none, 1, 10);
    }
}

void redis_stop(struct redis *r)
{
    uint64_t one = 1;

    if (!r)
        return;
    if (r->context)
        redisFree(r->context);
    if (r->keeping) {
        (void)io_write_all(r->stop_fd, &one, sizeof(one));
        (void)pthread_join(r->keeper, NULL);
    }
    io_close(&r->stop_fd);
    io_close(&r->dir_fd);
    free(r);
}
