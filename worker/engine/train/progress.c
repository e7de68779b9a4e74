#include "worker/engine/train/progress.h"

#include <stdio.h>

/* 850, 12.3k, 4.56M: three digits or four. */
static void print_rate(double rate, char *ret, size_t size)
{
    if (rate >= 1e6)
        (void)snprintf(ret, size, "%.2fM", rate / 1e6);
    else if (rate >= 1e4)
        (void)snprintf(ret, size, "%.1fk", rate / 1e3);
    else
        (void)snprintf(ret, size, "%.0f", rate);
}

static void print_left(double s, char *ret, size_t size)
{
    unsigned long long all = s < 1 ? 1 : s > 1e9 ? 1000000000 : (unsigned long long)(s + 0.5);

    if (all < 60)
        (void)snprintf(ret, size, "%llu s", all);
    else if (all < 3600)
        (void)snprintf(ret, size, "%llu min %llu s", all / 60, all % 60);
    else
        (void)snprintf(ret, size, "%llu h %llu min", all / 3600, all % 3600 / 60);
}

bool progress_take(struct progress *p, const struct progress_step *s, int64_t now_us, char ret[PROGRESS_LINE_MAX])
{
    bool first = p->told_us == 0, last = s->steps == s->of;
    uint64_t steps = first ? 1 : s->steps - p->steps;
    double seconds = (double)(now_us - (first ? s->began_us : p->told_us)) * 1e-6;
    double tokens = (double)(s->tokens - (first ? 0 : p->tokens));
    char rate[24], left[40], end[64] = "";

    if (!first && !last && now_us - p->told_us < PROGRESS_EVERY_US)
        return false;
    if (first || steps == 0 || seconds <= 0)
        tokens = 0; /* the first step takes memory and connections, and says nothing of the rate */
    print_rate(seconds > 0 ? tokens / seconds : 0, rate, sizeof(rate));
    print_left(seconds / (double)(steps ? steps : 1) * (double)(s->of - s->steps), left, sizeof(left));
    if (tokens > 0 && !last)
        (void)snprintf(end, sizeof(end), ", %s tokens/s, %s left", rate, left);
    else if (tokens > 0)
        (void)snprintf(end, sizeof(end), ", %s tokens/s", rate);
    (void)snprintf(ret, PROGRESS_LINE_MAX, "step %llu of %llu: loss %.4g, gradient norm %.3g%s",
                   (unsigned long long)s->steps, (unsigned long long)s->of, s->loss, s->norm, end);
    *p = (struct progress){.told_us = now_us, .steps = s->steps, .tokens = s->tokens};
    return true;
}
