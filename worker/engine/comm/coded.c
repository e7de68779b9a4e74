/* coded - a call is a pipeline of up to three stages over the slices of the shares:
 *
 *   put      encode what the peers need of slice s, send it
 *   fold     wait for what came; add it up; pass the sum on, coded again
 *   land     wait for that; decode it where it belongs
 *
 * At any time slice s is in put, s - 1 in fold and s - 2 in land, each with buffers of its own.
 */
#include "worker/engine/comm/coded.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "compress/codec_cuda.h"
#include "worker/engine/comm/coded_priv.h"
#include "worker/engine/comm/gpu.h"

#define TYPE_CODED 4           /* of a call: this + enum codec_type */
#define STEP_DEVICE UINT32_MAX /* of a call: the others are two a slice */

typedef int (*stage_fn)(struct coding *x, struct coded_set *set, size_t s);

/* Slice s of n values: its length, and where it begins. */
static size_t slice_of(const struct coding *x, size_t n, size_t s, size_t *ret_at)
{
    size_t at = s * x->slice;

    *ret_at = at < n ? at : n;
    return n - *ret_at < x->slice ? n - *ret_at : x->slice;
}

/* Slice s of member's share: its length, and where it begins in the vector. */
static size_t share_of(const struct coding *x, int member, size_t s, size_t *ret_at)
{
    size_t n = slice_of(x, x->cut[member + 1] - x->cut[member], s, ret_at);

    *ret_at += x->cut[member];
    return n;
}

static size_t block_bytes(const struct codec *c, size_t n)
{
    return n ? codec_size(c, n) : 0;
}

static struct codec_site site_of(const struct coding *x, size_t at, bool second)
{
    struct codec_site site = x->how->site;

    site.tensor += (uint32_t)x->g->index + (second ? COMM_RANKS_MAX : 0);
    site.offset += at;
    return site;
}

/* Encode slice values for the first hop. */
static int put_block(struct coding *x, const void *values, size_t at, size_t n, char *block)
{
    struct codec_site site = site_of(x, at, false);

    return x->way->encode(x, &site, values, n, block);
}

static int get_block(struct coding *x, int member, const char *block, void *values, size_t n)
{
    return n ? x->way->decode(x, member, block, values, n) : 0;
}

/* --- sums: the first hop ------------------------------------------------------------------------------------------ */

/* Bytes of slice s of the shares that place passes on: one a node. */
static size_t column_bytes(const struct coding *x, int place, size_t s)
{
    size_t bytes = 0, at;

    for (int k = 0; k < x->nodes; k++)
        bytes += block_bytes(x->codec, share_of(x, coded_member_at(x, k, place), s, &at));
    return bytes;
}

/* Each node-mate gets one message: a block for every node's member at its place. */
static int put_columns(struct coding *x, struct coded_set *set, size_t s)
{
    int r = 0;

    for (int i = 1; i < x->local && r == 0; i++) {
        int from = (x->place + x->local - i) % x->local, to = (x->place + i) % x->local;
        size_t bytes = column_bytes(x, x->place, s), at;
        char *put = set->put + (size_t)to * x->room, *b = put;

        if (bytes)
            r = x->way->recv(x, &set->first, coded_member_at(x, x->node, from), 2 * (uint32_t)s,
                             set->got + (size_t)from * x->room, bytes);
        for (int k = 0; k < x->nodes && r == 0; k++) {
            size_t n = share_of(x, coded_member_at(x, k, to), s, &at);

            if (n)
                r = put_block(x, (const char *)x->in + at * x->size, at, n, b);
            b += block_bytes(x->codec, n);
        }
        if (r == 0 && b > put)
            r = x->way->send(x, &set->first, coded_member_at(x, x->node, to), 2 * (uint32_t)s, put, (size_t)(b - put));
    }
    return r < 0 ? r : x->way->go(x, &set->first);
}

/* What the node-mates sent of a share's slice of n values from at on, skip bytes into their messages; the own values
 * uncoded. */
static struct coded_sum mates_sum(struct coding *x, const struct coded_set *set, size_t skip, size_t at, size_t n)
{
    const void *own = (const char *)x->in + at * x->size;

