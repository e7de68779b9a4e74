#include "checkpoint/format/box.h"

#include <assert.h>

bool box_product(const uint64_t *v, int n, uint64_t max, uint64_t *ret)
{
    uint64_t p = 1;

    for (int i = 0; i < n; i++)
        if (v[i] == 0) {
            *ret = 0;
            return true;
        }
    for (int i = 0; i < n; i++) {
        if (p > max / v[i])
            return false;
        p *= v[i];
    }
    *ret = p;
    return p <= max;
}

uint64_t box_volume(const struct box *b)
{
    uint64_t p = 1;

    for (int i = 0; i < b->ndim; i++)
        p *= b->len[i];
    return p;
}

struct cut {
    struct box base; /* leading dims fixed so far */
    uint64_t first;
    struct box_piece *out;
    int n;
};

static void cut_emit(struct cut *c, int d, uint64_t from, uint64_t to, uint64_t inner)
{
    struct box_piece *p = &c->out[c->n++];

    assert(c->n <= BOX_PIECES_MAX);
    p->box = c->base;
    p->box.off[d] += from;
    p->box.len[d] = to - from;
    p->first = c->first;
    c->first += (to - from) * inner;
}

/* Elements [a, b) of the box from dim d on, the leading dims being fixed. */
static void cut_dim(struct cut *c, int d, uint64_t a, uint64_t b)
{
    uint64_t inner = 1, i0, i1;
    struct box keep = c->base;

    if (a == b)
        return;
    if (d == c->base.ndim) { /* no dims left: one element */
        c->out[c->n].box = c->base;
        c->out[c->n++].first = c->first++;
        return;
    }
    for (int i = d + 1; i < c->base.ndim; i++)
        inner *= c->base.len[i];
    i0 = a / inner;
    i1 = b / inner;
    if (i0 == i1) {
        c->base.off[d] += i0;
        c->base.len[d] = 1;
        cut_dim(c, d + 1, a % inner, b % inner);
        c->base = keep;
        return;
    }
    if (a % inner) {
        c->base.off[d] += i0;
        c->base.len[d] = 1;
        cut_dim(c, d + 1, a % inner, inner);
        c->base = keep;
        i0++;
    }
    if (i1 > i0)
        cut_emit(c, d, i0, i1, inner);
    if (b % inner) {
        c->base.off[d] += i1;
        c->base.len[d] = 1;
        cut_dim(c, d + 1, 0, b % inner);
        c->base = keep;
    }
}

int box_cut(const struct box *b, uint64_t begin, uint64_t end, struct box_piece out[BOX_PIECES_MAX])
{
    struct cut c = {.base = *b, .out = out};

    assert(begin <= end && end <= box_volume(b));
    cut_dim(&c, 0, begin, end);
    return c.n;
}

bool box_meet(const struct box *a, const struct box *b, struct box *ret)
{
    struct box r = {.ndim = a->ndim};

    assert(a->ndim == b->ndim);
    for (int i = 0; i < a->ndim; i++) {
        uint64_t lo = a->off[i] > b->off[i] ? a->off[i] : b->off[i];
        uint64_t ea = a->off[i] + a->len[i], eb = b->off[i] + b->len[i], hi = ea < eb ? ea : eb;

        if (lo >= hi)
            return false;
        r.off[i] = lo;
        r.len[i] = hi - lo;
    }
    *ret = r;
    return true;
}

void box_walk_init(struct box_walk *w, const struct box *a, const struct box *b, const struct box *shared)
{
    uint64_t sa = 1, sb = 1;
    int d = a->ndim;

    *w = (struct box_walk){.runs = 1, .run = 1};
    while (d > 0) { /* dims that both boxes hold whole join the run; the first that is cut ends it */
        d--;
        w->run *= shared->len[d];
        if (shared->len[d] != a->len[d] || shared->len[d] != b->len[d])
            break;
    }
    w->outer = d;
    for (int i = a->ndim; i-- > 0;) {
        w->a_base += (shared->off[i] - a->off[i]) * sa;
        w->b_base += (shared->off[i] - b->off[i]) * sb;
        if (i < w->outer) {
            w->a_stride[i] = sa;
            w->b_stride[i] = sb;
            w->count[i] = shared->len[i];
            w->runs *= shared->len[i];
        }
        sa *= a->len[i];
        sb *= b->len[i];
    }
}

void box_walk_at(const struct box_walk *w, uint64_t i, uint64_t *ret_a, uint64_t *ret_b)
{
    uint64_t a = w->a_base, b = w->b_base;

    for (int d = w->outer; d-- > 0;) {
        uint64_t k = i % w->count[d];

        i /= w->count[d];
        a += k * w->a_stride[d];
        b += k * w->b_stride[d];
    }
    *ret_a = a;
    *ret_b = b;
}
