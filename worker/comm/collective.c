/* collective - the calls of a group
 *
 * Three forms of a call give the same bits:
 *   small    everyone sends everything to everyone and folds in member order
 *   large    member i gets the i-th share of everyone's vector, folds it, and sends it to all; in pieces, so that
 *            one travels while another is folded
 *   arena    all members share memory and their buffers lie in it: each reads the others' in place, between two
 *            rounds of small words (where are you, I am done)
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "worker/comm/reduce.h"
#include "worker/comm/world.h"

#define SMALL_BYTES (64u << 10)
#define PIECE_BYTES (512u << 10)
#define ARENA_BYTES (32u << 10) /* from here on, reading in place pays for its two rounds */

enum { STEP_WHERE, STEP_READ, STEP_DATA }; /* of an arena call; then the steps of the other forms */

/* Requests of one wave, waited for together. */
struct wave {
    struct comm_request **req;
    int n;
};

const char *comm_call_name(unsigned call)
{
    static const char *const name[] = {"none",       "all_reduce", "reduce_scatter", "all_gather",
                                       "all_to_all", "broadcast",  "barrier",        "send", "recv"};

    return call < sizeof(name) / sizeof(name[0]) ? name[call] : "unknown";
}

struct comm_group *group_find(struct comm_world *w, uint64_t id)
{
    for (struct comm_group *g = w->groups; g; g = g->next) {
        if (g->id == id)
            return g;
    }
    return NULL;
}

static const char *type_name(unsigned type)
{
    static const char *const name[] = {"u8", "i64", "f32", "f64"};

    return type < sizeof(name) / sizeof(name[0]) ? name[type] : "?";
}

/* Words for frame f that does not go with what this rank calls. */
static int calls_differ(struct comm_group *g, const struct frame *f)
{
    const struct call *c = &g->history[f->seq % COMM_HISTORY];

    if (c->seq != f->seq)
        c = &g->history[g->seq % COMM_HISTORY];
    return world_fail(g->world, -EPROTO,
                      "calls of '%s' differ: rank %d is in call %llu, %s of %llu bytes of %s (%u); "
                      "rank %u in call %llu, %s of %llu bytes of %s (%u)",
                      g->name, g->world->rank, (unsigned long long)c->seq, comm_call_name(c->op),
                      (unsigned long long)c->bytes, type_name(c->type), c->extra, f->source,
                      (unsigned long long)f->seq, comm_call_name(f->op), (unsigned long long)f->call_bytes,
                      type_name(f->type), f->extra);
}

int group_check(struct comm_group *g, const struct frame *f)
{
    const struct call *c = &g->history[f->seq % COMM_HISTORY];

    if (f->kind == FRAME_WRONG)
        return calls_differ(g, f);
    if (f->seq > g->seq)
        return 0; /* not called here yet */
    if (c->seq == f->seq && c->op == f->op && c->type == f->type && c->extra == f->extra &&
        c->bytes == f->call_bytes && (f->seq < g->seq || g->busy))
        return 0;
    if (f->source < (uint32_t)g->world->size)
        message_wrong(g->world, &g->world->peers[f->source], g);
    return calls_differ(g, f);
}

/* The name and the members give the id, so groups of different ranks need no common counter. */
static int group_id(struct comm_world *w, struct comm_group *g, uint64_t *ret)
{
    uint32_t again = 0;
    struct buf b;

    for (const struct comm_group *o = w->groups; o; o = o->next)
        again += o->n == g->n && strcmp(o->name, g->name) == 0 &&
                 memcmp(o->rank, g->rank, (size_t)g->n * sizeof(int)) == 0;
    buf_init(&b, 65536);
    (void)buf_add(&b, g->name, sizeof(g->name));
    (void)buf_add(&b, &again, sizeof(again));
    (void)buf_add(&b, g->rank, (size_t)g->n * sizeof(int));
    *ret = hash_xxh3(buf_text(&b), b.len);
    again = buf_failed(&b);
    buf_clear(&b);
    return again ? -ENOMEM : 0;
}

