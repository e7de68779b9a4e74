/* collective - the calls of a group
 *
 * Four forms of a call give the same bits:
 *   small    everyone sends everything to everyone and folds in member order
 *   large    member i gets the i-th share of everyone's vector, folds it, and sends it to all; in pieces, so that
 *            one travels while another is folded
 *   arena    all members share memory and their buffers lie in it: each reads the others' in place, between two
 *            rounds of small words (where are you, I am done)
 *   device   all members' buffers lie in memory of GPUs: gpu.c
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/comm/gpu.h"
#include "worker/engine/comm/reduce.h"

#define SMALL_BYTES (64u << 10)
#define PIECE_BYTES (512u << 10)
#define ARENA_BYTES (32u << 10) /* from here on, reading in place pays for its two rounds */

enum { STEP_DEVICE, STEP_WHERE, STEP_READ, STEP_DATA }; /* of a device or arena call; then the steps of other forms */

/* 1 when all members' buffers lie in shared arenas: g->src then says where. 0 when not. All members decide alike. */
static int arena_enter(struct comm_group *g, const void *buf, const size_t *bytes, size_t each)
{
    struct transports *ways = g->set->ways;
    uint64_t *where = group_scratch(g, (size_t)g->n * sizeof(*where)), counted = g->channel.bytes_sent;
    int r;

    if (!where)
        return g->wait->failure.code;
    where[g->index] = transports_offset(ways, buf, bytes ? bytes[g->index] : each);
    r = group_exchange(g, STEP_WHERE, (char *)where, sizeof(*where));
    g->channel.bytes_sent = counted;
    if (r < 0)
        return r;
    for (int i = 0; i < g->n; i++) {
        if (where[i] == UINT64_MAX)
            return 0;
        g->src[i] = transports_peer_at(ways, g->rank[i], where[i], bytes ? bytes[i] : each);
        if (!g->src[i])
            return failure_keep(&g->wait->failure, -EPROTO, "rank %d names a buffer outside its shared memory",
                                g->rank[i]);
    }
    return 1;
}

static int arena_leave(struct comm_group *g)
{
    return group_meet(g, STEP_READ);
}

/* 1: by the fabric of GPUs. bytes: as all members know them. */
static int by_device(struct comm_group *g, size_t bytes, const void *in, const void *out)
{
    if (!gpu_worth(g, bytes))
        return 0;
    return gpu_enter(g, STEP_DEVICE, gpu_holds(g, in) && gpu_holds(g, out), true);
}

static bool arena_worth(const struct comm_group *g, size_t bytes)
{
    return g->near && bytes >= ARENA_BYTES;
}

/* --- sums --------------------------------------------------------------------------------------- */

struct large { /* its way through the large form */
    struct group_wave raw[2], folded[2];
    char *early; /* scratch: 2 rounds · n members · PIECE_BYTES */
};

/* Send everyone its piece of round k, and make ready to get the own one from everyone. */
static int sum_post(const struct sum *s, struct large *l, size_t k)
{
    struct comm_group *g = s->g;
    struct group_wave *v = &l->raw[k % 2];
    int r = 0;

    for (int i = 1; i < g->n && r == 0; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t at, n = sum_piece(s, g->index, k, &at);

        if (n)
            r = group_recv(g, v, from, STEP_DATA + 2 * (uint32_t)k,
                           l->early + (k % 2 * (size_t)g->n + (size_t)from) * PIECE_BYTES, n * s->size);
        n = sum_piece(s, to, k, &at);
        if (n && r == 0)
            r = group_send(g, v, to, STEP_DATA + 2 * (uint32_t)k, s->in + at * s->size, n * s->size);
    }
    return r;
}

/* Fold what has come in round k, give the result to all and ask all for theirs. */
static int sum_fold(const struct sum *s, struct large *l, size_t k)
{
    struct comm_group *g = s->g;
    struct group_wave *v = &l->folded[k % 2];
    size_t at, n = sum_piece(s, g->index, k, &at);
    int r = group_wait(g, &l->raw[k % 2]);
    char *own;

    if (r < 0)
        return r;
    own = n ? sum_own(s, at) : NULL;
    for (int i = 0; i < g->n; i++)
        g->src[i] = i == g->index ? s->in + at * s->size : l->early + (k % 2 * (size_t)g->n + (size_t)i) * PIECE_BYTES;
    if (n)
        reduce_fold(own, g->src, g->n, n, s->type, s->op);
    if (s->scatter)
        return 0;
    r = group_wait(g, v);
    for (int i = 1; i < g->n && r == 0; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t theirs, m = sum_piece(s, from, k, &theirs);

        if (m)
            r = group_recv(g, v, from, STEP_DATA + 2 * (uint32_t)k + 1, s->out + theirs * s->size, m * s->size);
        if (n && r == 0)
            r = group_send(g, v, to, STEP_DATA + 2 * (uint32_t)k + 1, own, n * s->size);
    }
    return r;
}

