#include "scheduler/plan/kept.h"

#include <stdbool.h>
#include <stdlib.h>

struct one {
    struct schedule *s;
    size_t actions;
    int taken;
};

struct kept {
    struct one v[KEPT_MAX];
    int n, oldest;
    size_t actions;
};

struct kept *kept_new(void)
{
    return calloc(1, sizeof(struct kept));
}

void kept_free(struct kept *k)
{
    for (int i = 0; k && i < k->n; i++)
        schedule_free(k->v[i].s);
    free(k);
}

static bool is_of(const struct schedule *s, enum schedule_kind kind, int ranks, int chunks, int micros)
{
    return s && s->kind == kind && s->ranks == ranks && s->chunks == chunks && s->micros == micros;
}

static size_t actions_of(const struct schedule *s)
{
    size_t n = 0;

    for (int i = 0; i < s->ranks; i++)
        n += s->rank[i].n;
    return n;
}

static void drop(struct kept *k, struct one *o)
{
    k->actions -= o->actions;
    schedule_free(o->s);
    *o = (struct one){.s = NULL};
}

/* A place for one of so many actions, in turn over those that nobody has taken; NULL: there is none. */
static struct one *place_for(struct kept *k, size_t actions)
{
    int at = k->n < KEPT_MAX ? k->n : -1;

    if (actions > KEPT_ACTIONS_MAX)
        return NULL;
    for (int i = 0; i < k->n && (at < 0 || k->actions + actions > KEPT_ACTIONS_MAX); i++) {
        int oldest = k->oldest;

        k->oldest = (k->oldest + 1) % k->n;
        if (k->v[oldest].taken > 0)
            continue;
        if (k->v[oldest].s)
            drop(k, &k->v[oldest]);
        at = oldest;
    }
    if (at < 0 || k->actions + actions > KEPT_ACTIONS_MAX)
        return NULL;
    k->n += at == k->n;
    return &k->v[at];
}

int kept_take(struct kept *k, enum schedule_kind kind, int ranks, int chunks, int micros, struct schedule **ret,
              struct merr *err)
{
    struct one *o;
    size_t actions;
    int r;

    for (int i = 0; k && i < k->n; i++)
        if (is_of(k->v[i].s, kind, ranks, chunks, micros)) {
            k->v[i].taken++;
            *ret = k->v[i].s;
            return 0;
        }
    r = schedule_new(kind, ranks, chunks, micros, ret, err);
    if (r != 0 || !k)
        return r;
    actions = actions_of(*ret);
    o = place_for(k, actions);
    if (!o)
        return 0;
    *o = (struct one){.s = *ret, .actions = actions, .taken = 1};
    k->actions += actions;
    return 0;
}

void kept_give(struct kept *k, struct schedule *s)
{
    for (int i = 0; k && s && i < k->n; i++)
        if (k->v[i].s == s) {
            k->v[i].taken--;
            return;
        }
    schedule_free(s);
}
