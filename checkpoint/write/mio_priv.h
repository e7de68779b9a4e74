/* mio_priv - the table that each kind of I/O fills in */
#ifndef MUSTER_CHECKPOINT_WRITE_MIO_PRIV_H
#define MUSTER_CHECKPOINT_WRITE_MIO_PRIV_H

#include "checkpoint/write/mio.h"

struct mio_ops {
    void (*start)(void *impl, struct mio_req *r);
    struct mio_req *(*take)(void *impl);
    int (*fd)(void *impl);
    void (*close)(void *impl);
};

/* Each gives a new *ret_impl for its ops, or why not. */
int mio_uring_open(void *pool, size_t pool_bytes, void **ret_impl, struct merr *err);
int mio_threads_open(bool buffered, void **ret_impl, struct merr *err);
extern const struct mio_ops mio_uring_ops, mio_threads_ops;

/* Account for res bytes (or a negative errno) of r. True: it is finished; false: start it again from r->done. */
bool mio_progress(struct mio_req *r, int res);

#endif