    for (int l = 0; l < x->local; l++)
        x->g->src[l] = l == x->place ? NULL : set->got + (size_t)l * x->room + skip;
    return (struct coded_sum){.parts = {.blocks = x->g->src,
                                        .n = (size_t)x->local,
                                        .len = codec_size(x->codec, n),
                                        .own = own,
                                        .own_type = x->how->type},
                              .n = n};
}

/* --- sums to their owners ----------------------------------------------------------------------------------------- */

static void *own_out(const struct coding *x, size_t at)
{
    return (char *)x->out + (at - x->cut[x->g->index]) * x->size;
}

/* The sum of the node for the member at (k, place): to it, or kept if that is this one. */
static int fold_share(struct coding *x, struct coded_set *set, size_t s, int k, size_t skip)
{
    int to = coded_member_at(x, k, x->place);
    size_t at, n = share_of(x, to, s, &at);
    char *pass = set->pass + (size_t)k * x->far_room;
    struct codec_site site = site_of(x, at, true);
    struct coded_sum sum;

    if (n == 0)
        return 0;
    sum = mates_sum(x, set, skip, at, n);
    if (k == x->node && x->nodes == 1)
        return x->way->reduce(x, &sum, x->how->type, own_out(x, at));
    if (k == x->node)
        return x->way->reduce(x, &sum, CODEC_F32, set->own);
    TRY(x->way->reduce_encode(x, &sum, &site, pass));
    return x->way->send(x, &set->second, to, 2 * (uint32_t)s + 1, pass, block_bytes(x->far, n));
}

static int fold_shares(struct coding *x, struct coded_set *set, size_t s)
{
    size_t skip = 0, at, mine = block_bytes(x->far, share_of(x, x->g->index, s, &at));
    int r = x->way->wait(x, &set->first);

    for (int k = 0; k < x->nodes && r == 0; k++) {
        if (k != x->node && mine)
            r = x->way->recv(x, &set->second, coded_member_at(x, k, x->place), 2 * (uint32_t)s + 1,
                             set->back + (size_t)k * x->far_room, mine);
        if (r == 0)
            r = fold_share(x, set, s, k, skip);
        skip += block_bytes(x->codec, share_of(x, coded_member_at(x, k, x->place), s, &at));
    }
    return r < 0 ? r : x->way->go(x, &set->second);
}

/* The nodes' sums for this member. */
static int land_shares(struct coding *x, struct coded_set *set, size_t s)
{
    size_t at, n = share_of(x, x->g->index, s, &at);
    struct coded_sum sum = {.parts = {.blocks = x->g->src,
                                      .n = (size_t)x->nodes,
                                      .len = block_bytes(x->far, n),
                                      .own = set->own,
                                      .own_type = CODEC_F32},
                            .by_node = true,
                            .n = n};
    int r = x->way->wait(x, &set->second);

    if (r < 0 || n == 0 || x->nodes == 1)
        return r;
    for (int k = 0; k < x->nodes; k++)
        x->g->src[k] = k == x->node ? NULL : set->back + (size_t)k * x->far_room;
    return x->way->reduce(x, &sum, x->how->type, own_out(x, at));
}

/* --- sums to all -------------------------------------------------------------------------------------------------- */

static int fold_to_all(struct coding *x, struct coded_set *set, size_t s)
{
    int me = x->g->index, r = x->way->wait(x, &set->first);
    size_t at, n = share_of(x, me, s, &at), theirs;
    struct codec_site site = site_of(x, at, true);

    if (r == 0 && n) {
        struct coded_sum sum = mates_sum(x, set, 0, at, n);

        r = x->way->reduce_encode(x, &sum, &site, set->pass);
    }
    for (int i = 1; i < x->g->n && r == 0; i++) {
        int from = (me + x->g->n - i) % x->g->n, to = (me + i) % x->g->n;
        size_t m = share_of(x, from, s, &theirs);

        if (m)
            r = x->way->recv(x, &set->second, from, 2 * (uint32_t)s + 1, set->back + (size_t)from * x->far_room,
                             codec_size(x->codec, m));
        if (n && r == 0)
            r = x->way->send(x, &set->second, to, 2 * (uint32_t)s + 1, set->pass, codec_size(x->codec, n));
    }
    if (r == 0)
        r = x->way->go(x, &set->second);
    return r < 0 ? r : get_block(x, me, set->pass, (char *)x->out + at * x->size, n);
}

