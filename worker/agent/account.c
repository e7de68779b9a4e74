#include "worker/agent/account.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "worker/agent/guard.h"

#define DROP_US 10000000 /* for one folder of those that are dropped at once */

const char *account_shm(const struct account *a, const char *folder, char ret[PATH_MAX])
{
    const char *name = strrchr(folder, '/');

    if (!a->shm[0] || !name || snprintf(ret, PATH_MAX, "%s%s", a->shm, name) >= PATH_MAX)
        return NULL;
    return ret;
}

static int make_file(const char *folder, const char *name, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%.4000s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0660);
    return fd < 0 || fchmod(fd, 0660) < 0 ? merr_errno(err, -errno, "cannot make '%s'", path) : 0;
}

static bool is_ours(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && st.st_uid == geteuid();
}

/* Whether a job's folder is still of who made it: an agent, or the server, whose folders for jobs have our group. */
static bool is_to_give(const char *dir)
{
    struct stat st, above;
    char parent[PATH_MAX];

    (void)snprintf(parent, sizeof(parent), "%.4000s/..", dir);
    return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) &&
           (st.st_uid == geteuid() ||
            (st.st_gid == getegid() && lstat(parent, &above) == 0 && st.st_uid == above.st_uid));
}

int account_share_run(const struct account *a, const char *folder, const char *dir, const char *user, struct merr *err)
{
    char path[PATH_MAX];

    if (!a->helper)
        return 0;
    (void)snprintf(path, sizeof(path), "%.4000s/rendezvous", folder);
    TRY(guard_give(a->helper, path, user, true, 03770, err));
    (void)snprintf(path, sizeof(path), "%.4000s/tmp", folder);
    TRY(io_mkdirs(path, 0700, err));
    if (is_ours(path))
        TRY(guard_give(a->helper, path, user, false, 0700, err));
    if (account_shm(a, folder, path)) {
        TRY(io_mkdirs(a->shm, 0711, err));
        TRY(io_mkdirs(path, 0700, err));
        TRY(guard_give(a->helper, path, user, true, 03770, err));
    }
    TRY(guard_give(a->helper, folder, user, true, 03770,
                   err)); /* last: what is made in it from here on has its group */
    TRY(make_file(folder, "metrics.jsonl", err));
    TRY(make_file(folder, "events.jsonl", err));
    return is_to_give(dir) ? guard_give(a->helper, dir, user, false, 02750, err) : 0;
}

int account_share_file(const struct account *a, const char *path, bool writable, struct merr *err)
{
    if (a->helper && chmod(path, writable ? 0660 : 0640) < 0)
        return merr_errno(err, -errno, "cannot share '%s'", path);
    return 0;
}

int account_share_upload(const struct account *a, const char *path, const char *user, struct merr *err)
{
    return a->helper && access(path, F_OK) == 0 ? guard_give(a->helper, path, user, false, 0640, err) : 0;
}

int account_share_memory(const struct account *a, const char *path, const char *folder, const char *user,
                         struct merr *err)
{
    char shm[PATH_MAX], place[PATH_MAX];

    if (!a->helper)
        return 0;
    if (is_ours(path)) {
        TRY(guard_give(a->helper, path, user, false, 02770, err));
        (void)snprintf(shm, sizeof(shm), "%.*s", (int)(strrchr(path, '/') - path), path);
        if (chmod(shm, 0711) < 0)
            return merr_errno(err, -errno, "cannot share '%s'", shm);
    }
    if (!account_shm(a, folder, shm) || strncmp(path, "/dev/shm/", 9) != 0)
        return 0;
    (void)snprintf(place, sizeof(place), "%.2000s/%.2000s", shm, path + 9); /* where it is mounted */
    return io_mkdirs(place, 0755, err);
}

/* In a child of the agent: have the helper find and remove, as the user. */
static _Noreturn void clean_as(const struct account *a, const char *user, const char *folder, const char *shm)
{
    char *const argv[] = {"find", (char *)folder, (char *)shm,  "-xdev",   "-mindepth",
                          "1",    "-user",        (char *)user, "-delete", NULL};
    struct guard_rank rank = {.user = user, .groups = "", .folder = "/", .argv = argv};
    int wire = -1, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool by_user;

    (void)clearenv();
    (void)setenv("PATH", "/usr/bin:/bin", 1);
    if (null >= 0 && guard_open(a->helper, &wire, NULL) == 0)
        (void)guard_run(wire, &rank, null, NULL, 0, &by_user, NULL);
    _exit(0);
}

void account_clean(const struct account *a, const char *folder, int64_t budget_us, int stop_fd)
{
    int64_t deadline_us = clock_mono_us() + budget_us;
    IO_CLOSE_AUTO int fd = -1;
    const struct passwd *user;
    char path[PATH_MAX], shm[PATH_MAX];
    struct pollfd p[2];
    struct stat st;
    pid_t child;

    (void)snprintf(path, sizeof(path), "%.4000s/tmp", folder); /* a run's, else a folder of the user's own */
    if (!a->helper || (lstat(path, &st) < 0 && lstat(folder, &st) < 0) || st.st_uid == geteuid())
        return;
    user = getpwuid(st.st_uid);
    child = user ? fork() : -1;
    if (child == 0)
        clean_as(a, user->pw_name, folder, account_shm(a, folder, shm) && access(shm, F_OK) == 0 ? shm : folder);
    if (child < 0)
        return;
    fd = (int)syscall(SYS_pidfd_open, child, 0);
    p[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
    while (fd >= 0 && poll(p, 2, clock_poll_ms(deadline_us)) < 0 && errno == EINTR)
        ;
    (void)kill(child, SIGKILL); /* unreaped: the number is its own */
    (void)waitpid(child, NULL, 0);
}

void account_drop(const struct account *a, const char *root)
{
    DIR *d = a->helper ? opendir(root) : NULL;
    struct dirent *e;
    char path[PATH_MAX];

    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            snprintf(path, sizeof(path), "%s/%s", root, e->d_name) < (int)sizeof(path))
            account_clean(a, path, DROP_US, -1);
    if (d)
        (void)closedir(d);
    (void)io_remove_tree(root, NULL);
}
