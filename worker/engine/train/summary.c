#include "worker/engine/train/summary.h"

#include "base/clock.h"

static uint32_t count(int64_t n)
{
    return n <= 0 ? 0 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

void summary_begin(struct summary *s)
{
    uint32_t before[FLIGHT_KINDS];

    (void)flight_calls_take(s->flight, before); /* between two steps */
    s->step = (struct flight_step){.flags = s->before | (s->told < SUMMARY_WARM_STEPS ? FLIGHT_WARM : 0)};
    s->data_us = 0;
    s->cpu_us = clock_thread_us();
    s->began_us = clock_mono_us();
}

void summary_computed(struct summary *s, uint64_t step, int64_t saved_us, double work)
{
    int64_t busy = clock_mono_us() - s->began_us - s->data_us - (saved_us - s->saved_us);
    int64_t calls_cpu_us = flight_calls_take(s->flight, s->step.call_us);

    for (int i = 0; i < FLIGHT_KINDS; i++)
        busy -= s->step.call_us[i];
    s->step.step = (uint32_t)step;
    s->step.busy_us = count(busy);
    s->step.data_us = count(s->data_us);
    s->step.save_us = count(saved_us - s->saved_us);
    s->step.cpu_us = count(clock_thread_us() - s->cpu_us - calls_cpu_us);
    s->step.work = count((int64_t)work);
    s->saved_us = saved_us;
}

void summary_end(struct summary *s, uint32_t flags, uint64_t sent)
{
    s->step.flags |= flags;
    s->step.wall_us = count(clock_mono_us() - s->began_us);
    s->step.kib = count((int64_t)((sent - s->sent) >> 10));
    s->sent = sent;
    s->before = flags;
    s->told++;
    flight_step_add(s->flight, &s->step);
}
