#include "worker/engine/train/cadence.h"

#include <math.h>

#define UNDER_WAY_MAX 2    /* the checkpoint writer takes no more */
#define COST_LEAST_S 0.001 /* what is measured as nothing still costs memory bandwidth */
#define WEIGHT 0.3         /* of the newest value in a moving average */

void cadence_init(struct cadence *c, double mtbf_s, int64_t now_us)
{
    *c = (struct cadence){.mtbf_s = mtbf_s, .begun_us = now_us};
}

static double average(double old, double now, bool first)
{
    return first ? now : (1 - WEIGHT) * old + WEIGHT * now;
}

void cadence_step(struct cadence *c, double seconds, bool saving)
{
    if (!saving)
        c->step_s = average(c->step_s, seconds, c->step_s == 0);
    else if (c->step_s > 0)
        c->excess_s += seconds - c->step_s;
}

void cadence_begun(struct cadence *c, int64_t now_us)
{
    c->begun_us = now_us;
}

void cadence_committed(struct cadence *c, double seconds)
{
    double cost = c->excess_s > COST_LEAST_S ? c->excess_s : COST_LEAST_S;

    c->cost_s = average(c->cost_s, cost, c->measured == 0);
    c->commit_s = average(c->commit_s, seconds, c->measured == 0);
    c->excess_s = 0;
    c->measured++;
}

double cadence_interval_s(const struct cadence *c)
{
    double d = c->cost_s, m = c->mtbf_s, x = d / (2 * m), least = c->commit_s / UNDER_WAY_MAX, s;

    if (c->measured == 0)
        return CADENCE_FIRST_S < m ? CADENCE_FIRST_S : m;
    s = d < 2 * m ? sqrt(2 * d * m) * (1 + sqrt(x) / 3 + x / 9) - d : m;
    return s > least ? s : least;
}

bool cadence_due(const struct cadence *c, int64_t now_us)
{
    return (double)(now_us - c->begun_us) * 1e-6 >= cadence_interval_s(c);
}
