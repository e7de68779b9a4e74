/* coded_gpu - coding runs on a queue of its own. NCCL's queue follows it to what is to be sent, and it follows NCCL's
 * to what has come, so that one slice travels while the next is coded, and the host only asks. Without NCCL the coded
 * bytes, and no others, pass through pinned memory, which is an image of the GPU's for blocks. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/try.h"
#include "compress/codec_cuda.h"
#include "worker/engine/comm/coded_priv.h"
#include "worker/engine/comm/gpu.h"

#define CALM_US 200000 /* of waiting after a failure: kernels take far less */

enum { TAG_MATES = COMM_RANKS_MAX, TAG_NODES }; /* of sums; below: of blocks of a member */

struct move { /* a block on its way to a member, or from it */
    char *block;
    size_t bytes;
    int member;
    uint32_t step;
    bool send;
};

struct loan { /* memory of the GPU for a message's block */
    struct loan *next;
    char *block, *image; /* image: pinned, NULL until one is asked for */
    size_t bytes;
    bool out;
};

struct coded_gpu { /* of a world */
    struct device_queue *queue;
    void *stream; /* of queue */
    struct codec_cuda_report *report;
    struct device_mark *coded, *came[CODED_HOPS]; /* in the order of queue; of a hop, in that of the fabric's */
    char *room, *pinned;                          /* of GPU_STAGE_BYTES; pinned: NULL until it is needed */
    struct move *move;                            /* hops * 2 * members */
    int members;
    struct loan *loans; /* never given back before the world closes: freeing would wait for all that the GPU does */
};

static struct coded_gpu *gpu_of(const struct coding *x)
{
    return x->g->set->gpu->coded;
}

static const struct device_ops *ops_of(const struct coding *x)
{
    return x->g->set->gpu->ops;
}

static int told(struct comm_group *g, int r, const struct merr *why)
{
    return r < 0 ? failure_keep(&g->wait->failure, r, "'%s': %.900s", g->channel.name, why->text) : 0;
}

/* --- life --------------------------------------------------------------------------------------- */

static void gpu_free(struct gpu *gpu, struct coded_gpu *c)
{
    const struct device_ops *ops = gpu->ops;

    if (!c)
        return;
    if (c->queue)
        ops->free(c->queue, DEVICE_PINNED, c->pinned);
    ops->mark_free(c->coded);
    for (int i = 0; i < CODED_HOPS; i++)
        ops->mark_free(c->came[i]);
    for (struct loan *l = c->loans, *next; l; l = next) {
        next = l->next;
        ops->free(c->queue, DEVICE_LOCAL, l->block);
        ops->free(c->queue, DEVICE_PINNED, l->image);
        free(l);
    }
    ops->codecs->report_free(c->report);
    ops->close(c->queue);
    free(c->move);
    free(c);
}

void coded_gpu_close(struct gpu *gpu)
{
    gpu_free(gpu, gpu->coded);
    gpu->coded = NULL;
}

static int make(struct gpu *gpu, struct coded_gpu *c, struct merr *err)
{
    const struct device_ops *ops = gpu->ops;

    TRY(ops->open(gpu->ordinal, &c->queue, err));
    c->stream = ops->native(c->queue);
    TRY(ops->codecs->report_new(&c->report, err));
    TRY(ops->mark_new(c->queue, &c->coded, err));
    for (int i = 0; i < CODED_HOPS; i++)
        TRY(ops->mark_new(c->queue, &c->came[i], err));
    return 0;
}

bool coded_held(const struct comm_group *g, const void *p)
{
    return g->set->gpu->ops && g->set->gpu->ops->codecs && gpu_holds(g, p);
}