static int sum_large(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t n = (size_t)g->n, rounds;
    struct large l;
    int r = 0;

    s->per = PIECE_BYTES / s->size;
    rounds = (s->share + s->per - 1) / s->per;
    l.early = group_scratch(g, 2 * n * PIECE_BYTES);
    if (!l.early)
        return g->wait->failure.code;
    for (size_t i = 0; i < 2; i++) {
        l.raw[i] = (struct group_wave){.req = g->req + 2 * i * n};
        l.folded[i] = (struct group_wave){.req = g->req + (4 + 2 * i) * n};
    }
    for (size_t k = 0; k <= rounds && r == 0; k++) {
        if (k < rounds)
            r = sum_post(s, &l, k);
        if (k > 0 && r == 0)
            r = sum_fold(s, &l, k - 1);
    }
    for (int i = 0; i < 4; i++) {
        int also = group_wait(g, i < 2 ? &l.raw[i] : &l.folded[i - 2]);

        r = r < 0 ? r : also;
    }
    return r;
}

/* Node-mates read each other's vectors in place; for an all-reduce each writes its share of the sum to all. */
static int sum_arena(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t tile = 65536 / s->size, begin = (size_t)g->index * s->share, end = begin + s->share;
    const void **base = group_scratch(g, (size_t)g->n * sizeof(*base));

    if (!base)
        return g->wait->failure.code;
    if (end > s->count)
        end = s->count;
    memcpy(base, g->src, (size_t)g->n * sizeof(*base));
    for (size_t at = begin; at < end; at += tile) {
        size_t n = end - at < tile ? end - at : tile;
        char *own = sum_own(s, at);

        for (int i = 0; i < g->n; i++)
            g->src[i] = (const char *)base[i] + at * s->size;
        reduce_fold(own, g->src, g->n, n, s->type, s->op);
        for (int i = 0; i < g->n && !s->scatter; i++) {
            if (i != g->index)
                memcpy((char *)(uintptr_t)g->src[i], own, n * s->size);
        }
    }
    if (end > begin)
        g->channel.bytes_sent += (s->scatter ? 0 : (end - begin) * s->size * (size_t)(g->n - 1));
    g->channel.bytes_sent += (s->count - (end > begin ? end - begin : 0)) * s->size;
    return arena_leave(g);
}

/* Everyone sends all it has to everyone. */
static int sum_small(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t bytes = s->count * s->size, at = s->scatter ? (size_t)g->index * s->share : 0;
    char *all = group_scratch(g, (size_t)g->n * bytes + 1);
    int r;

    if (!all)
        return g->wait->failure.code;
    memcpy(all + (size_t)g->index * bytes, s->in, bytes);
    r = group_exchange(g, STEP_DATA, all, bytes);
    for (int i = 0; i < g->n; i++)
        g->src[i] = all + (size_t)i * bytes + at * s->size;
    if (r == 0)
        reduce_fold(s->out, g->src, g->n, s->scatter ? s->share : s->count, s->type, s->op);
    return r;
}

static int sum_run(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t bytes = s->count * s->size;
    int r = by_device(g, bytes, s->in, s->out);

    if (r > 0)
        return gpu_sum(s);
    if (r == 0 && bytes && arena_worth(g, bytes))
        r = arena_enter(g, s->in, NULL, bytes);
    if (r < 0)
        return r;
    if (r > 0)
        return sum_arena(s);
    if (bytes <= SMALL_BYTES)
        return bytes ? sum_small(s) : group_meet(g, STEP_DATA);
    return sum_large(s);
}

static int sum_check(const struct comm_group *g, size_t count, enum comm_type type, enum comm_op op, struct merr *err)
{
    if (!reduce_size(type) || (unsigned)op > COMM_MAX)
        return merr_set(err, -EINVAL, "no such element type %d or operation %d", type, op);
    if (count > SIZE_MAX / 16 / (size_t)g->n)
        return merr_set(err, -EINVAL, "%zu elements are too many", count);
    return 0;
}

int comm_all_reduce(struct comm_group *g, void *buf, size_t count, enum comm_type type, enum comm_op op,
                    struct merr *err)
{
    struct sum s = {.g = g, .in = buf, .out = buf, .count = count, .type = type, .op = op};
    int r = sum_check(g, count, type, op, err);

