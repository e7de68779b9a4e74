#include "scheduler/cluster/profile.h"

#define FIXED_STEPS 40 /* shares that are tried */
#define FIXED_MOST 8.0 /* the largest of them; each is so much less than the one before: */
#define FIXED_RATIO 0.75

double profile_law(bool command, int workers, int k)
{
    return command ? k : (double)workers / ((workers + k - 1) / k);
}

/* A step on so many devices by the law, where one replica's takes 1 beside what is fixed. */
static double law_s(const struct profile_job *j, int32_t devices, double fixed)
{
    int k = devices / j->replica;

    return fixed + 1 / profile_law(j->command, j->workers, k > 0 ? k : 1);
}

double profile_scale(const struct profile_job *j, uint8_t class_, double fixed)
{
    double sum = 0, squares = 0;

    for (size_t i = 0; i < j->n_speeds; i++)
        if (j->speeds[i].class_ == class_) { /* least squares of what the law says over what was measured */
            double x = law_s(j, j->speeds[i].devices, fixed) * j->speeds[i].steps_per_s;

            sum += x;
            squares += x * x;
        }
    return sum > 0 ? squares / sum : 0;
}

/* How far the law is from the measurements with such a share; 0 where each class has one count. */
static double miss(const struct profile_job *j, double fixed)
{
    double sum = 0;

    for (size_t i = 0; i < j->n_speeds; i++) {
        const struct profile_speed *s = &j->speeds[i];
        double x = law_s(j, s->devices, fixed) * s->steps_per_s / profile_scale(j, s->class_, fixed) - 1;

        sum += x * x;
    }
    return sum;
}

static bool has_two_counts(const struct profile_job *j)
{
    for (size_t i = 0; i < j->n_speeds; i++)
        for (size_t k = i + 1; k < j->n_speeds; k++)
            if (j->speeds[i].class_ == j->speeds[k].class_ &&
                j->speeds[i].devices / j->replica != j->speeds[k].devices / j->replica)
                return true;
    return false;
}

bool profile_fixed(const struct profile_job *j, double *ret)
{
    double best = 0, least = 0, share = FIXED_MOST;

    if (!has_two_counts(j))
        return false;
    least = miss(j, 0);
    for (int i = 0; i < FIXED_STEPS; i++, share *= FIXED_RATIO) {
        double m = miss(j, share);

        if (m < least) {
            least = m;
            best = share;
        }
    }
    for (double step = best / 8; step > best / 200; step /= 2) /* between the shares that were tried */
        for (int sign = -1; sign <= 1; sign += 2)
            while (best + sign * step <= FIXED_MOST && miss(j, best + sign * step) < least) {
                best += sign * step;
                least = miss(j, best);
            }
    *ret = best;
    return true;
}

static double speed_of(const struct profile_type *types, size_t n, uint8_t class_)
{
    for (size_t t = 0; t < n; t++)
        if (types[t].class_ == class_ && types[t].speed > 0)
            return types[t].speed;
    return 1;
}

/* The job's scale on a class of speed 1: the mean of those on the classes on which it was measured, else what is
 * predicted; 0: nothing is known. */
static double usual_scale(const struct profile_job *j, const struct profile_type *types, size_t n, double fixed)
{
    const struct profile_speed *p = &j->predicted;
    double sum = 0, count = 0;

    for (size_t i = 0; i < j->n_speeds; i++) {
        bool seen = false;

        for (size_t k = 0; k < i; k++)
            seen = seen || j->speeds[k].class_ == j->speeds[i].class_;
        if (seen)
            continue;
        sum += profile_scale(j, j->speeds[i].class_, fixed) / speed_of(types, n, j->speeds[i].class_);
        count += 1;
    }
    if (count == 0 && p->steps_per_s > 0)
        return p->steps_per_s * law_s(j, p->devices, fixed) / speed_of(types, n, p->class_);
    return count > 0 ? sum / count : 0;
}

/* The same from the times of single workers, which runs on mixed devices tell as well; per class of speed 1. */
static double workers_scale(const struct profile_job *j, const struct profile_type *t)
{
    return t->worker_ms > 0 ? 1000 / (t->worker_ms * j->workers) : 0;
}

static int64_t whole_ups(double ups)
{
    return ups < 1 ? 1 : ups > 1e14 ? (int64_t)1e14 : (int64_t)(ups + 0.5);
}

static void fill_type(const struct profile_job *j, uint8_t class_, double scale, double fixed, struct rates_point *ret)
{
    int points = j->workers < RATES_POINTS_MAX ? j->workers : RATES_POINTS_MAX;

    for (int i = 0; i < points; i++) {
        int k = i + 1 < points ? i + 1 : j->workers;

        ret[i] = (struct rates_point){.count = k * j->replica,
                                      .rate_ups = whole_ups(scale / law_s(j, k * j->replica, fixed) * 1e6)};
        for (size_t s = 0; s < j->n_speeds; s++)
            if (j->speeds[s].class_ == class_ && j->speeds[s].devices == ret[i].count)
                ret[i].rate_ups = whole_ups(j->speeds[s].steps_per_s * 1e6);
    }
}

bool profile_fill(const struct profile_job *j, const struct profile_type *types, size_t n, struct rates_profile *ret)
{
    int points = j->workers < RATES_POINTS_MAX ? j->workers : RATES_POINTS_MAX;
    double fixed = j->fixed, usual;
    bool rated = false;

    (void)profile_fixed(j, &fixed);
    usual = usual_scale(j, types, n, fixed);
    for (size_t t = 0; t < n; t++)
        if (usual <= 0 && types[t].worker_ms > 0) /* of another class's workers */
            usual = workers_scale(j, &types[t]) / speed_of(types, n, types[t].class_);
    for (size_t t = 0; t < n; t++) {
        double speed = speed_of(types, n, types[t].class_), scale = profile_scale(j, types[t].class_, fixed);

        if (scale <= 0)
            scale = workers_scale(j, &types[t]);
        if (scale <= 0)
            scale = usual * speed;
        rated = rated || scale > 0;
        fill_type(j, types[t].class_, scale > 0 ? scale : speed, fixed, ret->points[t]);
        ret->n[t] = (uint8_t)points;
    }
    return rated;
}
