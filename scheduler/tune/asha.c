#include "scheduler/tune/asha.h"

#include <math.h>

int64_t asha_steps(const struct asha_rules *rules, const struct asha_trial *trial)
{
    int64_t steps = rules->first_steps;

    if (trial->rungs >= rules->rungs)
        return INT64_MAX;
    for (int k = 0; k < trial->rungs; k++) {
        if (steps > INT64_MAX / rules->reduction)
            return INT64_MAX;
        steps *= rules->reduction;
    }
    return steps;
}

/* Whether trial a is better than b at a rung; among equals the earlier one is. */
static bool is_better(const struct asha_rules *rules, const struct asha_trial *trials, size_t a, size_t b, int rung)
{
    double x = trials[a].at[rung], y = trials[b].at[rung];

    if (isnan(x) || isnan(y) || x == y)
        return isnan(x) == isnan(y) ? a < b : isnan(y);
    return rules->max ? x > y : x < y;
}

/* The best trial that is paused at a rung, if it is among the best of those that have come there. */
static size_t best_of(const struct asha_rules *rules, const struct asha_trial *trials, size_t n, int rung)
{
    size_t best = n, come = 0, better = 0;

    for (size_t i = 0; i < n; i++) {
        come += trials[i].rungs > rung;
        if (trials[i].paused && trials[i].rungs == rung + 1 && (best == n || is_better(rules, trials, i, best, rung)))
            best = i;
    }
    if (best == n || isnan(trials[best].at[rung]))
        return n;
    for (size_t i = 0; i < n; i++)
        better += trials[i].rungs > rung && i != best && is_better(rules, trials, i, best, rung);
    return better < come / (size_t)rules->reduction ? best : n;
}

size_t asha_promote(const struct asha_rules *rules, const struct asha_trial *trials, size_t n)
{
    for (int rung = rules->rungs - 1; rung >= 0; rung--) {
        size_t best = best_of(rules, trials, n, rung);

        if (best < n)
            return best;
    }
    return n;
}
