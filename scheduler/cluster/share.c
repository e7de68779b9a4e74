#include "scheduler/cluster/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 2 to the power of -x by square roots, which are the same on every host. */
static double half_to(double x)
{
    double whole = floor(x), part = x - whole, root = 0.5, value = 1;

    for (int i = 0; i < 30; i++) {
        part *= 2;
        root = sqrt(root);
        if (part >= 1) {
            part -= 1;
            value *= root;
        }
    }
    return whole > 1000 ? 0 : ldexp(value, -(int)whole);
}

double share_decay(double use_us, int64_t span_us, int64_t half_us)
{
    return half_us <= 0 || span_us <= 0 ? use_us : use_us * half_to((double)span_us / (double)half_us);
}

double share_of_run(int32_t devices, int64_t span_us, int64_t half_us)
{
    static const double ln2 = 0.69314718055994531;
    double span = (double)(span_us > 0 ? span_us : 0), half = (double)half_us;

    if (half_us <= 0 || span < half / 1e6) /* so short that nothing of it is forgotten */
        return devices * span;
    return devices * half / ln2 * (1 - half_to(span / half));
}

/* The nodes above this one, at most SHARE_DEPTH_MAX; a ring of them ends there. */
static uint32_t above(const struct share_node *nodes, size_t n, uint32_t i)
{
    return nodes[i].parent < n ? nodes[i].parent : SHARE_NONE;
}

struct group { /* of siblings that want devices, by their parent; the last one is of the top */
    double weights, use_us;
};

static double ratio_of(const struct share_node *node, const struct group *g)
{
    double due = g->use_us * (double)node->weight_milli / g->weights;

    return (due + SHARE_LITTLE_US) / (node->use_us + SHARE_LITTLE_US);
}

/* In steps of a tenth of the ratio; its fourth power, so that it outweighs how long jobs have waited: that decides
 * between jobs of one user. */
static int64_t step_of(double ratio)
{
    double step = 1, weight;

    while (step * 1.05 < ratio && step < 4)
        step *= 1.1;
    while (step / 1.05 > ratio && step > 0.25)
        step /= 1.1;
    weight = step * step * step * step * 1000;
    return weight > SHARE_MOST ? SHARE_MOST : weight < SHARE_LEAST ? SHARE_LEAST : (int64_t)(weight + 0.5);
}

void share_all(struct share_node *nodes, size_t n, int64_t *ret_milli)
{
    struct group *groups = calloc(n + 1, sizeof(*groups));
    double *own = calloc(n + 1, sizeof(*own));

    for (size_t i = 0; i < n; i++)
        ret_milli[i] = 1000;
    for (uint32_t i = 0; own && groups && i < n; i++)
        own[i] = nodes[i].use_us;
    for (uint32_t i = 0; own && groups && i < n; i++) {
        bool wants = nodes[i].wants;
        uint32_t up = above(nodes, n, i);

        for (int d = 0; d < SHARE_DEPTH_MAX && up != SHARE_NONE; d++, up = above(nodes, n, up)) {
            nodes[up].use_us += own[i];
            nodes[up].wants = nodes[up].wants || wants;
        }
    }
    for (uint32_t i = 0; own && groups && i < n; i++) {
        uint32_t up = above(nodes, n, i);
        struct group *g = &groups[up == SHARE_NONE ? n : up];

        if (nodes[i].wants) {
            g->weights += (double)nodes[i].weight_milli;
            g->use_us += nodes[i].use_us;
        }
    }
    for (uint32_t i = 0; own && groups && i < n; i++) {
        double ratio = 1;
        uint32_t at = i;

        for (int d = 0; d < SHARE_DEPTH_MAX && at != SHARE_NONE && nodes[i].wants; d++, at = above(nodes, n, at)) {
            uint32_t up = above(nodes, n, at);

            ratio *= ratio_of(&nodes[at], &groups[up == SHARE_NONE ? n : up]);
        }
        ret_milli[i] = step_of(ratio);
    }
    free(own);
    free(groups);
}
