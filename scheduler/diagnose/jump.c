#include "scheduler/diagnose/jump.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAD_SIGMA 1.4826 /* standard deviations of normal numbers in their median absolute deviation */

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double v[JUMP_WINDOW])
{
    qsort(v, JUMP_WINDOW, sizeof(*v), compare);
    return (v[JUMP_WINDOW / 2 - 1] + v[JUMP_WINDOW / 2]) / 2;
}

static void learn(struct jump *j, double value)
{
    j->recent[j->next] = value;
    j->next = (j->next + 1) % JUMP_WINDOW;
    j->n += j->n < JUMP_WINDOW;
}

/* A number in a jump: it may be over by it. */
static void follow(struct jump *j, double value, double level)
{
    j->length++;
    j->low = value < JUMP_LOW * level ? j->low + 1 : 0;
    if (j->low < JUMP_QUIET && j->length < JUMP_LONGEST)
        return;
    if (j->low < JUMP_QUIET)
        *j = (struct jump){.n = 0};
    j->is_on = false;
}

bool jump_take(struct jump *j, double value, double *ret_level)
{
    double v[JUMP_WINDOW], level, away;

    if (!isfinite(value))
        return false;
    if (j->n < JUMP_WINDOW) {
        learn(j, value);
        return false;
    }
    memcpy(v, j->recent, sizeof(v));
    level = median(v);
    for (int i = 0; i < JUMP_WINDOW; i++)
        v[i] = fabs(v[i] - level);
    away = JUMP_SIGMAS * MAD_SIGMA * median(v);
    *ret_level = level;
    if (j->is_on) {
        follow(j, value, level);
        return false;
    }
    if (level <= 0 || value < JUMP_TIMES * level || value < level + away) {
        learn(j, value);
        return false;
    }
    j->is_on = true;
    j->low = j->length = 0;
    return true;
}