    if (r < 0)
        return r;
    s.size = reduce_size(type);
    s.share = ((count + (size_t)g->n - 1) / (size_t)g->n + 15) & ~(size_t)15;
    r = group_begin(g, COMM_CALL_ALL_REDUCE, type, op, count * s.size);
    if (r == 0 && g->n > 1)
        r = sum_run(&s);
    return group_end(g, r, err);
}

int comm_reduce_scatter(struct comm_group *g, const void *in, void *out, size_t count, enum comm_type type,
                        struct merr *err)
{
    struct sum s = {.g = g,
                    .in = in,
                    .out = out,
                    .count = count * (size_t)g->n,
                    .share = count,
                    .scatter = true,
                    .type = type,
                    .op = COMM_SUM};
    int r = sum_check(g, count, type, COMM_SUM, err);

    if (r < 0)
        return r;
    s.size = reduce_size(type);
    r = group_begin(g, COMM_CALL_REDUCE_SCATTER, type, COMM_SUM, s.count * s.size);
    if (r == 0 && g->n > 1)
        r = sum_run(&s);
    else if (r == 0 && count)
        memmove(out, in, count * s.size);
    return group_end(g, r, err);
}

/* --- moving bytes ------------------------------------------------------------------------------- */

static void copy_own(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memmove(to, from, bytes);
}

/* 1: by the fabric. Sizes differ by member, so all are asked. */
static int trade_by_device(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                           const size_t *recv_bytes)
{
    bool held = true, worth = false;

    if (!gpu_worth(g, SIZE_MAX))
        return 0;
    for (int i = 0; i < g->n; i++) {
        held &= (send_bytes[i] == 0 || gpu_holds(g, send[i])) && (recv_bytes[i] == 0 || gpu_holds(g, recv[i]));
        worth |= gpu_worth(g, send_bytes[i]) || gpu_worth(g, recv_bytes[i]);
    }
    return gpu_enter(g, STEP_DEVICE, held, worth);
}

/* Get recv[i] from each member and give send[i] to each, all at once: one wave. */
static int trade(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                 const size_t *recv_bytes)
{
    struct group_wave v = {.req = g->req};
    int r = trade_by_device(g, send, send_bytes, recv, recv_bytes), also;

    if (r > 0)
        return gpu_trade(g, send, send_bytes, recv, recv_bytes);
    if (r == 0)
        copy_own(recv[g->index], send[g->index], send_bytes[g->index]);
    for (int k = 1; k < g->n && r == 0; k++) {
        int from = (g->index + g->n - k) % g->n, to = (g->index + k) % g->n;

        r = group_recv(g, &v, from, STEP_DATA, recv[from], recv_bytes[from]);
        if (r == 0)
            r = group_send(g, &v, to, STEP_DATA, send[to], send_bytes[to]);
    }
    also = group_wait(g, &v);
    return r < 0 ? r : also;
}

/* bytes and at as in comm_all_gather_v, or NULL: each everywhere. */
static int gather(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, size_t each, void *out)
{
    size_t mine = bytes ? bytes[g->index] : each, largest = each;
    struct group_wave v = {.req = g->req};
    int r, also;

    for (int i = 0; bytes && i < g->n; i++)
        largest = bytes[i] > largest ? bytes[i] : largest;
    r = by_device(g, largest, in, out);
    if (r > 0)
        return bytes && at ? gpu_gather_v(g, in, bytes, at, out) : gpu_gather(g, in, each, out);
    if (r == 0)
        copy_own((char *)out + (at ? at[g->index] : (size_t)g->index * each), in, mine);
    if (r == 0 && arena_worth(g, largest))
        r = arena_enter(g, in, bytes, each);
    if (r > 0) {
        for (int k = 1; k < g->n; k++) {
            int i = (g->index + k) % g->n;

            memcpy((char *)out + (at ? at[i] : (size_t)i * each), g->src[i], bytes ? bytes[i] : each);
        }
        g->channel.bytes_sent += mine * (size_t)(g->n - 1);
        return arena_leave(g);
    }
    for (int k = 1; k < g->n && r == 0; k++) {
        int from = (g->index + g->n - k) % g->n, to = (g->index + k) % g->n;

        r = group_recv(g, &v, from, STEP_DATA, (char *)out + (at ? at[from] : (size_t)from * each),
                       bytes ? bytes[from] : each);
        if (r == 0)
            r = group_send(g, &v, to, STEP_DATA, in, mine);
    }
    also = group_wait(g, &v);
    return r < 0 ? r : also;
}

