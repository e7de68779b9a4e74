/* Runs of which heartbeats alone are known: hang_judge_beats(). */
#include <stdlib.h>

#include "scheduler/diagnose/hang.h"

#define TOGETHER_US 1000000 /* heartbeats are told each second: silences so near are one */

/* What is named first, where ranks of several kinds are past their deadlines. */
static enum hang_class class_of(const struct hang_rank *r)
{
    return r->stopped ? HANG_STOPPED : r->allowed_us > 0 ? HANG_PHASE : HANG_NOT_ENTERED;
}

static bool is_before(enum hang_class a, enum hang_class b)
{
    static const int order[HANG_CLASSES] = {[HANG_STOPPED] = 1, [HANG_PHASE] = 2, [HANG_NOT_ENTERED] = 3};

    return b == HANG_NONE || order[a] < order[b];
}

/* Whether a rank is named rather than another of its class. */
static bool is_rather(const struct hang_rank *a, const struct hang_rank *b)
{
    return a->step != b->step ? a->step < b->step : a->idle_us > b->idle_us + TOGETHER_US;
}

void hang_judge_beats(const struct hang_rank *ranks, size_t n, struct hang_verdict *ret)
{
    struct hang_verdict v = {.class_ = HANG_NONE, .waiter = -1};
    const struct hang_rank *first = NULL;
    bool may_go_on = false;
    int64_t gap_us = 0;

    for (size_t i = 0; i < n; i++)
        gap_us = ranks[i].gap_us > gap_us ? ranks[i].gap_us : gap_us;
    for (size_t i = 0; i < n; i++) {
        const struct hang_rank *r = &ranks[i];
        enum hang_class class_ = class_of(r);

        if (!r->told)
            continue;
        if (r->idle_us < hang_limit_us(r, gap_us)) {
            may_go_on = may_go_on || class_ == HANG_PHASE;
            continue;
        }
        if (is_before(class_, v.class_) || (class_ == v.class_ && is_rather(r, first))) {
            v.class_ = class_;
            v.roots = 0;
            first = r;
        }
        if (class_ != v.class_ || is_rather(first, r))
            continue;
        if (v.roots < HANG_ROOTS_MAX)
            v.root[v.roots] = (int)i;
        v.roots++;
    }
    /* who says nothing may wait for one that has said how long it will take */
    *ret = may_go_on && v.class_ == HANG_NOT_ENTERED ? (struct hang_verdict){.class_ = HANG_NONE, .waiter = -1} : v;
}
