/* mio_uring - requests through a ring of the kernel's; the pool is registered where RLIMIT_MEMLOCK allows */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "checkpoint/write/mio_priv.h"

#define RING_ENTRIES 64
#define REGISTER_MAX (UINT64_C(1) << 30) /* the kernel's limit of one registered buffer */

struct uring {
    struct io_uring ring;
    char *pool;
    size_t pool_bytes; /* 0: not registered */
    unsigned busy;     /* entries without an answer */
    struct queued {
        struct io_uring_sqe *sqe;
        struct mio_req *req; /* NULL: it was lost */
    } queued[RING_ENTRIES];  /* those that the kernel has not taken, in order */
    unsigned queued_n;
    struct mio_req *lost; /* could not be handed to the kernel */
};

static int need_ops(struct merr *err)
{
    static const int need[] = {IORING_OP_WRITE, IORING_OP_WRITE_FIXED, IORING_OP_READ, IORING_OP_READ_FIXED,
                               IORING_OP_FSYNC};
    struct io_uring_probe *p = io_uring_get_probe();
    int r = 0;

    if (!p)
        return merr_set(err, -ENOSYS, "the kernel allows no io_uring here: use MUSTER_IO=threads");
    for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++)
        if (!io_uring_opcode_supported(p, need[i]))
            r = merr_set(err, -ENOSYS, "the kernel's io_uring lacks operation %d: use MUSTER_IO=threads", need[i]);
    io_uring_free_probe(p);
    return r;
}

int mio_uring_open(void *pool, size_t pool_bytes, void **ret_impl, struct merr *err)
{
    struct uring *u;
    int r;

    TRY(need_ops(err));
    u = calloc(1, sizeof(*u));
    if (!u)
        return merr_set(err, -ENOMEM, "no memory");
    r = io_uring_queue_init(RING_ENTRIES, &u->ring, IORING_SETUP_COOP_TASKRUN);
    if (r == -EINVAL)
        r = io_uring_queue_init(RING_ENTRIES, &u->ring, 0);
    if (r < 0) {
        free(u);
        return merr_errno(err, r, "cannot set up io_uring (use MUSTER_IO=threads)");
    }
    (void)io_uring_ring_dontfork(&u->ring);
    if (pool && pool_bytes <= REGISTER_MAX) {
        struct iovec v = {.iov_base = pool, .iov_len = pool_bytes};

        if (io_uring_register_buffers(&u->ring, &v, 1) == 0) {
            u->pool = pool;
            u->pool_bytes = pool_bytes;
        }
    }
    *ret_impl = u;
    return 0;
}

static void lose(struct uring *u, struct mio_req *r, int code)
{
    r->res = code;
    r->next = u->lost;
    u->lost = r;
}

/* Hand what lies in the queue to the kernel. What it has no space or memory for just now stays there until something is
 * taken, or the owner looks again. What it refuses is lost: an entry that does nothing stands for it. */
static void submit(struct uring *u)
{
    unsigned left;
    int n;

    do
        n = io_uring_submit(&u->ring);
    while (n == -EINTR);
    left = io_uring_sq_ready(&u->ring);
    memmove(u->queued, u->queued + (u->queued_n - left), left * sizeof(*u->queued));
    u->queued_n = left;
    if (n >= 0 || n == -EAGAIN || n == -EBUSY || n == -ENOMEM)
        return;
    for (unsigned i = 0; i < left; i++) {
        struct queued *q = &u->queued[i];

        if (!q->req)
            continue;
        io_uring_prep_nop(q->sqe);
        io_uring_sqe_set_data(q->sqe, NULL);
        lose(u, q->req, n);
        q->req = NULL;
    }
}

static void uring_start(void *impl, struct mio_req *r)
{
    struct uring *u = impl;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    const char *p = (r->op == MIO_READ ? (const char *)r->into : (const char *)r->data) + r->done;
    const uint32_t left = r->len - r->done;
    const uint64_t off = r->off + r->done;
    bool fixed = u->pool_bytes && p >= u->pool && p + left <= u->pool + u->pool_bytes;

    if (!sqe) { /* full of what stands for lost ones: the ring is broken */
        lose(u, r, -EIO);
        return;
    }
    if (r->op == MIO_SYNC)
        io_uring_prep_fsync(sqe, r->fd, IORING_FSYNC_DATASYNC);
    else if (r->op == MIO_READ && fixed)
        io_uring_prep_read_fixed(sqe, r->fd, (char *)r->into + r->done, left, off, 0);
    else if (r->op == MIO_READ)
        io_uring_prep_read(sqe, r->fd, (char *)r->into + r->done, left, off);
    else if (fixed)
        io_uring_prep_write_fixed(sqe, r->fd, p, left, off, 0);
    else
        io_uring_prep_write(sqe, r->fd, p, left, off);
    io_uring_sqe_set_data(sqe, r);
    u->queued[u->queued_n++] = (struct queued){.sqe = sqe, .req = r};
    u->busy++;
    submit(u);
}

static struct mio_req *uring_take(void *impl)
{
    struct uring *u = impl;
    struct io_uring_cqe *cqe;
    struct mio_req *r;

    if (io_uring_sq_ready(&u->ring))
        submit(u);
    r = u->lost;
    if (r) {
        u->lost = r->next;
        return r;
    }
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        int res = cqe->res;

        r = io_uring_cqe_get_data(cqe);
        io_uring_cqe_seen(&u->ring, cqe);
        u->busy--;
        if (!r)
            continue; /* stands for one that was lost */
        if (mio_progress(r, res))
            return r;
        uring_start(u, r);
    }
    return NULL;
}

static int uring_fd(void *impl)
{
    return ((struct uring *)impl)->ring.ring_fd;
}

static void uring_close(void *impl)
{
    struct uring *u = impl;
    struct io_uring_cqe *cqe;

    while (u->busy > io_uring_sq_ready(&u->ring) && io_uring_wait_cqe(&u->ring, &cqe) == 0) {
        io_uring_cqe_seen(&u->ring, cqe);
        u->busy--;
    }
    io_uring_queue_exit(&u->ring);
    free(u);
}

const struct mio_ops mio_uring_ops = {.start = uring_start, .take = uring_take, .fd = uring_fd, .close = uring_close};
