#include "server/http/stats.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

static const int64_t bound_us[] = {500,    1000,    2500,    5000,     10000,    25000,     50000,     100000,
                                   250000, 1000000, 5000000, 30000000, 60000000, 600000000, 3600000000};
#define BOUNDS (sizeof(bound_us) / sizeof(bound_us[0]))

static const struct {
    const char *name, *help;
} timer_text[STATS_TIMERS] = {
    {"muster_request_seconds", "Time from a request's arrival to its answer, long-polls left out"},
    {"muster_commit_seconds", "Time of one durable write to the store"},
    {"muster_scheduling_round_seconds", "Time of one scheduling round"},
    {"muster_queue_wait_seconds", "Time jobs waited from submission or return to their devices"},
};

struct stats {
    struct {
        _Atomic uint64_t bucket[BOUNDS + 1]; /* counts between bounds; the last beyond all */
        _Atomic uint64_t sum_us;
    } timer[STATS_TIMERS];
    _Atomic uint64_t status[6];  /* by hundreds */
    _Atomic uint64_t limited[2]; /* by address, by token */
    _Atomic uint64_t calls;
};

struct stats *stats_new(void)
{
    return calloc(1, sizeof(struct stats));
}

void stats_free(struct stats *s)
{
    free(s);
}

void stats_observe(struct stats *s, enum stats_timer timer, int64_t us)
{
    size_t i = 0;

    assert(timer < STATS_TIMERS);
    if (us < 0)
        us = 0;
    while (i < BOUNDS && us > bound_us[i])
        i++;
    atomic_fetch_add_explicit(&s->timer[timer].bucket[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->timer[timer].sum_us, (uint64_t)us, memory_order_relaxed);
}

void stats_answer(struct stats *s, int status)
{
    int i = status / 100;

    atomic_fetch_add_explicit(&s->status[i < 1 || i > 5 ? 0 : i], 1, memory_order_relaxed);
}

void stats_limited(struct stats *s, bool by_token)
{
    atomic_fetch_add_explicit(&s->limited[by_token], 1, memory_order_relaxed);
}

void stats_calls(struct stats *s, uint64_t calls)
{
    atomic_fetch_add_explicit(&s->calls, calls, memory_order_relaxed);
}

void stats_print(struct stats *s, struct buf *out)
{
    for (int t = 0; t < STATS_TIMERS; t++) {
        uint64_t n = 0;

        (void)buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", timer_text[t].name, timer_text[t].help,
                         timer_text[t].name);
        for (size_t i = 0; i < BOUNDS; i++) {
            n += atomic_load(&s->timer[t].bucket[i]);
            (void)buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", timer_text[t].name, (double)bound_us[i] / 1e6,
                             (unsigned long long)n);
        }
        n += atomic_load(&s->timer[t].bucket[BOUNDS]);
        (void)buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", timer_text[t].name,
                         (unsigned long long)n, timer_text[t].name, (double)atomic_load(&s->timer[t].sum_us) / 1e6,
                         timer_text[t].name, (unsigned long long)n);
    }
    (void)buf_addstr(out, "# HELP muster_requests_total Answers given, by status\n"
                          "# TYPE muster_requests_total counter\n");
    for (int i = 1; i < 6; i++)
        (void)buf_printf(out, "muster_requests_total{status=\"%dxx\"} %llu\n", i,
                         (unsigned long long)atomic_load(&s->status[i]));
    (void)buf_printf(out,
                     "# HELP muster_rate_limited_total Requests that were told to come less often (429)\n"
                     "# TYPE muster_rate_limited_total counter\n"
                     "muster_rate_limited_total{by=\"address\"} %llu\nmuster_rate_limited_total{by=\"token\"} %llu\n",
                     (unsigned long long)atomic_load(&s->limited[0]), (unsigned long long)atomic_load(&s->limited[1]));
    (void)buf_printf(out,
                     "# HELP muster_calls_total Requests handled by the core\n"
                     "# TYPE muster_calls_total counter\nmuster_calls_total %llu\n",
                     (unsigned long long)atomic_load(&s->calls));
}
