#include "server/cluster/node.h"

#include <stdlib.h>

bool node_gives(const struct node *n)
{
    return n->contact == NODE_READY && n->registered && !n->drain && n->health.check == HEALTH_CHECK_WELL;
}

struct slot *node_slot(const struct node *n, int slot)
{
    for (size_t i = 0; n && i < n->n_slots; i++)
        if (n->slots[i].slot == slot)
            return &n->slots[i];
    return NULL;
}

void node_free(struct node *n)
{
    if (!n)
        return;
    json_decref(n->gpus);
    json_decref(n->test.result);
    free(n->slots);
    free(n->links);
    free(n->listed);
    free(n);
}
