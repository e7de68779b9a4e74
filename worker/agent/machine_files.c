/* Files of a run, read and written for the agent. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/agent/machine.h"

ssize_t machine_run_read(const struct machine *h, const char *folder, const char *name, int rank, off_t offset,
                         char *text, size_t n, off_t *ret_size)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[PATH_MAX + 64];
    struct stat st;
    ssize_t got;

    (void)h;
    if (rank >= 0)
        shim_path(path, sizeof(path), folder, rank, name);
    else
        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = io_open_plain(path, O_RDONLY);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret_size = st.st_size;
    got = pread(fd, text, n, offset);
    return got < 0 ? -errno : got;
}

void machine_run_tell(struct machine *h, const char *folder, const struct program_telling *t)
{
    (void)h;
    (void)program_publish_order(folder, t, NULL);
}

void machine_log_drop(const struct machine *h, const char *folder, int rank, off_t before)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[PATH_MAX + 64];
    struct stat st;

    (void)h;
    fd = io_open_plain(shim_path(path, sizeof(path), folder, rank, "log"), O_WRONLY);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && st.st_nlink == 1)
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, before);
}