static int land_from_all(struct coding *x, struct coded_set *set, size_t s)
{
    int r = x->way->wait(x, &set->second);

    for (int i = 0; i < x->g->n && r == 0; i++) {
        size_t at, n = share_of(x, i, s, &at);

        if (i != x->g->index)
            r = get_block(x, i, set->back + (size_t)i * x->far_room, (char *)x->out + at * x->size, n);
    }
    return r;
}

/* --- gathering ---------------------------------------------------------------------------------------------------- */

static int put_own(struct coding *x, struct coded_set *set, size_t s)
{
    int me = x->g->index, r = 0;
    size_t at, n = share_of(x, me, s, &at), theirs;
    struct codec_site site = site_of(x, at, false);

    if (n && x->master)
        r = x->way->encode_difference(x, &site, x->master + (at - x->cut[me]), (char *)x->out + at * x->size, n,
                                      set->put);
    else if (n)
        r = put_block(x, (char *)x->out + at * x->size, at, n, set->put);
    for (int i = 1; i < x->g->n && r == 0; i++) {
        int from = (me + x->g->n - i) % x->g->n, to = (me + i) % x->g->n;
        size_t m = share_of(x, from, s, &theirs);

        if (m)
            r = x->way->recv(x, &set->first, from, 2 * (uint32_t)s, set->got + (size_t)from * x->room,
                             codec_size(x->codec, m));
        if (n && r == 0)
            r = x->way->send(x, &set->first, to, 2 * (uint32_t)s, set->put, codec_size(x->codec, n));
    }
    return r < 0 ? r : x->way->go(x, &set->first);
}

static int land_gathered(struct coding *x, struct coded_set *set, size_t s)
{
    int r = x->way->wait(x, &set->first);

    for (int i = 0; i < x->g->n && r == 0; i++) {
        size_t at, n = share_of(x, i, s, &at);
        const char *block = i == x->g->index ? set->put : set->got + (size_t)i * x->room;
        char *to = (char *)x->out + at * x->size;

        if (n)
            r = (x->master ? x->way->decode_add : x->way->decode)(x, i, block, to, n);
    }
    return r;
}

/* --- a call from begin to end ------------------------------------------------------------------------------------- */

static size_t longest(const struct coding *x)
{
    size_t most = 0;

    for (int i = 0; i < x->g->n; i++) {
        size_t n = x->cut[i + 1] - x->cut[i];

        most = n > most ? n : most;
    }
    return most;
}

static size_t up64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* Values of a slice: as wanted, but so that all buffers stay within their limit. */
static size_t slice_for(const struct coding *x)
{
    size_t wanted = x->how->slice ? x->how->slice : CODED_SLICE;
    size_t most = CODED_ROOM_MAX / (CODED_DEPTH * 4 * sizeof(float) * (size_t)x->g->n) / CODED_ALIGN * CODED_ALIGN;

    if (most < CODED_ALIGN)
        most = CODED_ALIGN;
    return wanted < most ? wanted : most;
}

static int make_room(struct coding *x)
{
    size_t n = (size_t)x->g->n, all = longest(x), put, own, far, each;
    char *at;

    x->slice = slice_for(x);
    x->slices = (all + x->slice - 1) / x->slice;
    all = all < x->slice ? all : x->slice;
    x->room = up64((size_t)x->nodes * block_bytes(x->codec, all));
    x->far_room = up64(block_bytes(x->far, all));
    put = x->room * (size_t)x->local;
    far = x->far_room * n;
    own = up64(all * sizeof(float));
    each = 2 * put + 2 * far + own;
    at = x->way->room(x, CODED_DEPTH * each + 1);
    for (int i = 0; at && i < CODED_DEPTH; i++, at += each) {
        x->set[i] = (struct coded_set){.first = {.wave.req = x->g->req + 4 * (size_t)i * n, .number = 2 * i},
                                       .second = {.wave.req = x->g->req + (4 * (size_t)i + 2) * n, .number = 2 * i + 1},
                                       .put = at,
                                       .got = at + put,
                                       .pass = at + 2 * put,
                                       .back = at + 2 * put + far,
                                       .own = at + 2 * put + 2 * far};
    }
    return at ? 0 : x->g->wait->failure.code;
}

