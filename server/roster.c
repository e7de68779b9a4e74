/* Nodes that leave the list: removed by a person, or forgotten because they have been lost for long. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/core.h"

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
    store_add(c->store, "HDEL", "muster:nodes", n->name, NULL);
    events_note(c, 0, "", "node", 0, actor, code, n->name, json_pack("{s:s, s:s}", "node", n->name, "state", code));
    memmove(&c->nodes[at], &c->nodes[at + 1], (c->n_nodes - at - 1) * sizeof(struct node *));
    c->n_nodes--;
    json_decref(n->gpus);
    free(n->links);
    free(n->slots);
    free(n);
    plans_sites_changed(c);
    c->schedule_wanted = true;
    c->poke = true; /* its agent's long-poll is answered */
}

void roster_remove(struct core *c, struct node *n, const char *actor)
{
    struct removed *r = &c->removed[c->n_removed++ % CORE_REMOVED_MAX];

    memcpy(r->node, n->name, sizeof(r->node));
    memcpy(r->incarnation, n->incarnation, sizeof(r->incarnation));
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

    for (size_t i = 0; i < n; i++)
        if (strcmp(c->removed[i].node, node) == 0 && strcmp(c->removed[i].incarnation, incarnation) == 0)
            return true;
    return false;
}
