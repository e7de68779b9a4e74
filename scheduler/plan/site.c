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

struct plan_device plan_device_measured(struct plan_device d, const struct plan_profile *p, bool bf16)
{
    double flops = profile_flops(profile_rates(p, bf16));

    if (flops > 0) {
        d.measured = p;
        d.flops = flops;
    }
    if (p->copy_bytes_per_s > 0)
        d.bytes_per_s = p->copy_bytes_per_s;
    if (p->call_s > 0)
        d.call_s = p->call_s;
    if (d.memory_bytes == 0)
        d.memory_bytes = p->memory_bytes;
    if (d.memory_bytes > p->context_bytes)
        d.memory_bytes -= p->context_bytes;
    return d;
}

void plan_links_measured(struct plan_site *site, const struct plan_profile *p)
{
    site->inside.measured = p;
}

uint64_t plan_site_program(const struct plan_site *site)
{
    const struct plan_profile *p = site->group[0].device.measured;

    return p ? p->program_bytes : 0;
}

double plan_site_speed(const struct plan_cost *predicted, double measured_s)
{
    double busy = predicted->compute_s + predicted->update_s, messages = predicted->tp_s + predicted->exchange_s;
    double left = measured_s - messages;
    /* a pipeline's waits grow with its arithmetic */
    double times = (busy + predicted->idle_s) / (left > 0.01 * measured_s ? left : 0.01 * measured_s);

    return times > SPEED_MAX ? SPEED_MAX : times < 1 / SPEED_MAX ? 1 / SPEED_MAX : times;
}