int coded_gpu_open(struct comm_group *g)
{
    struct gpu *gpu = g->set->gpu;
    struct coded_gpu *c;
    struct merr why = {""};
    int r;

    if (gpu->coded)
        return 0;
    c = calloc(1, sizeof(*c));
    if (!c)
        return failure_keep(&g->wait->failure, -ENOMEM, "no memory to code on the GPU");
    r = told(g, make(gpu, c, &why), &why);
    if (r < 0)
        gpu_free(gpu, c);
    else
        gpu->coded = c;
    return r;
}

/* Places for the moves of all hops. */
static int make_moves(struct coding *x)
{
    struct coded_gpu *c = gpu_of(x);
    struct move *v;

    if (x->g->n <= c->members)
        return 0;
    v = calloc((size_t)CODED_HOPS * 2 * (size_t)x->g->n, sizeof(*v));
    if (!v)
        return failure_keep(&x->g->wait->failure, -ENOMEM, "no memory for the blocks of %d ranks", x->g->n);
    free(c->move);
    c->move = v;
    c->members = x->g->n;
    return 0;
}

static char *fabric_room(struct coding *x, size_t bytes)
{
    assert(bytes <= GPU_STAGE_BYTES); /* coded.c has its limit */
    if (make_moves(x) < 0 || gpu_stage(x->g, &gpu_of(x)->room) < 0)
        return NULL;
    return gpu_of(x)->room;
}

static char *relay_room(struct coding *x, size_t bytes)
{
    struct coded_gpu *c = gpu_of(x);
    struct merr why = {""};
    void *p;

    if (!c->pinned) {
        if (told(x->g, ops_of(x)->alloc(c->queue, DEVICE_PINNED, GPU_STAGE_BYTES, &p, &why), &why) < 0)
            return NULL;
        c->pinned = p;
    }
    return fabric_room(x, bytes);
}

/* --- coding ------------------------------------------------------------------------------------- */

static struct codec_cuda_report *tagged(const struct coding *x, uint64_t tag)
{
    struct codec_cuda_report *r = gpu_of(x)->report;

    ops_of(x)->codecs->report_tag(r, tag);
    return r;
}

static int gpu_encode(struct coding *x, const struct codec_site *site, const void *values, size_t n, char *block)
{
    struct merr why = {""};

    return told(x->g,
                ops_of(x)->codecs->encode(gpu_of(x)->stream, x->codec, site, x->how->type, values, n, block,
                                          gpu_of(x)->report, &why),
                &why);
}

static int gpu_encode_difference(struct coding *x, const struct codec_site *site, const float *master,
                                 const void *replica, size_t n, char *block)
{
    struct merr why = {""};

    return told(x->g,
                ops_of(x)->codecs->encode_difference(gpu_of(x)->stream, x->codec, site, master, x->how->type, replica,
                                                     n, block, gpu_of(x)->report, &why),
                &why);
}

static int gpu_decode(struct coding *x, int member, const char *block, void *values, size_t n)
{
    struct merr why = {""};

    return told(x->g,
                ops_of(x)->codecs->decode(gpu_of(x)->stream, x->codec, block, codec_size(x->codec, n), x->how->type,
                                          values, n, tagged(x, (uint64_t)member), &why),
                &why);
}

static int gpu_decode_add(struct coding *x, int member, const char *block, void *replica, size_t n)
{
    struct merr why = {""};

    return told(x->g,
                ops_of(x)->codecs->decode_add(gpu_of(x)->stream, x->codec, block, codec_size(x->codec, n), x->how->type,
                                              replica, n, tagged(x, (uint64_t)member), &why),
                &why);
}

static int gpu_reduce(struct coding *x, const struct coded_sum *s, enum codec_type type, void *out)
{
    struct merr why = {""};

    return told(x->g,
                ops_of(x)->codecs->decode_reduce(gpu_of(x)->stream, s->by_node ? x->far : x->codec, &s->parts, type,
                                                 out, s->n, tagged(x, s->by_node ? TAG_NODES : TAG_MATES), &why),
                &why);
}

