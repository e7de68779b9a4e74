#include "scheduler/diagnose/order.h"

#include <stdlib.h>
#include <string.h>

/* Which of the list's spans has this number, -1: none. */
static int span_of(const struct order_list *l, uint64_t span)
{
    return l->span[0] == span ? 0 : l->span[1] == span ? 1 : -1;
}

/* Where operation 0 of one of its spans stands in the window; negative: before it. */
static int64_t begin_of(const struct order_list *l, int which)
{
    int64_t begin = (int64_t)l->n - (int64_t)l->ops[0];

    return which == 0 ? begin : begin - (int64_t)l->ops[1];
}

static bool departs_in(const struct order_list *a, int in_a, const struct order_list *b, int in_b,
                       struct order_odd *ret)
{
    uint64_t span = a->span[in_a], least = a->ops[in_a] < b->ops[in_b] ? a->ops[in_a] : b->ops[in_b];
    int64_t at_a = begin_of(a, in_a), at_b = begin_of(b, in_b), first = at_a < at_b ? -at_a : -at_b, i;

    i = first < 0 ? 0 : first;
    if (i < (int64_t)least &&
        memcmp(&a->window[at_a + i], &b->window[at_b + i], (size_t)((int64_t)least - i) * sizeof(*a->window)) == 0)
        i = (int64_t)least;
    for (; i < (int64_t)least; i++)
        if (a->window[at_a + i] != b->window[at_b + i]) {
            *ret = (struct order_odd){span, (uint64_t)i, a->window[at_a + i], b->window[at_b + i], true};
            return true;
        }
    /* One has gone on to its next span without what the other made in this one. */
    if ((in_a == 1 && a->ops[1] < b->ops[in_b]) || (in_b == 1 && b->ops[1] < a->ops[in_a])) {
        bool less = a->ops[in_a] < b->ops[in_b];
        const struct order_list *more = less ? b : a;
        int64_t at = (less ? at_b : at_a) + (int64_t)least;
        uint32_t digest = at >= 0 && at < (int64_t)more->n ? more->window[at] : 0;

        *ret = (struct order_odd){span, least, less ? 0 : digest, less ? digest : 0, true};
        return true;
    }
    return false;
}

bool order_departs(const struct order_list *a, const struct order_list *b, struct order_odd *ret)
{
    for (int i = 1; i >= 0; i--) { /* the earlier span first */
        int in_b = span_of(b, a->span[i]);

        if (in_b >= 0 && (i == 0 || a->span[1] != a->span[0]) && departs_in(a, i, b, in_b, ret))
            return true;
    }
    return false;
}

uint32_t order_most(const uint32_t *v, size_t n)
{
    uint32_t most = 0;
    size_t votes = 0, has = 0;

    for (size_t i = 0; i < n; i++) {
        if (votes == 0)
            most = v[i];
        votes += v[i] == most ? 1 : (size_t)-1;
    }
    for (size_t i = 0; i < n; i++)
        has += v[i] == most;
    return 2 * has > n ? most : 0;
}

/* --- ranks of a role --------------------------------------------------------------------------------- */

struct role {
    uint32_t role, n, second;
    uint32_t first, departed; /* departed: ranks that depart from the first, as choose_first took it */
    struct order_odd least;   /* the earliest such departure */
};

struct roles {
    const struct order_list *(*list)(const void *arg, size_t i);
    const void *arg;
    struct role *v; /* hashed: mask + 1 places */
    size_t mask;
};

struct finding { /* the earliest of all roles */
    struct order_odd odd;
    int *rank;
    size_t n, max;
};

static struct role *role_of(const struct roles *r, uint32_t role)
{
    size_t i = ((size_t)role * 0x9E3779B97F4A7C15ULL >> 32) & r->mask;

    while (r->v[i].n > 0 && r->v[i].role != role)
        i = (i + 1) & r->mask;
    return &r->v[i];
}

static bool earlier(const struct order_odd *a, const struct order_odd *b)
{
    return !b->found || a->span < b->span || (a->span == b->span && a->op < b->op);
}

static bool same_place(const struct order_odd *a, const struct order_odd *b)
{
    return b->found && a->span == b->span && a->op == b->op;
}

static struct order_odd turned(struct order_odd odd)
{
    uint32_t did = odd.did;

    odd.did = odd.others;
    odd.others = did;
    return odd;
}

static void note(struct finding *f, uint32_t rank, struct order_odd odd)
{
    if (!same_place(&odd, &f->odd) && !earlier(&odd, &f->odd))
        return;
    if (!same_place(&odd, &f->odd)) {
        f->odd = odd;
        f->n = 0;
    }
    if (f->n < f->max)
        f->rank[f->n] = (int)rank;
    f->n++;
}

