#include "server/control/table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_FIRST 1024

int table_init(struct table *t)
{
    *t = (struct table){.n_buckets = BUCKETS_FIRST, .buckets = calloc(BUCKETS_FIRST, sizeof(struct entry *))};
    t->next = 1;
    return t->buckets ? 0 : -ENOMEM;
}

void table_clear(struct table *t)
{
    for (size_t i = 0; t->buckets && i < t->n_buckets; i++)
        for (struct entry *e = t->buckets[i], *next; e; e = next) {
            next = e->hash_next;
            entry_free(e);
        }
    free(t->buckets);
    free(t->order);
    catalog_clear(&t->catalog);
    *t = (struct table){.n = 0};
}

struct entry *table_find(const struct table *t, uint64_t job)
{
    struct entry *e = t->buckets[job & (t->n_buckets - 1)];

    while (e && e->job.id != job)
        e = e->hash_next;
    return e;
}

struct entry *table_at(const struct table *t, size_t i)
{
    return table_find(t, t->order[i]);
}

static void grow(struct table *t)
{
    size_t n = t->n_buckets * 2;
    struct entry **buckets = calloc(n, sizeof(struct entry *));

    if (!buckets)
        return; /* chains get longer, nothing else */
    for (size_t i = 0; i < t->n_buckets; i++)
        for (struct entry *e = t->buckets[i], *next; e; e = next) {
            next = e->hash_next;
            e->hash_next = buckets[e->job.id & (n - 1)];
            buckets[e->job.id & (n - 1)] = e;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->n_buckets = n;
}

/* Forget numbers whose jobs have left, once they are as many as those that stay. */
static int order_add(struct table *t, uint64_t id)
{
    if (t->n_order == t->order_cap) {
        size_t n = 0, cap = t->order_cap ? t->order_cap * 2 : 1024;
        uint64_t *order;

        for (size_t i = 0; i < t->n_order; i++)
            if (table_at(t, i))
                t->order[n++] = t->order[i];
        t->n_order = n;
        if (n >= t->order_cap / 2) {
            order = realloc(t->order, cap * sizeof(*order));
            if (!order)
                return -ENOMEM;
            t->order = order;
            t->order_cap = cap;
        }
    }
    size_t at = t->n_order++;

    for (; at > 0 && t->order[at - 1] > id; at--)
        t->order[at] = t->order[at - 1];
    assert(at == 0 || t->order[at - 1] < id || !table_find(t, id));
    t->order[at] = id;
    return 0;
}

uint64_t table_bytes(const struct entry *e)
{
    return strlen(e->spec_text) + (uint64_t)e->job.tasks * ARRAY_TASK_BYTES;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void link_entry(struct table *t, struct entry *e)
{
    size_t at;

    if (t->n >= t->n_buckets)
        grow(t);
    at = e->job.id & (t->n_buckets - 1);
    e->hash_next = t->buckets[at];
    t->buckets[at] = e;
    t->n++;
    t->by_state[e->job.state]++;
}

int table_insert(struct table *t, struct entry *e)
{
    int r;

    assert(e->job.id != 0);
    r = order_add(t, e->job.id);
    if (r == 0)
        r = (e->job.array ? catalog_add_task : catalog_add)(&t->catalog, e->job.id, e->job.user, e->job.project,
                                                            e->job.state, table_bytes(e));
    if (r == 0)
        catalog_ship(&t->catalog, catalog_find(&t->catalog, e->job.id), (uint64_t)e->job.shipped);
    if (r < 0)
        return r;
    link_entry(t, e);
    return 0;
}

int table_insert_ended(struct table *t, struct entry *e)
{
    bool listed = t->n_order > 0 && bsearch(&e->job.id, t->order, t->n_order, sizeof(*t->order), by_number);
    int r = catalog_find(&t->catalog, e->job.id) ? (listed ? 0 : order_add(t, e->job.id)) : -ENOENT;

    if (r < 0)
        return r;
    link_entry(t, e);
    return 0;
}

void table_remove(struct table *t, struct entry *e)
{
    struct entry **at = &t->buckets[e->job.id & (t->n_buckets - 1)];

    while (*at != e)
        at = &(*at)->hash_next;
    *at = e->hash_next;
    t->n--;
    t->by_state[e->job.state]--;
}

void table_dirty(struct table *t, struct entry *e)
{
    if (e->dirty)
        return;
    e->dirty = true;
    e->dirty_next = t->dirty;
    t->dirty = e;
}

int table_moved(struct table *t, const struct entry *e, enum job_state from)
{
    enum job_state to = e->job.state;

    t->by_state[from]--;
    t->by_state[to]++;
    if (job_ended(to))
        t->ended[to - JOB_SUCCEEDED]++;
    if (job_ended(from))
        t->ended[from - JOB_SUCCEEDED]--;
    return catalog_move(&t->catalog, catalog_find(&t->catalog, e->job.id), to);
}
