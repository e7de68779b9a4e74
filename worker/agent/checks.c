#include "worker/agent/checks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/utf8.h"

#define STOP_MS 100 /* a stop is seen within */

extern char **environ;

void checks_add(struct checks_found *all, enum checks_level level, const char *reason)
{
    char both[2 * CHECKS_REASON_MAX + 4];
    bool first = level > all->level || !*all->reason;

    (void)snprintf(both, sizeof(both), "%s%s%s", first ? reason : all->reason, *all->reason && *reason ? "; " : "",
                   first ? all->reason : reason);
    utf8_copy(all->reason, sizeof(all->reason), both);
    all->level = level > all->level ? level : all->level;
}

/* --- what is built in -------------------------------------------------------------------------------- */

static void look_at_folder(const struct checks_cfg *cfg, struct checks_found *ret)
{
    char path[4200], text[300];
    struct statvfs fs;
    struct merr err;
    int r;

    (void)snprintf(path, sizeof(path), "%s/check", cfg->state);
    r = io_write_file(path, "well\n", 5, 0600, &err); /* to the disk, whose errors show only there */
    if (r < 0) {
        (void)snprintf(text, sizeof(text), "its state folder cannot be written: %.200s", err.text);
        checks_add(ret, r == -EIO || r == -EROFS ? CHECKS_DRAIN : CHECKS_NO_WORK, text); /* no room may come back */
    } else if (statvfs(cfg->state, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < cfg->free_least) {
        (void)snprintf(text, sizeof(text), "the disk of its state folder has %llu MiB left",
                       (unsigned long long)((uint64_t)fs.f_bavail * fs.f_frsize >> 20));
        checks_add(ret, CHECKS_NO_WORK, text);
    }
    (void)unlink(path);
}

static void look_at_memory(const struct checks_cfg *cfg, struct checks_found *ret)
{
    struct statvfs fs;

    if (cfg->memory && statvfs(cfg->memory, &fs) == 0 && fs.f_blocks > 0 &&
        (uint64_t)fs.f_bavail * fs.f_frsize < CHECKS_MEMORY_LEAST)
        checks_add(ret, CHECKS_NO_WORK, "no room is left in its shared memory (/dev/shm)");
}

static void look_at_network(const struct checks_cfg *cfg, struct checks_found *ret)
{
    struct nic now = cfg->nic.family == PLAN_NIC_UNKNOWN ? cfg->nic : nic_find(cfg->rdma);
    char path[300], text[200];
    struct buf state;

    if (cfg->nic.family == PLAN_NIC_INFINIBAND || cfg->nic.family == PLAN_NIC_ROCE)
        if (now.family != cfg->nic.family)
            checks_add(ret, CHECKS_NO_WORK, "the RDMA port that linked it to others is down");
    if (!*cfg->device)
        return;
    (void)snprintf(path, sizeof(path), "%s/%s/operstate", cfg->net, cfg->device);
    buf_init(&state, 64);
    if (io_read_file(path, &state, NULL) == 0 && strncmp(buf_text(&state), "down", 4) == 0) {
        (void)snprintf(text, sizeof(text), "its network device %s is down", cfg->device);
        checks_add(ret, CHECKS_NO_WORK, text);
    }
    buf_clear(&state);
}

void checks_look(const struct checks_cfg *cfg, int64_t skew_us, struct checks_found *ret)
{
    char text[120];

    look_at_folder(cfg, ret);
    look_at_memory(cfg, ret);
    look_at_network(cfg, ret);
    if (skew_us > CHECKS_SKEW_US || skew_us < -CHECKS_SKEW_US) { /* nothing is decided by nodes' clocks */
        (void)snprintf(text, sizeof(text), "its clock is %.0f s %s the server's", (double)llabs(skew_us) / 1e6,
                       skew_us > 0 ? "ahead of" : "behind");
        checks_add(ret, CHECKS_WELL, text);
    }
}

void checks_find_device(const char *address, char *ret, size_t size)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];

    *ret = '\0';
    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *i = all; i && !*ret; i = i->ifa_next) {
        const void *at = !i->ifa_addr                         ? NULL
                         : i->ifa_addr->sa_family == AF_INET  ? (void *)&((struct sockaddr_in *)i->ifa_addr)->sin_addr
                         : i->ifa_addr->sa_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr
                                                              : NULL;

        if (at && inet_ntop(i->ifa_addr->sa_family, at, text, sizeof(text)) && strcmp(text, address) == 0)
            (void)snprintf(ret, size, "%s", i->ifa_name);
    }
    freeifaddrs(all);
}