static int gpu_reduce_encode(struct coding *x, const struct coded_sum *s, const struct codec_site *site, char *block)
{
    struct merr why = {""};

    return told(x->g,
                ops_of(x)->codecs->decode_reduce_encode(gpu_of(x)->stream, s->by_node ? x->far : x->codec, &s->parts,
                                                        x->far, site, block, s->n,
                                                        tagged(x, s->by_node ? TAG_NODES : TAG_MATES), &why),
                &why);
}

/* Until all that is queued for coding has run, whatever the peers do meanwhile. */
static int coded(struct comm_group *g)
{
    struct wait *w = g->wait;
    const struct gpu *gpu = g->set->gpu;
    int64_t deadline_us = clock_mono_us() + w->timeout_us;
    struct merr why = {""};
    int r;

    while ((r = gpu->ops->done(gpu->coded->queue, &why)) == 0 && !w->failure.code) {
        (void)wait_progress(w);
        if (flight_aborted(w->flight))
            return failure_keep(&w->failure, -ECANCELED, "told to give up while the GPU of rank %d codes '%s'", w->rank,
                                g->channel.name);
        if (clock_mono_us() >= deadline_us)
            return failure_keep(&w->failure, -ETIMEDOUT,
                                "GPU %d of rank %d did not end coding in call %llu of '%s' for %lld ms: "
                                "is it hung?",
                                gpu->ordinal, w->rank, (unsigned long long)g->seq, g->channel.name,
                                (long long)(w->timeout_us / 1000));
    }
    TRY(r < 0 ? told(g, r, &why) : 0);
    return w->failure.code;
}

static int gpu_run(struct coding *x)
{
    return coded(x->g);
}

/* After a failure, which is told already: until nothing reads or writes any more, unless the GPU hangs. */
static void calm(const struct gpu *gpu)
{
    int64_t deadline_us = clock_mono_us() + CALM_US;

    while (gpu->ops->done(gpu->coded->queue, NULL) == 0 && clock_mono_us() < deadline_us)
        ;
}

/* What the GPU says of all calls of codecs so far. -EBADMSG: a block was bad; the world has not failed. */
static int collect(struct comm_group *g, uint32_t *flags, struct codec_cuda_fault *f, struct merr *why)
{
    const struct codec_cuda *codecs = g->set->gpu->ops->codecs;
    const struct coded_gpu *c = g->set->gpu->coded;
    int r = codecs->fetch(c->stream, c->report, why);

    TRY(told(g, r, why));
    TRY(coded(g));
    r = codecs->collect(c->report, flags, f, why);
    return r == -EBADMSG ? r : told(g, r, why);
}

static int look_at_report(struct coding *x)
{
    struct codec_cuda_fault f;
    struct merr why = {""};
    int r = collect(x->g, &x->flags, &f, &why);

    if (r != -EBADMSG)
        return r;
    if (f.tag < COMM_RANKS_MAX)
        return coded_refuse(x->g, x->codec, (int)f.tag, why.text);
    return f.tag == TAG_NODES ? coded_refuse(x->g, x->far, coded_member_at(x, (int)f.block, x->place), why.text)
                              : coded_refuse(x->g, x->codec, coded_member_at(x, x->node, (int)f.block), why.text);
}

/* --- moving ------------------------------------------------------------------------------------- */

static struct move *moves_of(const struct coding *x, const struct hop *h)
{
    return gpu_of(x)->move + (size_t)h->number * 2 * (size_t)x->g->n;
}

static int add_move(struct coding *x, struct hop *h, const struct move *m)
{
    assert(h->number < CODED_HOPS && h->moves < 2 * x->g->n);
    assert(m->block >= gpu_of(x)->room && m->block + m->bytes <= gpu_of(x)->room + GPU_STAGE_BYTES);
    moves_of(x, h)[h->moves++] = *m;
    return 0;
}

