#include "worker/engine/train/links.h"

#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "scheduler/plan/net.h"
#include "worker/engine/comm/pairs.h"

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
static int tell(const struct rank *rank, const int *leader, int n, int me, const double *bytes_per_s, struct merr *err)
{
    json_t *to = json_array();

    for (int i = me + 1; i < n; i++)
        (void)json_array_append_new(
            to, json_pack("{s:i, s:I}", "rank", leader[i], "bytes_per_s", (json_int_t)bytes_per_s[i]));
    return report_event_take(rank->report, json_pack("{s:s, s:o}", "type", "links", "to", to), err);
}

static int measure(const struct rank *rank, const int *leader, int n, double *bytes_per_s, struct merr *err)
{
    struct comm_group *g;
    int me;

    TRY(comm_group_new(rank->world, "nodes", leader, n, &g, err));
    me = comm_group_index(g);
    TRY(pairs_measure(g, bytes_per_s, err));
    return me + 1 < n ? tell(rank, leader, n, me, bytes_per_s, err) : 0;
}

int links_measure(const struct rank *rank, struct merr *err)
{
    double asked = rank->run.measure_links, *bytes_per_s = calloc(rank->run.world, sizeof(*bytes_per_s));
    int *leader = calloc(rank->run.world, sizeof(*leader)), n, r;

    if (!leader || !bytes_per_s) {
        free(leader);
        free(bytes_per_s);
        return merr_set(err, -ENOMEM, "no memory for %d ranks", rank->run.world);
    }
    n = leaders(&rank->run, leader);
    r = n > 1 ? comm_all_reduce(rank->all, &asked, 1, COMM_F64, COMM_MAX, err) : 0; /* nodes were told at other times */
    if (r == 0 && asked > 0 && n > 1 && n <= PLAN_PARTS_MAX && rank_leads_node(rank))
        r = measure(rank, leader, n, bytes_per_s, err);
    free(leader);
    free(bytes_per_s);
    return r;
}