/* --- programs ---------------------------------------------------------------------------------------- */

/* In a group of its own, and without the signals that this process holds back. */
static int start(const char *const argv[], int out, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, usual;
    int r;

    (void)sigemptyset(&none);
    (void)sigemptyset(&usual);
    (void)sigaddset(&usual, SIGPIPE);
    (void)sigaddset(&usual, SIGHUP);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attr) != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    r = r ? r : posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    r = r ? r : posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    r = r ? r : posix_spawnattr_setsigmask(&attr, &none);
    r = r ? r : posix_spawnattr_setsigdefault(&attr, &usual);
    r = r ? r : posix_spawnattr_setpgroup(&attr, 0);
    r = r ? r : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    r = r ? r : posix_spawn(ret, argv[0], &actions, &attr, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attr);
    return -r;
}

/* Read until its end has come, which is when it has closed its output, or the time is over. False: it is over. */
static bool read_until(int fd, int64_t deadline_us, const _Atomic bool *stop, char *out, size_t size)
{
    char dropped[512];
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left_us = deadline_us - clock_mono_us();
        ssize_t got;

        if (left_us <= 0 || (stop && atomic_load(stop)))
            return false;
        if (poll(&p, 1, left_us > STOP_MS * 1000 ? STOP_MS : (int)(left_us / 1000) + 1) <= 0)
            continue;
        got = n + 1 < size ? read(fd, out + n, size - 1 - n) : read(fd, dropped, sizeof(dropped));
        if (got <= 0)
            return got == 0;
        n += n + 1 < size ? (size_t)got : 0;
        out[n] = '\0';
    }
}

int checks_spawn(const char *const argv[], const struct checks_wait *wait, char *out, size_t size)
{
    int64_t deadline_us = clock_mono_us() + wait->timeout_ms * INT64_C(1000);
    int pipe_fd[2], status = 0, r;
    bool ended;
    pid_t pid, got = 0;

    *out = '\0';
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        return -errno;
    r = start(argv, pipe_fd[1], &pid);
    (void)close(pipe_fd[1]);
    if (r < 0) {
        (void)close(pipe_fd[0]);
        return r;
    }
    ended = read_until(pipe_fd[0], deadline_us, wait->stop, out, size);
    while (ended && (got = waitpid(pid, &status, WNOHANG)) == 0 && clock_mono_us() < deadline_us)
        (void)poll(NULL, 0, 5); /* its output is closed: it is about to end */
    (void)kill(-pid, SIGKILL);  /* what it has left behind, too */
    if (got == 0)
        (void)waitpid(pid, &status, 0);
    (void)close(pipe_fd[0]);
    if (got <= 0)
        return -ETIMEDOUT;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

int checks_run_program(const char *program, const struct checks_wait *wait, struct checks_found *ret)
{
    const char *const argv[] = {program, NULL};
    char out[CHECKS_REASON_MAX];
    int status = checks_spawn(argv, wait, out, sizeof(out));
    size_t n = strlen(out);

    if (status < 0 || status >= CHECKS_LEVELS)
        return status < 0 ? status : -EIO;
    while (n > 0 && (unsigned char)out[n - 1] <= ' ')
        n--;
    out[n] = '\0';
    utf8_patch(out, n);
    for (char *p = out; *p; p++)
        *p = (unsigned char)*p < ' ' ? ' ' : *p;
    if (status != CHECKS_WELL)
        checks_add(ret, (enum checks_level)status, *out ? out : "its health program says so");
    return 0;
}
