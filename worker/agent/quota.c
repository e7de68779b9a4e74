#include "worker/agent/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

#define PERIOD_LEAST_US 10000 /* short, so that ranks that wait for each other seldom wait for a period's end */
#define PERIOD_MOST_US 100000
#define RUN_LEAST_US 2000 /* in a period */

static int write_text(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 64];
    int fd, r;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = io_write_all(fd, text, strlen(text));
    (void)close(fd);
    return r;
}

static bool has(const char *dir, const char *name)
{
    char path[PATH_MAX + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* The path of this process in a hierarchy: of the line of /proc/self/cgroup that has ":controller:" or, for version 2,
 * "0::". */
static bool own_path(const char *text, const char *mark, char *ret, size_t size)
{
    const char *line = strstr(text, mark);

    if (!line)
        return false;
    line += strlen(mark);
    return snprintf(ret, size, "%.*s", (int)strcspn(line, "\n"), line) < (int)size;
}

/* A child of this process enters dir. 0 or a negative errno. */
static int try_join(const char *dir)
{
    pid_t child = fork();
    int status = 0, r;

    if (child == 0)
        _exit(-quota_join(dir) & 0xff);
    do
        r = child < 0 ? -errno : waitpid(child, &status, 0) < 0 ? -errno : 0;
    while (child > 0 && r == -EINTR);
    return r < 0 ? r : WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

static int try_root(const char *root, struct merr *err)
{
    char probe[PATH_MAX];
    int enabled, r;

    if (snprintf(probe, sizeof(probe), "%s/muster-quota-%d", root, (int)getpid()) >= (int)sizeof(probe))
        return merr_set(err, -ENAMETOOLONG, "the path of this process's control group is too long");
    enabled = write_text(root, "cgroup.subtree_control", "+cpu"); /* version 1 has no such file */
    r = quota_make(probe, 1, err);
    if (r < 0 && quota_threaded(root) && enabled == -EBUSY)
        (void)merr_set(err, enabled,
                       "'%s' has groups with processes of another kind; ranks that an agent without "
                       "shares has started have to end first",
                       root);
    else if (r < 0 && quota_threaded(root) && enabled < 0)
        (void)merr_errno(err, enabled, "cannot have the cpu controller below '%s'", root);
    if (r == 0 && (r = try_join(probe)) < 0)
        (void)merr_errno(err, r, "no process can enter a group below '%s'", root);
    quota_remove(probe);
    return r;
}

int quota_find(char ret[PATH_MAX], struct merr *err)
{
    static const struct {
        const char *mount, *mark;
    } known[] = {{"/sys/fs/cgroup", "0::"},
                 {"/sys/fs/cgroup/unified", "0::"},
                 {"/sys/fs/cgroup/cpu", ":cpu:"},
                 {"/sys/fs/cgroup/cpu,cpuacct", ":cpu,cpuacct:"}};
    struct merr why = {"none is mounted"};
    char own[1024], root[PATH_MAX];
    bool found = false;
    struct buf text;

    buf_init(&text, 65536);
    for (size_t i = 0;
         io_read_file("/proc/self/cgroup", &text, NULL) == 0 && !found && i < sizeof(known) / sizeof(known[0]); i++) {
        if (own_path(buf_text(&text), known[i].mark, own, sizeof(own))) {
            (void)snprintf(root, sizeof(root), "%s%s", known[i].mount, strcmp(own, "/") == 0 ? "" : own);
            found = has(root, "cgroup.procs") && try_root(root, &why) == 0;
        }
        buf_reset(&text);
    }
    buf_clear(&text);
    if (!found)
        return merr_set(err, -ENOTSUP,
                        "a share of the processor ('@') needs a control group (cgroup v2 or v1) with "
                        "the cpu controller that this user may write to (%s); under systemd: Delegate=cpu in the unit, "
                        "or systemd-run --scope -p Delegate=yes; else leave '@…' out",
                        why.text);
    (void)snprintf(ret, PATH_MAX, "%s", root);
    return 0;
}

bool quota_threaded(const char *root)
{
    return has(root, "cgroup.controllers");
}

int quota_make(const char *dir, double share, struct merr *err)
{
    double period = RUN_LEAST_US / share;
    char text[64];
    long period_us, run_us;
    int r;

    period_us = (long)(period < PERIOD_LEAST_US ? PERIOD_LEAST_US : period > PERIOD_MOST_US ? PERIOD_MOST_US : period);
    run_us = (long)((double)period_us * share + 0.5);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return merr_errno(err, -errno, "cannot make the control group '%s'", dir);
    if (has(dir, "cpu.max")) {
        (void)snprintf(text, sizeof(text), "%ld %ld", run_us, period_us);
        r = write_text(dir, "cgroup.type", "threaded");
        if (r < 0)
            return merr_errno(err, r, "cannot make a threaded group of '%s'", dir);
        r = write_text(dir, "cpu.max", text);
    } else {
        (void)snprintf(text, sizeof(text), "%ld", period_us);
        r = write_text(dir, "cpu.cfs_period_us", text);
        (void)snprintf(text, sizeof(text), "%ld", run_us);
        r = r == 0 ? write_text(dir, "cpu.cfs_quota_us", text) : r;
    }
    return r == 0 ? 0 : merr_errno(err, r, "cannot give '%s' %g of a processor", dir, share);
}

int quota_join(const char *dir)
{
    return write_text(dir, "cgroup.procs", "0");
}

void quota_remove(const char *dir)
{
    int saved = errno;

    (void)rmdir(dir);
    errno = saved;
}
