#include "server/cluster/step_parts.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FADE 0.9F /* of what is last, by each record */

struct rank_parts {
    struct step_parts_sum last, bucket[STEP_PARTS_BUCKETS];
};

struct step_parts {
    size_t n_ranks, used; /* buckets */
    uint64_t first, width;
    bool begun;
    struct rank_parts rank[];
};

int step_parts_new(size_t ranks, struct step_parts **ret)
{
    struct step_parts *p = calloc(1, sizeof(*p) + ranks * sizeof(p->rank[0]));

    if (!p)
        return -ENOMEM;
    p->n_ranks = ranks;
    p->width = 1;
    *ret = p;
    return 0;
}

void step_parts_free(struct step_parts *p)
{
    free(p);
}

void step_parts_add(struct step_parts_sum *to, const struct step_parts_sum *s)
{
    to->steps += s->steps;
    to->counted += s->counted;
    for (int i = 0; i < STEP_PARTS; i++)
        to->v[i] += s->v[i];
}

/* Each two buckets become one. */
static void widen(struct step_parts *p)
{
    for (size_t r = 0; r < p->n_ranks && p->used > 0; r++) {
        struct step_parts_sum *b = p->rank[r].bucket;

        for (size_t i = 0; i < STEP_PARTS_BUCKETS / 2; i++) {
            struct step_parts_sum both = b[2 * i];

            step_parts_add(&both, &b[2 * i + 1]);
            b[i] = both;
        }
        memset(b + STEP_PARTS_BUCKETS / 2, 0, STEP_PARTS_BUCKETS / 2 * sizeof(*b));
    }
    p->used = (p->used + 1) / 2;
    p->width *= 2;
}

void step_parts_take(struct step_parts *p, size_t rank, uint64_t step, const struct step_parts_sum *told)
{
    struct step_parts_sum *last = &p->rank[rank].last;
    size_t at;

    if (!p->begun)
        p->first = step;
    p->begun = true;
    while ((step > p->first && (step - p->first) / p->width >= STEP_PARTS_BUCKETS) || told->steps > (float)p->width)
        widen(p);
    at = step > p->first ? (size_t)((step - p->first) / p->width) : 0; /* one that began before the first heard of */
    step_parts_add(&p->rank[rank].bucket[at], told);
    p->used = at >= p->used ? at + 1 : p->used;
    last->steps *= FADE;
    last->counted *= FADE;
    for (int i = 0; i < STEP_PARTS; i++)
        last->v[i] *= FADE;
    step_parts_add(last, told);
}

size_t step_parts_buckets(const struct step_parts *p, uint64_t *ret_first, uint64_t *ret_width)
{
    *ret_first = p->first;
    *ret_width = p->width;
    return p->used;
}

const struct step_parts_sum *step_parts_bucket(const struct step_parts *p, size_t rank, size_t i)
{
    return &p->rank[rank].bucket[i];
}

const struct step_parts_sum *step_parts_last(const struct step_parts *p, size_t rank)
{
    return &p->rank[rank].last;
}

double step_parts_mean(const struct step_parts_sum *s, enum step_part part)
{
    float of = part == STEP_PART_SAVE ? s->steps : s->counted;

    return of > 0 ? (double)(s->v[part] / of) : NAN;
}

double step_parts_rest(const struct step_parts_sum *s)
{
    double rest = step_parts_mean(s, STEP_PART_ALL);

    for (int i = STEP_PART_COMPUTE; i <= STEP_PART_DATA; i++)
        rest -= step_parts_mean(s, (enum step_part)i);
    return rest < 0 ? 0 : rest;
}
