#include "server/cluster/links.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GBIT 1.25e8                        /* bytes a second */
#define FRESH_US (INT64_C(3600) * 1000000) /* what was measured longer ago is measured again, when a run can */
#define SHOWN_MAX 32
#define RATE_MAX 1e15

/* --- NICs ---------------------------------------------------------------------------------------------------- */

int links_read_nic(const json_t *body, struct link_nic *ret, struct merr *err)
{
    const json_t *nic = json_object_get(body, "nic"), *rate = json_object_get(nic, "gbit_s");
    const char *family = json_string_value(json_object_get(nic, "family"));
    struct link_nic told = {.family = plan_nic_parse(family), .gbit_s = json_number_value(rate)};

    if (nic && !json_is_null(nic) && told.family == PLAN_NIC_UNKNOWN)
        return merr_set(err, -EINVAL,
                        "the family of 'nic', '%.32s', is none that this server knows: want infiniband, "
                        "roce or ethernet, or no 'nic'",
                        family ? family : "");
    if (rate && !json_is_null(rate) && !(told.gbit_s > 0 && told.gbit_s <= PLAN_NIC_GBIT_MAX))
        return merr_set(err, -EINVAL, "'gbit_s' of 'nic' wants a number up to %g, or null", PLAN_NIC_GBIT_MAX);
    *ret = told;
    return 0;
}

bool links_take_nic(struct node *n, const struct link_nic *nic)
{
    if (n->nic == nic->family && n->nic_gbit_s == nic->gbit_s)
        return false;
    n->nic = nic->family;
    n->nic_gbit_s = nic->gbit_s;
    return true;
}

json_t *links_nic_view(const struct node *n)
{
    if (n->nic == PLAN_NIC_UNKNOWN)
        return NULL;
    return json_pack("{s:s, s:o}", "family", plan_nic_name(n->nic), "gbit_s",
                     n->nic_gbit_s > 0 ? json_real(n->nic_gbit_s) : json_null());
}

/* --- what was measured --------------------------------------------------------------------------------------- */

