#include "server/cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

int cluster_init(struct cluster *cl)
{
    *cl = (struct cluster){.nodes = calloc(CLUSTER_NODES_MAX, sizeof(struct node *))};
    return cl->nodes ? 0 : -ENOMEM;
}

void cluster_clear(struct cluster *cl)
{
    for (size_t i = 0; i < cl->n_nodes; i++)
        node_free(cl->nodes[i]);
    free(cl->nodes);
    project_clear(&cl->projects);
    *cl = (struct cluster){.n_nodes = 0};
}

static size_t node_at(const struct cluster *cl, const char *name, bool *ret_there)
{
    size_t lo = 0, hi = cl->n_nodes;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (strcmp(cl->nodes[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_there = lo < cl->n_nodes && strcmp(cl->nodes[lo]->name, name) == 0;
    return lo;
}

struct node *cluster_node(const struct cluster *cl, const char *name)
{
    bool there;
    size_t at = node_at(cl, name, &there);

    return there ? cl->nodes[at] : NULL;
}

size_t cluster_after(const struct cluster *cl, const char *name)
{
    bool there;
    size_t at = node_at(cl, name, &there);

    return at + there;
}

struct node *cluster_add(struct cluster *cl, const char *name, uint64_t version)
{
    bool there;
    size_t at = node_at(cl, name, &there);
    struct node *n;

    if (there)
        return cl->nodes[at];
    n = cl->n_nodes < CLUSTER_NODES_MAX ? calloc(1, sizeof(*n)) : NULL;
    if (!n)
        return NULL;
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    n->version = version;
    memmove(&cl->nodes[at + 1], &cl->nodes[at], (cl->n_nodes - at) * sizeof(struct node *));
    cl->nodes[at] = n;
    cl->n_nodes++;
    return n;
}

static void take_least(int *least, int value)
{
    if (value > 0 && (*least == 0 || value < *least))
        *least = value;
}

static void count_slots(struct classes *all, const struct node *n)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        const struct slot *s = &n->slots[k];

        if (!s->trains)
            all->command |= UINT64_C(1) << s->class_;
        take_least(&all->memory_mib[s->class_], strcmp(s->kind, "gpu") == 0 ? 0 : s->memory_mib);
        take_least(&all->threads[s->class_], s->threads);
    }
}

void cluster_slots_changed(struct cluster *cl)
{
    struct classes *all = &cl->classes;

    all->command = 0;
    memset(all->memory_mib, 0, sizeof(all->memory_mib));
    memset(all->threads, 0, sizeof(all->threads));
    for (size_t i = 0; i < cl->n_nodes; i++)
        count_slots(all, cl->nodes[i]);
    cl->sites++;
}

void cluster_slots_came(struct cluster *cl, const struct node *n)
{
    count_slots(&cl->classes, n);
    cl->sites++;
}

void cluster_drop(struct cluster *cl, struct node *n)
{
    size_t at = 0;

    while (cl->nodes[at] != n)
        at++;
    memmove(&cl->nodes[at], &cl->nodes[at + 1], (cl->n_nodes - at - 1) * sizeof(struct node *));
    cl->n_nodes--;
    node_free(n);
    cluster_slots_changed(cl);
}

struct slot *cluster_slot(const struct cluster *cl, const struct job_place *p)
{
    return node_slot(cluster_node(cl, p->node), p->slot);
}

double cluster_slowness(const struct cluster *cl, const struct job_place *p)
{
    const struct slot *s = cluster_slot(cl, p);

    return s && s->slow.slow && s->slow.ratio > 1 ? s->slow.ratio : 1;
}

const struct node *cluster_silent(const struct cluster *cl, const struct job *j, int64_t since_us)
{
    for (size_t i = 0; j->live && i < j->n_places; i++) {
        const struct node *n = cluster_node(cl, j->places[i].node);

        if (n && n->seen_us <= since_us)
            return n;
    }
    return NULL;
}

void cluster_hold(struct cluster *cl, const struct job *j)
{
    for (size_t i = 0; i < j->n_places; i++) {
        struct slot *s = cluster_slot(cl, &j->places[i]);

        if (!s)
            continue;
        s->job = j->id;
        s->rank = (int)i;
        s->spare = false;
    }
}

void cluster_release(struct cluster *cl, const struct job *j, const char *node)
{
    for (size_t i = 0; i < j->n_places; i++) {
        struct slot *s = !node || strcmp(node, j->places[i].node) == 0 ? cluster_slot(cl, &j->places[i]) : NULL;

        if (s && s->job == j->id)
            s->job = 0;
    }
}

json_t *cluster_time(int64_t wall_us)
{
    char text[CLOCK_RFC3339_MAX];

    if (wall_us == 0)
        return json_null();
    clock_rfc3339(wall_us, text);
    return json_string(text);
}