/* fold may be NULL. */
static int run_stages(struct coding *x, stage_fn put, stage_fn fold, stage_fn land)
{
    int r = make_room(x);

    for (size_t s = 0; s < x->slices + 2 && r == 0; s++) {
        if (s >= 2)
            r = land(x, &x->set[(s - 2) % CODED_DEPTH], s - 2);
        if (s < x->slices && r == 0)
            r = put(x, &x->set[s % CODED_DEPTH], s);
        if (s >= 1 && s - 1 < x->slices && fold && r == 0)
            r = fold(x, &x->set[(s - 1) % CODED_DEPTH], s - 1);
    }
    for (int i = 0; i < CODED_DEPTH && x->set[i].first.wave.req; i++) { /* of a failed call */
        (void)group_wait(x->g, &x->set[i].first.wave);
        (void)group_wait(x->g, &x->set[i].second.wave);
    }
    return x->way->end(x, r);
}

static struct coding coding_of(struct comm_group *g, const struct coded *how)
{
    assert(how->slice % CODED_ALIGN == 0 && how->site.offset % CODED_ALIGN == 0);
    assert(!codec_is_stochastic(how->codec) || how->site.tensor % CODED_TENSORS == 0);
    return (struct coding){.g = g,
                           .how = how,
                           .way = &coded_by_host,
                           .codec = how->codec,
                           .far = how->codec,
                           .nodes = 1,
                           .local = g->n,
                           .place = g->index,
                           .size = how->type == CODEC_F32 ? 4 : 2};
}

/* all: all values of this member are held. bytes of the values, as all members know them alike, or no less. */
static int choose_way(struct coding *x, bool all, size_t bytes)
{
    struct comm_group *g = x->g;
    int r = 0;

    all &= g->n <= CODEC_CUDA_PARTS_MAX;
    if (all)
        r = coded_gpu_open(g);
    if (r == 0 && gpu_worth(g, bytes))
        r = gpu_enter(g, STEP_DEVICE, all, true);
    if (r < 0)
        gpu_group_free(g);
    else if (all)
        x->way = r > 0 ? &coded_by_fabric : &coded_by_messages;
    return r < 0 ? r : 0;
}

static int coding_begin(struct coding *x, enum comm_call op, size_t count)
{
    return group_begin(x->g, op, TYPE_CODED + x->how->type, codec_id(x->codec), count * x->size);
}

static int coding_end(const struct coding *x, int r, uint32_t *flags, struct merr *err)
{
    r = group_end(x->g, r, err);
    if (r == 0)
        *flags |= x->flags;
    return r;
}

int coded_all_reduce(struct comm_group *g, const struct coded *how, void *buf, size_t count, uint32_t *flags,
                     struct merr *err)
{
    struct coding x = coding_of(g, how);
    size_t n = (size_t)g->n, share = (count + n - 1) / n, *cut = calloc(n + 1, sizeof(*cut));
    int r;

    if (!cut)
        return merr_set(err, -ENOMEM, "no memory for the cuts of %zu values", count);
    share = (share + codec_group(how->codec) - 1) / codec_group(how->codec) * codec_group(how->codec);
    for (size_t i = 0; i <= n; i++)
        cut[i] = i * share < count ? i * share : count;
    x.cut = cut;
    x.in = x.out = buf;
    r = coding_begin(&x, COMM_CALL_ALL_REDUCE, count);
    if (r == 0)
        r = choose_way(&x, coded_held(g, buf), count * x.size);
    if (r == 0 && g->n > 1)
        r = run_stages(&x, put_columns, fold_to_all, land_from_all);
    free(cut);
    return coding_end(&x, r, flags, err);
}

/* Two levels, or the one that is not trivial. */
static void set_levels(struct coding *x)
{
    const struct comm_group *g = x->g;

    if (!x->how->far || g->nodes == 1)
        return;
    if (g->nodes == g->n) {
        x->codec = x->far = x->how->far;
        return;
    }
    if (!g->grid)
        return;
    x->far = x->how->far;
    x->nodes = g->nodes;
    x->local = g->n / g->nodes;
    for (int i = 0; i < g->n; i++) {
        if (g->grid[i] == g->index) {
            x->node = i / x->local;
            x->place = i % x->local;
        }
    }
}

