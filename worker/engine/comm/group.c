#include "worker/engine/comm/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ops.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/try.h"

static struct comm_group *find(const struct groups *s, uint64_t id)
{
    for (struct comm_group *g = s->first; g; g = g->next) {
        if (g->channel.id == id)
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
    const struct group_call *c = &g->history[f->seq % GROUP_HISTORY];

    if (c->seq != f->seq)
        c = &g->history[g->seq % GROUP_HISTORY];
    return failure_keep(&g->wait->failure, -EPROTO,
                        "calls of '%s' differ: rank %d is in call %llu, %s of %llu bytes of %s (%u); "
                        "rank %u in call %llu, %s of %llu bytes of %s (%u)",
                        g->channel.name, g->wait->rank, (unsigned long long)c->seq, frame_call_name(c->op),
                        (unsigned long long)c->bytes, type_name(c->type), c->extra, f->source,
                        (unsigned long long)f->seq, frame_call_name(f->op), (unsigned long long)f->call_bytes,
                        type_name(f->type), f->extra);
}

/* Head of the running call's frames. */
static struct frame frame_of(const struct comm_group *g, uint32_t step, size_t bytes)
{
    const struct group_call *c = &g->history[g->seq % GROUP_HISTORY];

    return (struct frame){.generation = g->set->messages->generation,
                          .group = g->channel.id,
                          .seq = c->seq,
                          .call_bytes = c->bytes,
                          .length = bytes,
                          .source = (uint32_t)g->wait->rank,
                          .step = step,
                          .kind = FRAME_CALL,
                          .op = c->op,
                          .type = c->type,
                          .extra = c->extra};
}

static int check_group(struct comm_group *g, const struct frame *f)
{
    const struct group_call *c = &g->history[f->seq % GROUP_HISTORY];

    if (f->kind == FRAME_WRONG)
        return calls_differ(g, f);
    if (f->seq > g->seq)
        return 0; /* not called here yet */
    if (c->seq == f->seq && c->op == f->op && c->type == f->type && c->extra == f->extra && c->bytes == f->call_bytes &&
        (f->seq < g->seq || g->busy))
        return 0;
    if (f->source < (uint32_t)g->wait->size) {
        struct frame ours = frame_of(g, 0, 0);

        message_wrong(g->set->messages, (int)f->source, &ours);
    }
    return calls_differ(g, f);
}

static int check(void *self, const struct frame *f)
{
    struct groups *s = self;
    struct comm_group *g = find(s, f->group);

    if (g)
        return check_group(g, f);
    return f->kind == FRAME_WRONG
               ? failure_keep(&s->wait->failure, -EPROTO, "rank %u finds that calls differ", f->source)
               : 0;
}

/* The payload of f is not what its sender had. */
static void damaged(void *self, const struct frame *f)
{
    struct groups *s = self;
    const struct comm_group *g = find(s, f->group);
    const char *codec = g && g->travels[0] ? g->travels : "none";
    char what[64];

    if (f->kind == FRAME_CALL)
        (void)snprintf(what, sizeof(what), "call %llu (%s) of", (unsigned long long)f->seq, frame_call_name(f->op));
    else
        (void)snprintf(what, sizeof(what), "a message with tag %u in", f->step);
    (void)failure_keep(&s->wait->failure, -EIO,
                       "rank %u sent %u bytes in %s '%s', codec %s, and others arrived: a link or memory "
                       "between it and rank %d is broken",
                       f->source, f->part, what, g ? g->channel.name : "?", codec, s->wait->rank);
}

const struct message_above groups_above = {.check = check, .damaged = damaged};

/* --- making them -------------------------------------------------------------------------------- */

/* The name and the members give the id, so groups of different ranks need no common counter. */
static int make_id(const struct groups *s, struct comm_group *g, uint64_t *ret)
{
    uint32_t again = 0;
    struct buf b;

    for (const struct comm_group *o = s->first; o; o = o->next)
        again += o->n == g->n && strcmp(o->channel.name, g->channel.name) == 0 &&
                 memcmp(o->rank, g->rank, (size_t)g->n * sizeof(int)) == 0;
    buf_init(&b, 65536);
    (void)buf_add(&b, g->channel.name, sizeof(g->channel.name));
    (void)buf_add(&b, &again, sizeof(again));
    (void)buf_add(&b, g->rank, (size_t)g->n * sizeof(int));
    *ret = hash_xxh3(buf_text(&b), b.len);
    again = buf_failed(&b);
    buf_clear(&b);
    return again ? -ENOMEM : 0;
}

static int check_members(const struct wait *w, const char *name, const int *ranks, int n, struct merr *err)
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
static int make_grid(struct comm_group *g)
{
    const int *node_of = g->set->node_of;
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

static void group_free(struct comm_group *g)
{
    if (!g)
        return;
    free(g->req);
    free(g->src);
    free(g->grid);
    free(g);
}

int group_new(struct groups *s, const char *name, const int *ranks, int n, struct comm_group **ret, struct merr *err)
{
    struct comm_group *g;
    int r = check_members(s->wait, name, ranks, n, err);

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
    g->set = s;
    g->wait = s->wait;
    g->channel.messages = s->messages;
    g->n = n;
    g->near = true;
    (void)snprintf(g->channel.name, sizeof(g->channel.name), "%s", name);
    for (int i = 0; i < n; i++) {
        g->rank[i] = ranks[i];
        if (ranks[i] == s->wait->rank)
            g->index = i;
        else
            g->near &= transports_share(s->ways, ranks[i]);
    }
    r = make_id(s, g, &g->channel.id);
    if (r == 0)
        r = make_grid(g);
    if (r == 0 && find(s, g->channel.id))
        r = -EEXIST;
    if (r < 0)
        goto fail;
    g->next = s->first;
    s->first = g;
    *ret = g;
    return 0;
fail:
    group_free(g);
    return merr_errno(err, r, "cannot make group '%s'", name);
}

void groups_clear(struct groups *s)
{
    while (s->first) {
        struct comm_group *g = s->first;

        s->first = g->next;
        group_free(g);
    }
    free(s->scratch);
    s->scratch = NULL;
}

void *group_scratch(struct comm_group *g, size_t bytes)
{
    struct groups *s = g->set;
    char *p;

    if (bytes <= s->scratch_bytes)
        return s->scratch;
    p = malloc(bytes);
    if (!p) {
        (void)failure_keep(&s->wait->failure, -ENOMEM, "no memory for %zu bytes of scratch", bytes);
        return NULL;
    }
    free(s->scratch);
    s->scratch = p;
    s->scratch_bytes = bytes;
    return p;
}

struct wait_members group_members(const struct comm_group *g)
{
    return (struct wait_members){.group = g->channel.name, .rank = g->rank, .n = g->n};
}

void comm_group_name_codec(struct comm_group *g, const char *name)
{
    (void)snprintf(g->travels, sizeof(g->travels), "%s", name);
}

void comm_group_order(struct comm_group *g, bool messages)
{
    g->ordered = true;
    g->channel.ordered = messages;
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
    struct wait *w = g->wait;
    struct group_call *c;
    uint64_t agree = (bytes << 8 ^ (type << 4 ^ extra)) * 0x9E3779B97F4A7C15ULL;

    if (w->failure.code)
        return w->failure.code;
    flight_enter(w->flight, &(struct flight_call){.group = g->channel.name,
                                                  .key = g->channel.id,
                                                  .size = g->n,
                                                  .peer = -1,
                                                  .op = op,
                                                  .seq = ++g->seq,
                                                  .bytes = bytes,
                                                  .digest = ops_digest(op, g->channel.name, agree),
                                                  .ordered = g->ordered});
    c = &g->history[g->seq % GROUP_HISTORY];
    *c = (struct group_call){g->seq, bytes, (uint8_t)op, (uint8_t)type, (uint8_t)extra};
    g->busy = true;
    if (flight_aborted(w->flight))
        return failure_keep(&w->failure, -ECANCELED, "told to give up before call %llu (%s) of '%s'",
                            (unsigned long long)g->seq, frame_call_name(op), g->channel.name);
    for (int i = 0; i < g->n; i++)
        TRY(message_check_early(g->set->messages, g->rank[i], g->channel.id, g->seq));
    return 0;
}

/* After a failure the call's entry in the ring stays open: that is where the rank ended. */
int group_end(struct comm_group *g, int r, struct merr *err)
{
    if (r < 0 && g->wait->failure.code) {
        wait_abandon(g->wait);
        return failure_tell(&g->wait->failure, err);
    }
    g->busy = false;
    flight_leave(g->wait->flight);
    return r;
}

int group_send(struct comm_group *g, struct group_wave *v, int member, uint32_t step, const void *buf, size_t bytes)
{
    struct frame head = frame_of(g, step, bytes);
    struct comm_request *req = message_send(&g->channel, g->rank[member], &head, buf);

    if (!req)
        return g->wait->failure.code;
    v->req[v->n++] = req;
    return 0;
}

int group_recv(struct comm_group *g, struct group_wave *v, int member, uint32_t step, void *buf, size_t bytes)
{
    struct frame head = frame_of(g, step, bytes);
    struct comm_request *req = message_recv(&g->channel, g->rank[member], &head, buf);

    if (!req)
        return g->wait->failure.code;
    v->req[v->n++] = req;
    return 0;
}

int group_wait(struct comm_group *g, struct group_wave *v)
{
    int r = g->wait->failure.code;

    for (int i = 0; i < v->n && r == 0; i++)
        r = message_wait(v->req[i]);
    for (int i = 0; i < v->n; i++) {
        if (r < 0)
            message_drop(v->req[i]);
        else
            message_detach(v->req[i]);
    }
    v->n = 0;
    return r;
}

int group_exchange(struct comm_group *g, uint32_t step, char *out, size_t bytes)
{
    struct group_wave v = {.req = g->req};
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
