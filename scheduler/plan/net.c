#include "scheduler/plan/net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ACROSS 0.25 /* of the slower NIC's rate, between families */

static const char *const nic_names[PLAN_NICS] = {"unknown", "ethernet", "roce", "infiniband"};

enum plan_nic plan_nic_parse(const char *text)
{
    for (int i = 1; text && i < PLAN_NICS; i++)
        if (strcmp(text, nic_names[i]) == 0)
            return (enum plan_nic)i;
    return PLAN_NIC_UNKNOWN;
}

const char *plan_nic_name(enum plan_nic nic)
{
    return nic_names[nic];
}

static double *between(struct plan_net *net, int a, int b)
{
    return &net->bytes_per_s[a * net->n + b];
}

static size_t size_of(int n)
{
    return sizeof(struct plan_net) + (size_t)n * (size_t)n * sizeof(double);
}

struct plan_net *plan_net_new(const struct plan_part *part, int n, double fallback_bytes_per_s)
{
    struct plan_net *net;

    assert(n >= 1 && n <= PLAN_PARTS_MAX && fallback_bytes_per_s > 0);
    net = calloc(1, size_of(n));
    if (!net)
        return NULL;
    net->n = n;
    for (int i = 0; i < n; i++) {
        assert(part[i].devices >= 1);
        net->part[i] = part[i];
        net->at[i] = (uint16_t)i;
        net->first[i + 1] = net->first[i] + part[i].devices;
        if (!(part[i].bytes_per_s > 0))
            net->part[i].bytes_per_s = fallback_bytes_per_s;
    }
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const struct plan_part *x = &net->part[a], *y = &net->part[b];
            double least = x->bytes_per_s < y->bytes_per_s ? x->bytes_per_s : y->bytes_per_s;

            *between(net, a, b) = x->nic == y->nic ? least : ACROSS * least;
        }
    return net;
}

struct plan_net *plan_net_copy(const struct plan_net *net)
{
    struct plan_net *copy = malloc(size_of(net->n));

    if (copy)
        memcpy(copy, net, size_of(net->n));
    return copy;
}

void plan_net_free(struct plan_net *net)
{
    free(net);
}

void plan_net_measured(struct plan_net *net, int a, int b, double bytes_per_s)
{
    double *there = between(net, a, b), *back = between(net, b, a);

    assert(a >= 0 && a < net->n && b >= 0 && b < net->n && bytes_per_s > 0);
    /* of each pair the first word replaces what was assumed, which is marked by its sign */
    if (!(*there < 0))
        *there = *back = -bytes_per_s;
    else if (bytes_per_s < -*there)
        *there = *back = -bytes_per_s;
}

double plan_net_pair(const struct plan_net *net, int a, int b)
{
    int x = net->at[a], y = net->at[b];
    double rate = net->bytes_per_s[x * net->n + y];

    return x == y ? 0 : rate < 0 ? -rate : rate;
}

double plan_net_ring(const struct plan_net *net, int begin, int end)
{
    double least = end - begin > 1 ? plan_net_pair(net, end - 1, begin) : 0;

    for (int i = begin; i + 1 < end; i++) {
        double hop = plan_net_pair(net, i, i + 1);

        least = hop < least ? hop : least;
    }
    return least;
}

bool plan_net_mixed(const struct plan_net *net, int begin, int end)
{
    for (int i = begin + 1; i < end; i++)
        if (net->part[net->at[i]].nic != net->part[net->at[begin]].nic)
            return true;
    return false;
}

bool plan_net_even(const struct plan_net *net)
{
    for (int a = 0; a < net->n; a++)
        for (int b = 0; b < a; b++)
            if (plan_net_pair(net, a, b) != plan_net_pair(net, 0, 1))
                return false;
    return !plan_net_mixed(net, 0, net->n);
}

int plan_net_place(const struct plan_net *net, int rank)
{
    int lo = 0, hi = net->n - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;

        if (net->first[mid] <= rank)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

bool plan_parts_alike(const struct plan_part *a, const struct plan_part *b)
{
    return a->kind == b->kind && a->devices == b->devices;
}

void plan_net_swap(struct plan_net *net, int a, int b)
{
    uint16_t was = net->at[a];

    assert(plan_parts_alike(&net->part[net->at[a]], &net->part[net->at[b]]));
    net->at[a] = net->at[b];
    net->at[b] = was;
}

/* Whether place i goes better to the right of place k - 1 than place best does. */
static bool nearer(const struct plan_net *net, int k, int i, int best)
{
    enum plan_nic a = net->part[net->at[i]].nic, b = net->part[net->at[best]].nic, last;

    if (k == 0)
        return a > b;
    last = net->part[net->at[k - 1]].nic;
    if ((a == last) != (b == last))
        return a == last;
    return a == last ? plan_net_pair(net, k - 1, i) > plan_net_pair(net, k - 1, best) : a > b;
}

void plan_net_chain(struct plan_net *net)
{
    for (int k = 0; k < net->n; k++) {
        int best = k;

        for (int i = k + 1; i < net->n; i++)
            if (plan_parts_alike(&net->part[net->at[i]], &net->part[net->at[k]]) && nearer(net, k, i, best))
                best = i;
        plan_net_swap(net, k, best);
    }
}
