/* Nodes that close soon, for a job whose time limit runs into that. The times at which nodes close are in order; a job
 * reaches the first few of them, and is put on nodes alone that close later or never. Those that reach a time have to
 * share what is open after it: for each time their devices are counted against that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/calendar.h"
#include "scheduler/cluster/closing_priv.h"

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Of more times than are told apart the last stands for all that follow. */
static int find_times(struct round *r, size_t n)
{
    int64_t *at = calloc(n, sizeof(*at));
    size_t k = 0;

    r->closing = calloc(n, sizeof(*r->closing));
    if (!at || !r->closing) {
        free(at);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < r->in->n_nodes; i++)
        if (r->in->nodes[i].closes_us > 0) {
            at[k++] = r->in->nodes[i].closes_us;
            r->closing[r->n_closing++] = i;
        }
    qsort(at, k, sizeof(*at), by_time);
    for (size_t i = 0; i < k && r->n_horizons < HORIZONS_MAX; i++)
        if (r->n_horizons == 0 || at[i] > r->horizons[r->n_horizons - 1].at_us)
            r->horizons[r->n_horizons++].at_us = at[i];
    free(at);
    return 0;
}

/* Whether devices of the node are open to jobs that reach the time. */
static bool is_open(const struct round *r, const struct sched_node *node, size_t time)
{
    return node->closes_us == 0 || (time + 1 < r->n_horizons && node->closes_us >= r->horizons[time + 1].at_us);
}

int closing_init(struct round *r)
{
    const struct sched_input *in = r->in;
    size_t n = 0;

    for (size_t i = 0; i < in->n_nodes; i++)
        n += in->nodes[i].closes_us > 0;
    if (n == 0)
        return 0;
    if (find_times(r, n) < 0)
        return -ENOMEM;
    for (size_t k = 0; k < r->n_horizons; k++)
        for (size_t i = 0; i < in->n_nodes; i++)
            r->horizons[k].total[in->nodes[i].type] += is_open(r, &in->nodes[i], k) ? in->nodes[i].devices : 0;
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];

        while (j->reach < r->n_horizons &&
               calendar_bars(in->config.now_us, j->job->limit_us, r->horizons[j->reach].at_us))
            j->reach++;
        for (size_t p = 0; p < j->job->n_places; p++) {
            const struct sched_node *node = &in->nodes[j->job->places[p].node];

            for (size_t k = 0; k < r->n_horizons; k++)
                r->horizons[k].held[node->type] += is_open(r, node, k) ? j->job->places[p].devices : 0;
        }
    }
    closing_reset(r);
    return 0;
}

int32_t closing_total(const struct round *r, const struct rjob *j, int type)
{
    return j->reach == 0 ? r->total[type] : r->horizons[j->reach - 1].total[type];
}

/* Jobs that have devices keep those: they were counted where they are. */
static bool counts(const struct rjob *j)
{
    return j->reach > 0 && j->job->n_places == 0;
}

bool closing_fits(const struct round *r, const struct rjob *j, int type, int32_t more)
{
    for (size_t k = 0; counts(j) && k < j->reach; k++)
        if (more > r->horizons[k].total[type] - r->horizons[k].used[type])
            return false;
    return true;
}

void closing_count(struct round *r, const struct rjob *j, const struct sched_shape *s, int sign)
{
    for (size_t k = 0; counts(j) && k < j->reach; k++)
        for (int t = 0; t < 2; t++)
            if (s->type[t] >= 0)
                r->horizons[k].used[s->type[t]] += sign * s->n[t];
}

void closing_reset(struct round *r)
{
    for (size_t k = 0; k < r->n_horizons; k++)
        memcpy(r->horizons[k].used, r->horizons[k].held, sizeof(r->horizons[k].used));
}

bool closing_bars(const struct round *r, const struct sched_job *job, uint32_t node)
{
    return calendar_bars(r->in->config.now_us, job->limit_us, r->in->nodes[node].closes_us);
}

bool closing_blames(const struct round *r, const struct rjob *j)
{
    int64_t open = 0, free_now = 0;

    if (j->reach == 0)
        return false;
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if (sched_job_types(j->job) >> t & 1) {
            free_now += r->total[t] - r->used[t];
            open += r->horizons[j->reach - 1].total[t] - r->horizons[j->reach - 1].used[t];
        }
    return open < j->job->min && free_now >= j->job->min;
}
