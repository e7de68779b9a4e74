#include "server/cluster/node.h"

#include <stdlib.h>

bool node_gives(const struct node *n)
{
    return n->contact == NODE_READY && n->registered && !n->drain;
}

void node_free(struct node *n)
{
    if (!n)
        return;
    json_decref(n->gpus);
    free(n->slots);
    free(n->links);
    free(n);
}
