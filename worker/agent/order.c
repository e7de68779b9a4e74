#include "worker/agent/order.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "worker/agent/inside.h"
#include "worker/helper/helper.h"

int order_write(const char *folder, char *const *argv, char *const *envp, int *ret_fd, struct merr *err)
{
    IO_CLOSE_AUTO int fd = memfd_create("muster-order", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    BUF_CLEAR_AUTO struct buf b;
    size_t n = 0;
    int r;

    while (argv[n])
        n++;
    buf_init(&b, ORDER_BYTES_MAX);
    (void)buf_add(&b, folder, strlen(folder) + 1);
    (void)buf_printf(&b, "%zu", n);
    (void)buf_add(&b, "", 1);
    for (char *const *v = argv; *v; v++)
        (void)buf_add(&b, *v, strlen(*v) + 1);
    for (char *const *v = envp; *v; v++)
        (void)buf_add(&b, *v, strlen(*v) + 1);
    if (buf_failed(&b))
        return merr_set(err, -E2BIG, "the command line and environment of a rank pass %d MiB", ORDER_BYTES_MAX >> 20);
    r = fd < 0 ? -errno : io_write_all(fd, b.data, b.len);
    if (r == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        r = -errno;
    if (r < 0)
        return merr_errno(err, r, "cannot write the order of a rank");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int order_read(char *text, size_t len, struct order *ret, struct merr *err)
{
    size_t words = 0, n = 0, k = 0;
    char *count, *end, *p;
    unsigned long argc;

    for (size_t i = 0; i < len; i++)
        words += text[i] == '\0';
    if (len == 0 || text[len - 1] != '\0' || words < 3)
        return merr_set(err, -EPROTO, "the order of a rank has no end, or is too short");
    count = text + strlen(text) + 1;
    argc = strtoul(count, &end, 10);
    if (end == count || *end || *count < '0' || *count > '9' || argc == 0 || argc > words - 2)
        return merr_set(err, -EPROTO, "the order of a rank does not tell its arguments");
    ret->argv = calloc(words, sizeof(*ret->argv)); /* the words less two, with two ends */
    if (!ret->argv)
        return merr_set(err, -ENOMEM, "no memory for the order of a rank");
    for (p = end + 1; n < words - 2; p += strlen(p) + 1, n++) {
        if (n == argc)
            k++; /* a place for the end of the arguments */
        ret->argv[k++] = p;
    }
    ret->folder = text;
    ret->envp = ret->argv + argc + 1;
    return 0;
}

void order_clear(struct order *o)
{
    free(o->argv);
}

const char *order_hidden(const char *path)
{
    return strncmp(path, "/tmp/", 5) == 0 || strncmp(path, "/dev/shm/", 9) == 0
               ? ": a rank with an account of its own has a /tmp and /dev/shm of its own, too, and does not see what "
                 "the "
                 "machine has there; put it elsewhere"
               : "";
}

int order_main(void)
{
    static struct order o;
    int code;
    struct merr err;
    struct buf b;
    sigset_t none;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    buf_init(&b, ORDER_BYTES_MAX + 1);
    if (lseek(HELPER_ORDER_FD, 0, SEEK_SET) < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        io_read_open(HELPER_ORDER_FD, "the order", &b, &err) < 0 || order_read(b.data, b.len, &o, &err) < 0) {
        fprintf(stderr, "muster-agent rank: there is no order to be read; a helper starts this\n");
        return 126;
    }
    (void)syscall(SYS_close_range, 3u, ~0u, 0);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    environ = o.envp;
    if (chdir(o.folder) < 0) {
        fprintf(stderr, "muster: cannot enter folder '%s': %s%s\n", o.folder, strerror(errno), order_hidden(o.folder));
        return 126;
    }
    if (strcmp(o.argv[0], INSIDE_NAME) == 0)
        return inside_main((int)(o.envp - o.argv) - 1, o.argv);
    (void)execvp(o.argv[0], o.argv);
    code = errno;
    fprintf(stderr, "muster: cannot run '%s': %s%s\n", o.argv[0], strerror(code), order_hidden(o.argv[0]));
    return code == ENOENT ? 127 : 126;
}
