#include "scheduler/plan/site.h"

#include <string.h>

#define SPEED_MAX 100.0

struct plan_device plan_device_assumed(const char *kind, int threads, bool bf16, uint64_t memory_bytes)
{
    double n = threads < 1 ? 1 : threads;

    if (strcmp(kind, "cpu") == 0)
        return (struct plan_device){
            .flops = 2e10 * n, .bytes_per_s = 6e9, .call_s = 5e-5, .memory_bytes = memory_bytes};
    return (struct plan_device){
        .flops = bf16 ? 2e14 : 2e13, .bytes_per_s = 1e12, .call_s = 1e-4, .memory_bytes = memory_bytes};
}

void plan_links_assumed(const char *kind, struct plan_site *ret)
{
    bool cpu = strcmp(kind, "cpu") == 0;

    ret->inside = (struct plan_link){.latency_s = 1e-5, .bytes_per_s = cpu ? 4e9 : 1e11};
    ret->between = (struct plan_link){.latency_s = 5e-5, .bytes_per_s = cpu ? 1e9 : 2e10};
}

double plan_site_speed(const struct plan_cost *predicted, double measured_s)
{
    double busy = predicted->compute_s + predicted->update_s, messages = predicted->tp_s + predicted->exchange_s;
    double left = measured_s - messages;
    /* a pipeline's waits grow with its arithmetic */
    double times = (busy + predicted->idle_s) / (left > 0.01 * measured_s ? left : 0.01 * measured_s);

    return times > SPEED_MAX ? SPEED_MAX : times < 1 / SPEED_MAX ? 1 / SPEED_MAX : times;
}