static int check_members(const struct comm_world *w, const char *name, const int *ranks, int n, struct merr *err)
{
    bool seen[COMM_RANKS_MAX] = {false}, in = false;

    if (!name || strlen(name) > 15)
        return merr_set(err, -EINVAL, "a group's name has at most 15 bytes: '%s'", name ? name : "");
    if (n < 1 || n > w->size)
        return merr_set(err, -EINVAL, "group '%s' of %d members in a world of %d", name, n, w->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= w->size || seen[ranks[i]])
            return merr_set(err, -EINVAL, "group '%s': rank %d is outside 0 to %d or named twice", name, ranks[i],
                            w->size - 1);
        seen[ranks[i]] = true;
        in |= ranks[i] == w->rank;
    }
    return in ? 0 : merr_set(err, -EINVAL, "rank %d is no member of group '%s'", w->rank, name);
}

int comm_group_new(struct comm_world *w, const char *name, const int *ranks, int n, struct comm_group **ret,
                   struct merr *err)
{
    struct comm_group *g;
    int r = check_members(w, name, ranks, n, err);

    if (r < 0)
        return r;
    g = calloc(1, sizeof(*g) + (size_t)n * sizeof(int));
    if (g) {
        g->req = calloc(8 * (size_t)n, sizeof(struct comm_request *));
        g->src = calloc((size_t)n, sizeof(void *));
    }
    if (!g || !g->req || !g->src) {
        r = -ENOMEM;
        goto fail;
    }
    g->world = w;
    g->n = n;
    g->near = true;
    (void)snprintf(g->name, sizeof(g->name), "%s", name);
    for (int i = 0; i < n; i++) {
        g->rank[i] = ranks[i];
        if (ranks[i] == w->rank)
            g->index = i;
        else
            g->near &= w->peers[ranks[i]].via != &comm_ucx;
    }
    r = group_id(w, g, &g->id);
    if (r == 0 && group_find(w, g->id))
        r = -EEXIST;
    if (r < 0)
        goto fail;
    g->next = w->groups;
    w->groups = g;
    *ret = g;
    return 0;
fail:
    if (g) {
        free(g->req);
        free(g->src);
    }
    free(g);
    return merr_errno(err, r, "cannot make group '%s'", name);
}

int comm_group_size(const struct comm_group *g)
{
    return g->n;
}

int comm_group_index(const struct comm_group *g)
{
    return g->index;
}

/* --- the frame of a call ------------------------------------------------------------------------ */

static int call_begin(struct comm_group *g, enum comm_call op, unsigned type, unsigned extra, uint64_t bytes)
{
    struct comm_world *w = g->world;
    struct call *c;

    if (w->failed)
        return w->failed;
    flight_enter(w->flight, op, g->name, ++g->seq, bytes);
    c = &g->history[g->seq % COMM_HISTORY];
    *c = (struct call){g->seq, bytes, (uint8_t)op, (uint8_t)type, (uint8_t)extra};
    g->busy = true;
    if (flight_aborted(w->flight))
        return world_fail(w, -ECANCELED, "told to give up before call %llu (%s) of '%s'", (unsigned long long)g->seq,
                          comm_call_name(op), g->name);
    for (int i = 0; i < g->n; i++) {
        for (struct comm_early *e = w->peers[g->rank[i]].early; e; e = e->next) {
            if (e->head.kind == FRAME_CALL && e->head.group == g->id && e->head.seq <= g->seq &&
                group_check(g, &e->head) < 0)
                return w->failed;
        }
    }
    return 0;
}

/* r is what the call came to; after a failure its entry in the ring stays open: that is where the rank ended. */
static int call_end(struct comm_group *g, int r, struct merr *err)
{
    if (r < 0 && g->world->failed) {
        if (g->world->ucx)
            ucx_abandon(g->world);
        return world_error(g->world, err);
    }
    g->busy = false;
    flight_leave(g->world->flight);
    return r;
}

struct frame group_call(const struct comm_group *g, uint32_t step, size_t bytes)
{
    const struct call *c = &g->history[g->seq % COMM_HISTORY];

    return (struct frame){.generation = g->world->generation,
                          .group = g->id,
                          .seq = c->seq,
                          .call_bytes = c->bytes,
                          .length = bytes,
                          .source = (uint32_t)g->world->rank,
                          .step = step,
                          .kind = FRAME_CALL,
                          .op = c->op,
                          .type = c->type,
                          .extra = c->extra};
}

