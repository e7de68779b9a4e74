/* Links between the nodes of a run, measured where the server asks for it (docs/protocol.md). */
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "scheduler/plan/net.h"
#include "worker/engine/comm/pairs.h"
#include "worker/engine/train/train_impl.h"

/* The lowest rank of each node. Returns how many there are. */
static int leaders(const struct run *run, int *ret)
{
    int n = 0;

    for (int i = 0; i < run->world; i++)
        if (run->node_of[i] == i)
            ret[n++] = i;
    return n;
}

/* Tell of those that come later than this rank: each pair is told once. */
static int tell(struct train *t, const int *rank, int n, int me, const double *bytes_per_s, struct merr *err)
{
    json_t *to = json_array();

    for (int i = me + 1; i < n; i++)
        (void)json_array_append_new(
            to, json_pack("{s:i, s:I}", "rank", rank[i], "bytes_per_s", (json_int_t)bytes_per_s[i]));
    return report_event_take(t->report, json_pack("{s:s, s:o}", "type", "links", "to", to), err);
}

static int measure(struct train *t, const int *rank, int n, double *bytes_per_s, struct merr *err)
{
    struct comm_group *g;
    int me;

    TRY(comm_group_new(t->world, "nodes", rank, n, &g, err));
    me = comm_group_index(g);
    TRY(pairs_measure(g, bytes_per_s, err));
    return me + 1 < n ? tell(t, rank, n, me, bytes_per_s, err) : 0;
}

int train_measure_links(struct train *t, struct merr *err)
{
    double asked = t->run.measure_links, *bytes_per_s = calloc(t->run.world, sizeof(*bytes_per_s));
    int *rank = calloc(t->run.world, sizeof(*rank)), n, r;

    if (!rank || !bytes_per_s) {
        free(rank);
        free(bytes_per_s);
        return merr_set(err, -ENOMEM, "no memory for %d ranks", t->run.world);
    }
    n = leaders(&t->run, rank);
    r = n > 1 ? comm_all_reduce(t->all, &asked, 1, COMM_F64, COMM_MAX, err) : 0; /* nodes were told at other times */
    if (r == 0 && asked > 0 && n > 1 && n <= PLAN_PARTS_MAX && t->run.node_of[t->mesh->rank] == t->mesh->rank)
        r = measure(t, rank, n, bytes_per_s, err);
    free(rank);
    free(bytes_per_s);
    return r;
}
