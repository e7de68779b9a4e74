#include "server/cluster/slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "server/cluster/cluster.h"
#include "server/cluster/stragglers.h"

/* Whether a node or a class may have this name, in so many bytes: letters, digits, . _ - */
static bool name_ok(const char *name, size_t size)
{
    size_t n = name ? strlen(name) : 0;

    return n > 0 && n < size && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool whole_ok(const json_t *v)
{
    return !v || (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX);
}

/* One slot, but for its class's number; its own number is none of the n before it. */
static int read_one(const json_t *o, const struct slot *before, size_t n, struct slot *ret)
{
    const json_t *slot = json_object_get(o, "slot"), *threads = json_object_get(o, "threads");
    const json_t *memory_mib = json_object_get(o, "memory_mib");
    const json_t *trains = json_object_get(o, "trains");
    const char *kind = json_string_value(json_object_get(o, "kind"));

    if (!slot || !whole_ok(slot) || !whole_ok(threads) || !whole_ok(memory_mib) ||
        (trains && !json_is_boolean(trains)) || !name_ok(json_string_value(json_object_get(o, "class")), SPEC_NAME_MAX))
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        if (before[i].slot == json_integer_value(slot))
            return -EINVAL;
    ret->slot = (int)json_integer_value(slot);
    ret->threads = (int)json_integer_value(threads);
    ret->memory_mib = (int)json_integer_value(memory_mib);
    utf8_copy(ret->kind, sizeof(ret->kind), kind ? kind : "");
    ret->trains = trains ? json_is_true(trains) : strcmp(ret->kind, "gpu") != 0;
    return 0;
}

int slots_read(struct classes *k, const json_t *list, struct slots *ret)
{
    size_t n = json_array_size(list);
    struct slot *v;
    int r = 0;

    if (!json_is_array(list) || n > SLOTS_MAX)
        return -EINVAL;
    v = calloc(n + 1, sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = read_one(json_array_get(list, i), v, i, &v[i]);
    for (size_t i = 0; r == 0 && i < n; i++) {
        v[i].class_ = classes_add(k, json_string_value(json_object_get(json_array_get(list, i), "class")));
        r = v[i].class_ == CLASSES_MAX ? -EINVAL : 0;
    }
    if (r < 0) {
        free(v);
        return r;
    }
    *ret = (struct slots){.v = v, .n = n};
    return 0;
}

bool slots_usable(const struct slot *s)
{
    return !s->stale && !s->ill;
}

static bool is_same(const struct slot *a, const struct slot *b)
{
    return a->slot == b->slot && strcmp(a->kind, b->kind) == 0 && a->class_ == b->class_ && a->threads == b->threads &&
           a->memory_mib == b->memory_mib && a->trains == b->trains;
}

/* Whether s has all slots of the node as they are. */
static bool keeps(const struct node *n, const struct slots *s)
{
    for (size_t i = 0; i < n->n_slots; i++) {
        size_t k = 0;

        while (k < s->n && !is_same(&s->v[k], &n->slots[i]))
            k++;
        if (k == s->n)
            return false;
    }
    return true;
}

void slots_take(struct cluster *cl, struct node *n, struct slots *s)
{
    bool kept = keeps(n, s);

    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < n->n_slots; k++)
            if (n->slots[k].slot == s->v[i].slot) {
                s->v[i].job = n->slots[k].job;
                s->v[i].rank = n->slots[k].rank;
                s->v[i].spare = n->slots[k].spare && s->v[i].class_ == n->slots[k].class_;
                s->v[i].ill = n->slots[k].ill;
                s->v[i].found_us = n->slots[k].found_us;
                s->v[i].error_job = n->slots[k].error_job;
                s->v[i].error_us = n->slots[k].error_us;
                if (s->v[i].class_ == n->slots[k].class_) {
                    s->v[i].slow = n->slots[k].slow;
                    s->v[i].slow_alone = n->slots[k].slow_alone;
                }
            }
    free(n->slots);
    n->slots = s->v;
    n->n_slots = s->n;
    *s = (struct slots){.n = 0};
    if (kept)
        cluster_slots_came(cl, n);
    else
        cluster_slots_changed(cl);
}

json_t *slots_record(const struct classes *k, const struct node *n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n->n_slots; i++)
        (void)json_array_append_new(all,
                                    json_pack("{s:i, s:s, s:s, s:i, s:i, s:b, s:o*}", "slot", n->slots[i].slot, "kind",
                                              n->slots[i].kind, "class", k->name[n->slots[i].class_], "threads",
                                              n->slots[i].threads, "memory_mib", n->slots[i].memory_mib, "trains",
                                              n->slots[i].trains, "slow", stragglers_record(&n->slots[i])));
    return all;
}
