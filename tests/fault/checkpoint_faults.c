#include "tests/fault/checkpoint_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE 65536 /* bytes: more than what describes a file */

static atomic_int left, fixed, plain, syncs, direct, cached, ring_short, ring_error;
static atomic_bool hit, no_direct;
static int with;                                         /* set before the threads start */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards held */
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool held;

void faults_arm(int n, int error)
{
    with = error;
    atomic_store(&hit, false);
    atomic_store(&left, n);
}

void faults_hold(bool hold)
{
    (void)pthread_mutex_lock(&lock);
    held = hold;
    (void)pthread_cond_broadcast(&released);
    (void)pthread_mutex_unlock(&lock);
}

static void wait_released(void)
{
    (void)pthread_mutex_lock(&lock);
    while (held)
        (void)pthread_cond_wait(&released, &lock);
    (void)pthread_mutex_unlock(&lock);
}

void faults_ring(int short_of, int error)
{
    atomic_store(&ring_short, short_of);
    atomic_store(&ring_error, error);
}

void faults_no_direct(void)
{
    atomic_store(&no_direct, true);
}

bool faults_hit(void)
{
    return atomic_load(&hit);
}

/* Before a call. True: it fails with errno set. */
static bool fails(bool changes)
{
    if (atomic_load(&left) <= 0 || (with && !changes) || atomic_fetch_sub(&left, 1) != 1)
        return false;
    atomic_store(&hit, true);
    if (!with) {
        (void)kill(getpid(), SIGKILL);
        for (;;)
            (void)pause();
    }
    errno = with;
    return true;
}

#define WRAP(changes, type, name, params, ...)                                                                         \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params                                                                                          \
    {                                                                                                                  \
        return fails(changes) ? (type)-1 : __real_##name(__VA_ARGS__);                                                 \
    }

WRAP(true, ssize_t, write, (int fd, const void *p, size_t n), fd, p, n)
WRAP(true, int, rename, (const char *from, const char *to), from, to)
WRAP(true, int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), a, from, b, to, flags)
WRAP(true, int, fsync, (int fd), fd)
WRAP(true, int, fdatasync, (int fd), fd)
WRAP(true, int, mkdir, (const char *path, mode_t mode), path, mode)
WRAP(true, int, fallocate, (int fd, int mode, off_t at, off_t len), fd, mode, at, len)
WRAP(true, int, unlink, (const char *path), path)
WRAP(true, int, unlinkat, (int fd, const char *path, int flags), fd, path, flags)
WRAP(true, int, rmdir, (const char *path), path)
WRAP(true, int, remove, (const char *path), path)
WRAP(false, int, sync_file_range, (int fd, off_t at, off_t n, unsigned flags), fd, at, n, flags)
WRAP(false, ssize_t, read, (int fd, void *p, size_t n), fd, p, n)
WRAP(false, int, flock, (int fd, int how), fd, how)
WRAP(false, int, close, (int fd), fd)
WRAP(false, int, access, (const char *path, int how), path, how)
WRAP(false, int, poll, (struct pollfd * p, nfds_t n, int timeout), p, n, timeout)

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    if (fails(false))
        return -1;
    if (n >= LARGE)
        (void)atomic_fetch_add(fcntl(fd, F_GETFL) & O_DIRECT ? &direct : &cached, 1);
    return __real_pread(fd, p, n, at);
}

void faults_reads(int *ret_direct, int *ret_cached)
{
    *ret_direct = atomic_exchange(&direct, 0);
    *ret_cached = atomic_exchange(&cached, 0);
}

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (fails(true))
        return -1;
    wait_released();
    return __real_pwrite(fd, p, n, at);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list args;

    if (flags & O_CREAT) {
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    if (fails(flags & O_CREAT))
        return -1;
    if (atomic_load(&no_direct) && (flags & O_DIRECT)) {
        (void)__real_close(__real_open(path, flags & ~O_DIRECT, mode));
        errno = EINVAL;
        return -1;
    }
    return __real_open(path, flags, mode);
}

/* What the kernel is about to find in the queue. */
static void count_requests(const struct io_uring_sq *q)
{
    for (unsigned i = q->sqe_head; i != q->sqe_tail; i++) {
        const struct io_uring_sqe *e = &q->sqes[i & q->ring_mask];

        if (e->opcode == IORING_OP_WRITE_FIXED)
            (void)atomic_fetch_add(&fixed, 1);
        else if (e->opcode == IORING_OP_WRITE)
            (void)atomic_fetch_add(&plain, 1);
        else if (e->opcode == IORING_OP_FSYNC && (e->fsync_flags & IORING_FSYNC_DATASYNC))
            (void)atomic_fetch_add(&syncs, 1);
    }
}

void faults_requests(int *ret_fixed, int *ret_plain, int *ret_syncs)
{
    *ret_fixed = atomic_load(&fixed);
    *ret_plain = atomic_load(&plain);
    *ret_syncs = atomic_load(&syncs);
}

/* A request is on its way, or its answer is: the process may end between. One that fails hands nothing over. */
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring)
{
    if (fails(true))
        return -errno;
    if (atomic_load(&ring_error))
        return atomic_fetch_sub(&ring_short, 1) > 0 ? -EAGAIN : -atomic_load(&ring_error);
    count_requests(&ring->sq);
    return __real_io_uring_submit(ring);
}