static int call_send(struct comm_group *g, struct wave *v, int member, uint32_t step, const void *buf, size_t bytes)
{
    struct frame head = group_call(g, step, bytes);
    struct comm_request *req = message_send(g, member, &head, buf);

    if (!req)
        return g->world->failed;
    v->req[v->n++] = req;
    return 0;
}

static int call_recv(struct comm_group *g, struct wave *v, int member, uint32_t step, void *buf, size_t bytes)
{
    struct frame head = group_call(g, step, bytes);
    struct comm_request *req = message_recv(g, member, &head, buf);

    if (!req)
        return g->world->failed;
    v->req[v->n++] = req;
    return 0;
}

static int wave_wait(struct comm_group *g, struct wave *v)
{
    struct comm_world *w = g->world;
    int r = w->failed;

    for (int i = 0; i < v->n && r == 0; i++)
        r = world_wait(w, v->req[i]);
    for (int i = 0; i < v->n; i++) {
        if (r < 0)
            message_drop(w, v->req[i]);
        else
            message_detach(w, v->req[i]);
    }
    v->n = 0;
    return r;
}

/* Everyone's word of bytes at out[member·bytes]; the own one is there already. */
static int exchange(struct comm_group *g, uint32_t step, char *out, size_t bytes)
{
    struct wave v = {.req = g->req};
    int r = 0;

    for (int k = 1; k < g->n && r == 0; k++) {
        int from = (g->index + g->n - k) % g->n, to = (g->index + k) % g->n;

        r = call_recv(g, &v, from, step, out + (size_t)from * bytes, bytes);
        if (r == 0)
            r = call_send(g, &v, to, step, out + (size_t)g->index * bytes, bytes);
    }
    if (r == 0)
        return wave_wait(g, &v);
    (void)wave_wait(g, &v);
    return r;
}

/* Returns when every member has come to this step. */
static int meet(struct comm_group *g, uint32_t step)
{
    char nothing;

    return exchange(g, step, &nothing, 0);
}

/* 1 when all members' buffers lie in shared arenas: g->src then says where. 0 when not. All members decide alike. */
static int arena_enter(struct comm_group *g, const void *buf, const size_t *bytes, size_t each)
{
    struct comm_world *w = g->world;
    uint64_t *where = world_scratch(w, (size_t)g->n * sizeof(*where)), counted = g->bytes_sent;
    int r;

    if (!where)
        return w->failed;
    where[g->index] = shm_offset(w, buf, bytes ? bytes[g->index] : each);
    r = exchange(g, STEP_WHERE, (char *)where, sizeof(*where));
    g->bytes_sent = counted;
    if (r < 0)
        return r;
    for (int i = 0; i < g->n; i++) {
        if (where[i] == UINT64_MAX)
            return 0;
        g->src[i] = shm_peer_at(w, g->rank[i], where[i], bytes ? bytes[i] : each);
        if (!g->src[i])
            return world_fail(w, -EPROTO, "rank %d names a buffer outside its shared memory", g->rank[i]);
    }
    return 1;
}

static int arena_leave(struct comm_group *g)
{
    return meet(g, STEP_READ);
}

static bool arena_worth(const struct comm_group *g, size_t bytes)
{
    return g->near && bytes >= ARENA_BYTES;
}

/* --- sums --------------------------------------------------------------------------------------- */

struct sum {
    struct comm_group *g;
    const char *in; /* the vector of the own rank */
    char *out;      /* all of it, or only the own share (scatter) */
    size_t size, count, share; /* bytes of an element; elements in all, of a full share */
    bool scatter;
    enum comm_type type;
    enum comm_op op;
    struct wave raw[2], folded[2];
    char *early; /* scratch: 2 rounds · n members · PIECE_BYTES */
};

/* The elements of member's share in round k: [*ret_at, *ret_at + returned). */
static size_t piece_of(const struct sum *s, int member, size_t k, size_t *ret_at)
{
    size_t per = PIECE_BYTES / s->size, begin = (size_t)member * s->share, end = begin + s->share;

    if (end > s->count)
        end = s->count;
    begin += k * per;
    *ret_at = begin;
    return begin >= end ? 0 : end - begin < per ? end - begin : per;
}

