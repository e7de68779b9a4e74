#include "server/control/rank_steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "server/cluster/cluster.h"
#include "server/cluster/meter.h"
#include "server/cluster/node.h"
#include "server/cluster/step_parts.h"
#include "server/control/state.h"
#include "server/http/call.h"

static const enum report_step number_of[STEP_PARTS] = {
    [STEP_PART_ALL] = REPORT_STEP_WALL,    [STEP_PART_COMPUTE] = REPORT_STEP_BUSY, [STEP_PART_TP] = REPORT_STEP_TP,
    [STEP_PART_PP] = REPORT_STEP_PP,       [STEP_PART_DP] = REPORT_STEP_DP,        [STEP_PART_CP] = REPORT_STEP_CP,
    [STEP_PART_OTHER] = REPORT_STEP_WORLD, [STEP_PART_DATA] = REPORT_STEP_DATA,    [STEP_PART_SAVE] = REPORT_STEP_SAVE,
    [STEP_PART_KIB] = REPORT_STEP_KIB};

static const char *const names[STEP_PARTS] = {
    [STEP_PART_ALL] = "step_ms",    [STEP_PART_COMPUTE] = "compute_ms", [STEP_PART_TP] = "tp_ms",
    [STEP_PART_PP] = "pp_ms",       [STEP_PART_DP] = "dp_ms",           [STEP_PART_CP] = "cp_ms",
    [STEP_PART_OTHER] = "other_ms", [STEP_PART_DATA] = "data_ms",       [STEP_PART_SAVE] = "save_ms",
    [STEP_PART_KIB] = "sent_kib"};

void rank_steps_take(struct entry *e, const struct report_rank *told)
{
    if (told->n_steps < REPORT_STEP_NUMBERS || !e->job.live)
        return;
    if (!e->run.parts && step_parts_new(e->job.n_places, &e->run.parts) < 0)
        return;
    for (size_t i = 0; i + REPORT_STEP_NUMBERS <= told->n_steps; i += REPORT_STEP_NUMBERS) {
        const int *v = told->steps + i;
        struct step_parts_sum s = {.steps = (float)v[REPORT_STEP_SPAN], .counted = (float)v[REPORT_STEP_COUNT]};

        for (int k = 0; k < STEP_PARTS; k++)
            s.v[k] = (float)v[number_of[k]];
        if (v[REPORT_STEP_SPAN] > 0 && v[REPORT_STEP_SPAN] <= REPORT_SPAN_MAX)
            step_parts_take(e->run.parts, (size_t)told->rank, (uint64_t)v[REPORT_STEP], &s);
    }
}

/* --- telling ------------------------------------------------------------------------------------------- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(round(v * 1e4) / 1e4) : json_null();
}

static double told(const struct step_parts_sum *s, int part)
{
    return step_parts_mean(s, (enum step_part)part) / (part == STEP_PART_KIB ? 1 : 1e3);
}

static json_t *parts_new(const struct step_parts_sum *s)
{
    json_t *o = json_object();

    for (int k = 0; k < STEP_PARTS; k++)
        (void)json_object_set_new(o, names[k], number(told(s, k)));
    (void)json_object_set_new(o, "rest_ms", number(step_parts_rest(s) / 1e3));
    return o;
}

/* Of ranks from first to end: what each told of bucket i, or, for -1, last. */
static struct step_parts_sum sum_of(const struct step_parts *p, size_t first, size_t end, int i)
{
    struct step_parts_sum all = {.steps = 0};

    for (size_t r = first; p && r < end; r++)
        step_parts_add(&all, i < 0 ? step_parts_last(p, r) : step_parts_bucket(p, r, (size_t)i));
    return all;
}

/* Ranks of a stage follow each other (mesh.h of the ranks: tp fastest, then cp, dp, pp). */
static size_t in_a_stage(const struct job *j)
{
    const struct layout *l = &j->layout;
    bool laid_out = (int64_t)l->tp * l->cp * l->dp * l->pp == (int64_t)j->n_places;

    return laid_out ? (size_t)l->tp * (size_t)l->cp * (size_t)l->dp : j->n_places;
}

