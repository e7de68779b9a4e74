#include "worker/comm/cost.h"

#include <assert.h>

#include "worker/comm/coded.h"

#define COST_WATCH_LEAST_US 1000 /* of a step: less gains nothing */

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

bool cost_worth_still(bool coded, double raw_us, double coded_us)
{
    return coded ? raw_us >= 0.9 * coded_us : coded_us < 0.9 * raw_us;
}

void cost_watch_start(struct cost_watch *w, bool in_vain)
{
    int patience = in_vain && w->patience > 0 ? 2 * w->patience : COST_WATCH_STEPS;

    *w = (struct cost_watch){.patience = patience < COST_WATCH_STEPS_MAX ? patience : COST_WATCH_STEPS_MAX};
}

static double median(const double v[COST_WATCH_FIRST])
{
    double by_size[COST_WATCH_FIRST] = {0};

    for (int i = 0; i < COST_WATCH_FIRST; i++) {
        int at = i;

        for (; at > 0 && by_size[at - 1] > v[i]; at--)
            by_size[at] = by_size[at - 1];
        by_size[at] = v[i];
    }
    return by_size[COST_WATCH_FIRST / 2];
}

bool cost_watch_step(struct cost_watch *w, double spent_us, double predicted_us)
{
    double now;
    int side;

    if (predicted_us <= 0)
        return false;
    now = spent_us / predicted_us;
    if (w->seen < COST_WATCH_FIRST) {
        w->first[w->seen++] = now;
        if (w->seen == COST_WATCH_FIRST)
            w->usual = median(w->first);
        return false;
    }
    side = now > COST_WATCH_FAR * w->usual ? 1 : now < w->usual / COST_WATCH_FAR ? -1 : 0;
    if (spent_us < COST_WATCH_LEAST_US && w->usual * predicted_us < COST_WATCH_LEAST_US)
        side = 0;
    w->run = side == 0 ? 0 : side == w->side ? w->run + 1 : 1;
    w->side = side;
    return w->run >= w->patience;
}
