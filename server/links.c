/* Links: the NICs of nodes as their agents tell of them, and which node of a run its ranks are laid on. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/plan/search.h"
#include "server/core.h"

#define GBIT 1.25e8 /* bytes a second */

void links_take(struct core *c, struct node *n, const json_t *body)
{
    const json_t *nic = json_object_get(body, "nic");
    enum plan_nic family = plan_nic_parse(json_string_value(json_object_get(nic, "family")));
    double gbit_s = json_number_value(json_object_get(nic, "gbit_s"));

    gbit_s = gbit_s > 0 && gbit_s < 1e6 ? gbit_s : 0;
    if (n->nic == family && n->nic_gbit_s == gbit_s)
        return;
    n->nic = family;
    n->nic_gbit_s = gbit_s;
    plans_sites_changed(c);
}

json_t *links_view(const struct node *n)
{
    if (n->nic == PLAN_NIC_UNKNOWN)
        return NULL;
    return json_pack("{s:s, s:o}", "family", plan_nic_name(n->nic), "gbit_s",
                     n->nic_gbit_s > 0 ? json_real(n->nic_gbit_s) : json_null());
}

struct parts {
    struct plan_part v[PLAN_PARTS_MAX];
    int n;
    bool told, too_many;
};

static void add_part(struct parts *a, const struct node *n, int kind, int devices)
{
    if (a->n == PLAN_PARTS_MAX) {
        a->too_many = true;
        return;
    }
    a->v[a->n++] = (struct plan_part){ .devices = devices, .kind = kind, .nic = n->nic,
                                       .bytes_per_s = n->nic_gbit_s * GBIT };
    a->told |= n->nic != PLAN_NIC_UNKNOWN;
}

/* NULL also where nobody told of NICs, for then all links are taken to be alike. */
static struct plan_net *net_of(const struct parts *a, double between_bytes_per_s)
{
    if (a->n < 2 || !a->told || a->too_many)
        return NULL;
    return plan_net_new(a->v, a->n, between_bytes_per_s);
}

/* Places from i on of the same node and class. */
static size_t part_at(const struct job_place *p, size_t n, size_t i)
{
    size_t k = i + 1;

    while (k < n && strcmp(p[k].node, p[i].node) == 0 && strcmp(p[k].class_, p[i].class_) == 0)
        k++;
    return k - i;
}

struct plan_net *links_of_places(struct core *c, const struct job_place *p, size_t n, double between_bytes_per_s)
{
    struct parts a = { .n = 0 };

    for (size_t i = 0; i < n; i += part_at(p, n, i)) {
        const struct node *at = agents_find(c, p[i].node);

        if (!at)
            return NULL;
        add_part(&a, at, core_class(c, p[i].class_), (int)part_at(p, n, i));
    }
    return net_of(&a, between_bytes_per_s);
}

struct plan_net *links_of_class(const struct core *c, int class_, int devices, double between_bytes_per_s)
{
    struct parts a = { .n = 0 };

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
    return net_of(&a, between_bytes_per_s);
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
