/* group - groups of ranks, and what their calls have in common: being the same everywhere, and waves of messages */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "worker/engine/comm/world.h"

const char *comm_call_name(unsigned call)
{
    static const char *const name[] = {"none",      "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                       "broadcast", "barrier",    "send",           "recv"};

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
    static const char *const name[] = {"u8", "i64", "f32", "f64", "coded f32", "coded bf16"};

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
                      (unsigned long long)c->bytes, type_name(c->type), c->extra, f->source, (unsigned long long)f->seq,
                      comm_call_name(f->op), (unsigned long long)f->call_bytes, type_name(f->type), f->extra);
}

int group_check(struct comm_group *g, const struct frame *f)
{
    const struct call *c = &g->history[f->seq % COMM_HISTORY];

    if (f->kind == FRAME_WRONG)
        return calls_differ(g, f);
    if (f->seq > g->seq)
        return 0; /* not called here yet */
    if (c->seq == f->seq && c->op == f->op && c->type == f->type && c->extra == f->extra && c->bytes == f->call_bytes &&
        (f->seq < g->seq || g->busy))
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
        again +=
            o->n == g->n && strcmp(o->name, g->name) == 0 && memcmp(o->rank, g->rank, (size_t)g->n * sizeof(int)) == 0;
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

/* Which nodes the members are of, and the grid if they are spread evenly. */
static int group_grid(struct comm_group *g)
{
    const int *node_of = g->world->node_of;
    int *count = calloc((size_t)g->n, sizeof(*count)), *first = calloc((size_t)g->n, sizeof(*first)), per;

    g->grid = calloc((size_t)g->n, sizeof(*g->grid));
    if (!count || !first || !g->grid) {
        free(count);
        free(first);
        return -ENOMEM;
    }
    for (int i = 0, k; i < g->n; i++) {
        for (k = 0; k < g->nodes && node_of[g->rank[first[k]]] != node_of[g->rank[i]]; k++)
            ;
        if (k == g->nodes)
            first[g->nodes++] = i;
        count[k]++;
    }
    per = g->n / g->nodes;
    for (int k = 0, at = 0; k < g->nodes; k++) {
        for (int i = 0; i < g->n; i++) {
            if (node_of[g->rank[i]] == node_of[g->rank[first[k]]])
                g->grid[at++] = i;
        }
        if (count[k] != per)
            per = 0;
    }
    free(count);
    free(first);
    if (per == 0) {
        free(g->grid);
        g->grid = NULL;
    }
    return 0;
}

void group_free(struct comm_group *g)
{
    if (!g)
        return;
    free(g->req);
    free(g->src);
    free(g->grid);
    free(g);
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
        g->req = calloc(12 * (size_t)n, sizeof(struct comm_request *));
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
    if (r == 0)
        r = group_grid(g);
    if (r == 0 && group_find(w, g->id))
        r = -EEXIST;
    if (r < 0)
        goto fail;
    g->next = w->groups;
    w->groups = g;
    *ret = g;
    return 0;
fail:
    group_free(g);
    return merr_errno(err, r, "cannot make group '%s'", name);
}

void comm_group_name_codec(struct comm_group *g, const char *name)
{
    (void)snprintf(g->travels, sizeof(g->travels), "%s", name);
}

int comm_group_size(const struct comm_group *g)
{
    return g->n;
}

int comm_group_index(const struct comm_group *g)
{
    return g->index;
}

int comm_group_nodes(const struct comm_group *g)
{
    return g->nodes;
}

/* --- the frame of a call ------------------------------------------------------------------------ */

int group_begin(struct comm_group *g, enum comm_call op, unsigned type, unsigned extra, uint64_t bytes)
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

/* After a failure the call's entry in the ring stays open: that is where the rank ended. */
int group_end(struct comm_group *g, int r, struct merr *err)
{
    if (r < 0 && g->world->failed) {
        world_abandon(g->world);
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

int group_send(struct comm_group *g, struct wave *v, int member, uint32_t step, const void *buf, size_t bytes)
{
    struct frame head = group_call(g, step, bytes);
    struct comm_request *req = message_send(g, member, &head, buf);

    if (!req)
        return g->world->failed;
    v->req[v->n++] = req;
    return 0;
}

int group_recv(struct comm_group *g, struct wave *v, int member, uint32_t step, void *buf, size_t bytes)
{
    struct frame head = group_call(g, step, bytes);
    struct comm_request *req = message_recv(g, member, &head, buf);

    if (!req)
        return g->world->failed;
    v->req[v->n++] = req;
    return 0;
}

int group_wait(struct comm_group *g, struct wave *v)
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

int group_exchange(struct comm_group *g, uint32_t step, char *out, size_t bytes)
{
    struct wave v = {.req = g->req};
    int r = 0;

    for (int k = 1; k < g->n && r == 0; k++) {
        int from = (g->index + g->n - k) % g->n, to = (g->index + k) % g->n;

        r = group_recv(g, &v, from, step, out + (size_t)from * bytes, bytes);
        if (r == 0)
            r = group_send(g, &v, to, step, out + (size_t)g->index * bytes, bytes);
    }
    if (r == 0)
        return group_wait(g, &v);
    (void)group_wait(g, &v);
    return r;
}

int group_meet(struct comm_group *g, uint32_t step)
{
    char nothing;

    return group_exchange(g, step, &nothing, 0);
}
