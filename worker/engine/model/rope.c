#include "worker/engine/model/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586476925286766559

static double scaled(const struct rope *r, double f)
{
    double wavelength = TWO_PI / f, share;

    if (r->scaling == ROPE_LINEAR)
        return f / r->factor;
    if (r->scaling != ROPE_LLAMA3 || wavelength < r->original / r->high)
        return f;
    if (wavelength > r->original / r->low)
        return f / r->factor;
    share = (r->original / wavelength - r->low) / (r->high - r->low);
    return (1 - share) * f / r->factor + share * f;
}

void rope_frequencies(const struct rope *r, int dim, float *freq)
{
    for (int i = 0; i < dim / 2; i++)
        freq[i] = (float)scaled(r, 1 / pow(r->theta, 2.0 * i / dim));
}
