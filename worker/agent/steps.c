#include "worker/agent/steps.h"

#include <limits.h>
#include <stdlib.h>

#include "api/protocol/report.h"

#define AGAIN_US 900000 /* reports come about once a second */

/* Every so manieth stretch of steps is told. */
static uint64_t stride(uint64_t steps)
{
    uint64_t k = 1;

    while (steps > k * REPORT_STEPS_MAX)
        k *= 2;
    return k;
}

static int number(uint32_t n)
{
    return n < INT_MAX ? (int)n : INT_MAX;
}

static void write_step(const struct flight_step *s, int *to)
{
    const uint32_t v[REPORT_STEP_NUMBERS] = {[REPORT_STEP] = s->step,
                                             [REPORT_STEP_FLAGS] = s->flags,
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
                                             [REPORT_STEP_KIB] = s->kib};

    for (int i = 0; i < REPORT_STEP_NUMBERS; i++)
        to[i] = number(v[i]);
}

int *steps_tell(const struct flight *f, struct steps_seen *seen, int64_t now_us, size_t *ret_n)
{
    uint64_t n = flight_read_steps(f), from = seen->n, every;
    size_t got = 0;
    int *all;

    *ret_n = 0;
    if (now_us - seen->at_us < AGAIN_US || n <= from)
        return NULL;
    all = malloc(REPORT_STEPS_MAX * REPORT_STEP_NUMBERS * sizeof(*all));
    if (!all)
        return NULL;
    if (n - from > FLIGHT_STEPS)
        from = n - FLIGHT_STEPS;
    every = stride(n - from);
    seen->n = n;
    seen->at_us = now_us;
    for (uint64_t i = from; i < n && got < REPORT_STEPS_MAX; i++) {
        struct flight_step s;

        if (flight_read_step_at(f, i, &s) && s.step / REPORT_STEPS_WINDOW % every == 0)
            write_step(&s, all + REPORT_STEP_NUMBERS * got++);
    }
    *ret_n = got * REPORT_STEP_NUMBERS;
    if (got > 0)
        return all;
    free(all);
    return NULL;
}
