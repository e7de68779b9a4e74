#include "server/cluster/roster.h"

#include <stdio.h>
#include <string.h>

const struct removed *roster_add(struct roster *r, const char *node, const char *incarnation, int64_t wall_us)
{
    struct removed *at = &r->v[r->n++ % ROSTER_MAX];

    (void)snprintf(at->node, sizeof(at->node), "%s", node);
    (void)snprintf(at->incarnation, sizeof(at->incarnation), "%s", incarnation);
    at->wall_us = wall_us;
    return at;
}

bool roster_has(const struct roster *r, const char *node, const char *incarnation, int64_t wall_us)
{
    size_t n = r->n < ROSTER_MAX ? r->n : ROSTER_MAX;
    int64_t since_us = wall_us - ROSTER_S * INT64_C(1000000);

    for (size_t i = 0; i < n; i++)
        if (strcmp(r->v[i].node, node) == 0 && strcmp(r->v[i].incarnation, incarnation) == 0 &&
            r->v[i].wall_us >= since_us)
            return true;
    return false;
}
