#include "worker/comm/cost.h"

#include <assert.h>

#include "worker/comm/coded.h"

struct cost_line cost_fit(const double *bytes, const double *us, int n)
{
    struct cost_line l = {.fixed_us = us[0]};

    assert(n >= 1);
    if (n > 1 && bytes[n - 1] > bytes[n - 2] && us[n - 1] > us[n - 2])
        l.byte_us = (us[n - 1] - us[n - 2]) / (bytes[n - 1] - bytes[n - 2]);
    else if (bytes[n - 1] > 0)
        l.byte_us = us[n - 1] / bytes[n - 1];
    return l;
}

double cost_coded_us(enum cost_shape shape, int members, size_t count, size_t slice, const struct cost_line *link,
                     const struct cost_codec *c)
{
    double n = (double)count, p = members, share = shape == COST_SEND ? n : n / p;
    double slices = share > (double)slice ? share / (double)slice : 1;
    double hop = slices * link->fixed_us + share * c->bytes * link->byte_us, wire = hop, work;

    switch (shape) {
    case COST_ALL_REDUCE:
        wire = 2 * hop;
        work = n * (c->encode_us + c->reduce_us + c->decode_us);
        break;
    case COST_REDUCE_SCATTER:
        work = n * ((p - 1) / p * c->encode_us + c->reduce_us);
        break;
    case COST_ALL_GATHER:
        work = n * (c->encode_us / p + c->decode_us);
        break;
    default:
        work = n * (c->encode_us + c->decode_us);
    }
    return (wire > work ? wire : work) + (wire > work ? work : wire) / slices;
}

double cost_best_us(enum cost_shape shape, int members, size_t count, const struct cost_line *link,
                    const struct cost_codec *codec, size_t *ret_slice)
{
    double best = cost_coded_us(shape, members, count, CODED_SLICE, link, codec);

    *ret_slice = CODED_SLICE;
    for (size_t slice = CODED_SLICE / 8; slice <= 8 * CODED_SLICE; slice *= 2) {
        double us = cost_coded_us(shape, members, count, slice, link, codec);

        if (us >= 0.97 * best)
            continue;
        best = us;
        *ret_slice = slice;
    }
    return best;
}

bool cost_worth(double raw_us, double coded_us)
{
    return coded_us < 0.95 * raw_us;
}