static int gpu_send(struct coding *x, struct hop *h, int member, uint32_t step, const char *block, size_t bytes)
{
    struct move m = {.block = (char *)(uintptr_t)block, .bytes = bytes, .member = member, .step = step, .send = true};

    return add_move(x, h, &m);
}

static int gpu_recv(struct coding *x, struct hop *h, int member, uint32_t step, char *block, size_t bytes)
{
    struct move m = {.block = block, .bytes = bytes, .member = member, .step = step};

    return add_move(x, h, &m);
}

/* q goes on when from has come as far as it is asked to go now. */
static int follow(struct coding *x, struct device_queue *q, struct device_queue *from, struct device_mark *m)
{
    struct merr why = {""};

    TRY(told(x->g, ops_of(x)->mark(from, m, &why), &why));
    return told(x->g, ops_of(x)->follow(q, m, &why), &why);
}

static int fabric_go(struct coding *x, struct hop *h)
{
    struct device_queue *calls = x->g->set->gpu->queue;
    struct comm_group *g = x->g;
    struct merr why = {""};

    if (h->moves == 0)
        return 0;
    TRY(follow(x, calls, gpu_of(x)->queue, gpu_of(x)->coded));
    TRY(fabric_begin(g->fabric));
    for (const struct move *m = moves_of(x, h), *end = m + h->moves; m < end; m++) {
        TRY(m->send ? fabric_send(g->fabric, m->member, m->block, m->bytes)
                    : fabric_recv(g->fabric, m->member, m->block, m->bytes));
        g->channel.bytes_sent += m->send ? m->bytes : 0;
    }
    TRY(fabric_end(g->fabric));
    return told(g, ops_of(x)->mark(calls, gpu_of(x)->came[h->number], &why), &why);
}

static int fabric_wait(struct coding *x, struct hop *h)
{
    struct merr why = {""};

    if (h->moves == 0)
        return 0;
    h->moves = 0;
    return told(x->g, ops_of(x)->follow(gpu_of(x)->queue, gpu_of(x)->came[h->number], &why), &why);
}

/* After a failure nothing may run on: what waits for peers is ended by giving their communicator up. */
static int gpu_end(struct coding *x, int r, bool by_fabric)
{
    if (r == 0 && by_fabric)
        r = fabric_finish(x->g->fabric);
    if (r == 0)
        r = look_at_report(x);
    if (r < 0) {
        gpu_group_free(x->g);
        calm(x->g->set->gpu);
    }
    return r;
}

static int fabric_way_end(struct coding *x, int r)
{
    return gpu_end(x, r, true);
}

/* Its image in pinned memory. */
static char *image(const struct coding *x, const char *block)
{
    return gpu_of(x)->pinned + (block - gpu_of(x)->room);
}

/* What was to be copied to the GPU of an earlier slice has been, when coded() returns: its image is free. */
static int relay_go(struct coding *x, struct hop *h)
{
    const struct move *first = moves_of(x, h), *end = first + h->moves;

    if (h->moves == 0)
        return 0;
    for (const struct move *m = first; m < end; m++)
        TRY(m->send ? coded_gpu_copy(x->g, image(x, m->block), m->block, m->bytes) : 0);
    TRY(coded(x->g));
    for (const struct move *m = first; m < end; m++)
        TRY(m->send ? group_send(x->g, &h->wave, m->member, m->step, image(x, m->block), m->bytes)
                    : group_recv(x->g, &h->wave, m->member, m->step, image(x, m->block), m->bytes));
    return 0;
}

static int relay_wait(struct coding *x, struct hop *h)
{
    TRY(group_wait(x->g, &h->wave));
    for (const struct move *m = moves_of(x, h), *end = m + h->moves; m < end; m++)
        TRY(m->send ? 0 : coded_gpu_copy(x->g, m->block, image(x, m->block), m->bytes));
    h->moves = 0;
    return 0;
}

static int relay_way_end(struct coding *x, int r)
{
    return gpu_end(x, r, false);
}

