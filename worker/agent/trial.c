#include "worker/agent/trial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/merr.h"

#define LONG_US 300000 /* each part takes about so long */
#define BLOCK ((size_t)32 << 20)
#define DISK_BYTES ((size_t)64 << 20)
#define SIDE 192 /* of a matrix */
#define CHUNK ((size_t)256 << 10)

static void fill(uint32_t *v, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        v[i] = seed = seed * 1664525U + 1013904223U;
}

static int copy_memory(double *ret, struct merr *err)
{
    uint32_t *from = malloc(BLOCK), *to = malloc(BLOCK);
    int64_t began_us;
    double bytes = 0;
    int r = 0;

    if (!from || !to) {
        free(from);
        free(to);
        return merr_set(err, -ENOMEM, "there is no memory for a test");
    }
    fill(from, BLOCK / sizeof(*from), 1);
    memset(to, 0, BLOCK);
    began_us = clock_mono_us();
    do {
        from[0]++; /* so that each copy is one */
        memcpy(to, from, BLOCK);
        bytes += BLOCK;
    } while (clock_mono_us() - began_us < LONG_US);
    *ret = bytes / 1e3 / (double)(clock_mono_us() - began_us + 1);
    if (memcmp(from, to, BLOCK) != 0)
        r = merr_set(err, -EIO, "memory does not hold what was written to it");
    free(from);
    free(to);
    return r;
}

/* Of small whole numbers, so that every sum is exact. */
static int multiply(double *ret, struct merr *err)
{
    static float a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
    int64_t began_us = clock_mono_us();
    double products = 0;

    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k < SIDE; k++) {
            a[i][k] = (float)((i + k) % 7);
            b[i][k] = (float)((i * 3 + k) % 5);
        }
    do {
        memset(c, 0, sizeof(c));
        for (int i = 0; i < SIDE; i++)
            for (int k = 0; k < SIDE; k++)
                for (int j = 0; j < SIDE; j++)
                    c[i][j] += a[i][k] * b[k][j];
        products += (double)SIDE * SIDE * SIDE;
        for (int i = 0; i < SIDE; i++) { /* the sum of a row is known without the product */
            int64_t want = 0, got = 0;

            for (int k = 0; k < SIDE; k++) {
                int64_t row = 0;

                for (int j = 0; j < SIDE; j++)
                    row += (k * 3 + j) % 5;
                want += (i + k) % 7 * row;
                got += (int64_t)c[i][k];
            }
            if (want != got)
                return merr_set(err, -EIO, "its processor multiplies wrongly");
        }
    } while (clock_mono_us() - began_us < LONG_US);
    *ret = 2 * products / 1e3 / (double)(clock_mono_us() - began_us + 1);
    return 0;
}

static int write_disk(const char *folder, double *ret, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[PATH_MAX];
    int64_t began_us;
    uint32_t *data = malloc(DISK_BYTES);
    uint64_t want;
    int r;

    if (!data)
        return merr_set(err, -ENOMEM, "there is no memory for a test");
    fill(data, DISK_BYTES / sizeof(*data), 2);
    want = hash_xxh3(data, DISK_BYTES);
    (void)snprintf(path, sizeof(path), "%.4000s/trial.%d", folder, (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        free(data);
        return merr_errno(err, -errno, "cannot write to '%.200s'", folder);
    }
    (void)unlink(path);
    began_us = clock_mono_us();
    r = io_write_all(fd, data, DISK_BYTES);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    *ret = (double)DISK_BYTES / (double)(clock_mono_us() - began_us + 1);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (r < 0)
        r = merr_errno(err, r, "the disk of '%.200s' does not take what is written", folder);
    else if (lseek(fd, 0, SEEK_SET) < 0 || io_read_full(fd, data, DISK_BYTES) != (ssize_t)DISK_BYTES ||
             hash_xxh3(data, DISK_BYTES) != want)
        r = merr_set(err, -EIO, "the disk of '%.200s' gives back other bytes than were written", folder);
    free(data);
    return r;
}

/* Two ends of a connection over the loopback address, both this thread's. */
static int connect_loopback(int ret[2])
{
    IO_CLOSE_AUTO int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ret[1] = -1;
    if (door < 0 || ret[0] < 0 || bind(door, (struct sockaddr *)&at, len) < 0 || listen(door, 1) < 0 ||
        getsockname(door, (struct sockaddr *)&at, &len) < 0 || connect(ret[0], (struct sockaddr *)&at, len) < 0)
        return -errno;
    ret[1] = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    return ret[1] < 0 ? -errno : 0;
}

static int send_loopback(double *ret, struct merr *err)
{
    int end[2], r = connect_loopback(end);
    int64_t began_us = clock_mono_us(), us = 0;
    char *out = malloc(CHUNK), *in = malloc(CHUNK);
    size_t sent = 0, got = 0, total = 0;

    if (r == 0 && (!out || !in))
        r = -ENOMEM;
    if (r == 0)
        fill((uint32_t *)(void *)out, CHUNK / sizeof(uint32_t), 3);
    while (r == 0 && us < LONG_US) {
        ssize_t n = sent < CHUNK ? send(end[0], out + sent, CHUNK - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

        sent += n > 0 ? (size_t)n : 0;
        n = got < sent ? recv(end[1], in + got, sent - got, MSG_DONTWAIT) : 0;
        got += n > 0 ? (size_t)n : 0;
        us = clock_mono_us() - began_us;
        if (got < CHUNK)
            continue;
        if (memcmp(in, out, CHUNK) != 0)
            r = -EIO;
        total += CHUNK;
        sent = got = 0;
    }
    if (r == 0 && total == 0)
        r = -ETIMEDOUT;
    *ret = (double)total / 1e3 / (double)(us + 1);
    free(out);
    free(in);
    io_close(&end[0]);
    io_close(&end[1]);
    return r < 0 ? merr_errno(err, r, "what is sent over loopback does not come") : 0;
}

json_t *trial_run(const char *folder)
{
    json_t *o = json_object();
    struct merr err = {""};
    double rate = 0;
    int r = copy_memory(&rate, &err);

    (void)json_object_set_new(o, "memory_gb_s", json_real(rate));
    if (r == 0)
        r = multiply(&rate, &err);
    if (r == 0)
        (void)json_object_set_new(o, "gemm_gflop_s", json_real(rate));
    if (r == 0)
        r = write_disk(folder, &rate, &err);
    if (r == 0)
        (void)json_object_set_new(o, "disk_mb_s", json_real(rate));
    if (r == 0)
        r = send_loopback(&rate, &err);
    if (r == 0)
        (void)json_object_set_new(o, "loopback_gb_s", json_real(rate));
    (void)json_object_set_new(o, "passed", json_boolean(r == 0));
    (void)json_object_set_new(o, "why", json_string(err.text));
    return o;
}

int trial_main(int argc, char **argv)
{
    json_t *o = argc == 2 ? trial_run(argv[1]) : NULL;
    int r = o ? json_dumpf(o, stdout, JSON_COMPACT) : -1;

    json_decref(o);
    return r < 0 ? 2 : 0;
}
