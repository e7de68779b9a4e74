/* The estimator: least squares of a quadratic, on sizes scaled to [-1, 1] so that the normal equations stay tame. */
#include <assert.h>
#include <math.h>

#include "scheduler/sequence/mimose.h"

#define FINE_SHARE 0.10
#define FINE_BYTES 10e6
#define LEAST_BYTES 1024.0 /* denominators of relative errors are not below */

static double scaled(const struct mimose_fit *f, int64_t x)
{
    return ((double)x - f->mid) / f->half;
}

static int distinct_sizes(const int64_t *x, size_t n)
{
    int64_t seen[MIMOSE_SIZES_MIN];
    int count = 0;

    for (size_t i = 0; i < n && count < MIMOSE_SIZES_MIN; i++) {
        int known = 0;

        for (int k = 0; k < count; k++)
            known = known || seen[k] == x[i];
        if (!known)
            seen[count++] = x[i];
    }
    return count;
}

/* Solve the 3 by 3 system by elimination with pivots. False when it is singular. */
static bool solve(double a[3][4], double ret[3])
{
    for (int k = 0; k < 3; k++) {
        int p = k;

        for (int i = k + 1; i < 3; i++)
            if (fabs(a[i][k]) > fabs(a[p][k]))
                p = i;
        if (!(fabs(a[p][k]) > 1e-12))
            return false;
        for (int j = 0; j < 4; j++) {
            double keep = a[k][j];

            a[k][j] = a[p][j];
            a[p][j] = keep;
        }
        for (int i = k + 1; i < 3; i++) {
            double q = a[i][k] / a[k][k];

            for (int j = k; j < 4; j++)
                a[i][j] -= q * a[k][j];
        }
    }
    for (int k = 2; k >= 0; k--) {
        ret[k] = a[k][3];
        for (int j = k + 1; j < 3; j++)
            ret[k] -= a[k][j] * ret[j];
        ret[k] /= a[k][k];
    }
    return true;
}

static bool least_squares(struct mimose_fit *f, const int64_t *x, const double *y, size_t n)
{
    double a[3][4] = {{0}}, power[5];

    for (size_t i = 0; i < n; i++) {
        double t = scaled(f, x[i]);

        power[0] = 1;
        for (int k = 1; k < 5; k++)
            power[k] = power[k - 1] * t;
        for (int r = 0; r < 3; r++) {
            for (int k = 0; k < 3; k++)
                a[r][k] += power[r + k] / (double)n;
            a[r][3] += power[r] * y[i] / (double)n;
        }
    }
    return solve(a, f->c);
}

void mimose_fit(const int64_t *x, const double *y, size_t n, struct mimose_fit *ret)
{
    struct mimose_fit f = {0};
    int64_t lo = x[0], hi = x[0];

    assert(n >= 1);
    for (size_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        f.most = fmax(f.most, y[i]);
    }
    f.most_x = (double)hi;
    f.mid = ((double)lo + (double)hi) / 2;
    f.half = hi > lo ? ((double)hi - (double)lo) / 2 : 1;
    f.fitted = distinct_sizes(x, n) >= MIMOSE_SIZES_MIN && least_squares(&f, x, y, n);
    for (size_t i = 0; i < n && f.fitted; i++) {
        double t = scaled(&f, x[i]), off = fabs(y[i] - (f.c[0] + f.c[1] * t + f.c[2] * t * t));

        f.residual = fmax(f.residual, off);
        f.error = fmax(f.error, off / fmax(y[i], LEAST_BYTES));
    }
    f.fitted = f.fitted && (f.error < FINE_SHARE || f.residual < FINE_BYTES);
    *ret = f;
}

double mimose_predict(const struct mimose_fit *f, int64_t x)
{
    double t = scaled(f, x), beyond = (double)x / fmax(f->most_x, 1);

    if (f->fitted)
        return fmax(0, f->c[0] + f->c[1] * t + f->c[2] * t * t);
    return f->most * fmax(1, beyond * beyond); /* nothing grows faster than the square */
}

double mimose_predict_safe(const struct mimose_fit *f, int64_t x)
{
    double y = mimose_predict(f, x);

    return y + fmax(0.02 * y, f->fitted ? f->residual : 0);
}
