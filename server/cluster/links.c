/* Links: how nodes reach each other, by the NICs that their agents tell of and by what runs have measured, and which
 * node of a run its ranks are laid on. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/plan/search.h"
#include "server/control/core.h"

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

void links_take_nic(struct core *c, struct node *n, const struct link_nic *nic)
{
    if (n->nic == nic->family && n->nic_gbit_s == nic->gbit_s)
        return;
    n->nic = nic->family;
    n->nic_gbit_s = nic->gbit_s;
    plans_sites_changed(c);
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

/* The name of a pair in the store. */
static void pair_of(const struct node *a, const struct node *b, char ret[2 * JOB_NODE_MAX])
{
    bool first = strcmp(a->name, b->name) < 0;

    (void)snprintf(ret, 2 * JOB_NODE_MAX, "%s/%s", first ? a->name : b->name, first ? b->name : a->name);
}

/* What either of the two knows of the other, and what the store does. */
static void pair_forget(struct core *c, struct node *a, struct node *b)
{
    char pair[2 * JOB_NODE_MAX];
    struct link *there = link_find(a, b), *back = link_find(b, a);

    pair_of(a, b, pair);
    store_drop(c->store, STORE_LINKS, pair);
    if (there)
        link_drop(a, (size_t)(there - a->links));
    if (back)
        link_drop(b, (size_t)(back - b->links));
}

static void forget_oldest(struct core *c, struct node *n)
{
    size_t oldest = 0;

    for (size_t i = 1; i < n->n_links; i++)
        oldest = n->links[i].at_us < n->links[oldest].at_us ? i : oldest;
    pair_forget(c, n, n->links[oldest].to);
}

/* Without memory for it nothing is kept: the next run measures again. */
static void link_keep(struct core *c, struct node *n, const struct link *l)
{
    struct link *known = link_find(n, l->to), *grown;
    size_t at;

    if (known) {
        *known = *l;
        return;
    }
    if (n->n_links == NODE_LINKS_MAX)
        forget_oldest(c, n);
    grown = realloc(n->links, (n->n_links + 1) * sizeof(*grown));
    if (!grown)
        return;
    n->links = grown;
    at = link_at(n, l->to);
    memmove(&grown[at + 1], &grown[at], (n->n_links - at) * sizeof(*grown));
    grown[at] = *l;
    n->n_links++;
}

static void link_keep_both(struct core *c, struct node *a, struct node *b, double bytes_per_s, int64_t at_us)
{
    link_keep(c, a, &(struct link){.to = b, .bytes_per_s = bytes_per_s, .at_us = at_us});
    link_keep(c, b, &(struct link){.to = a, .bytes_per_s = bytes_per_s, .at_us = at_us});
}

void links_drop(struct core *c, struct node *n)
{
    for (size_t i = 0; i < c->n_nodes; i++)
        if (link_find(c->nodes[i], n))
            pair_forget(c, c->nodes[i], n);
}

static void link_store(struct core *c, const struct node *a, const struct node *b, double bytes_per_s, int64_t at_us)
{
    char pair[2 * JOB_NODE_MAX], text[64];

    pair_of(a, b, pair);
    (void)snprintf(text, sizeof(text), "%.9g %lld", bytes_per_s, (long long)at_us);
    store_put(c->store, STORE_LINKS, pair, text);
}

int links_load(struct core *c, struct merr *err)
{
    struct store_rows all;
    int r = store_read_rows(c->store, STORE_LINKS, &all, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < all.n; i++) {
        char name[JOB_NODE_MAX] = "", *pair = all.v[i].name, *slash = strchr(pair, '/');
        struct node *a, *b;
        long long at_us;
        double rate;

        if (slash && slash - pair < JOB_NODE_MAX)
            memcpy(name, pair, (size_t)(slash - pair));
        a = agents_find(c, name);
        b = slash ? agents_find(c, slash + 1) : NULL;
        if (a && b && sscanf(all.v[i].text, "%lf %lld", &rate, &at_us) == 2 && rate > 0)
            link_keep_both(c, a, b, rate, at_us);
        else
            store_drop(c->store, STORE_LINKS, pair);
    }
    store_rows_clear(&all);
    return 0;
}

/* Rates that differ by less than a fifth are told apart by noise: a quarter of an octave makes one. */
static double plain(double bytes_per_s)
{
    return exp2(round(4 * log2(bytes_per_s)) / 4);
}

void links_learn(struct core *c, const struct job *j, const json_t *event)
{
    json_int_t from = json_integer_value(json_object_get(event, "rank"));
    struct node *a = from >= 0 && (size_t)from < j->n_places ? agents_find(c, j->places[from].node) : NULL;
    int64_t now = clock_wall_us();
    const json_t *o;
    size_t i;

    json_array_foreach (json_object_get(event, "to"), i, o) {
        json_int_t rank = json_integer_value(json_object_get(o, "rank"));
        double rate = json_number_value(json_object_get(o, "bytes_per_s"));
        struct node *b = rank >= 0 && (size_t)rank < j->n_places ? agents_find(c, j->places[rank].node) : NULL;
        const struct link *was;

        if (!a || !b || a == b || !(rate > 0 && rate < RATE_MAX))
            continue;
        was = link_find(a, b);
        if (!was || plain(was->bytes_per_s) != plain(rate))
            plans_sites_changed(c);
        link_keep_both(c, a, b, rate, now);
        link_store(c, a, b, rate, now);
    }
}

bool links_due(struct core *c, const struct job *j)
{
    const struct node *node[PLAN_PARTS_MAX];
    int64_t now = clock_wall_us();
    size_t n = 0;

    for (size_t i = 0; i < j->n_places; i++) {
        const struct node *at = agents_find(c, j->places[i].node);
        size_t k = 0;

        while (k < n && node[k] != at)
            k++;
        if (k < n)
            continue;
        if (!at || n == PLAN_PARTS_MAX)
            return false; /* of more than a net has nothing is made of it */
        node[n++] = at;
    }
    for (size_t a = 0; a < n && j->kind == JOB_TRAIN; a++)
        for (size_t b = 0; b < a; b++) {
            const struct link *l = link_find(node[a], node[b]);

            if (!l || now - l->at_us > FRESH_US)
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
                                                   shown[i].bytes_per_s, "measured_at", view_time(shown[i].at_us)));
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

struct plan_net *links_of_places(struct core *c, const struct job_place *p, size_t n, const struct plan_site *site)
{
    struct parts a = {.n = 0};

    for (size_t i = 0; i < n; i += part_at(p, n, i)) {
        const struct node *at = agents_find(c, p[i].node);

        if (!at)
            return NULL;
        add_part(&a, at, core_class(c, p[i].class_), (int)part_at(p, n, i));
    }
    return net_of(&a, site);
}

struct plan_net *links_of_class(const struct core *c, int class_, int devices, const struct plan_site *site)
{
    struct parts a = {.n = 0};

    for (size_t i = 0; i < c->n_nodes && devices > 0; i++) {
        const struct node *n = c->nodes[i];
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

bool links_lay(const struct plan_result *plan, struct job_place *p, size_t n)
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
