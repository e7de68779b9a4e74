/* coded_way - what all ways of coded calls use */
#include <errno.h>

#include "worker/engine/comm/coded_priv.h"

int coded_member_at(const struct coding *x, int node, int place)
{
    return x->nodes > 1 ? x->g->grid[node * x->local + place] : place;
}

int coded_refuse(struct comm_group *g, const struct codec *c, int member, const char *why)
{
    return failure_keep(&g->wait->failure, -EIO, "a block of rank %d in call %llu of '%s' is not good, codec %s: %s",
                        g->rank[member], (unsigned long long)g->seq, g->channel.name, codec_name(c), why);
}
