#include "server/control/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"

struct audit_file {
    char *path;
    int fd; /* -1: it could not be opened anew */
    atomic_bool reopen;
    _Atomic uint64_t lost;
    uint64_t untold; /* of those */
    bool torn;       /* a part of a line was written last */
};

static int open_path(const char *path, struct merr *err)
{
    struct stat st;
    IO_CLOSE_AUTO int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
    int ret;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open the audit file '%s'", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return merr_set(err, -EINVAL, "the audit file '%s' is no plain file", path);
    ret = fd;
    fd = -1;
    return ret;
}

int audit_file_open(const char *path, struct audit_file **ret, struct merr *err)
{
    struct audit_file *f = calloc(1, sizeof(*f));
    int fd = open_path(path, err);

    if (fd < 0 || !f || !(f->path = strdup(path))) {
        io_close(&fd);
        free(f);
        return fd < 0 ? fd : merr_set(err, -ENOMEM, "out of memory");
    }
    f->fd = fd;
    *ret = f;
    return 0;
}

void audit_file_close(struct audit_file *f)
{
    if (!f)
        return;
    io_close(&f->fd);
    free(f->path);
    free(f);
}

void audit_file_reopen(struct audit_file *f)
{
    if (f)
        atomic_store(&f->reopen, true);
}

uint64_t audit_file_lost(const struct audit_file *f)
{
    return f ? atomic_load(&f->lost) : 0;
}

static void lose(struct audit_file *f, const char *lines, size_t len, const char *why)
{
    uint64_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += lines[i] == '\n';
    if (f->untold == 0)
        log_warn("the audit file '%s' misses lines from now on: %s; they are in the store", f->path, why);
    f->untold += n;
    atomic_fetch_add(&f->lost, n);
}

/* Whether all of it is written. */
static bool put(struct audit_file *f, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(f->fd, text, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        f->torn = (size_t)n < len;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

void audit_file_write(struct audit_file *f, const char *lines, size_t len)
{
    struct merr err = {""};
    char text[80];
    int n;

    if (f->fd < 0 || atomic_exchange(&f->reopen, false)) {
        int fd = open_path(f->path, &err);

        io_close(&f->fd);
        f->fd = fd < 0 ? -1 : fd;
        f->torn = false;
    }
    if (f->fd < 0) {
        lose(f, lines, len, err.text);
        return;
    }
    n = snprintf(text, sizeof(text), "%s{\"type\": \"left-out\", \"lines\": %llu}\n", f->torn ? "\n" : "",
                 (unsigned long long)f->untold);
    if (f->untold > 0 && !put(f, text, (size_t)n)) {
        lose(f, lines, len, strerror(errno));
        return;
    }
    f->untold = 0;
    if (!put(f, lines, len))
        lose(f, lines, len, strerror(errno)); /* some of it may be there: told as lost, never the other way round */
}
