#include "server/cluster/gpus.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "server/cluster/slots.h"

static const char *why_of(const json_t *gpu)
{
    const char *why = json_string_value(json_object_get(gpu, "why"));

    return why ? why : "";
}

static struct slot *slot_of(struct node *n, const json_t *gpu)
{
    const json_t *number = json_object_get(gpu, "slot");

    return json_is_integer(number) ? node_slot(n, (int)json_integer_value(number)) : NULL;
}

#define APART_US INT64_C(5000000) /* the same error is told for a while */
#define DAY_US INT64_C(86400000000)
#define APP_MILLI 100 /* of an error that is most likely a program's */

/* An error that was found of a GPU, unless it was taken in before. What is most likely the program's is the device's
 * when another job has met it there within a day. */
static void take_error(struct node *n, struct slot *s, const json_t *gpu, int64_t wall_us, struct notes *notes,
                       struct gpus_errors *errors)
{
    const json_t *found = json_object_get(gpu, "found");
    const char *what = json_string_value(json_object_get(found, "what"));
    const char *level = json_string_value(json_object_get(found, "level"));
    json_int_t age_ms = json_integer_value(json_object_get(found, "age_ms"));
    json_int_t blame = json_integer_value(json_object_get(found, "blame"));
    int64_t at_us = wall_us - age_ms * 1000;
    struct gpus_error e = {.slot = s->slot};

    if (!what || !level || age_ms < 0 || age_ms > 600000 || at_us - s->found_us < APART_US ||
        errors->n == GPUS_ERRORS_MAX)
        return;
    s->found_us = at_us;
    e.milli = json_is_true(json_object_get(found, "node")) ? 1000 : blame < 0 ? 0 : blame > 1000 ? 1000 : (int)blame;
    e.stop = strcmp(level, "stop") == 0;
    if (e.milli == APP_MILLI && s->job != 0) {
        if (s->error_job != 0 && s->error_job != s->job && at_us - s->error_us < DAY_US)
            e.milli = 1000;
        s->error_job = s->job;
        s->error_us = at_us;
    }
    (void)snprintf(e.why, sizeof(e.why), "device %d: %.120s", s->slot, what);
    utf8_patch(e.why, strlen(e.why));
    errors->v[errors->n++] = e;
    notes_add_new(notes, 0, "gpu-error", json_pack("{s:s, s:i, s:O}", "node", n->name, "slot", s->slot, "gpu", gpu),
                  "%s of %s", e.why, n->name);
}

bool gpus_take(struct node *n, const json_t *body, int64_t wall_us, struct notes *notes, struct gpus_errors *errors)
{
    json_t *all = json_object_get(body, "gpus"), *gpu;
    bool changed = false;
    size_t i;

    if (!json_is_array(all) || json_array_size(all) > SLOTS_MAX)
        return false;
    json_decref(n->gpus);
    n->gpus = json_incref(all);
    json_array_foreach (all, i, gpu) {
        struct slot *s = slot_of(n, gpu);
        bool ill = *why_of(gpu);

        if (s)
            take_error(n, s, gpu, wall_us, notes, errors);
        if (!s || s->ill == ill)
            continue;
        s->ill = ill;
        changed = true;
        notes_add_new(notes, 0, ill ? "gpu-ill" : "gpu-well",
                      json_pack("{s:s, s:i, s:O}", "node", n->name, "slot", s->slot, "gpu", gpu),
                      "device %d of %s %s%s", s->slot, n->name, ill ? "takes no work: " : "is well again", why_of(gpu));
    }
    return changed;
}

void gpus_shift(struct node *n, int64_t by_us)
{
    for (size_t i = 0; i < n->n_slots; i++) {
        n->slots[i].found_us += n->slots[i].found_us > 0 ? by_us : 0;
        n->slots[i].error_us += n->slots[i].error_us > 0 ? by_us : 0;
    }
}

json_t *gpus_view(const struct node *n, int slot)
{
    json_t *gpu;
    size_t i;

    json_array_foreach (n->gpus, i, gpu) {
        if (json_integer_value(json_object_get(gpu, "slot")) == slot)
            return json_incref(gpu);
    }
    return NULL;
}

static const struct {
    const char *name, *help, *field;
    long long scale;
} metrics[GPUS_METRICS] = {
    [GPUS_UTILIZATION] = {"muster_gpu_utilization_percent", "Share of the time that some kernel ran", "utilization", 1},
    [GPUS_MEMORY] = {"muster_gpu_memory_used_bytes", "Memory in use", "memory_used_mib", 1 << 20},
    [GPUS_POWER] = {"muster_gpu_power_watts", "Power drawn", "power_w", 1},
    [GPUS_POWER_LIMIT] = {"muster_gpu_power_limit_watts", "Most power that it may draw", "power_limit_w", 1},
    [GPUS_CLOCK] = {"muster_gpu_sm_clock_hertz", "Clock of its multiprocessors", "sm_mhz", 1000000},
    [GPUS_TEMPERATURE] = {"muster_gpu_temperature_celsius", "Temperature", "temperature_c", 1},
    [GPUS_ECC] = {"muster_gpu_ecc_uncorrected", "Uncorrected ECC errors since the driver was loaded", "ecc_uncorrected",
                  1},
};

void gpus_print_head(struct buf *b, enum gpus_metric m)
{
    (void)buf_printf(b, "# HELP %s %s\n# TYPE %s gauge\n", metrics[m].name, metrics[m].help, metrics[m].name);
}

void gpus_print_node(struct buf *b, enum gpus_metric m, const struct node *n)
{
    json_t *gpu;
    size_t i;

    json_array_foreach (n->gpus, i, gpu) {
        const json_t *value = json_object_get(gpu, metrics[m].field);

        if (json_is_integer(value))
            (void)buf_printf(b, "%s{node=\"%s\",slot=\"%lld\"} %lld\n", metrics[m].name, n->name,
                             (long long)json_integer_value(json_object_get(gpu, "slot")),
                             (long long)json_integer_value(value) * metrics[m].scale);
    }
}
