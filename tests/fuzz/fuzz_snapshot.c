/* What muster simulate --snapshot reads. What is accepted and small also gets a round, and every job an explanation. */
#include <stdint.h>
#include <stdlib.h>

#include "scheduler/cluster/explain.h"
#include "scheduler/cluster/snapshot.h"

#define JOBS_MAX 64
#define NODES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void take(struct snapshot *s)
{
    struct explain_cause cause;
    struct sched_plan plan;
    struct merr err;

    if (sched_schedule(&s->in, &plan, &err) < 0)
        return;
    for (size_t i = 0; i < s->in.n_jobs; i++)
        (void)explain_job(&s->in, &plan, i, &cause);
    sched_plan_clear(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct snapshot s;
    struct merr err;

    if (snapshot_parse((const char *)data, len, &s, &err) < 0)
        return 0;
    if (s.in.n_jobs <= JOBS_MAX && s.in.n_nodes <= NODES_MAX)
        for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
            s.in.config.mode = (enum sched_mode)mode;
            take(&s);
        }
    snapshot_clear(&s);
    return 0;
}
