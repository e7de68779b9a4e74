#include "worker/agent/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

#define FIELD_STATE 3
#define FIELD_START 22

/* State letter and start time from /proc/PID/stat. The name in its second field may hold anything, so
 * fields are counted from the last ')'. */
static int read_stat(pid_t pid, char *ret_state, uint64_t *ret_start)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[64], text[1024], *p, *end;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    n = io_read_full(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return -ESRCH; /* it ended between open and read */
    text[n] = '\0';
    p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -EPROTO;
    p += 2;
    *ret_state = *p;
    for (int field = FIELD_STATE; field < FIELD_START; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -EPROTO;
        p++;
    }
    errno = 0;
    *ret_start = strtoull(p, &end, 10);
    return end == p || errno ? -EPROTO : 0;
}

int proc_start_time(pid_t pid, uint64_t *ret_start)
{
    char state;

    return read_stat(pid, &state, ret_start);
}

int proc_open(struct proc_id id)
{
    uint64_t start;
    char state;
    int fd, r;

    if (id.pid <= 0)
        return -ESRCH;
    fd = (int)syscall(SYS_pidfd_open, id.pid, 0);
    if (fd < 0)
        return -errno;
    /* The pidfd holds whoever has the number now; if the start time fits, it is ours and stays so. */
    r = read_stat(id.pid, &state, &start);
    if (r == 0 && start == id.start)
        return fd;
    (void)close(fd);
    return r < 0 ? r : -ESRCH;
}

bool proc_alive(struct proc_id id)
{
    uint64_t start;
    char state;

    return id.pid > 0 && read_stat(id.pid, &state, &start) == 0 && start == id.start && state != 'Z' && state != 'X';
}

bool proc_stopped(struct proc_id id)
{
    uint64_t start;
    char state;

    return id.pid > 0 && read_stat(id.pid, &state, &start) == 0 && start == id.start && (state == 'T' || state == 't');
}

int proc_kill_fd(int pidfd, int signal)
{
    return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

int proc_kill(struct proc_id id, int signal)
{
    int fd = proc_open(id), r;

    if (fd < 0)
        return fd;
    r = proc_kill_fd(fd, signal);
    (void)close(fd);
    return r;
}

void proc_boot_id(char out[PROC_BOOT_ID_MAX])
{
    IO_CLOSE_AUTO int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : io_read_full(fd, out, PROC_BOOT_ID_MAX - 1);

    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

void proc_kill_children(void)
{
    char path[64], text[4096], *p, *end;
    IO_CLOSE_AUTO int fd = -1;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : io_read_full(fd, text, sizeof(text) - 1);
    if (n < 0)
        return; /* a kernel without the list: the group and the cgroup were killed */
    text[n] = '\0';
    for (p = text;; p = end) {
        long pid = strtol(p, &end, 10);

        /* A number at the very end of a full buffer may be cut: the next round gets it. */
        if (end == p || (n == (ssize_t)sizeof(text) - 1 && *end == '\0'))
            break;
        (void)kill((pid_t)pid, SIGKILL);
    }
}
