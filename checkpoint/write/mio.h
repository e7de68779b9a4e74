/* mio - reads, writes and syncs in the background, by io_uring or by threads
 *
 * One thread owns a mio: it submits, waits on mio_fd and takes what has finished. Each request is answered
 * exactly once. MUSTER_IO chooses the kind: "uring" (O_DIRECT, the default), "threads" (pwrite with O_DIRECT) or
 * "buffered" (pwrite through the page cache). Where the kernel forbids io_uring the default falls back to threads.
 */
#ifndef MUSTER_CHECKPOINT_WRITE_MIO_H
#define MUSTER_CHECKPOINT_WRITE_MIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define MIO_DEPTH 8

enum mio_op { MIO_WRITE, MIO_SYNC, MIO_READ };

struct mio_req {
    enum mio_op op;
    int fd;
    const void *data;
    void *into; /* where MIO_READ puts what it reads, instead of data */
    uint32_t len;
    uint64_t off;
    int res;       /* result: 0 or a negative errno */
    uint32_t done; /* bytes written or read so far */
    int retries;
    struct mio_req *next;
};

struct mio;

/* pool (may be NULL) is memory that most writes come from and reads go to: registered with the kernel where its limits
 * allow. It must outlive the mio. kind NULL: MUSTER_IO. -EINVAL for an unknown kind, or why a forced one cannot be
 * had. */
int mio_open(const char *kind, void *pool, size_t pool_bytes, struct mio **ret, struct merr *err);

/* Waits for all requests under way, then frees; their answers are lost. */
void mio_close(struct mio *m);

/* Flags for open(2) of files to be written here: O_DIRECT or 0. */
int mio_open_flags(const struct mio *m);

/* Start a request, or queue it until less than MIO_DEPTH are under way. The request and its data are borrowed
 * until it comes back from mio_take. */
void mio_submit(struct mio *m, struct mio_req *r);

/* A finished request, or NULL when there is none now. */
struct mio_req *mio_take(struct mio *m);

/* Readable when mio_take may have something. */
int mio_fd(const struct mio *m);

#endif
