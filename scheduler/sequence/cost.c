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

int64_t seq_shard_units(int64_t tokens, int ranks, int exact_shares)
{
    int64_t pieces = 2 * (int64_t)ranks;

    if (exact_shares || ranks == 1)
        return tokens;
    return (tokens + pieces - 1) / pieces * pieces;
}