static json_t *ranks_new(const struct core *c, const struct entry *e, size_t stage)
{
    json_t *all = json_array();

    for (size_t r = 0; r < e->job.n_places; r++) {
        const struct job_place *at = &e->job.places[r];
        const struct slot *slot = cluster_slot(&c->cluster, at);
        int memory = slot ? meter_read_device(slot).memory : METER_NONE;
        struct step_parts_sum s = sum_of(e->run.parts, r, r + 1, -1);
        json_t *o = json_pack("{s:I, s:s, s:i, s:s, s:I, s:o, s:o}", "rank", (json_int_t)r, "node", at->node, "slot",
                              at->slot, "class", at->class_, "stage", (json_int_t)(r / stage), "memory_percent",
                              memory < 0 ? json_null() : json_integer(memory), "parts", parts_new(&s));

        (void)json_array_append_new(all, o);
    }
    return all;
}

static json_t *stages_new(const struct entry *e, size_t stage)
{
    json_t *all = json_array();

    for (size_t r = 0; r < e->job.n_places; r += stage) {
        struct step_parts_sum s = sum_of(e->run.parts, r, r + stage, -1);

        (void)json_array_append_new(all, json_pack("{s:I, s:I, s:o}", "stage", (json_int_t)(r / stage), "ranks",
                                                   (json_int_t)stage, "parts", parts_new(&s)));
    }
    return all;
}

/* Means over the ranks from first to end, by bucket. */
static json_t *series_new(const struct entry *e, size_t first, size_t end)
{
    json_t *columns[STEP_PARTS + 1], *steps = json_array(), *o;
    uint64_t begin = 0, width = 1;
    size_t n = e->run.parts ? step_parts_buckets(e->run.parts, &begin, &width) : 0;

    o = json_pack("{s:I, s:o}", "width", (json_int_t)width, "step", steps);
    for (int k = 0; k <= STEP_PARTS; k++) {
        columns[k] = json_array();
        (void)json_object_set_new(o, k < STEP_PARTS ? names[k] : "rest_ms", columns[k]);
    }
    for (size_t i = 0; i < n; i++) {
        struct step_parts_sum s = sum_of(e->run.parts, first, end, (int)i);

        (void)json_array_append_new(steps, json_integer((json_int_t)(begin + i * width)));
        for (int k = 0; k < STEP_PARTS; k++)
            (void)json_array_append_new(columns[k], number(told(&s, k)));
        (void)json_array_append_new(columns[STEP_PARTS], number(step_parts_rest(&s) / 1e3));
    }
    return o;
}

void rank_steps_answer(struct core *c, struct call *call, const struct entry *e)
{
    int64_t stage = call_number(call, "stage", -1), rank = call_number(call, "rank", -1);
    size_t in_stage = in_a_stage(&e->job), first = 0, end = e->job.n_places;

    if (rank >= (int64_t)end || stage >= (int64_t)(end / in_stage) || (rank >= 0 && stage >= 0)) {
        call_problem(call, 422, "query-invalid",
                     "the run has ranks 0 to %zu in stages 0 to %zu: name one of them by 'rank' or 'stage', or neither",
                     end - 1, end / in_stage - 1);
        return;
    }
    if (rank >= 0 || stage >= 0) {
        first = rank >= 0 ? (size_t)rank : (size_t)stage * in_stage;
        end = first + (rank >= 0 ? 1 : in_stage);
    }
    call_answer_new(call, 200,
                    json_pack("{s:I, s:o, s:o, s:o}", "attempt", (json_int_t)e->job.generation, "ranks",
                              ranks_new(c, e, in_stage), "stages", stages_new(e, in_stage), "series",
                              series_new(e, first, end)));
}
