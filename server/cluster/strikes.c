#include "server/cluster/strikes.h"

#include <string.h>

#include "base/hash.h"

static void forget_oldest(struct strikes *s, size_t n)
{
    s->n -= n;
    memmove(s->v, s->v + n, s->n * sizeof(s->v[0]));
}

bool strikes_add(struct strikes *s, const char *user, int64_t now_us)
{
    uint64_t name = hash_xxh3(user, strlen(user));
    bool others = false;

    while (s->n > 0 && now_us - s->v[0].at_us > STRIKES_WINDOW_US)
        forget_oldest(s, 1);
    if (s->n > 0 && now_us - s->v[s->n - 1].at_us < STRIKES_APART_US)
        return false;
    if (s->n == STRIKES_KEPT)
        forget_oldest(s, 1);
    s->v[s->n].user = name;
    s->v[s->n++].at_us = now_us;
    for (size_t i = 0; i < s->n; i++)
        others = others || s->v[i].user != name;
    return s->n >= STRIKES_MOST && others;
}