/* Where the result of the own piece goes. */
static char *own_out(const struct sum *s, size_t at)
{
    return s->out + (s->scatter ? at - (size_t)s->g->index * s->share : at) * s->size;
}

/* Send everyone its piece of round k, and make ready to get the own one from everyone. */
static int sum_post(struct sum *s, size_t k)
{
    struct comm_group *g = s->g;
    struct wave *v = &s->raw[k % 2];
    int r = 0;

    for (int i = 1; i < g->n && r == 0; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t at, n = piece_of(s, g->index, k, &at);

        if (n)
            r = call_recv(g, v, from, STEP_DATA + 2 * (uint32_t)k,
                          s->early + (k % 2 * (size_t)g->n + (size_t)from) * PIECE_BYTES, n * s->size);
        n = piece_of(s, to, k, &at);
        if (n && r == 0)
            r = call_send(g, v, to, STEP_DATA + 2 * (uint32_t)k, s->in + at * s->size, n * s->size);
    }
    return r;
}

/* Fold what has come in round k, give the result to all and ask all for theirs. */
static int sum_fold(struct sum *s, size_t k)
{
    struct comm_group *g = s->g;
    struct wave *v = &s->folded[k % 2];
    size_t at, n = piece_of(s, g->index, k, &at);
    int r = wave_wait(g, &s->raw[k % 2]);
    char *own;

    if (r < 0)
        return r;
    own = n ? own_out(s, at) : NULL;
    for (int i = 0; i < g->n; i++)
        g->src[i] = i == g->index ? s->in + at * s->size : s->early + (k % 2 * (size_t)g->n + (size_t)i) * PIECE_BYTES;
    if (n)
        reduce_fold(own, g->src, g->n, n, s->type, s->op);
    if (s->scatter)
        return 0;
    r = wave_wait(g, v);
    for (int i = 1; i < g->n && r == 0; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t theirs, m = piece_of(s, from, k, &theirs);

        if (m)
            r = call_recv(g, v, from, STEP_DATA + 2 * (uint32_t)k + 1, s->out + theirs * s->size, m * s->size);
        if (n && r == 0)
            r = call_send(g, v, to, STEP_DATA + 2 * (uint32_t)k + 1, own, n * s->size);
    }
    return r;
}

static int sum_large(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t per = PIECE_BYTES / s->size, rounds = (s->share + per - 1) / per, n = (size_t)g->n;
    int r = 0;

    s->early = world_scratch(g->world, 2 * n * PIECE_BYTES);
    if (!s->early)
        return g->world->failed;
    for (size_t i = 0; i < 2; i++) {
        s->raw[i] = (struct wave){.req = g->req + 2 * i * n};
        s->folded[i] = (struct wave){.req = g->req + (4 + 2 * i) * n};
    }
    for (size_t k = 0; k <= rounds && r == 0; k++) {
        if (k < rounds)
            r = sum_post(s, k);
        if (k > 0 && r == 0)
            r = sum_fold(s, k - 1);
    }
    for (int i = 0; i < 4; i++) {
        int also = wave_wait(g, i < 2 ? &s->raw[i] : &s->folded[i - 2]);

        r = r < 0 ? r : also;
    }
    return r;
}

/* Node-mates read each other's vectors in place; for an all-reduce each writes its share of the sum to all. */
static int sum_arena(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t tile = 65536 / s->size, begin = (size_t)g->index * s->share, end = begin + s->share;
    const void **base = world_scratch(g->world, (size_t)g->n * sizeof(*base));

    if (!base)
        return g->world->failed;
    if (end > s->count)
        end = s->count;
    memcpy(base, g->src, (size_t)g->n * sizeof(*base));
    for (size_t at = begin; at < end; at += tile) {
        size_t n = end - at < tile ? end - at : tile;
        char *own = own_out(s, at);

        for (int i = 0; i < g->n; i++)
            g->src[i] = (const char *)base[i] + at * s->size;
        reduce_fold(own, g->src, g->n, n, s->type, s->op);
        for (int i = 0; i < g->n && !s->scatter; i++) {
            if (i != g->index)
                memcpy((char *)(uintptr_t)g->src[i], own, n * s->size);
        }
    }
    if (end > begin)
        g->bytes_sent += (s->scatter ? 0 : (end - begin) * s->size * (size_t)(g->n - 1));
    g->bytes_sent += (s->count - (end > begin ? end - begin : 0)) * s->size;
    return arena_leave(g);
}

