#include "worker/agent/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/helper/helper.h"

#define PERIOD_US 100000

static int put(const char *folder, const char *file, const char *text)
{
    char path[PATH_MAX];
    int fd =
        snprintf(path, sizeof(path), "%s/%s", folder, file) < (int)sizeof(path) ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    int r = fd < 0 ? -errno : io_write_all(fd, text, strlen(text));

    if (fd >= 0)
        (void)close(fd);
    return r;
}

static bool get(const char *folder, const char *file, char *ret, size_t size)
{
    char path[PATH_MAX];
    int fd =
        snprintf(path, sizeof(path), "%s/%s", folder, file) < (int)sizeof(path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

    if (fd >= 0)
        (void)close(fd);
    ret[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

/* The next folder of a list, whose rest *list becomes. */
static bool next(const char **list, char folder[PATH_MAX])
{
    size_t n = strcspn(*list, ":");

    if (n == 0 || n >= PATH_MAX)
        return false;
    (void)snprintf(folder, PATH_MAX, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ':');
    return true;
}

/* Whether groups can be made in a folder; of version 2 such as can be killed at once. */
static bool is_usable(const char *folder, bool version_2)
{
    char probe[PATH_MAX], file[PATH_MAX];
    bool good;

    if (snprintf(probe, sizeof(probe), "%s/muster-probe-%d", folder, (int)getpid()) >= (int)sizeof(probe) - 32 ||
        mkdir(probe, 0755) < 0)
        return false;
    (void)snprintf(file, sizeof(file), "%s/%s", probe, version_2 ? "cgroup.kill" : "cgroup.procs");
    good = access(file, W_OK) == 0;
    (void)rmdir(probe);
    return good;
}

static void add_root(const char *at, const char *controllers, char *path, bool helper, char ret[CGROUP_LIST_MAX])
{
    const char *mount[] = {controllers, *controllers ? NULL : "unified"};
    char *kind = strrchr(path, '.'), folder[PATH_MAX];
    size_t len = strlen(ret);

    if (*controllers && !strstr("memory pids freezer cpu,cpuacct", controllers))
        return;
    if (helper && kind && (strcmp(kind, ".service") == 0 || strcmp(kind, ".scope") == 0))
        *strrchr(path, '/') = '\0'; /* as the helper does it */
    if (strcmp(path, "/") == 0)
        *path = '\0';
    for (int i = 0; i < 2 && mount[i]; i++) {
        (void)snprintf(folder, sizeof(folder), "%s/%s%s%s", at, mount[i], path, helper ? "/" HELPER_GROUPS : "");
        if (len + strlen(folder) + 2 < CGROUP_LIST_MAX && is_usable(folder, !*controllers)) {
            (void)snprintf(ret + len, CGROUP_LIST_MAX - len, "%s%s", len ? ":" : "", folder);
            return;
        }
    }
}

void cgroup_find(const char *at, const char *self, bool helper, char ret[CGROUP_LIST_MAX])
{
    char controllers[256], path[1024];

    *ret = '\0';
    for (const char *p = self; p && *p; p = strchr(p, '\n'), p += p != NULL) {
        *controllers = '\0'; /* "0::/path" of version 2, "4:memory:/path" of version 1 */
        if (sscanf(p, "%*[0-9]::%1023[^\n]", path) == 1 ||
            sscanf(p, "%*[0-9]:%255[^:\n]:%1023[^\n]", controllers, path) == 2)
            add_root(at, controllers, path, helper, ret);
    }
}

const char *cgroup_list(const char *roots, const char *name, char ret[CGROUP_LIST_MAX])
{
    char folder[PATH_MAX];
    size_t len = 0;

    *ret = '\0';
    while (next(&roots, folder)) {
        int n = snprintf(ret + len, CGROUP_LIST_MAX - len, "%s%s/%s", len ? ":" : "", folder, name);

        if (n < 0 || (len += (size_t)n) >= CGROUP_LIST_MAX) {
            *ret = '\0';
            break;
        }
    }
    return ret;
}

static int set_limits(const char *folder, const struct cgroup_limits *limits)
{
    char memory[32] = "", pids[32] = "", quota[32] = "", cpu[64] = "";
    const char *const files[][2] = {{"memory.oom.group", "1"}, {"memory.max", memory},
                                    {"pids.max", pids},        {"memory.limit_in_bytes", memory},
                                    {"cpu.max", cpu},          {"cpu.cfs_quota_us", quota}};

    if (limits->memory_bytes)
        (void)snprintf(memory, sizeof(memory), "%" PRIu64, limits->memory_bytes);
    if (limits->pids)
        (void)snprintf(pids, sizeof(pids), "%" PRIu64, limits->pids);
    if (limits->cpus > 0) {
        (void)snprintf(quota, sizeof(quota), "%.0f", limits->cpus * PERIOD_US);
        (void)snprintf(cpu, sizeof(cpu), "%s %d", quota, PERIOD_US);
    }
    for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
        int r = *files[k][1] ? put(folder, files[k][0], files[k][1]) : 0;

        if (r < 0 && r != -ENOENT) /* each file is of one controller in one version */
            return r;
    }
    if (*memory && put(folder, "memory.swap.max", "0") < 0) /* nothing of it is swapped out instead */
        (void)put(folder, "memory.memsw.limit_in_bytes", memory);
    return 0;
}

int cgroup_make(const char *list, const struct cgroup_limits *limits)
{
    char folder[PATH_MAX], procs[PATH_MAX];
    int r = 0;

    while (r == 0 && next(&list, folder)) {
        r = mkdir(folder, 0755) < 0 && errno != EEXIST ? -errno : set_limits(folder, limits);
        if (r == 0 && snprintf(procs, sizeof(procs), "%s/cgroup.procs", folder) < (int)sizeof(procs))
            (void)chmod(procs, 0664); /* a helper, who moves processes there, is of our group */
    }
    return r;
}

int cgroup_enter(const char *list, pid_t pid)
{
    char folder[PATH_MAX], text[16];
    int r = 0;

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    while (r == 0 && next(&list, folder))
        r = put(folder, "cgroup.procs", text);
    return r;
}

void cgroup_open(const char *list, int *fds, int n)
{
    char folder[PATH_MAX];

    for (int i = 0; i < n; i++)
        fds[i] = next(&list, folder) ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* Version 1: those that the group names, frozen, so that none is born meanwhile; what is cut off is seen next time. */
static void kill_listed(const char *folder)
{
    char text[65536], *end;

    if (!get(folder, "cgroup.procs", text, sizeof(text)))
        return;
    for (char *p = text; strtol(p, &end, 10) > 0 && *end == '\n'; p = end)
        (void)kill((pid_t)strtol(p, NULL, 10), SIGKILL);
}

int cgroup_end(const char *list)
{
    char folder[PATH_MAX];
    const char *p;
    bool killed = false;
    int r = 0;

    for (p = list; next(&p, folder);)
        killed |= put(folder, "cgroup.kill", "1") == 0;
    for (p = list; !killed && next(&p, folder);)
        (void)put(folder, "freezer.state", "FROZEN");
    for (p = list; !killed && next(&p, folder);)
        kill_listed(folder);
    for (p = list; !killed && next(&p, folder);)
        (void)put(folder, "freezer.state", "THAWED");
    for (p = list; next(&p, folder);)
        if (rmdir(folder) < 0 && errno != ENOENT && r == 0)
            r = -errno;
    return r;
}

/* The number in one of two files, of version 2 or 1, after a word; 0: none, or none that limits anything. */
static unsigned long long number(const char *folder, const char *file_2, const char *file_1, const char *word)
{
    unsigned long long value;
    char text[4096];
    const char *at = NULL;

    if (get(folder, file_2, text, sizeof(text)) || get(folder, file_1, text, sizeof(text)))
        at = strstr(text, word);
    value = at ? strtoull(at + strlen(word), NULL, 10) : 0;
    return value < 1ull << 62 ? value : 0;
}

bool cgroup_oom(const char *list, char *why, size_t size)
{
    unsigned long long kills = 0, limit = 0, peak = 0;
    char folder[PATH_MAX];

    while (next(&list, folder)) {
        kills += number(folder, "memory.events", "memory.oom_control", "oom_kill ");
        limit += number(folder, "memory.max", "memory.limit_in_bytes", "");
        peak += number(folder, "memory.peak", "memory.max_usage_in_bytes", "");
    }
    if (kills > 0 && limit > 0 && peak > 0)
        (void)snprintf(why, size, "it took %llu MiB of memory where its limit is %llu MiB, and the kernel killed it",
                       peak >> 20, limit >> 20);
    else if (kills > 0 && limit > 0)
        (void)snprintf(why, size, "it took more memory than its limit of %llu MiB, and the kernel killed it",
                       limit >> 20);
    return kills > 0;
}
