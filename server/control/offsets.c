#include "server/control/offsets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/state.h"
#include "server/store/job_store.h"

int64_t offsets_read(struct core *c, const struct entry *e, uint64_t job, const char *node, uint32_t generation)
{
    int64_t at = 0;
    int r;

    if (e && generation + SPOOL_GENERATIONS <= e->job.generation)
        return -1;
    for (size_t i = 0; e && i < e->n_offsets; i++)
        if (e->offsets[i].generation == generation && strcmp(e->offsets[i].node, node) == 0)
            return e->offsets[i].offset;
    r = job_store_read_offset(c->store, job, node, generation, &at);
    return r == 0 || (r == -ENOENT && e) ? at : -1; /* one of this turn is not stored yet */
}

void offsets_put(struct core *c, struct entry *e, uint64_t job, const char *node, uint32_t generation, int64_t offset)
{
    struct event_offset *grown;

    job_store_put_offset(c->store, job, node, generation, offset);
    for (size_t i = 0; e && i < e->n_offsets; i++)
        if (e->offsets[i].generation == generation && strcmp(e->offsets[i].node, node) == 0) {
            e->offsets[i].offset = offset;
            return;
        }
    grown = e ? realloc(e->offsets, (e->n_offsets + 1) * sizeof(*grown)) : NULL;
    if (!grown)
        return;
    e->offsets = grown;
    e->offsets[e->n_offsets] = (struct event_offset){.generation = generation, .offset = offset};
    (void)snprintf(e->offsets[e->n_offsets++].node, sizeof(grown->node), "%s", node);
}

void offsets_drop(struct core *c, struct entry *e, uint32_t generation)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->cluster.n_nodes; i++) /* on any of them it may have run */
        job_store_drop_offset(c->store, e->job.id, c->cluster.nodes[i]->name, generation);
    for (size_t i = 0; i < e->n_offsets; i++)
        if (e->offsets[i].generation > generation)
            e->offsets[kept++] = e->offsets[i];
    e->n_offsets = kept;
}
