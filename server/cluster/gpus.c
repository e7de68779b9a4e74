#include "server/cluster/gpus.h"

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

bool gpus_take(struct node *n, const json_t *body, struct notes *notes)
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

/* One sample a GPU that says it. */
static void print_metric(const struct cluster *cl, struct buf *b, const char *name, const char *help, const char *field,
                         long long scale)
{
    (void)buf_printf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (size_t i = 0; i < cl->n_nodes; i++) {
        const struct node *n = cl->nodes[i];
        json_t *gpu;
        size_t k;

        json_array_foreach (n->gpus, k, gpu) {
            const json_t *value = json_object_get(gpu, field);

            if (json_is_integer(value))
                (void)buf_printf(b, "%s{node=\"%s\",slot=\"%lld\"} %lld\n", name, n->name,
                                 (long long)json_integer_value(json_object_get(gpu, "slot")),
                                 (long long)json_integer_value(value) * scale);
        }
    }
}

void gpus_metrics(const struct cluster *cl, struct buf *b)
{
    bool any = false;

    for (size_t i = 0; i < cl->n_nodes && !any; i++)
        any = json_array_size(cl->nodes[i]->gpus) > 0;
    if (!any)
        return;
    print_metric(cl, b, "muster_gpu_utilization_percent", "Share of the time that some kernel ran", "utilization", 1);
    print_metric(cl, b, "muster_gpu_memory_used_bytes", "Memory in use", "memory_used_mib", 1 << 20);
    print_metric(cl, b, "muster_gpu_power_watts", "Power drawn", "power_w", 1);
    print_metric(cl, b, "muster_gpu_temperature_celsius", "Temperature", "temperature_c", 1);
    print_metric(cl, b, "muster_gpu_ecc_uncorrected", "Uncorrected ECC errors since the driver was loaded",
                 "ecc_uncorrected", 1);
}