int coded_reduce_scatter(struct comm_group *g, const struct coded *how, const void *in, const size_t *cut, void *out,
                         uint32_t *flags, struct merr *err)
{
    struct coding x = coding_of(g, how);
    size_t mine = cut[g->index + 1] - cut[g->index];
    int r;

    x.in = in;
    x.out = out;
    x.cut = cut;
    set_levels(&x);
    r = coding_begin(&x, COMM_CALL_REDUCE_SCATTER, cut[g->n]);
    if (r == 0)
        r = choose_way(&x, coded_held(g, in) && (mine == 0 || coded_held(g, out)), cut[g->n] * x.size);
    if (r == 0 && g->n > 1)
        r = run_stages(&x, put_columns, fold_shares, land_shares);
    else if (r == 0 && mine)
        memmove(out, (const char *)in + cut[0] * x.size, mine * x.size);
    return coding_end(&x, r, flags, err);
}

/* master NULL: the values themselves. */
static int gather(struct comm_group *g, const struct coded *how, const float *master, void *buf, const size_t *cut,
                  uint32_t *flags, struct merr *err)
{
    struct coding x = coding_of(g, how);
    int r = coding_begin(&x, COMM_CALL_ALL_GATHER, cut[g->n]);

    x.out = buf;
    x.cut = cut;
    x.master = master;
    if (r == 0)
        r = choose_way(&x, coded_held(g, buf) && (!master || coded_held(g, master)), cut[g->n] * x.size);
    if (r == 0)
        r = run_stages(&x, put_own, NULL, land_gathered);
    return coding_end(&x, r, flags, err);
}

int coded_all_gather(struct comm_group *g, const struct coded *how, void *buf, const size_t *cut, uint32_t *flags,
                     struct merr *err)
{
    return gather(g, how, NULL, buf, cut, flags, err);
}

int coded_gather_differences(struct comm_group *g, const struct coded *how, const float *master, void *replica,
                             const size_t *cut, uint32_t *flags, struct merr *err)
{
    assert(master);
    return gather(g, how, master, replica, cut, flags, err);
}

/* --- for measuring ------------------------------------------------------------------------------------------------ */

const struct coded_way *coded_place(struct comm_group *g, const void *like)
{
    if (!like || g->n > CODEC_CUDA_PARTS_MAX || !coded_held(g, like))
        return &coded_by_host;
    return coded_gpu_open(g) < 0 ? NULL : &coded_by_messages;
}

static int hop_to_all(struct coding *x, size_t bytes)
{
    struct hop h = {.wave.req = x->g->req};
    int n = x->g->n, me = x->g->index, r = 0;
    char *room = x->way->room(x, (size_t)n * bytes);

    if (!room)
        return x->way->end(x, x->g->wait->failure.code);
    for (int i = 1; i < n && r == 0; i++) {
        int from = (me + n - i) % n, to = (me + i) % n;

        r = x->way->recv(x, &h, from, 0, room + (size_t)from * bytes, bytes);
        if (r == 0)
            r = x->way->send(x, &h, to, 0, room + (size_t)me * bytes, bytes);
    }
    if (r == 0)
        r = x->way->go(x, &h);
    if (r == 0)
        r = x->way->wait(x, &h);
    (void)group_wait(x->g, &h.wave); /* of a failed call */
    return x->way->end(x, r);
}

int coded_hop(struct comm_group *g, const void *like, size_t bytes, struct merr *err)
{
    struct coding x = {.g = g, .way = &coded_by_host};
    int r = group_begin(g, COMM_CALL_ALL_TO_ALL, TYPE_CODED, 0, bytes);

    assert(bytes <= CODED_ROOM_MAX / (size_t)g->n);
    if (r == 0)
        r = choose_way(&x, like && coded_held(g, like), SIZE_MAX); /* as calls of many such blocks do */
    if (r == 0)
        r = hop_to_all(&x, bytes);
    return group_end(g, r, err);
}
