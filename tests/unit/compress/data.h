/* data - numbers of known distributions, for the tests and benchmarks of codecs */
#ifndef MUSTER_TESTS_UNIT_COMPRESS_DATA_H
#define MUSTER_TESTS_UNIT_COMPRESS_DATA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"

enum data_kind { DATA_NORMAL, DATA_LAPLACE, DATA_T3, DATA_SPIKE, DATA_CHAN, DATA_RELU, DATA_MEAN3, DATA_KINDS };

static const char *const data_names[DATA_KINDS]
    __attribute__((unused)) = {"normal", "laplace", "t3", "spike", "chan", "relu", "mean3"};

/* Value i of a distribution; equal arguments give equal values. */
static inline float data_value(enum data_kind kind, uint64_t seed, uint64_t i)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t ctr[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)kind, 77};
    uint32_t w[4], more[4];
    float a[2], b[2];
    double u;

    philox4x32(ctr, key, w);
    philox_normal2(w[0], w[1], a);
    switch (kind) {
    case DATA_LAPLACE:
        u = ((double)w[2] + 0.5) * 0x1p-32;
        return (float)(u < 0.5 ? log(2 * u) : -log(2 - 2 * u));
    case DATA_T3:
        philox4x32(w, key, more);
        philox_normal2(w[2], w[3], b);
        philox_normal2(more[0], more[1], a);
        return (
            float)((double)a[0] /
                   sqrt(((double)a[1] * (double)a[1] + (double)b[0] * (double)b[0] + (double)b[1] * (double)b[1]) / 3));
    case DATA_SPIKE:
        return (double)w[2] * 0x1p-32 < 1e-3 ? a[0] * 50 : a[0];
    case DATA_CHAN:
        return i % 128 == 17 ? a[0] * 30 : a[0];
    case DATA_RELU:
        return a[0] > 0 ? a[0] : 0;
    case DATA_MEAN3:
        return a[0] + 3;
    default:
        return a[0];
    }
}

/* Sum of (x - y)^2 over sum of x^2. */
static inline double data_nmse(const float *x, const float *y, size_t n)
{
    double error = 0, energy = 0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)y[i];

        error += d * d;
        energy += (double)x[i] * (double)x[i];
    }
    return error / energy;
}

static inline double data_db(double nmse)
{
    return -10 * log10(nmse);
}

#endif
