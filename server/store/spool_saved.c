#include "server/store/spool_saved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

/* A folder below another, by no link. */
static int open_below(int at, const char *path)
{
    const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, at, path, &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

/* Its entries; fd goes with it. */
static DIR *list_below(int at, const char *path, int *ret_error)
{
    int fd = open_below(at, path);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    *ret_error = fd < 0 ? fd : -errno;
    if (!d && fd >= 0)
        (void)close(fd);
    return d;
}

static json_t *one_new(DIR *d, unsigned long long step)
{
    bool complete = false;
    json_int_t bytes = 0, files = 0;
    struct stat st;

    for (const struct dirent *e = readdir(d); e && files < SPOOL_SAVED_FILES_MAX; e = readdir(d)) {
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        files++;
        bytes += st.st_size;
        complete = complete || strcmp(e->d_name, "MANIFEST") == 0;
    }
    return json_pack("{s:I, s:b, s:I, s:I}", "step", (json_int_t)step, "complete", complete, "disk_bytes", bytes,
                     "files", files);
}

int spool_saved_scan(const char *folder, const char *dir, json_t **ret)
{
    IO_CLOSE_AUTO int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    json_auto_t *all = json_array();
    unsigned long long step;
    int r = 0, end;
    DIR *steps = NULL;

    if (at < 0 && errno != ENOENT)
        return -errno;
    if (at >= 0)
        steps = list_below(at, dir, &r);
    if (at >= 0 && !steps && r != -ENOENT)
        return r;
    for (const struct dirent *e = steps ? readdir(steps) : NULL; e && json_array_size(all) < SPOOL_SAVED_MAX;
         e = readdir(steps)) {
        DIR *d = NULL;

        end = 0;
        if (sscanf(e->d_name, "step-%18llu%n", &step, &end) == 1 && e->d_name[end] == '\0')
            d = list_below(dirfd(steps), e->d_name, &r);
        if (!d)
            continue;
        (void)json_array_append_new(all, one_new(d, step));
        (void)closedir(d);
    }
    if (steps)
        (void)closedir(steps);
    *ret = json_incref(all);
    return 0;
}
