/* Nodes that leave the list: removed by a person, or forgotten because they have been lost for long. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/control/core.h"

/* No job may be meant to go there any more. */
static void drop_targets(struct core *c, const struct node *n)
{
    for (size_t i = 0; i < c->n_order; i++) {
        struct entry *e = core_find(c, c->order[i]);
        bool meant = false;

        for (size_t k = 0; e && k < e->n_target; k++)
            meant = meant || e->target[k].node == n;
        if (meant)
            core_target_clear(e);
    }
}

/* n is freed. */
static void leave(struct core *c, struct node *n, const char *actor, const char *code)
{
    size_t at = 0;

    while (c->nodes[at] != n)
        at++;
    drop_targets(c, n);
    links_drop(c, n);
    log_info("node %s is %s", n->name, code);
    store_drop(c->store, STORE_NODES, n->name);
    events_note(c, 0, "", "node", 0, actor, code, n->name, json_pack("{s:s, s:s}", "node", n->name, "state", code));
    memmove(&c->nodes[at], &c->nodes[at + 1], (c->n_nodes - at - 1) * sizeof(struct node *));
    c->n_nodes--;
    json_decref(n->gpus);
    free(n->links);
    free(n->slots);
    free(n);
    slots_changed(c);
    c->schedule_wanted = true;
    waiters_wake_all(c->waiters); /* its agent's long-polls are answered */
}

static struct removed *remember(struct core *c, const char *node, const char *incarnation, int64_t wall_us)
{
    struct removed *r = &c->removed[c->n_removed++ % CORE_REMOVED_MAX];

    (void)snprintf(r->node, sizeof(r->node), "%s", node);
    (void)snprintf(r->incarnation, sizeof(r->incarnation), "%s", incarnation);
    r->wall_us = wall_us;
    return r;
}

/* In the store, as in memory, the newest stay, and each for as long. */
static void keep_removed(struct core *c, const struct removed *r)
{
    char member[sizeof(r->node) + sizeof(r->incarnation)];

    (void)snprintf(member, sizeof(member), "%s %s", r->node, r->incarnation);
    store_put_removed(c->store, member, r->wall_us / 1000000, CORE_REMOVED_S, CORE_REMOVED_MAX);
}

int roster_load(struct core *c, struct merr *err)
{
    struct store_rows all = {0};
    int r = store_read_removed(c->store, &all, err);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        char *node = all.v[i].name, *space = strchr(node, ' ');

        if (!space) {
            r = merr_set(err, -EINVAL, "the store's record of a removed node, '%s', cannot be read", node);
        } else {
            *space = '\0';
            (void)remember(c, node, space + 1, strtoll(all.v[i].text, NULL, 10) * 1000000);
        }
    }
    store_rows_clear(&all);
    return r;
}

void roster_oust(struct core *c, const struct node *n)
{
    log_warn("node %s: another agent takes its name, and is to run nothing of the one before", n->name);
    keep_removed(c, remember(c, n->name, n->incarnation, clock_wall_us()));
}

void roster_remove(struct core *c, struct node *n, const char *actor)
{
    keep_removed(c, remember(c, n->name, n->incarnation, clock_wall_us()));
    leave(c, n, actor, "removed");
}

void roster_tick(struct core *c)
{
    int64_t wall_us = clock_wall_us(), after_us = (int64_t)c->cfg.forget_after_s * 1000000;

    for (size_t i = c->n_nodes; after_us > 0 && i-- > 0;) {
        struct node *n = c->nodes[i];

        if (n->contact == NODE_LOST && !n->drain && wall_us - n->lost_wall_us > after_us)
            leave(c, n, "scheduler", "forgotten");
    }
}

bool roster_removed(const struct core *c, const char *node, const char *incarnation)
{
    size_t n = c->n_removed < CORE_REMOVED_MAX ? c->n_removed : CORE_REMOVED_MAX;
    int64_t since_us = clock_wall_us() - CORE_REMOVED_S * INT64_C(1000000);

    for (size_t i = 0; i < n; i++) {
        const struct removed *r = &c->removed[i];

        if (strcmp(r->node, node) == 0 && strcmp(r->incarnation, incarnation) == 0 && r->wall_us >= since_us)
            return true;
    }
    return false;
}
