/* A plan in words and as JSON. */
#include <errno.h>
#include <stdio.h>

#include "scheduler/plan/search.h"

#define OPTION_TEXT_MAX (PLAN_SHAPE_TEXT_MAX + 64)

static const char *const recompute_names[] = {"none", "selective", "full"};

static const char *schedule_name(const struct plan_shape *s)
{
    return s->schedule == SCHEDULE_ZB_H1 ? "zb-h1" : s->chunks > 1 ? "interleaved" : "1f1b";
}

void plan_shape_text(const struct plan_shape *s, char ret[PLAN_SHAPE_TEXT_MAX])
{
    char pipe[48] = "", remake[48] = "", cp[24] = "";
    int remade = 0;

    if (s->pp > 1 && s->chunks > 1)
        (void)snprintf(pipe, sizeof(pipe), ", %s with %d chunks", schedule_name(s), s->chunks);
    else if (s->pp > 1)
        (void)snprintf(pipe, sizeof(pipe), ", %s", schedule_name(s));
    for (int i = 0; i < s->n_remade; i++)
        remade += s->remade[i];
    if (s->n_remade > 0)
        (void)snprintf(remake, sizeof(remake), ", recompute %s of %d layers", recompute_names[s->recompute], remade);
    else if (s->recompute != PLAN_RECOMPUTE_NONE)
        (void)snprintf(remake, sizeof(remake), ", recompute %s", recompute_names[s->recompute]);
    if (plan_cp(s) > 1)
        (void)snprintf(cp, sizeof(cp), " x cp %d", s->cp);
    (void)snprintf(ret, PLAN_SHAPE_TEXT_MAX, "tp %d x pp %d%s x dp %d, micro %d%s%s", s->tp, s->pp, cp, s->dp, s->micro,
                   pipe, remake);
}

static void option_text(const struct plan_option *o, const struct plan_job *job, char ret[OPTION_TEXT_MAX])
{
    char shape[PLAN_SHAPE_TEXT_MAX], workers[32] = "";

    plan_shape_text(&o->shape, shape);
    if (o->virtual_workers != job->virtual_workers)
        (void)snprintf(workers, sizeof(workers), ", %d virtual workers", o->virtual_workers);
    (void)snprintf(ret, OPTION_TEXT_MAX, "%s%s%s", shape, o->sequence_parallel ? ", sequence parallel" : "", workers);
}

static void print_shape(const struct plan_shape *s, struct buf *out)
{
    (void)buf_printf(out,
                     "\"layout\":{\"tp\":%d,\"pp\":%d,\"dp\":%d,\"cp\":%d},\"devices\":%d,\"micro\":%d,"
                     "\"schedule\":\"%s\",\"chunks\":%d,\"recompute\":\"%s\"",
                     s->tp, s->pp, s->dp, plan_cp(s), plan_stage_ranks(s) * s->pp, s->micro, schedule_name(s),
                     s->chunks, recompute_names[s->recompute]);
}

static void print_layers(const struct plan_split *split, struct buf *out)
{
    (void)buf_addstr(out, "[");
    for (int i = 0; i < split->stages; i++) {
        int begin, end;

        plan_split_layers(split, i, &begin, &end);
        (void)buf_printf(out, "%s%d", i ? "," : "", end - begin);
    }
    (void)buf_addstr(out, "]");
}

static void print_counts(const char *name, const uint16_t *v, int n, struct buf *out)
{
    if (n > 0)
        (void)buf_printf(out, ",\"%s\":", name);
    for (int i = 0; i < n; i++)
        (void)buf_printf(out, "%c%d", i ? ',' : '[', v[i]);
    (void)buf_addstr(out, n > 0 ? "]" : "");
}

