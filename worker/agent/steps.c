#include "worker/agent/steps.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "api/protocol/report.h"

#define AGAIN_US 900000 /* reports come about once a second */

static_assert(FLIGHT_STEPS <= REPORT_SPAN_MAX, "a record may hold all steps of a page");

/* Of so many steps a record sums this many, so that a report has room for all. */
static uint64_t span_of(uint64_t steps)
{
    uint64_t k = 1;

    while (steps > k * (REPORT_STEPS_MAX - 2)) /* the first and the last may be cut */
        k *= 2;
    return k;
}

static int add(int sum, uint32_t n)
{
    return n < (uint32_t)(INT_MAX - sum) ? sum + (int)n : INT_MAX;
}

/* The step joins the record, which is zeroed at first. */
static void take(const struct flight_step *s, int *to)
{
    const uint32_t v[REPORT_STEP_NUMBERS] = {
        [REPORT_STEP_COUNT] = 1,
        [REPORT_STEP_WALL] = s->wall_us,
        [REPORT_STEP_BUSY] = s->busy_us,
        [REPORT_STEP_TP] = s->call_us[FLIGHT_TP],
        [REPORT_STEP_PP] = s->call_us[FLIGHT_PP],
        [REPORT_STEP_DP] = s->call_us[FLIGHT_DP],
        [REPORT_STEP_CP] = s->call_us[FLIGHT_CP],
        [REPORT_STEP_WORLD] = s->call_us[FLIGHT_WORLD],
        [REPORT_STEP_DATA] = s->data_us,
        [REPORT_STEP_SAVE] = s->save_us,
        [REPORT_STEP_CPU] = s->cpu_us,
        [REPORT_STEP_WORK] = s->work,
        [REPORT_STEP_KIB] = s->kib,
    };

    if (to[REPORT_STEP_SPAN]++ == 0)
        to[REPORT_STEP] = add(0, s->step);
    to[REPORT_STEP_FLAGS] |= (int)(s->flags & 15);
    for (int i = 0; i < REPORT_STEP_NUMBERS && s->flags == 0; i++)
        to[i] = add(to[i], v[i]);
    if (s->flags != 0) /* the steps in which a rank waits for a checkpoint are those that do not count */
        to[REPORT_STEP_SAVE] = add(to[REPORT_STEP_SAVE], s->save_us);
}

bool steps_due(const struct steps_seen *seen, int64_t now_us)
{
    return now_us - seen->at_us >= AGAIN_US;
}

int *steps_tell(const struct flight *f, struct steps_seen *seen, int64_t now_us, const struct steps_lack *lack,
                size_t *ret_n)
{
    uint64_t n = flight_read_steps(f), from = seen->n, span, next = UINT64_MAX;
    size_t got = 0;
    bool full = false;
    int *all;

    *ret_n = 0;
    if (!steps_due(seen, now_us) || n <= from)
        return NULL;
    all = calloc(REPORT_STEPS_MAX * REPORT_STEP_NUMBERS, sizeof(*all));
    if (!all)
        return NULL;
    if (n - from > FLIGHT_STEPS)
        from = n - FLIGHT_STEPS;
    span = span_of(n - from);
    seen->n = from;
    seen->at_us = now_us;
    for (uint64_t i = from; i < n; i++) {
        struct flight_step s;

        if (!flight_read_step_at(f, i, &s))
            continue;
        if (s.step != next || s.step % span == 0) {
            seen->n = i;
            full = got == REPORT_STEPS_MAX;
            if (full)
                break;
            got++;
        }
        take(&s, all + REPORT_STEP_NUMBERS * (got - 1));
        next = (uint64_t)s.step + 1;
    }
    if (!full && next % span == 0)
        seen->n = n;
    else if (!full && got > 0)
        got--; /* told when it is whole */
    for (size_t i = 0; i < got; i++) {
        int *to = all + REPORT_STEP_NUMBERS * i;

        to[REPORT_STEP_STARVED] = (int)(lack->starved * to[REPORT_STEP_WALL]);
        to[REPORT_STEP_THROTTLED] = (int)(lack->throttled * to[REPORT_STEP_WALL]);
    }
    *ret_n = got * REPORT_STEP_NUMBERS;
    if (got > 0)
        return all;
    free(all);
    return NULL;
}
