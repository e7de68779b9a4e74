#include "tests/sim/agent_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/agent/agent_priv.h"

#define SLACK_US SECOND /* for an agent's turn and a process to end after a hard signal */

struct seen { /* of a run, the last time */
    char job[RANKS_JOB_MAX];
    uint64_t generation;
    enum assignment_order order;
    int64_t failed_us; /* INT64_MAX: no rank has */
};

struct agent_check {
    struct world *w;
    struct seen *v;
    size_t n;
};

struct agent_check *agent_check_new(struct world *w)
{
    struct agent_check *k = calloc(1, sizeof(*k));

    if (!k)
        abort();
    k->w = w;
    return k;
}

void agent_check_free(struct agent_check *k)
{
    if (!k)
        return;
    free(k->v);
    free(k);
}

static struct seen before(const struct agent_check *k, const struct run *run)
{
    struct seen fresh = {.generation = run->generation, .order = ASSIGNMENT_RUN, .failed_us = INT64_MAX};

    for (size_t i = 0; i < k->n; i++)
        if (k->v[i].generation == run->generation && strcmp(k->v[i].job, run->job) == 0)
            return k->v[i];
    memcpy(fresh.job, run->job, sizeof(fresh.job));
    return fresh;
}

static bool failed(const struct rank *r)
{
    return r->state == RANK_EXITED && !exit_well(&r->exit);
}

static void check_run(struct agent_check *k, const struct agent *a, const struct run *run, struct seen *s)
{
    int64_t now_us = world_now_us(k->w);
    bool alive = false, bad = false;

    if (s->order >= ASSIGNMENT_HAND_OVER && run->order < s->order)
        world_broken(k->w, "%s: %s-g%" PRIu64 " was told to end, and is told to go on", a->node, run->job,
                     run->generation);
    s->order = run->order;
    for (int i = 0; i < run->n; i++) {
        alive = alive || run->ranks[i].state != RANK_EXITED;
        bad = bad || failed(&run->ranks[i]);
    }
    if (bad && s->failed_us == INT64_MAX)
        s->failed_us = now_us;
    if (alive && bad && now_us > s->failed_us + run->grace_s * SECOND + SLACK_US)
        world_broken(k->w, "%s: a rank of %s-g%" PRIu64 " failed %.1f s ago, and one beside it is still there", a->node,
                     run->job, run->generation, (double)(now_us - s->failed_us) / 1e6);
}

void agent_check_turn(struct agent_check *k, const struct agent *a)
{
    size_t n = ranks_count(a->ranks);
    struct seen *now = calloc(n + 1, sizeof(*now));

    if (!now)
        abort();
    for (size_t i = 0; i < n; i++) {
        const struct run *run = ranks_at(a->ranks, i);

        now[i] = before(k, run);
        check_run(k, a, run, &now[i]);
    }
    free(k->v);
    k->v = now;
    k->n = n;
}

void agent_check_held(struct agent_check *k, int64_t until_us)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->v[i].failed_us < until_us)
            k->v[i].failed_us = until_us;
}