int comm_all_gather(struct comm_group *g, const void *in, size_t bytes, void *out, struct merr *err)
{
    int r = group_begin(g, COMM_CALL_ALL_GATHER, COMM_U8, 0, bytes * (size_t)g->n);

    if (r == 0)
        r = gather(g, in, NULL, NULL, bytes, out);
    return group_end(g, r, err);
}

int comm_all_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out,
                      struct merr *err)
{
    uint64_t all = 0;
    int r;

    for (int i = 0; i < g->n; i++)
        all += bytes[i];
    r = group_begin(g, COMM_CALL_ALL_GATHER, COMM_U8, 1, all);
    if (r == 0)
        r = gather(g, in, bytes, at, 0, out);
    return group_end(g, r, err);
}

int comm_all_to_all_v(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                      const size_t *recv_bytes, struct merr *err)
{
    int r;

    if (send_bytes[g->index] != recv_bytes[g->index])
        return merr_set(err, -EINVAL, "member %d of '%s' sends itself %zu bytes and expects %zu", g->index,
                        g->channel.name, send_bytes[g->index], recv_bytes[g->index]);
    r = group_begin(g, COMM_CALL_ALL_TO_ALL, COMM_U8, 0, 0); /* sizes differ by member: each message is checked */
    if (r == 0)
        r = trade(g, send, send_bytes, recv, recv_bytes);
    return group_end(g, r, err);
}

/* The root cuts large vectors into shares, one a member, which pass them on to all others. */
static int broadcast_large(struct comm_group *g, char *buf, size_t bytes, int root)
{
    size_t share = ((bytes + (size_t)g->n - 1) / (size_t)g->n + 63) & ~(size_t)63;
    struct group_wave first = {.req = g->req}, then = {.req = g->req + 2 * g->n};
    int r = 0, also;

    for (int i = 0; i < g->n && r == 0; i++) {
        size_t at = (size_t)i * share < bytes ? (size_t)i * share : bytes;
        size_t n = bytes - at < share ? bytes - at : share;

        if (g->index == root && i != root)
            r = group_send(g, &first, i, STEP_DATA, buf + at, n);
        else if (g->index == i && i != root)
            r = group_recv(g, &first, root, STEP_DATA, buf + at, n);
        if (r == 0 && g->index != root && i != g->index) /* member i's share, from it; the root's from the root */
            r = group_recv(g, &then, i, STEP_DATA + 1, buf + at, n);
    }
    if (r == 0)
        r = group_wait(g, &first);
    for (int i = 0; i < g->n && r == 0; i++) {
        size_t at = (size_t)g->index * share < bytes ? (size_t)g->index * share : bytes;

        if (i != g->index && i != root)
            r = group_send(g, &then, i, STEP_DATA + 1, buf + at, bytes - at < share ? bytes - at : share);
    }
    also = group_wait(g, &then);
    (void)group_wait(g, &first);
    return r < 0 ? r : also;
}

int comm_broadcast(struct comm_group *g, void *buf, size_t bytes, int root, struct merr *err)
{
    struct group_wave v = {.req = g->req};
    int r, device = 0, also = 0;

    if (root < 0 || root >= g->n)
        return merr_set(err, -EINVAL, "root %d of '%s' with %d members", root, g->channel.name, g->n);
    r = group_begin(g, COMM_CALL_BROADCAST, COMM_U8, (unsigned)root & 255, bytes);
    if (r == 0)
        r = device = by_device(g, bytes, buf, buf);
    if (device > 0) {
        r = gpu_broadcast(g, buf, bytes, root);
    } else if (r == 0 && g->n > 2 && bytes > SMALL_BYTES) {
        r = broadcast_large(g, buf, bytes, root);
    } else if (r == 0 && g->n > 1) {
        if (g->index != root)
            r = group_recv(g, &v, root, STEP_DATA, buf, bytes);
        for (int i = 0; i < g->n && r == 0 && g->index == root; i++)
            r = i == root ? 0 : group_send(g, &v, i, STEP_DATA, buf, bytes);
        also = group_wait(g, &v);
    }
    return group_end(g, r < 0 ? r : also, err);
}

int comm_barrier(struct comm_group *g, struct merr *err)
{
    int r = group_begin(g, COMM_CALL_BARRIER, COMM_U8, 0, 0);

    if (r == 0 && g->n > 1)
        r = group_meet(g, STEP_DATA);
    return group_end(g, r, err);
}
