#include "server/cluster/topology.h"

#include <stdlib.h>
#include <string.h>

struct named {
    const char *rack;
    struct node *node;
};

static int by_rack(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->rack, ((const struct named *)b)->rack);
}

size_t topology_number(struct cluster *cl)
{
    struct named *v = calloc(cl->n_nodes + 1, sizeof(*v));
    size_t told = 0;
    uint32_t leaf = 0;

    for (size_t i = 0; i < cl->n_nodes; i++) {
        cl->nodes[i]->leaf = 0;
        if (v && *cl->nodes[i]->rack && cl->nodes[i]->contact != NODE_LOST)
            v[told++] = (struct named){.rack = cl->nodes[i]->rack, .node = cl->nodes[i]};
    }
    if (told > 1)
        qsort(v, told, sizeof(*v), by_rack);
    for (size_t i = 0; i < told; i++) {
        leaf += i > 0 && by_rack(&v[i], &v[i - 1]) != 0;
        v[i].node->leaf = leaf;
    }
    for (size_t i = 0; i < cl->n_nodes && told > 0; i++)
        if (!*cl->nodes[i]->rack)
            cl->nodes[i]->leaf = ++leaf;
    free(v);
    return told;
}

static double best_link(const struct node *n)
{
    double best = 0;

    for (size_t i = 0; i < n->n_links; i++)
        best = n->links[i].bytes_per_s > best ? n->links[i].bytes_per_s : best;
    return best;
}

static int by_rate(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

bool topology_mark(struct cluster *cl)
{
    double *best = NULL, middle = 0;
    size_t n = 0;
    bool any = false;

    for (size_t i = 0; i < cl->n_nodes; i++) {
        cl->nodes[i]->far = false;
        n += cl->nodes[i]->n_links > 0;
    }
    best = n > 2 ? calloc(n, sizeof(*best)) : NULL;
    if (!best)
        return false;
    n = 0;
    for (size_t i = 0; i < cl->n_nodes; i++)
        if (cl->nodes[i]->n_links > 0)
            best[n++] = best_link(cl->nodes[i]);
    qsort(best, n, sizeof(*best), by_rate);
    middle = best[n / 2];
    for (size_t i = 0; i < cl->n_nodes; i++) {
        struct node *node = cl->nodes[i];

        node->far = node->n_links > 0 && best_link(node) < middle / 2;
        any = any || node->far;
    }
    free(best);
    return any;
}

bool topology_has(const struct cluster *cl, const char *name)
{
    for (size_t i = 0; i < cl->n_nodes; i++)
        if (strcmp(cl->nodes[i]->name, name) == 0 || strcmp(cl->nodes[i]->rack, name) == 0)
            return true;
    return false;
}
