/* coded_message - messages whose values travel coded: one a slice, all of one tag. What lies on a GPU is coded there;
 * its blocks go from GPU to GPU where both ends have one to themselves, else through pinned memory. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "worker/engine/comm/coded_priv.h"
#include "worker/engine/comm/direct.h"

static struct coded_part *part_of(struct message_hook *h)
{
    return (struct coded_part *)h;
}

/* A part that is on no request, or with its request. */
static void part_free(struct coded_part *p)
{
    if (p->lent)
        coded_gpu_return(p->g, p->lent);
    free(p);
}

static void part_unhook(struct comm_request *req, struct message_hook *h)
{
    (void)req;
    part_free(part_of(h));
}

static int land_on_gpu(const struct comm_request *req, const struct coded_part *p, struct merr *why)
{
    if (req->buf != p->lent)
        TRY(coded_gpu_copy(p->g, p->lent, req->buf, req->bytes));
    TRY(coded_gpu_decode(p->g, p, req->bytes));
    return coded_gpu_finish(p->g, p->flags, why);
}

/* A part is here: decode it, or fail the world. */
static int part_land(struct comm_request *req, struct message_hook *h)
{
    const struct coded_part *p = part_of(h);
    struct merr why;
    int r;

    if (!p->values) /* of a send: sent is all there is to it */
        return 0;
    r = p->lent ? land_on_gpu(req, p, &why)
                : codec_decode(p->codec, p->block, req->bytes, p->type, p->values, p->count, p->flags, &why);
    if (r == -EBADMSG)
        return failure_keep(&p->g->wait->failure, -EIO,
                            "a message of rank %d in '%s' with tag %u is not good, codec %s: %s", req->peer->rank,
                            p->g->channel.name, req->head.step, codec_name(p->codec), why.text);
    return r;
}

struct message {
    struct comm_group *g;
    const struct coded *how;
    int peer;
    uint32_t tag, *flags;
    const void *from; /* NULL: it is received */
    void *to;
    bool gpu; /* codes it */
};

/* Code count values of it from at on into p, ready to be sent from block. */
static int encode(const struct message *m, size_t at, struct coded_part *p, char *block)
{
    const void *from = (const char *)m->from + at * (p->type == CODEC_F32 ? 4 : 2);
    struct codec_site site = m->how->site;
    struct merr why;
    int r;

    site.tensor += (uint32_t)m->g->index;
    site.offset += at;
    if (!m->gpu) {
        *m->flags |= codec_encode(p->codec, &site, p->type, from, p->count, block);
        return 0;
    }
    TRY(coded_gpu_encode(m->g, p, &site, from));
    if (block != p->lent)
        TRY(coded_gpu_copy(m->g, block, p->lent, codec_size(p->codec, p->count)));
    r = coded_gpu_finish(m->g, m->flags, &why);
    assert(r != -EBADMSG); /* no block was read */
    return r;
}

/* Send or receive the slice that p is of, through the GPU's block or its own. */
static int post(const struct message *m, size_t at, struct coded_part *p, struct comm_request **ret, struct merr *err)
{
    size_t bytes = codec_size(p->codec, p->count);
    char *block = p->block;

    if (m->gpu)
        TRY(coded_gpu_lend(m->g, bytes, &p->lent));
    if (m->gpu && direct_worth(m->g, p->lent, bytes))
        block = p->lent;
    else if (m->gpu)
        TRY(coded_gpu_image(m->g, p->lent, &block));
    if (!m->from)
        return comm_irecv(m->g, m->peer, m->tag, block, bytes, ret, err);
    TRY(encode(m, at, p, block));
    return comm_isend(m->g, m->peer, m->tag, block, bytes, ret, err);
}

static int post_slice(const struct message *m, size_t at, size_t count, struct comm_request **ret, struct merr *err)
{
    size_t bytes = codec_size(m->how->codec, count), size = m->how->type == CODEC_F32 ? 4 : 2;
    struct coded_part *p = malloc(sizeof(*p) + (m->gpu ? 0 : bytes));
    int r;

    if (!p) {
        (void)failure_keep(&m->g->wait->failure, -ENOMEM, "no memory for a block of %zu bytes", bytes);
        return failure_tell(&m->g->wait->failure, err);
    }
    *p = (struct coded_part){.hook = {.land = part_land, .free = part_unhook},
                             .g = m->g,
                             .codec = m->how->codec,
                             .type = m->how->type,
                             .count = count,
                             .flags = m->flags,
                             .values = m->to ? (char *)m->to + at * size : NULL};
    r = post(m, at, p, ret, err);
    if (r == 0) {
        message_hang(*ret, &p->hook);
        return 0;
    }
    part_free(p);
    return m->g->wait->failure.code ? failure_tell(&m->g->wait->failure, err) : r;
}

static int post_all(struct message *m, size_t count, struct comm_request **ret, struct merr *err)
{
    size_t slice = m->how->slice ? m->how->slice : CODED_SLICE, at = 0;
    struct comm_request *first = NULL, **last = &first;
    int r = 0;

    m->gpu = coded_held(m->g, m->from ? m->from : m->to);
    if (m->gpu && coded_gpu_open(m->g) < 0)
        return failure_tell(&m->g->wait->failure, err);
    do {
        size_t n = count - at < slice ? count - at : slice;

        r = post_slice(m, at, n, last, err);
        if (r < 0)
            break;
        last = &(*last)->more;
        at += n;
    } while (at < count);
    if (r == 0)
        *ret = first;
    else if (first)
        (void)comm_wait(first, NULL); /* ends at once: the world has failed */
    return r;
}

int coded_isend(struct comm_group *g, const struct coded *how, int peer, uint32_t tag, const void *buf, size_t count,
                struct comm_request **ret, uint32_t *flags, struct merr *err)
{
    struct message m = {.g = g, .how = how, .peer = peer, .tag = tag, .flags = flags, .from = buf};

    return post_all(&m, count, ret, err);
}

int coded_irecv(struct comm_group *g, const struct coded *how, int peer, uint32_t tag, void *buf, size_t count,
                struct comm_request **ret, uint32_t *flags, struct merr *err)
{
    struct message m = {.g = g, .how = how, .peer = peer, .tag = tag, .flags = flags, .to = buf};

    return post_all(&m, count, ret, err);
}