/* Everyone sends all it has to everyone. */
static int sum_small(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t bytes = s->count * s->size, at = s->scatter ? (size_t)g->index * s->share : 0;
    char *all = world_scratch(g->world, (size_t)g->n * bytes + 1);
    int r;

    if (!all)
        return g->world->failed;
    memcpy(all + (size_t)g->index * bytes, s->in, bytes);
    r = exchange(g, STEP_DATA, all, bytes);
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
    int r = 0;

    if (g->n > 1 && bytes && arena_worth(g, bytes))
        r = arena_enter(g, s->in, NULL, bytes);
    if (r < 0)
        return r;
    if (r > 0)
        return sum_arena(s);
    if (bytes <= SMALL_BYTES)
        return bytes ? sum_small(s) : meet(g, STEP_DATA);
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
    r = call_begin(g, COMM_CALL_ALL_REDUCE, type, op, count * s.size);
    if (r == 0 && g->n > 1)
        r = sum_run(&s);
    return call_end(g, r, err);
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
    r = call_begin(g, COMM_CALL_REDUCE_SCATTER, type, COMM_SUM, s.count * s.size);
    if (r == 0 && g->n > 1)
        r = sum_run(&s);
    else if (r == 0 && count)
        memmove(out, in, count * s.size);
    return call_end(g, r, err);
}

/* --- moving bytes ------------------------------------------------------------------------------- */

/* Get recv[i] from each member and give send[i] to each, all at once: one wave. */
static int trade(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                 const size_t *recv_bytes)
{
    struct wave v = {.req = g->req};
    int r = 0, also;

    for (int k = 1; k < g->n && r == 0; k++) {
        int from = (g->index + g->n - k) % g->n, to = (g->index + k) % g->n;

        r = call_recv(g, &v, from, STEP_DATA, recv[from], recv_bytes[from]);
        if (r == 0)
            r = call_send(g, &v, to, STEP_DATA, send[to], send_bytes[to]);
    }
    also = wave_wait(g, &v);
    return r < 0 ? r : also;
}

static void copy_own(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memmove(to, from, bytes);
}

/* bytes and at as in comm_all_gather_v, or NULL: each everywhere. */
static int gather(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, size_t each, void *out)
{
    size_t mine = bytes ? bytes[g->index] : each, largest = each;
    struct wave v = {.req = g->req};
    int r = 0, also;

    for (int i = 0; bytes && i < g->n; i++)
        largest = bytes[i] > largest ? bytes[i] : largest;
    if (arena_worth(g, largest))
        r = arena_enter(g, in, bytes, each);
    if (r > 0) {
        for (int k = 1; k < g->n; k++) {
            int i = (g->index + k) % g->n;

            memcpy((char *)out + (at ? at[i] : (size_t)i * each), g->src[i], bytes ? bytes[i] : each);
        }
        g->bytes_sent += mine * (size_t)(g->n - 1);
        return arena_leave(g);
    }
    for (int k = 1; k < g->n && r == 0; k++) {
        int from = (g->index + g->n - k) % g->n, to = (g->index + k) % g->n;

        r = call_recv(g, &v, from, STEP_DATA, (char *)out + (at ? at[from] : (size_t)from * each),
                      bytes ? bytes[from] : each);
        if (r == 0)
            r = call_send(g, &v, to, STEP_DATA, in, mine);
    }
    also = wave_wait(g, &v);
    return r < 0 ? r : also;
}

int comm_all_gather(struct comm_group *g, const void *in, size_t bytes, void *out, struct merr *err)
{
    int r = call_begin(g, COMM_CALL_ALL_GATHER, COMM_U8, 0, bytes * (size_t)g->n);

    if (r == 0)
        copy_own((char *)out + (size_t)g->index * bytes, in, bytes);
    if (r == 0 && g->n > 1)
        r = gather(g, in, NULL, NULL, bytes, out);
    return call_end(g, r, err);
}

