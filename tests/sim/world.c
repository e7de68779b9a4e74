#include "tests/sim/world.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct event {
    int64_t at_us;
    uint64_t order; /* of asking */
    const struct life *life;
    uint64_t life_number;
    world_fn *fn, *drop;
    void *arg;
};

struct world {
    uint64_t seed, chance, lives, asked, events, hash;
    int64_t now_us;
    struct event *heap;
    size_t n, cap;
    FILE *trace;
    char broken[1024];
};

struct world *world_new(uint64_t seed)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        abort();
    w->seed = w->chance = seed;
    return w;
}

void world_end(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->heap[i].drop)
            w->heap[i].drop(w->heap[i].arg);
    w->n = 0;
}

void world_free(struct world *w)
{
    if (!w)
        return;
    world_end(w);
    free(w->heap);
    free(w);
}

int64_t world_now_us(const struct world *w)
{
    return w->now_us;
}

uint64_t world_events(const struct world *w)
{
    return w->events;
}

/* --- events: a binary heap by time and order ---------------------------------------------------------- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct world *w, struct event e)
{
    size_t i = w->n++;

    if (w->n > w->cap) {
        w->cap = w->cap ? w->cap * 2 : 1024;
        w->heap = realloc(w->heap, w->cap * sizeof(*w->heap));
        if (!w->heap)
            abort();
    }
    for (; i > 0 && before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static struct event pop(struct world *w)
{
    struct event top = w->heap[0], last = w->heap[--w->n];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < w->n) {
        if (child + 1 < w->n && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    if (w->n)
        w->heap[i] = last;
    return top;
}

void world_at(struct world *w, int64_t at_us, const struct life *life, world_fn *fn, world_fn *drop, void *arg)
{
    push(w, (struct event){.at_us = at_us < w->now_us ? w->now_us : at_us,
                           .order = ++w->asked,
                           .life = life,
                           .life_number = life ? life->number : 0,
                           .fn = fn,
                           .drop = drop,
                           .arg = arg});
}

bool world_step(struct world *w, int64_t until_us)
{
    struct event e;

    if (w->broken[0])
        return false;
    if (!w->n || w->heap[0].at_us > until_us) {
        w->now_us = until_us > w->now_us ? until_us : w->now_us;
        return false;
    }
    e = pop(w);
    w->now_us = e.at_us;
    if (e.life && (!e.life->alive || e.life->number != e.life_number)) {
        if (e.drop)
            e.drop(e.arg);
    } else if (e.life && e.life->held_until_us > w->now_us) {
        e.at_us = e.life->held_until_us;
        push(w, e); /* with its order: what was first stays first */
    } else {
        w->events++;
        e.fn(e.arg);
    }
    return true;
}

/* --- lives -------------------------------------------------------------------------------------------- */

void life_begin(struct world *w, struct life *l)
{
    assert(!l->alive);
    *l = (struct life){.number = ++w->lives, .alive = true};
}

void life_end(struct world *w, struct life *l)
{
    *l = (struct life){.number = ++w->lives};
}

void life_hold(struct world *w, struct life *l, int64_t until_us)
{
    (void)w;
    if (until_us > l->held_until_us)
        l->held_until_us = until_us;
}

/* --- chance: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) ---- */

static uint64_t next(struct world *w)
{
    uint64_t z = w->chance += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t world_draw(struct world *w, uint64_t n)
{
    assert(n > 0);
    return (uint64_t)(((unsigned __int128)next(w) * n) >> 64);
}

bool world_chance(struct world *w, double p)
{
    return (double)(next(w) >> 11) * 0x1p-53 < p;
}

int64_t world_between(struct world *w, int64_t lo, int64_t hi)
{
    return lo + (int64_t)world_draw(w, (uint64_t)(hi - lo) + 1);
}

/* --- notes -------------------------------------------------------------------------------------------- */

void world_trace(struct world *w, FILE *to)
{
    w->trace = to;
}

uint64_t world_hash(const struct world *w)
{
    return w->hash;
}

void world_note(struct world *w, const char *fmt, ...)
{
    char text[1024];
    uint64_t mixed[3];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof(text))
        n = sizeof(text) - 1;
    mixed[0] = w->hash;
    mixed[1] = (uint64_t)w->now_us;
    mixed[2] = hash_xxh3(text, (size_t)n);
    w->hash = hash_xxh3(mixed, sizeof(mixed));
    if (w->trace)
        fprintf(w->trace, "%12.6f  %s\n", (double)w->now_us / 1e6, text);
}

void world_broken(struct world *w, const char *fmt, ...)
{
    va_list ap;

    if (w->broken[0])
        return;
    va_start(ap, fmt);
    (void)vsnprintf(w->broken, sizeof(w->broken), fmt, ap);
    va_end(ap);
    if (w->trace)
        fprintf(w->trace, "%12.6f  BROKEN: %s\n", (double)w->now_us / 1e6, w->broken);
}

const char *world_why_broken(const struct world *w)
{
    return w->broken[0] ? w->broken : NULL;
}
