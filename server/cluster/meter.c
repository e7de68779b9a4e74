#include "server/cluster/meter.h"

#include <string.h>

/* A number of a GPU that is from 0 to most; METER_NONE: it has none. */
static int of_gpu(const json_t *gpu, const char *name, int most)
{
    const json_t *v = json_object_get(gpu, name);
    json_int_t x = json_is_integer(v) ? json_integer_value(v) : METER_NONE;

    return x >= 0 && x <= most ? (int)x : METER_NONE;
}

static void take_gpu(struct slot_meter *m, const json_t *gpu)
{
    int use = of_gpu(gpu, "utilization", 100), power = of_gpu(gpu, "power_w", 10000);
    int used = of_gpu(gpu, "memory_used_mib", INT32_MAX), all = of_gpu(gpu, "memory_mib", INT32_MAX);
    int temperature = of_gpu(gpu, "temperature_c", 200);

    m->use += use >= 0 ? use : 0;
    m->n_use += use >= 0;
    m->power += power >= 0 ? power : 0;
    m->n_power += power >= 0;
    m->memory = used >= 0 && all > 0 && used <= all ? (uint8_t)(100 * (int64_t)used / all) : UINT8_MAX;
    m->temperature = temperature >= 0 ? (uint8_t)temperature : UINT8_MAX;
}

void meter_take(struct node *n, const int *host, size_t n_host)
{
    const json_t *gpu;
    size_t i;

    for (i = 0; i < n_host && i < REPORT_HOST_NUMBERS; i++) {
        n->meter.sum[i] += host[i] >= 0 ? host[i] : 0;
        n->meter.n[i] += host[i] >= 0;
    }
    for (i = 0; i < n->n_slots; i++) {
        n->slots[i].meter.busy += n->slots[i].job != 0;
        n->slots[i].meter.n++;
    }
    json_array_foreach (n->gpus, i, gpu) {
        struct slot *s = node_slot(n, of_gpu(gpu, "slot", INT32_MAX));

        if (s)
            take_gpu(&s->meter, gpu);
    }
}

static int mean(int64_t sum, int32_t n)
{
    return n > 0 ? (int)((sum + n / 2) / n) : METER_NONE;
}

int64_t meter_read_host(const struct node *n, enum report_host what)
{
    return mean(n->meter.sum[what], n->meter.n[what]);
}

void meter_begin(struct node *n)
{
    n->meter = (struct node_meter){.sum = {0}};
    for (size_t i = 0; i < n->n_slots; i++)
        n->slots[i].meter = (struct slot_meter){0};
}

struct meter_device meter_read_device(const struct slot *s)
{
    const struct slot_meter *m = &s->meter;
    bool gpu = m->n_use > 0 || m->n_power > 0;
    return (struct meter_device){.busy = m->n > 0      ? mean(100 * (int64_t)m->busy, m->n)
                                         : s->job != 0 ? 100
                                                       : 0,
                                 .use = mean(m->use, m->n_use),
                                 .power_w = mean(m->power, m->n_power),
                                 .memory = gpu && m->memory <= 100 ? m->memory : METER_NONE,
                                 .temperature = gpu && m->temperature <= 200 ? m->temperature : METER_NONE};
}