#define CODING_ON_THE_GPU                                                                                              \
    .encode = gpu_encode, .encode_difference = gpu_encode_difference, .decode = gpu_decode,                            \
    .decode_add = gpu_decode_add, .reduce = gpu_reduce, .reduce_encode = gpu_reduce_encode, .run = gpu_run,            \
    .send = gpu_send, .recv = gpu_recv

const struct coded_way coded_by_fabric = {
    .room = fabric_room,
    CODING_ON_THE_GPU,
    .go = fabric_go,
    .wait = fabric_wait,
    .end = fabric_way_end,
};

const struct coded_way coded_by_messages = {
    .room = relay_room,
    CODING_ON_THE_GPU,
    .go = relay_go,
    .wait = relay_wait,
    .end = relay_way_end,
};

/* --- messages ----------------------------------------------------------------------------------- */

int coded_gpu_lend(struct comm_group *g, size_t bytes, char **ret)
{
    struct gpu *gpu = g->set->gpu;
    struct coded_gpu *c = gpu->coded;
    struct loan *l = c->loans;
    struct merr why = {""};
    void *p;

    while (l && (l->out || l->bytes < bytes))
        l = l->next;
    if (!l) {
        TRY(told(g, gpu->ops->alloc(c->queue, DEVICE_LOCAL, bytes, &p, &why), &why));
        l = malloc(sizeof(*l));
        if (!l) {
            gpu->ops->free(c->queue, DEVICE_LOCAL, p);
            return failure_keep(&g->wait->failure, -ENOMEM, "no memory for a block of %zu bytes", bytes);
        }
        *l = (struct loan){.next = c->loans, .block = p, .bytes = bytes};
        c->loans = l;
    }
    l->out = true;
    *ret = l->block;
    return 0;
}

static struct loan *find_loan(const struct gpu *gpu, const char *block)
{
    struct loan *l = gpu->coded ? gpu->coded->loans : NULL;

    while (l && l->block != block)
        l = l->next;
    return l;
}

int coded_gpu_image(struct comm_group *g, const char *block, char **ret)
{
    struct gpu *gpu = g->set->gpu;
    struct loan *l = find_loan(gpu, block);
    struct merr why = {""};
    void *p;

    assert(l && l->out);
    if (!l->image) {
        TRY(told(g, gpu->ops->alloc(gpu->coded->queue, DEVICE_PINNED, l->bytes, &p, &why), &why));
        l->image = p;
    }
    *ret = l->image;
    return 0;
}

void coded_gpu_return(struct comm_group *g, const char *block)
{
    struct loan *l = find_loan(g->set->gpu, block);

    if (l)
        l->out = false;
}

int coded_gpu_copy(struct comm_group *g, void *to, const void *from, size_t bytes)
{
    struct merr why = {""};

    return told(g, g->set->gpu->ops->copy(g->set->gpu->coded->queue, to, from, bytes, &why), &why);
}

int coded_gpu_encode(struct comm_group *g, const struct coded_part *p, const struct codec_site *site, const void *from)
{
    const struct coded_gpu *c = g->set->gpu->coded;
    struct merr why = {""};

    return told(
        g,
        g->set->gpu->ops->codecs->encode(c->stream, p->codec, site, p->type, from, p->count, p->lent, c->report, &why),
        &why);
}

int coded_gpu_decode(struct comm_group *g, const struct coded_part *p, size_t bytes)
{
    const struct coded_gpu *c = g->set->gpu->coded;
    struct merr why = {""};

    return told(g,
                g->set->gpu->ops->codecs->decode(c->stream, p->codec, p->lent, bytes, p->type, p->values, p->count,
                                                 c->report, &why),
                &why);
}

int coded_gpu_finish(struct comm_group *g, uint32_t *flags, struct merr *why)
{
    struct codec_cuda_fault f;
    int r = collect(g, flags, &f, why);

    if (g->wait->failure.code)
        calm(g->set->gpu);
    return r;
}
