#include "scheduler/cluster/calendar.h"

void calendar_add(struct calendar_state *s, const struct calendar_span *span, int64_t now_us)
{
    if (span->to_us <= now_us)
        return;
    if (span->from_us > now_us) {
        if (s->closes_us == 0 || span->from_us < s->closes_us)
            s->closes_us = span->from_us;
        return;
    }
    if (span->to_us > s->opens_us && span->to_us < CALENDAR_NEVER_US)
        s->opens_us = span->to_us;
    if (span->holder == 0)
        s->shut = true;
    else
        s->holder = span->holder;
}

struct calendar_span calendar_next(struct calendar_span span, int64_t every_us, int64_t now_us)
{
    int64_t times = every_us > 0 && span.to_us <= now_us ? (now_us - span.to_us) / every_us + 1 : 0;

    span.from_us += times * every_us;
    span.to_us += times * every_us;
    return span;
}

bool calendar_overlap(const struct calendar_span *a, const struct calendar_span *b)
{
    return a->from_us < b->to_us && b->from_us < a->to_us;
}

bool calendar_bars(int64_t now_us, int64_t limit_us, int64_t closes_us)
{
    return closes_us > 0 && now_us + (limit_us > 0 ? limit_us : 2 * CALENDAR_LEAD_US) > closes_us;
}

bool calendar_clears(int64_t now_us, int64_t left_us, int64_t closes_us)
{
    return closes_us > 0 && closes_us - now_us <= CALENDAR_LEAD_US && left_us > closes_us - now_us;
}