/* Both are as far, and as they were a step ago: nothing to compare. */
static bool both_usual(const struct order_list *a, const struct order_list *b)
{
    return a->odd == 1 && b->odd == 1 && a->span[0] == b->span[0] && a->span[1] == b->span[1] && a->ops[1] == b->ops[1];
}

static bool departs(const struct order_list *a, const struct order_list *b, struct order_odd *ret)
{
    return !both_usual(a, b) && order_departs(a, b, ret);
}

/* Whether the others of the role are better compared with this one than with that: it does as in its last step, and has
 * come further. */
static bool is_better(const struct order_list *a, const struct order_list *b)
{
    if ((a->odd == 1) != (b->odd == 1))
        return a->odd == 1;
    return a->span[0] != b->span[0] ? a->span[0] > b->span[0] : a->ops[0] > b->ops[0];
}

static void choose_first(const struct roles *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct order_list *l = r->list(r->arg, i);
        struct role *of = l && l->role ? role_of(r, l->role) : NULL;

        if (of && (of->n++ == 0 || is_better(l, r->list(r->arg, of->first)))) {
            of->role = l->role;
            of->first = (uint32_t)i;
        }
    }
}

/* Compare each rank with the first of its role; departed[i]: rank i is not as that. */
static void compare_all(const struct roles *r, size_t n, bool *departed)
{
    choose_first(r, n);
    for (size_t i = 0; i < n; i++) {
        const struct order_list *l = r->list(r->arg, i);
        struct role *of = l && l->role ? role_of(r, l->role) : NULL;
        struct order_odd odd;

        if (!of || of->first == i)
            continue;
        of->second = (uint32_t)i;
        departed[i] = departs(l, r->list(r->arg, of->first), &odd);
        of->departed += departed[i];
        if (departed[i] && earlier(&odd, &of->least))
            of->least = odd;
    }
}

/* Two: the one that departs from its own last step, where the other does not. */
static void judge_two(const struct roles *r, const struct role *of, struct finding *f)
{
    bool first = r->list(r->arg, of->first)->odd > 1, second = r->list(r->arg, of->second)->odd > 1;

    if (of->departed == 1 && first != second)
        note(f, first ? of->first : of->second, first ? turned(of->least) : of->least);
}

/* Nobody has a peer that it departs from: only one from its own last step? */
static void judge_alone(const struct roles *r, const struct role *of, struct finding *f)
{
    const struct order_list *a = of->n == 1 ? r->list(r->arg, of->first) : NULL;
    int64_t at = a ? begin_of(a, 0) + (int64_t)a->odd - 2 : 0;

    if (a && a->odd > 1)
        note(f, of->first,
             (struct order_odd){a->span[0], a->odd - 2, at >= 0 && at < (int64_t)a->n ? a->window[at] : 0, 0, true});
}

static void judge_roles(const struct roles *r, size_t n, const bool *departed, struct finding *f)
{
    struct finding alone = *f;

    for (size_t i = 0; i <= r->mask; i++) /* most depart from the first: it is the odd one */
        if (r->v[i].n > 2 && 2 * r->v[i].departed > r->v[i].n)
            note(f, r->v[i].first, turned(r->v[i].least));
        else if (r->v[i].n == 2)
            judge_two(r, &r->v[i], f);
    for (size_t i = 0; i < n; i++) {
        const struct role *of = departed[i] ? role_of(r, r->list(r->arg, i)->role) : NULL;
        struct order_odd odd;

        if (of && of->n > 2 && 2 * of->departed <= of->n &&
            departs(r->list(r->arg, i), r->list(r->arg, of->first), &odd))
            note(f, (uint32_t)i, odd);
    }
    for (size_t i = 0; i <= r->mask && !f->odd.found; i++)
        judge_alone(r, &r->v[i], &alone);
    if (!f->odd.found && alone.n == 1)
        *f = alone;
}

size_t order_find(const struct order_list *(*list)(const void *arg, size_t i), const void *arg, size_t n, int *odd,
                  size_t max, struct order_odd *ret)
{
    struct roles r = {.list = list, .arg = arg, .mask = 15};
    struct finding f = {.rank = odd, .max = max};
    bool *departed = calloc(n + 1, sizeof(*departed));

    while (r.mask < 2 * n)
        r.mask = 2 * r.mask + 1;
    r.v = calloc(r.mask + 1, sizeof(*r.v));
    if (r.v && departed) {
        compare_all(&r, n, departed);
        judge_roles(&r, n, departed, &f);
    }
    free(r.v);
    free(departed);
    *ret = f.odd;
    return f.n;
}
