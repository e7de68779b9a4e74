#include "worker/agent/deep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct deep {
    int top;
    int steps;     /* left */
    unsigned next; /* number of the next folder that is moved up */
};

static DIR *open_folder(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir;

    if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !dir)
        (void)close(fd);
    return dir;
}

static bool is_real(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* Move a folder up, under a name that is free there. */
static int move_up(struct deep *d, int from, const char *name)
{
    char to[32];

    do {
        (void)snprintf(to, sizeof(to), "deep-%u", d->next++);
        if (renameat(from, name, d->top, to) == 0)
            return 0;
    } while ((errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) && d->steps-- > 0);
    return -errno;
}

/* Remove a folder at the top, what it has of files, and move its folders up. */
static int empty_one(struct deep *d, const char *name)
{
    DIR *dir = open_folder(d->top, name);
    struct dirent *e;
    int r = dir ? 0 : -errno;

    while (dir && r == 0 && (e = readdir(dir))) {
        if (!is_real(e))
            continue;
        if (d->steps-- <= 0)
            r = -EAGAIN;
        else if (unlinkat(dirfd(dir), e->d_name, 0) < 0)
            r = errno == EISDIR || errno == EPERM ? move_up(d, dirfd(dir), e->d_name) : -errno;
    }
    if (dir)
        (void)closedir(dir);
    if (r == 0 && unlinkat(d->top, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY)
        r = -errno;
    return r;
}

int deep_empty(const char *folder)
{
    struct deep d = {.steps = DEEP_STEPS_MAX};
    DIR *top = open_folder(AT_FDCWD, folder);
    bool again = true;
    int r = top ? 0 : -errno;

    if (top)
        d.top = dirfd(top);
    while (top && again && r == 0) {
        struct dirent *e;

        again = false;
        rewinddir(top);
        while (r == 0 && (e = readdir(top))) {
            struct stat st;

            if (!is_real(e) || fstatat(d.top, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                continue;
            again = true;
            if (d.steps-- <= 0)
                r = -EAGAIN;
            else if (S_ISDIR(st.st_mode))
                r = empty_one(&d, e->d_name);
            else if (unlinkat(d.top, e->d_name, 0) < 0)
                r = -errno;
        }
    }
    if (top)
        (void)closedir(top);
    return r;
}