int comm_all_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out,
                      struct merr *err)
{
    uint64_t all = 0;
    int r;

    for (int i = 0; i < g->n; i++)
        all += bytes[i];
    r = call_begin(g, COMM_CALL_ALL_GATHER, COMM_U8, 1, all);
    if (r == 0)
        copy_own((char *)out + at[g->index], in, bytes[g->index]);
    if (r == 0 && g->n > 1)
        r = gather(g, in, bytes, at, 0, out);
    return call_end(g, r, err);
}

int comm_all_to_all_v(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                      const size_t *recv_bytes, struct merr *err)
{
    int r;

    if (send_bytes[g->index] != recv_bytes[g->index])
        return merr_set(err, -EINVAL, "member %d of '%s' sends itself %zu bytes and expects %zu", g->index, g->name,
                        send_bytes[g->index], recv_bytes[g->index]);
    r = call_begin(g, COMM_CALL_ALL_TO_ALL, COMM_U8, 0, 0); /* sizes differ by member: each message is checked */
    if (r == 0)
        copy_own(recv[g->index], send[g->index], send_bytes[g->index]);
    if (r == 0 && g->n > 1)
        r = trade(g, send, send_bytes, recv, recv_bytes);
    return call_end(g, r, err);
}

/* The root cuts large vectors into shares, one a member, which pass them on to all others. */
static int broadcast_large(struct comm_group *g, char *buf, size_t bytes, int root)
{
    size_t share = ((bytes + (size_t)g->n - 1) / (size_t)g->n + 63) & ~(size_t)63;
    struct wave first = {.req = g->req}, then = {.req = g->req + 2 * g->n};
    int r = 0, also;

    for (int i = 0; i < g->n && r == 0; i++) {
        size_t at = (size_t)i * share < bytes ? (size_t)i * share : bytes;
        size_t n = bytes - at < share ? bytes - at : share;

        if (g->index == root && i != root)
            r = call_send(g, &first, i, STEP_DATA, buf + at, n);
        else if (g->index == i && i != root)
            r = call_recv(g, &first, root, STEP_DATA, buf + at, n);
        if (r == 0 && g->index != root && i != g->index) /* member i's share, from it; the root's from the root */
            r = call_recv(g, &then, i, STEP_DATA + 1, buf + at, n);
    }
    if (r == 0)
        r = wave_wait(g, &first);
    for (int i = 0; i < g->n && r == 0; i++) {
        size_t at = (size_t)g->index * share < bytes ? (size_t)g->index * share : bytes;

        if (i != g->index && i != root)
            r = call_send(g, &then, i, STEP_DATA + 1, buf + at, bytes - at < share ? bytes - at : share);
    }
    also = wave_wait(g, &then);
    (void)wave_wait(g, &first);
    return r < 0 ? r : also;
}

int comm_broadcast(struct comm_group *g, void *buf, size_t bytes, int root, struct merr *err)
{
    struct wave v = {.req = g->req};
    int r, also = 0;

    if (root < 0 || root >= g->n)
        return merr_set(err, -EINVAL, "root %d of '%s' with %d members", root, g->name, g->n);
    r = call_begin(g, COMM_CALL_BROADCAST, COMM_U8, (unsigned)root & 255, bytes);
    if (r == 0 && g->n > 2 && bytes > SMALL_BYTES) {
        r = broadcast_large(g, buf, bytes, root);
    } else if (r == 0 && g->n > 1) {
        if (g->index != root)
            r = call_recv(g, &v, root, STEP_DATA, buf, bytes);
        for (int i = 0; i < g->n && r == 0 && g->index == root; i++)
            r = i == root ? 0 : call_send(g, &v, i, STEP_DATA, buf, bytes);
        also = wave_wait(g, &v);
    }
    return call_end(g, r < 0 ? r : also, err);
}

int comm_barrier(struct comm_group *g, struct merr *err)
{
    int r = call_begin(g, COMM_CALL_BARRIER, COMM_U8, 0, 0);

    if (r == 0 && g->n > 1)
        r = meet(g, STEP_DATA);
    return call_end(g, r, err);
}
