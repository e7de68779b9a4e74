#include "scheduler/sequence/cost.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORGET 0.99

void seq_cost_init(struct seq_cost *c, const struct seq_model *m, double flops_per_s, const struct seq_link *link,
                   double micro_s)
{
    double passes = 3.0 * m->layers, h = (double)m->hidden, token_bytes = 4.0 * (double)m->kv_hidden;

    assert(flops_per_s > 0);
    *c = (struct seq_cost){
        .lin_s = passes * (20 * h * h + 4 * h * (double)m->kv_hidden) / flops_per_s,
        .quad_s = passes * 4 * h / flops_per_s,
        .half_tokens = 256,
        .comm_token_s = passes * link->s_per_byte * token_bytes,
        .comm_call_s = passes * link->base_s,
        .comm_floor_s = passes * link->t0_s,
        .comm_floor_tokens = token_bytes > 0 ? link->v0_bytes / token_bytes : 0,
        .micro_s = micro_s,
        .forward_share = 1.0 / 3,
    };
}

void seq_cost_reference(struct seq_cost *c, const struct seq_model *m)
{
    static const struct seq_link link = {.s_per_byte = 6.3e-6 / 1048576, .base_s = 50e-6};

    seq_cost_init(c, m, 400e12, &link, 8e-3);
}

double seq_time_peak(const struct seq_cost *c, int64_t start, int64_t tokens)
{
    double a = (double)start, s = (double)tokens;

    return c->lin_s * s + c->quad_s * s * (s + 2 * a); /* the square of the end less that of the start */
}

double seq_time(const struct seq_cost *c, int64_t start, int64_t tokens, int ranks)
{
    double x = (double)tokens / ranks;

    if (tokens == 0)
        return 0;
    return seq_time_peak(c, start, tokens) / ranks * ((x + c->half_tokens) / x) +
           (ranks > 1 ? c->copy_token_s * (double)tokens : 0);
}

double seq_time_comm(const struct seq_cost *c, int64_t sharded_tokens)
{
    double s = (double)sharded_tokens;

    if (sharded_tokens == 0)
        return 0;
    return s < c->comm_floor_tokens ? c->comm_floor_s : c->comm_call_s + c->comm_token_s * s;
}

int seq_line_fit(const double *x, const double *y, size_t n, struct seq_line *ret, struct merr *err)
{
    double mx = 0, my = 0, sxx = 0, sxy = 0;
    struct seq_line l = {0};

    if (n < 2)
        return merr_set(err, -EINVAL, "a line wants at least 2 points, got %zu: profile more lengths", n);
    for (size_t i = 0; i < n; i++) {
        mx += x[i] / (double)n;
        my += y[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        sxx += (x[i] - mx) * (x[i] - mx);
        sxy += (x[i] - mx) * (y[i] - my);
    }
    if (!(sxx > 0) || !isfinite(sxx) || !isfinite(sxy))
        return merr_set(err, -EINVAL, "the %zu points of the profile have one length: profile different ones", n);
    l.slope = sxy / sxx;
    l.base = my - l.slope * mx;
    for (size_t i = 0; i < n; i++)
        l.residual = fmax(l.residual, fabs(y[i] - l.slope * x[i] - l.base) / fmax(fabs(y[i]), 1e-30));
    *ret = l;
    return 0;
}

int seq_capacity(const struct seq_line *bytes, double device_bytes, double static_bytes, double reserve_bytes,
                 int64_t *ret_tokens, struct merr *err)
{
    double tokens;

    if (!(bytes->slope > 0) || !(bytes->residual <= SEQ_RESIDUAL_MAX))
        return merr_set(err, -EINVAL,
                        "memory by tokens is no rising line (slope %g bytes, residual %.1f %%): profile "
                        "again with nothing else on the device",
                        bytes->slope, 100 * bytes->residual);
    tokens = floor((device_bytes - static_bytes - reserve_bytes - bytes->base) / bytes->slope);
    if (!(tokens >= 1))
        return merr_set(err, -ENOSPC, "no token fits: %.0f of %.0f bytes are taken before the first",
                        static_bytes + reserve_bytes + bytes->base, device_bytes);
    *ret_tokens = tokens < 0x1p40 ? (int64_t)tokens : (int64_t)1 << 40;
    return 0;
}

int64_t seq_shard_units(int64_t tokens, int ranks, int exact_shares)
{
    int64_t pieces = 2 * (int64_t)ranks;

    if (exact_shares || ranks == 1)
        return tokens;
    return (tokens + pieces - 1) / pieces * pieces;
}

void seq_refit_add(struct seq_refit *r, double predicted, double measured)
{
    assert(predicted > 0 && measured > 0);
    r->w = FORGET * r->w + 1;
    r->x = FORGET * r->x + predicted;
    r->y = FORGET * r->y + measured;
    r->xx = FORGET * r->xx + predicted * predicted;
    r->xy = FORGET * r->xy + predicted * measured;
    r->errors[r->n++ % SEQ_REFIT_ERRORS] = fabs(measured - predicted) / measured;
}

void seq_refit_line(const struct seq_refit *r, struct seq_line *ret)
{
    double det = r->w * r->xx - r->x * r->x;

    *ret = (struct seq_line){.slope = 1, .residual = seq_refit_error(r)};
    if (r->n < 2 || !(det > 1e-9 * r->w * r->xx))
        return;
    ret->slope = (r->w * r->xy - r->x * r->y) / det;
    ret->base = (r->y - ret->slope * r->x) / r->w;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double seq_refit_error(const struct seq_refit *r)
{
    double v[SEQ_REFIT_ERRORS];
    size_t n = r->n < SEQ_REFIT_ERRORS ? r->n : SEQ_REFIT_ERRORS;

    if (n == 0)
        return 0;
    memcpy(v, r->errors, n * sizeof(v[0]));
    qsort(v, n, sizeof(v[0]), by_value);
    return v[n / 2];
}
