#include "scheduler/cluster/profile.h"

#include <stdlib.h>

#define ANY_CLASS (-1)

double profile_law(bool command, int workers, int k)
{
    return command ? k : (double)workers / ((workers + k - 1) / k);
}

/* Steps a second over the law's, by the measurement at the nearest count of the class; 0: none. */
static double measured(const struct profile_job *j, int class_, int32_t devices)
{
    const struct profile_speed *best = NULL;

    for (size_t i = 0; i < j->n_speeds; i++) {
        const struct profile_speed *s = &j->speeds[i];

        if ((class_ == ANY_CLASS || s->class_ == class_) &&
            (!best || abs(s->devices - devices) < abs(best->devices - devices)))
            best = s;
    }
    return best ? best->steps_per_s / profile_law(j->command, j->workers, best->devices / j->replica) : 0;
}

/* The same from the time of one virtual worker, which runs on mixed devices tell as well. */
static double measured_workers(const struct profile_job *j, double worker_ms)
{
    return worker_ms > 0 ? 1000 / (worker_ms * j->workers) : 0;
}

static int64_t whole_ups(double ups)
{
    return ups < 1 ? 1 : ups > 1e14 ? (int64_t)1e14 : (int64_t)ups;
}

void profile_fill(const struct profile_job *j, const struct profile_type *types, size_t n, struct rates_profile *ret)
{
    int points = j->workers < RATES_POINTS_MAX ? j->workers : RATES_POINTS_MAX;

    for (size_t t = 0; t < n; t++) {
        for (int i = 0; i < points; i++) {
            int k = i + 1 < points ? i + 1 : j->workers;
            double scale = measured(j, types[t].class_, k * j->replica);

            if (scale <= 0)
                scale = measured_workers(j, types[t].worker_ms);
            if (scale <= 0)
                scale = measured(j, ANY_CLASS, k * j->replica);
            ret->points[t][i] = (struct rates_point){
                .count = k * j->replica,
                .rate_ups = whole_ups(profile_law(j->command, j->workers, k) * (scale > 0 ? scale : 1) * 1e6)};
        }
        ret->n[t] = (uint8_t)points;
    }
}
