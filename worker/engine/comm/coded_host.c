#include <errno.h>
#include <stdlib.h>

#include "worker/engine/comm/coded_priv.h"

static char *host_room(struct coding *x, size_t bytes)
{
    return group_scratch(x->g, bytes);
}

/* What is under way goes on after each piece of work. */
static int coded(struct coding *x)
{
    (void)wait_progress(x->g->wait);
    return x->g->wait->failure.code;
}

static int host_encode(struct coding *x, const struct codec_site *site, const void *values, size_t n, char *block)
{
    x->flags |= codec_encode(x->codec, site, x->how->type, values, n, block);
    return coded(x);
}

static int host_encode_difference(struct coding *x, const struct codec_site *site, const float *master,
                                  const void *replica, size_t n, char *block)
{
    x->flags |= codec_encode_difference(x->codec, site, master, x->how->type, replica, n, block);
    return coded(x);
}

static int host_decode(struct coding *x, int member, const char *block, void *values, size_t n)
{
    struct merr why;

    if (codec_decode(x->codec, block, codec_size(x->codec, n), x->how->type, values, n, &x->flags, &why) < 0)
        return coded_refuse(x->g, x->codec, member, why.text);
    return 0;
}

static int host_decode_add(struct coding *x, int member, const char *block, void *replica, size_t n)
{
    struct merr why;

    if (codec_decode_add(x->codec, block, codec_size(x->codec, n), x->how->type, replica, n, &x->flags, &why) < 0)
        return coded_refuse(x->g, x->codec, member, why.text);
    return 0;
}

/* After a sum was refused: the member whose block it was. */
static int refuse_part(struct coding *x, const struct coded_sum *s)
{
    const struct codec *c = s->by_node ? x->far : x->codec;
    const struct codec_parts *p = &s->parts;
    float *room = malloc(s->n * sizeof(*room));
    uint32_t flags = 0;
    struct merr why;
    int r = 0;

    for (size_t i = 0; room && i < p->n && r == 0; i++) {
        if (p->blocks[i] && codec_decode(c, p->blocks[i], p->len, CODEC_F32, room, s->n, &flags, &why) < 0)
            r = coded_refuse(x->g, c,
                             s->by_node ? coded_member_at(x, (int)i, x->place) : coded_member_at(x, x->node, (int)i),
                             why.text);
    }
    free(room);
    return r < 0 ? r
                 : failure_keep(&x->g->wait->failure, -EIO, "blocks in call %llu of '%s' cannot be added up, codec %s",
                                (unsigned long long)x->g->seq, x->g->channel.name, codec_name(c));
}

static int host_reduce(struct coding *x, const struct coded_sum *s, enum codec_type type, void *out)
{
    if (codec_decode_reduce(s->by_node ? x->far : x->codec, &s->parts, type, out, s->n, &x->flags, NULL) < 0)
        return refuse_part(x, s);
    return coded(x);
}

static int host_reduce_encode(struct coding *x, const struct coded_sum *s, const struct codec_site *site, char *block)
{
    if (codec_decode_reduce_encode(s->by_node ? x->far : x->codec, &s->parts, x->far, site, block, s->n, &x->flags,
                                   NULL) < 0)
        return refuse_part(x, s);
    return coded(x);
}

static int host_run(struct coding *x) /* each call has done its work */
{
    return x->g->wait->failure.code;
}

static int host_send(struct coding *x, struct hop *h, int member, uint32_t step, const char *block, size_t bytes)
{
    return group_send(x->g, &h->wave, member, step, block, bytes);
}

static int host_recv(struct coding *x, struct hop *h, int member, uint32_t step, char *block, size_t bytes)
{
    return group_recv(x->g, &h->wave, member, step, block, bytes);
}

static int host_go(struct coding *x, struct hop *h) /* each went when it was asked for */
{
    (void)h;
    return x->g->wait->failure.code;
}

static int host_wait(struct coding *x, struct hop *h)
{
    return group_wait(x->g, &h->wave);
}

static int host_end(struct coding *x, int r)
{
    (void)x;
    return r;
}

const struct coded_way coded_by_host = {
    .room = host_room,
    .encode = host_encode,
    .encode_difference = host_encode_difference,
    .decode = host_decode,
    .decode_add = host_decode_add,
    .reduce = host_reduce,
    .reduce_encode = host_reduce_encode,
    .run = host_run,
    .send = host_send,
    .recv = host_recv,
    .go = host_go,
    .wait = host_wait,
    .end = host_end,
};
