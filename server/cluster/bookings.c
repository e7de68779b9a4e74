#include "server/cluster/bookings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bookings_clear(struct bookings *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->v[i].parts);
    free(all->v);
    *all = (struct bookings){.v = NULL};
}

int bookings_take(struct bookings *all, struct booking *b, uint64_t *ret_id)
{
    struct booking *v;

    if (all->n >= BOOKINGS_MAX)
        return -ENOSPC;
    v = realloc(all->v, (all->n + 1) * sizeof(*v));
    if (!v)
        return -ENOMEM;
    all->v = v;
    if (b->id == 0)
        b->id = all->next + 1;
    all->next = b->id > all->next ? b->id : all->next;
    b->span.holder = b->reserved ? b->id : 0;
    *ret_id = b->id;
    v[all->n++] = *b;
    return 0;
}

void bookings_drop(struct bookings *all, struct booking *b)
{
    free(b->parts);
    memmove(b, b + 1, (size_t)(all->v + all->n - (b + 1)) * sizeof(*b));
    all->n--;
}

struct booking *bookings_find(const struct bookings *all, uint64_t id)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].id == id)
            return &all->v[i];
    return NULL;
}

void bookings_name(const struct booking *b, char ret[24])
{
    (void)snprintf(ret, 24, "%c%llu", b->reserved ? 'r' : 'm', (unsigned long long)b->id);
}

uint64_t bookings_parse(const char *name, bool reserved)
{
    uint64_t id = 0;

    if (*name != (reserved ? 'r' : 'm') || name[1] < '1' || name[1] > '9' || strlen(name) > 18)
        return 0;
    for (const char *p = name + 1; *p; p++) {
        if (*p < '0' || *p > '9')
            return 0;
        id = id * 10 + (uint64_t)(*p - '0');
    }
    return id;
}

/* --- records ----------------------------------------------------------------------------------------- */

json_t *bookings_record(const struct booking *b)
{
    json_t *parts = json_array();

    for (size_t i = 0; i < b->n_parts; i++)
        (void)json_array_append_new(parts, json_pack("[s, i]", b->parts[i].node, b->parts[i].slot));
    return json_pack("{s:I, s:b, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:o}", "id", (json_int_t)b->id, "reserved",
                     b->reserved, "from_us", (json_int_t)b->span.from_us, "to_us", (json_int_t)b->span.to_us,
                     "every_us", (json_int_t)b->every_us, "reason", b->reason, "by", b->by, "project", b->project,
                     "user", b->user, "class", b->class_, "parts", parts);
}

static int read_parts(const json_t *list, struct booking *b)
{
    size_t n = json_array_size(list);

    if (n == 0 || n > BOOKINGS_PARTS_MAX)
        return -EINVAL;
    b->parts = calloc(n, sizeof(*b->parts));
    if (!b->parts)
        return -ENOMEM;
    for (; b->n_parts < n; b->n_parts++) {
        const json_t *one = json_array_get(list, b->n_parts);
        const char *node = json_string_value(json_array_get(one, 0));

        if (!node || strlen(node) >= JOB_NODE_MAX || !json_is_integer(json_array_get(one, 1)))
            return -EINVAL;
        (void)snprintf(b->parts[b->n_parts].node, JOB_NODE_MAX, "%s", node);
        b->parts[b->n_parts].slot = (int)json_integer_value(json_array_get(one, 1));
    }
    return 0;
}

static void read_text(const json_t *o, const char *name, char *ret, size_t size)
{
    const char *text = json_string_value(json_object_get(o, name));

    (void)snprintf(ret, size, "%s", text ? text : "");
}

int bookings_read(const json_t *o, struct booking *ret)
{
    struct booking b = {.id = (uint64_t)json_integer_value(json_object_get(o, "id")),
                        .reserved = json_is_true(json_object_get(o, "reserved")),
                        .span = {.from_us = json_integer_value(json_object_get(o, "from_us")),
                                 .to_us = json_integer_value(json_object_get(o, "to_us"))},
                        .every_us = json_integer_value(json_object_get(o, "every_us"))};
    int r = read_parts(json_object_get(o, "parts"), &b);

    read_text(o, "reason", b.reason, sizeof(b.reason));
    read_text(o, "by", b.by, sizeof(b.by));
    read_text(o, "project", b.project, sizeof(b.project));
    read_text(o, "user", b.user, sizeof(b.user));
    read_text(o, "class", b.class_, sizeof(b.class_));
    if (r == 0 && (b.id == 0 || b.id > INT64_MAX || b.span.from_us < 0 || b.span.to_us <= b.span.from_us ||
                   b.every_us < 0 || (b.every_us > 0 && b.every_us < b.span.to_us - b.span.from_us)))
        r = -EINVAL;
    if (r < 0)
        free(b.parts);
    else
        *ret = b;
    return r;
}

/* --- the calendar ------------------------------------------------------------------------------------- */

static void add(const struct booking *b, struct calendar_state *s, int64_t now_us)
{
    struct calendar_span span = calendar_next(b->span, b->every_us, now_us);

    calendar_add(s, &span, now_us);
    if (b->every_us > 0 && span.from_us <= now_us) { /* under way, and to come again */
        span.from_us += b->every_us;
        span.to_us += b->every_us;
        calendar_add(s, &span, now_us);
    }
}

