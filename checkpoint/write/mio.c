#include "checkpoint/write/mio.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/write/mio_priv.h"

struct mio {
    const struct mio_ops *ops;
    void *impl;
    bool direct;
    unsigned busy;
    struct mio_req *head, *tail; /* waiting until fewer are under kind */
};

static int open_threads(struct mio *m, bool buffered, struct merr *err)
{
    int r = mio_threads_open(buffered, &m->impl, err);

    m->ops = &mio_threads_ops;
    m->direct = !buffered;
    return r;
}

static int open_kind(struct mio *m, const char *kind, void *pool, size_t pool_bytes, struct merr *err)
{
    bool any = !kind || !*kind;
    int r;

    if (any || !strcmp(kind, "uring")) {
        r = mio_uring_open(pool, pool_bytes, &m->impl, err);
        m->ops = &mio_uring_ops;
        m->direct = true;
        return r < 0 && any ? open_threads(m, false, err) : r;
    }
    if (!strcmp(kind, "threads") || !strcmp(kind, "buffered"))
        return open_threads(m, *kind == 'b', err);
    return merr_set(err, -EINVAL, "MUSTER_IO is '%s': want uring, threads or buffered", kind);
}

int mio_open(const char *kind, void *pool, size_t pool_bytes, struct mio **ret, struct merr *err)
{
    struct mio *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return merr_set(err, -ENOMEM, "no memory");
    r = open_kind(m, kind ? kind : getenv("MUSTER_IO"), pool, pool_bytes, err);
    if (r < 0) {
        free(m);
        return r;
    }
    *ret = m;
    return 0;
}

int mio_open_flags(const struct mio *m)
{
    return m->direct ? O_DIRECT : 0;
}

static void start_queued(struct mio *m)
{
    while (m->head && m->busy < MIO_DEPTH) {
        struct mio_req *r = m->head;

        m->head = r->next;
        if (!m->head)
            m->tail = NULL;
        m->busy++;
        m->ops->start(m->impl, r);
    }
}

void mio_submit(struct mio *m, struct mio_req *r)
{
    assert(r->op == MIO_SYNC || r->len > 0);
    r->res = 0;
    r->done = 0;
    r->retries = 0;
    r->next = NULL;
    if (m->tail)
        m->tail->next = r;
    else
        m->head = r;
    m->tail = r;
    start_queued(m);
}

struct mio_req *mio_take(struct mio *m)
{
    struct mio_req *r = m->ops->take(m->impl);

    if (r) {
        m->busy--;
        r->next = NULL;
        start_queued(m);
    }
    return r;
}

int mio_fd(const struct mio *m)
{
    return m->ops->fd(m->impl);
}

void mio_close(struct mio *m)
{
    if (!m)
        return;
    m->ops->close(m->impl);
    free(m);
}
