#include "worker/engine/comm/cost.h"

#include <assert.h>

#include "worker/engine/comm/coded.h"

#define COST_WATCH_LEAST_US 1000 /* of a step: less gains nothing */
#define TRIAL_US 500000          /* for all trials */
#define TRIAL_NEAR 1.5           /* times as long: what only trials tell apart, */
#define TRIAL_NEAR_US 2000000    /* which then may take longer */
#define TRIALS_LEAST 3

struct cost_line cost_fit(const double *bytes, const double *us, int n)
{
    struct cost_line l = {.fixed_us = us[0]};
    double before = n > 1 ? us[n - 2] : 0;

    assert(n >= 1);
    if (n > 2) {
        double part = (bytes[n - 2] - bytes[n - 3]) / (bytes[n - 1] - bytes[n - 3]);
        double chord = us[n - 3] + part * (us[n - 1] - us[n - 3]);

        before = before < chord ? before : chord;
    }
    if (n > 1 && bytes[n - 1] > bytes[n - 2] && us[n - 1] > before)
        l.byte_us = (us[n - 1] - before) / (bytes[n - 1] - bytes[n - 2]);
    else if (bytes[n - 1] > 0)
        l.byte_us = us[n - 1] / bytes[n - 1];
    return l;
}

double cost_coded_us(enum cost_shape shape, int members, size_t count, size_t slice, const struct cost_line *link,
                     const struct cost_codec *c)
{
    double n = (double)count, p = members, share = shape == COST_SEND ? n : n / p;
    double slices = share > (double)slice ? share / (double)slice : 1;
    double hop = slices * link->fixed_us + share * c->bytes * link->byte_us, wire = hop, work, calls;

    switch (shape) {
    case COST_ALL_REDUCE:
        wire = 2 * hop;
        work = n * (c->encode_us + c->reduce_us + c->decode_us);
        calls = 2 * p;
        break;
    case COST_REDUCE_SCATTER:
        work = n * ((p - 1) / p * c->encode_us + c->reduce_us);
        calls = p;
        break;
    case COST_ALL_GATHER:
        work = n * (c->encode_us / p + c->decode_us);
        calls = p + 1;
        break;
    default:
        work = n * (c->encode_us + c->decode_us);
        calls = 2;
    }
    work += slices * calls * c->start_us;
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

int cost_trials(double raw_us, double coded_us)
{
    double shorter = raw_us < coded_us ? raw_us : coded_us, longer = raw_us < coded_us ? coded_us : raw_us;
    double both = raw_us + coded_us, within = longer < TRIAL_NEAR * shorter ? TRIAL_NEAR_US : TRIAL_US;
    int n = COST_TRIALS_MAX;

    while (n > TRIALS_LEAST && n * both > within)
        n -= 2;
    return n * both > within ? 0 : n;
}

double cost_median(const double *us, int n)
{
    double by_size[COST_TRIALS_MAX] = {0};

    assert(n % 2 == 1 && n <= COST_TRIALS_MAX);
    for (int i = 0; i < n; i++) {
        int at = i;

        for (; at > 0 && by_size[at - 1] > us[i]; at--)
            by_size[at] = by_size[at - 1];
        by_size[at] = us[i];
    }
    return by_size[n / 2];
}

bool cost_worth(double raw_us, double coded_us)
{
    return coded_us < 0.97 * raw_us;
}

bool cost_worth_still(bool coded, double raw_us, double coded_us)
{
    return coded ? raw_us >= 0.95 * coded_us : coded_us < 0.95 * raw_us;
}

void cost_watch_start(struct cost_watch *w, bool in_vain)
{
    int patience = in_vain && w->patience > 0 ? 2 * w->patience : COST_WATCH_STEPS;

    *w = (struct cost_watch){.patience = patience < COST_WATCH_STEPS_MAX ? patience : COST_WATCH_STEPS_MAX};
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
            w->usual = cost_median(w->first, COST_WATCH_FIRST);
        return false;
    }
    side = now > COST_WATCH_FAR * w->usual ? 1 : now < w->usual / COST_WATCH_FAR ? -1 : 0;
    if (spent_us < COST_WATCH_LEAST_US && w->usual * predicted_us < COST_WATCH_LEAST_US)
        side = 0;
    w->run = side == 0 ? 0 : side == w->side ? w->run + 1 : 1;
    w->side = side;
    return w->run >= w->patience;
}