static size_t link_at(const struct node *n, const struct node *to)
{
    size_t lo = 0, hi = n->n_links;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (strcmp(n->links[mid].to->name, to->name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct link *link_find(const struct node *n, const struct node *to)
{
    size_t at = link_at(n, to);

    return at < n->n_links && n->links[at].to == to ? &n->links[at] : NULL;
}

static void link_drop(struct node *n, size_t at)
{
    memmove(&n->links[at], &n->links[at + 1], (n->n_links - at - 1) * sizeof(*n->links));
    n->n_links--;
}

/* The name of a pair of nodes. */
static void pair_of(const struct node *a, const struct node *b, char ret[LINKS_PAIR_MAX])
{
    bool first = strcmp(a->name, b->name) < 0;

    (void)snprintf(ret, LINKS_PAIR_MAX, "%s/%s", first ? a->name : b->name, first ? b->name : a->name);
}

bool links_forget(struct node *a, struct node *b, char ret_pair[LINKS_PAIR_MAX])
{
    struct link *there = link_find(a, b), *back = link_find(b, a);

    if (!there && !back)
        return false;
    pair_of(a, b, ret_pair);
    if (there)
        link_drop(a, (size_t)(there - a->links));
    if (back)
        link_drop(b, (size_t)(back - b->links));
    return true;
}

static void forget_oldest(struct node *n, struct links_news *news)
{
    size_t oldest = 0;

    for (size_t i = 1; i < n->n_links; i++)
        oldest = n->links[i].at_us < n->links[oldest].at_us ? i : oldest;
    if (links_forget(n, n->links[oldest].to, news->forgotten[news->n_forgotten]))
        news->n_forgotten++;
}

/* Without memory for it nothing is kept: the next run measures again. */
static void link_keep(struct node *n, const struct link *l, struct links_news *news)
{
    struct link *known = link_find(n, l->to), *grown;
    size_t at;

    if (known) {
        *known = *l;
        return;
    }
    if (n->n_links == NODE_LINKS_MAX)
        forget_oldest(n, news);
    grown = realloc(n->links, (n->n_links + 1) * sizeof(*grown));
    if (!grown)
        return;
    n->links = grown;
    at = link_at(n, l->to);
    memmove(&grown[at + 1], &grown[at], (n->n_links - at) * sizeof(*grown));
    grown[at] = *l;
    n->n_links++;
}

/* Rates that differ by less than a fifth are told apart by noise: a quarter of an octave makes one. */
static double plain(double bytes_per_s)
{
    return exp2(round(4 * log2(bytes_per_s)) / 4);
}

/* It goes along with what is measured, and hardly with a link that has become slow, which would be usual soon. */
static double usual_of(const struct link *was, double bytes_per_s)
{
    double usual = was && was->usual > 0 ? was->usual : was ? was->bytes_per_s : bytes_per_s;

    return usual + (bytes_per_s < 0.8 * usual ? 0.02 : 0.25) * (bytes_per_s - usual);
}

void links_keep(struct node *a, struct node *b, double bytes_per_s, int64_t at_us, struct links_news *ret)
{
    const struct link *was = link_find(a, b);
    struct link is = {.bytes_per_s = bytes_per_s, .usual = usual_of(was, bytes_per_s), .at_us = at_us};

    *ret = (struct links_news){.other = !was || plain(was->bytes_per_s) != plain(bytes_per_s)};
    pair_of(a, b, ret->pair);
    is.to = b;
    link_keep(a, &is, ret);
    is.to = a;
    link_keep(b, &is, ret);
}

static struct node *node_of_rank(const struct cluster *cl, const struct job *j, json_int_t rank)
{
    return rank >= 0 && (size_t)rank < j->n_places ? cluster_node(cl, j->places[rank].node) : NULL;
}

bool links_read_measured(const struct cluster *cl, const struct job *j, const json_t *event, size_t i,
                         struct links_measured *ret)
{
    const json_t *o = json_array_get(json_object_get(event, "to"), i);
    struct links_measured m = {.a = node_of_rank(cl, j, json_integer_value(json_object_get(event, "rank"))),
                               .b = node_of_rank(cl, j, json_integer_value(json_object_get(o, "rank"))),
                               .bytes_per_s = json_number_value(json_object_get(o, "bytes_per_s"))};

    if (!m.a || !m.b || m.a == m.b || !(m.bytes_per_s > 0 && m.bytes_per_s < RATE_MAX))
        return false;
    *ret = m;
    return true;
}

/* The nodes of a run. Returns how many there are; 0: too many, of which nothing is made, or one is gone. */
static size_t nodes_of(const struct cluster *cl, const struct job *j, struct node *node[PLAN_PARTS_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_places; i++) {
        struct node *at = cluster_node(cl, j->places[i].node);
        size_t k = 0;

        while (k < n && node[k] != at)
            k++;
        if (k < n)
            continue;
        if (!at || n == PLAN_PARTS_MAX)
            return 0;
        node[n++] = at;
    }
    return n;
}

struct node *links_judge(const struct cluster *cl, const struct job *j, int64_t since_us, struct cells_finding *ret,
                         struct node **ret_other)
{
    static_assert(PLAN_PARTS_MAX <= CELLS_NODES_MAX, "all nodes of a net are judged");
    struct node *node[PLAN_PARTS_MAX];
    size_t n = nodes_of(cl, j, node);
    double *rate = calloc(2 * n * n + 1, sizeof(*rate)), *usual = rate + n * n;
    bool all = rate != NULL;

    *ret = (struct cells_finding){.class_ = CELLS_WELL, .factor = 1};
    *ret_other = NULL;
    for (size_t a = 0; a < n && all; a++)
        for (size_t b = 0; b < n && all; b++) {
            const struct link *l = a == b ? NULL : link_find(node[a], node[b]);

            all = a == b || (l && l->at_us >= since_us);
            rate[a * n + b] = l ? l->bytes_per_s : 0;
            usual[a * n + b] = l ? l->usual : 0;
        }
    if (all)
        cells_judge(rate, usual, n, ret);
    free(rate);
    if (ret->class_ == CELLS_WELL || ret->class_ == CELLS_FABRIC)
        return NULL;
    *ret_other = ret->class_ == CELLS_CELL ? node[ret->to] : NULL;
    return node[ret->from];
}

bool links_due(const struct cluster *cl, const struct job *j, int64_t wall_us)
{
    struct node *node[PLAN_PARTS_MAX];
    size_t n = nodes_of(cl, j, node);

    for (size_t a = 0; a < n && j->kind == JOB_TRAIN; a++)
        for (size_t b = 0; b < a; b++) {
            const struct link *l = link_find(node[a], node[b]);

            if (!l || wall_us - l->at_us > FRESH_US)
                return true;
        }
    return false;
}

static int slowest_first(const void *a, const void *b)
{
    const struct link *x = a, *y = b;

    return (x->bytes_per_s > y->bytes_per_s) - (x->bytes_per_s < y->bytes_per_s);
}

json_t *links_view(const struct node *n)
{
    struct link shown[NODE_LINKS_MAX];
    json_t *all = n->n_links > 0 ? json_array() : NULL;

    if (!all)
        return NULL;
    memcpy(shown, n->links, n->n_links * sizeof(*shown));
    qsort(shown, n->n_links, sizeof(*shown), slowest_first);
    for (size_t i = 0; i < n->n_links && i < SHOWN_MAX; i++)
        (void)json_array_append_new(all, json_pack("{s:s, s:f, s:o}", "to", shown[i].to->name, "bytes_per_s",
                                                   shown[i].bytes_per_s, "measured_at", cluster_time(shown[i].at_us)));
    return all;
}

/* --- nets ---------------------------------------------------------------------------------------------------- */

struct parts {
    struct plan_part v[PLAN_PARTS_MAX];
    const struct node *node[PLAN_PARTS_MAX];
    int n;
    bool told, too_many;
};

static void add_part(struct parts *a, const struct node *n, int kind, int devices)
{
    if (a->n == PLAN_PARTS_MAX) {
        a->too_many = true;
        return;
    }
    a->node[a->n] = n;
    a->v[a->n++] =
        (struct plan_part){.devices = devices, .kind = kind, .nic = n->nic, .bytes_per_s = n->nic_gbit_s * GBIT};
    a->told |= n->nic != PLAN_NIC_UNKNOWN;
}

/* NULL also where nobody told of NICs and nothing was measured, for then all links are taken to be alike. */
static struct plan_net *net_of(const struct parts *a, const struct plan_site *site)
{
    double octaves = 0, rest = site->between.bytes_per_s, inside = site->inside.bytes_per_s * site->node_devices;
    struct plan_net *net;
    int measured = 0;

    if (a->n < 2 || a->too_many)
        return NULL;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < i; k++) {
            const struct link *l = link_find(a->node[i], a->node[k]);

            measured += l != NULL;
            octaves += l ? log2(l->bytes_per_s) : 0;
        }
    if (!a->told && measured == 0)
        return NULL;
    if (measured > 0) /* links nobody knows of are as fast as those, on the average */
        rest = plain(exp2(octaves / measured));
    net = plan_net_new(a->v, a->n, rest);
    for (int i = 0; net && i < a->n; i++)
        for (int k = 0; k < i; k++) {
            const struct link *l = link_find(a->node[i], a->node[k]);

            if (l || a->node[i] == a->node[k]) /* two classes of one node */
                plan_net_measured(net, i, k, l ? plain(l->bytes_per_s) : inside);
        }
    return net;
}

/* Places from i on of the same node and class. */
static size_t part_at(const struct job_place *p, size_t n, size_t i)
{
    size_t k = i + 1;

    while (k < n && strcmp(p[k].node, p[i].node) == 0 && strcmp(p[k].class_, p[i].class_) == 0)
        k++;
    return k - i;
}

struct plan_net *links_of_places(const struct cluster *cl, const struct job_place *p, size_t n,
                                 const struct plan_site *site)
{
    struct parts a = {.n = 0};

    for (size_t i = 0; i < n; i += part_at(p, n, i)) {
        const struct node *at = cluster_node(cl, p[i].node);

        if (!at)
            return NULL;
        add_part(&a, at, classes_find(&cl->classes, p[i].class_), (int)part_at(p, n, i));
    }
    return net_of(&a, site);
}

struct plan_net *links_of_class(const struct cluster *cl, int class_, int devices, const struct plan_site *site)
{
    struct parts a = {.n = 0};

    for (size_t i = 0; i < cl->n_nodes && devices > 0; i++) {
        const struct node *n = cl->nodes[i];
        int here = 0;

        for (size_t k = 0; n->contact != NODE_LOST && k < n->n_slots; k++)
            here += n->slots[k].class_ == class_;
        here = here < devices ? here : devices;
        if (here > 0)
            add_part(&a, n, class_, here);
        devices -= here;
    }
    return net_of(&a, site);
}

bool links_put_in_order(const struct plan_result *plan, struct job_place *p, size_t n)
{
    struct job_place *was = plan->parts > 0 ? malloc(n * sizeof(*was)) : NULL;
    size_t first[PLAN_PARTS_MAX], parts = 0, to = 0;

    if (plan->parts == 0)
        return true;
    if (!was)
        return false;
    memcpy(was, p, n * sizeof(*was));
    for (size_t i = 0; i < n; i += part_at(was, n, i))
        first[parts++] = i;
    for (int k = 0; k < plan->parts; k++) {
        size_t from = first[plan->at[k]], len = part_at(was, n, from);

        memcpy(p + to, was + from, len * sizeof(*p));
        to += len;
    }
    free(was);
    return true;
}