/* The options of a spec that the plan settles, as JSON to be merged into the spec. */
static int print_settled(const struct plan_job *job, const struct plan_shape *s, struct buf *out)
{
    (void)buf_printf(
        out,
        "{\"parallel\":{\"tp\":%d,\"pp\":%d,\"cp\":%d,\"schedule\":\"%s\",\"chunks\":%d,\"recompute\":\"%s\","
        "\"sequence_parallel\":%s,\"virtual_workers\":%d",
        s->tp, s->pp, plan_cp(s), schedule_name(s), s->chunks, recompute_names[s->recompute],
        job->sequence_parallel ? "true" : "false", job->virtual_workers);
    print_counts("layers", s->layers, s->n_layers, out);
    print_counts("recompute_layers", s->remade, s->n_remade, out);
    (void)buf_printf(out, "},\"train\":{\"batch\":{\"micro\":%d}}}", s->micro);
    return buf_failed(out) ? -EMSGSIZE : 0;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void print_cost(const struct plan_cost *c, struct buf *out)
{
    (void)buf_printf(out,
                     "\"step_ms\":%.6g,\"breakdown_ms\":{\"compute\":%.6g,\"tp\":%.6g,\"idle\":%.6g,"
                     "\"exchange\":%.6g,\"update\":%.6g}",
                     c->step_s * 1e3, c->compute_s * 1e3, c->tp_s * 1e3, c->idle_s * 1e3, c->exchange_s * 1e3,
                     c->update_s * 1e3);
}

static void print_room(uint64_t bytes, struct buf *out)
{
    if (bytes > 0)
        (void)buf_printf(out, "%.1f", mib(bytes));
    else
        (void)buf_addstr(out, "null");
}

/* Why one that was weighed was not taken. */
static void print_beaten(const struct plan_job *job, const struct plan_option *best, const struct plan_option *o,
                         struct buf *out)
{
    char text[OPTION_TEXT_MAX];
    double slower = (o->cost.step_s / best->cost.step_s - 1) * 100;
    const struct plan_cost *c = &o->cost, *b = &best->cost;
    double idle = c->idle_s - b->idle_s, tp = c->tp_s - b->tp_s, exchange = c->exchange_s - b->exchange_s;
    double compute = c->compute_s - b->compute_s, update = c->update_s - b->update_s;
    const char *most = idle >= tp && idle >= exchange && idle >= compute && idle >= update ? "waits in the pipeline"
                       : tp >= exchange && tp >= compute && tp >= update                   ? "sums over tp"
                       : exchange >= compute && exchange >= update                         ? "exchange between replicas"
                       : compute >= update                                                 ? "arithmetic"
                                           : "adding up leaves and the optimizer";

    option_text(o, job, text);
    (void)buf_addstr(out, "{");
    print_shape(&o->shape, out);
    (void)buf_printf(out, ",\"fits\":%s,\"memory_mib\":%.1f,\"memory_limit_mib\":", o->fits ? "true" : "false",
                     mib(plan_memory_all(&o->memory)));
    print_room(o->room_bytes, out);
    if (!o->fits) {
        (void)buf_printf(out,
                         ",\"step_ms\":null,\"slower_percent\":null,\"why\":\"%s: does not fit, the rank at place "
                         "%d of the pipeline needs %.1f MiB of %.1f\"}",
                         text, o->tightest, mib(plan_memory_all(&o->memory)), mib(o->room_bytes));
        return;
    }
    (void)buf_printf(out, ",\"step_ms\":%.6g,\"slower_percent\":%.4g,", o->cost.step_s * 1e3, slower);
    if (slower > 0.05)
        (void)buf_printf(out, "\"why\":\"%s: %.1f %% slower, mostly %s\"}", text, slower, most);
    else
        (void)buf_printf(out, "\"why\":\"%s: as fast, but less elastic or with more to recompute\"}", text);
}

static void print_why(const struct plan_result *p, struct buf *out)
{
    char text[OPTION_TEXT_MAX];
    const struct plan_cost *c = &p->best.cost;

    option_text(&p->best, &p->job, text);
    (void)buf_printf(out, "%s: %.4g ms a step, %.0f %% of it arithmetic", text, c->step_s * 1e3,
                     100 * c->compute_s / c->step_s);
    if (p->considered > 1)
        (void)buf_printf(out, "; the best of %d layouts for %d device%s", p->considered, p->devices,
                         p->devices == 1 ? "" : "s");
    else
        (void)buf_printf(out, "; nothing was left open");
    if (p->unfit > 0)
        (void)buf_printf(out, ", %d that do not fit into memory left out", p->unfit);
    if (p->parts > 0 && p->in_order_s > c->step_s * 1.0005)
        (void)buf_printf(out,
                         "; its ranks lie on the nodes so that slow links matter least, in their given order it "
                         "would take %.4g ms",
                         p->in_order_s * 1e3);
}

static void print_dedication(const struct plan_result *p, struct buf *out)
{
    if (p->parts == 0)
        return;
    (void)buf_addstr(out, ",\"dedication\":{\"order\":[");
    for (int i = 0; i < p->parts; i++)
        (void)buf_printf(out, "%s%d", i ? "," : "", p->at[i]);
    (void)buf_printf(out, "],\"step_ms_in_order\":%.6g,\"mixed_groups\":%d,\"mixed_groups_in_order\":%d}",
                     p->in_order_s * 1e3, p->mixed, p->mixed_in_order);
}

int plan_print(const struct plan_result *p, struct buf *out)
{
    const struct plan_job *job = &p->job;
    const struct plan_shape *s = &p->best.shape;
    struct plan_split split = plan_split_of(&job->model, s);
    struct plan_memory memory[PLAN_STAGES_MAX];
    int r = plan_stage_memory(job, s, memory, NULL);

    if (r != 0)
        return r;
    (void)buf_addstr(out, "{");
    print_shape(s, out);
    (void)buf_printf(out, ",\"virtual_workers\":%d,\"sequence_parallel\":%s,\"layers\":", job->virtual_workers,
                     p->best.sequence_parallel ? "true" : "false");
    print_layers(&split, out);
    (void)buf_addstr(out, ",");
    print_cost(&p->best.cost, out);
    print_dedication(p, out);
    (void)buf_addstr(out, ",\"memory_mib\":[");
    for (int i = 0; i < s->pp; i++) {
        (void)buf_printf(out,
                         "%s{\"weights\":%.1f,\"gradients\":%.1f,\"optimizer\":%.1f,\"activations\":%.1f,"
                         "\"rest\":%.1f,\"all\":%.1f",
                         i ? "," : "", mib(memory[i].weights), mib(memory[i].gradients), mib(memory[i].optimizer),
                         mib(memory[i].activations), mib(memory[i].rest), mib(plan_memory_all(&memory[i])));
        if (p->room_bytes[i] > 0)
            (void)buf_printf(out, ",\"limit\":%.1f", mib(p->room_bytes[i]));
        (void)buf_addstr(out, "}");
    }
    (void)buf_addstr(out, "],\"memory_limit_mib\":");
    print_room(p->best.room_bytes, out);
    (void)buf_printf(out, ",\"rates\":\"%s\",\"considered\":%d,\"unfit\":%d,\"why\":\"",
                     p->measured ? "measured" : "assumed", p->considered, p->unfit);
    print_why(p, out);
    (void)buf_addstr(out, "\",\"alternatives\":[");
    for (int i = 0; i < p->n_beaten; i++) {
        (void)buf_addstr(out, i ? "," : "");
        print_beaten(job, &p->best, &p->beaten[i], out);
    }
    (void)buf_addstr(out, "],\"settled\":");
    r = print_settled(job, s, out);
    (void)buf_addstr(out, "}");
    return r != 0 ? r : buf_failed(out) ? -EMSGSIZE : 0;
}
