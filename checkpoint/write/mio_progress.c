#include <errno.h>

#include "checkpoint/format/format.h"
#include "checkpoint/write/mio_priv.h"

#define RETRIES_MAX 64

bool mio_progress(struct mio_req *r, int res)
{
    if (res == -EINTR || res == -EAGAIN) {
        if (r->retries++ < RETRIES_MAX)
            return false;
        r->res = res;
        return true;
    }
    if (res < 0 || r->op == MIO_SYNC) {
        r->res = res < 0 ? res : 0;
        return true;
    }
    if ((uint32_t)res >= r->len - r->done) {
        r->res = 0;
        return true;
    }
    if (res == 0 || r->retries++ >= RETRIES_MAX) { /* a disk that takes nothing */
        r->res = -EIO;
        return true;
    }
    r->done = (r->done + (uint32_t)res) / MCK_ALIGN * MCK_ALIGN; /* O_DIRECT goes on at a block */
    return false;
}