static size_t slots_of(const struct cluster *cl)
{
    size_t n = 0;

    for (size_t i = 0; i < cl->n_nodes; i++)
        n += cl->nodes[i]->n_slots;
    return n;
}

static void mark_part(const struct booking *b, const struct booking_part *p, struct cluster *cl, int64_t now_us)
{
    struct node *n = cluster_node(cl, p->node);

    for (size_t k = 0; n && k < n->n_slots; k++)
        if (p->slot == BOOKINGS_ALL || n->slots[k].slot == p->slot)
            add(b, &n->slots[k].calendar, now_us);
}

bool bookings_mark(const struct bookings *all, struct cluster *cl, int64_t now_us)
{
    struct calendar_state *was = calloc(slots_of(cl) + 1, sizeof(*was));
    size_t at = 0;
    bool changed = !was;

    for (size_t i = 0; i < cl->n_nodes; i++)
        for (size_t k = 0; k < cl->nodes[i]->n_slots; k++) {
            if (was)
                was[at++] = cl->nodes[i]->slots[k].calendar;
            cl->nodes[i]->slots[k].calendar = (struct calendar_state){.shut = false};
        }
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < all->v[i].n_parts; k++)
            mark_part(&all->v[i], &all->v[i].parts[k], cl, now_us);
    at = 0;
    for (size_t i = 0; i < cl->n_nodes; i++)
        for (size_t k = 0; was && k < cl->nodes[i]->n_slots; k++, at++) {
            const struct calendar_state *is = &cl->nodes[i]->slots[k].calendar;

            changed = changed || is->shut != was[at].shut || is->holder != was[at].holder ||
                      is->closes_us != was[at].closes_us || is->opens_us != was[at].opens_us;
        }
    free(was);
    return changed;
}

/* Whether another one has the device at some time of the span. */
static bool is_taken(const struct bookings *all, const char *node, int slot, const struct calendar_span *span)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct booking *b = &all->v[i];
        struct calendar_span one = calendar_next(b->span, b->every_us, span->from_us);
        bool clash = calendar_overlap(&one, span);

        for (size_t k = 0; k < b->n_parts && clash; k++)
            if (strcmp(b->parts[k].node, node) == 0 && (b->parts[k].slot == BOOKINGS_ALL || b->parts[k].slot == slot))
                return true;
    }
    return false;
}

struct choice { /* devices of a node */
    const struct node *node;
    int n;
};

static int by_size(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return strcmp(x->node->name, y->node->name);
}

static bool may_take(const struct bookings *all, const struct node *n, const struct slot *s, uint64_t classes,
                     const struct booking *b)
{
    return n->contact != NODE_LOST && (classes >> s->class_ & 1) && !n->drain &&
           !is_taken(all, n->name, s->slot, &b->span);
}

static void take(const struct bookings *all, const struct choice *from, uint64_t classes, bool idle, size_t most,
                 struct booking *b)
{
    for (size_t k = 0; k < from->node->n_slots && b->n_parts < most; k++) {
        const struct slot *s = &from->node->slots[k];
        struct booking_part *p = &b->parts[b->n_parts];

        if (idle != (s->job == 0) || !may_take(all, from->node, s, classes, b))
            continue;
        (void)snprintf(p->node, sizeof(p->node), "%s", from->node->name);
        p->slot = s->slot;
        b->n_parts++;
    }
}

/* Nodes with most of them first, so that the devices lie side by side; of each those that are idle first. */
bool bookings_choose(const struct bookings *all, const struct cluster *cl, uint64_t classes, int n, struct booking *b,
                     int *ret_free)
{
    struct choice *nodes = calloc(cl->n_nodes + 1, sizeof(*nodes));
    int found = 0;

    b->parts = calloc((size_t)n, sizeof(*b->parts));
    b->n_parts = 0;
    *ret_free = 0;
    if (!nodes || !b->parts) {
        free(nodes);
        return false;
    }
    for (size_t i = 0; i < cl->n_nodes; i++) {
        nodes[i].node = cl->nodes[i];
        for (size_t k = 0; k < cl->nodes[i]->n_slots; k++)
            nodes[i].n += may_take(all, cl->nodes[i], &cl->nodes[i]->slots[k], classes, b);
        found += nodes[i].n;
    }
    qsort(nodes, cl->n_nodes, sizeof(*nodes), by_size);
    for (size_t i = 0; found >= n && i < cl->n_nodes && b->n_parts < (size_t)n; i++)
        for (int idle = 1; idle >= 0; idle--)
            take(all, &nodes[i], classes, idle, (size_t)n, b);
    free(nodes);
    *ret_free = found;
    return found >= n;
}

int64_t bookings_edge_us(const struct bookings *all, int64_t since_us)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < all->n; i++) {
        struct calendar_span s = calendar_next(all->v[i].span, all->v[i].every_us, since_us);
        const int64_t edges[] = {s.from_us - CALENDAR_LEAD_US, s.from_us, s.to_us,
                                 s.from_us + all->v[i].every_us - CALENDAR_LEAD_US};

        for (size_t k = 0; k < sizeof(edges) / sizeof(edges[0]); k++)
            next = edges[k] > since_us && edges[k] < next ? edges[k] : next;
    }
    return next;
}
