#include "api/spec_plan.h"

#include <errno.h>
#include <string.h>

#define PLAN_TEXT_MAX (1u << 20)

_Static_assert((int)PLAN_1F1B == PIPELINE_1F1B && (int)PLAN_INTERLEAVED == PIPELINE_INTERLEAVED &&
                   (int)PLAN_ZB_H1 == PIPELINE_ZB_H1,
               "schedules have the same numbers");
_Static_assert((int)PLAN_RECOMPUTE_SELECTIVE == RECOMPUTE_SELECTIVE && (int)PLAN_RECOMPUTE_FULL == RECOMPUTE_FULL,
               "kinds of recomputation have the same numbers");
_Static_assert(PLAN_STAGES_MAX == SPEC_STAGES_MAX, "as many stages");

/* How many documents a step's micro-batches hold is seen when they are read. What is planned is one full micro-batch
 * for each virtual worker, a sequence of batch.capacity on each rank that shares it. */
static bool of_documents(const struct job_spec *spec)
{
    return spec->train.data.samples == SAMPLES_DOCUMENTS;
}

static int sequences_of(const struct job_spec *spec)
{
    return of_documents(spec) ? spec_workers(spec) : spec->train.batch.sequences;
}

static int micro_of(const struct job_spec *spec)
{
    return of_documents(spec) ? 1 : spec->train.batch.micro;
}

static int given_cp(const struct job_spec *spec)
{
    return spec->parallel.cp == SPEC_AUTO ? 1 : spec->parallel.cp;
}

struct plan_facts spec_plan_facts(const struct job_spec *spec)
{
    if (spec->kind == JOB_COMMAND)
        return (struct plan_facts){.tp = 1,
                                   .pp = 1,
                                   .cp = 1,
                                   .virtual_workers = spec->devices.max,
                                   .sequences = spec->devices.max,
                                   .micro = 1};
    return (struct plan_facts){
        .tp = spec->parallel.tp,
        .pp = spec->parallel.pp,
        .cp = given_cp(spec),
        .virtual_workers = spec_workers(spec),
        .sequences = sequences_of(spec),
        .micro = micro_of(spec),
        .layers = spec->train.model.layers,
        .heads = spec->train.model.heads,
    };
}

struct plan_job spec_plan_job(const struct job_spec *spec)
{
    const typeof(spec->train.model) *m = &spec->train.model;

    return (struct plan_job){
        .model = {.family = m->family == MODEL_LLAMA ? PLAN_LLAMA : PLAN_GPT2,
                  .layers = m->layers,
                  .hidden = m->hidden,
                  .heads = m->heads,
                  .kv_heads = m->kv_heads > 0 ? m->kv_heads : m->heads,
                  .ffn = m->ffn,
                  .context = m->context,
                  .vocab = m->vocab,
                  .tied = m->tie_embeddings,
                  .qkv_bias = m->qkv_bias,
                  .qk_norm = m->qk_norm,
                  .fused = m->fused,
                  .dim = m->head_dim,
                  .window = m->window},
        .sequences = sequences_of(spec),
        .length = of_documents(spec) ? spec->train.batch.capacity * given_cp(spec) : spec->train.batch.length,
        .virtual_workers = spec_workers(spec),
        .eval_sequences = spec->train.data.holdout > 0 ? spec->train.eval.sequences : 0,
        .zero = spec->parallel.zero,
        .bf16 = spec->train.precision == PRECISION_BF16,
        .sequence_parallel = spec->parallel.sequence_parallel == 1,
        .cp_heads = spec->parallel.cp_mode == CP_ULYSSES,
        .dp_coded = strcmp(spec->compress.dp, "none") != 0,
        .stored = strcmp(spec->memory.optimizer, "files") == 0,
        .dp_keyed = strcmp(spec->compress.dp, "none") != 0 && spec->parallel.exact == EXACT_STRICT,
    };
}

struct plan_wish spec_plan_wish(const struct job_spec *spec)
{
    const typeof(spec->parallel) *p = &spec->parallel;
    struct plan_wish w = {
        .tp = p->tp == SPEC_AUTO && p->exact == EXACT_STRICT ? 1 : p->tp,
        .pp = p->pp,
        .chunks = p->chunks,
        .cp = given_cp(spec),
        .any_cp = p->cp == SPEC_AUTO,
        .any_workers = p->virtual_workers == SPEC_AUTO,
        .any_sequence_parallel = p->sequence_parallel == SPEC_AUTO_SWITCH,
        .micro = micro_of(spec),
        .any_schedule = p->schedule == PIPELINE_AUTO,
        .any_recompute = p->recompute == RECOMPUTE_AUTO,
        .n_layers = p->layers.n,
        .n_remade = p->recompute_layers.n,
    };

    if (!w.any_schedule)
        w.schedule = (enum plan_schedule)p->schedule;
    if (!w.any_recompute)
        w.recompute = (enum plan_recompute)p->recompute;
    memcpy(w.layers, p->layers.v, sizeof(w.layers));
    memcpy(w.remade, p->recompute_layers.v, sizeof(w.remade));
    return w;
}

struct plan_wish spec_plan_kept(const struct plan_shape *shape)
{
    struct plan_wish w = {
        .tp = shape->tp,
        .cp = shape->cp,
        .pp = shape->pp,
        .chunks = shape->chunks,
        .micro = shape->micro,
        .schedule = shape->schedule == SCHEDULE_ZB_H1 ? PLAN_ZB_H1
                    : shape->chunks > 1               ? PLAN_INTERLEAVED
                                                      : PLAN_1F1B,
        .recompute = shape->recompute,
        .least_recompute = shape->n_remade > 0,
        .n_remade = shape->n_remade,
        .n_layers = shape->n_layers,
    };

    memcpy(w.layers, shape->layers, sizeof(w.layers));
    memcpy(w.remade, shape->remade, sizeof(w.remade));
    return w;
}

static int number(const json_t *o, const char *key, int most)
{
    json_int_t n = json_integer_value(json_object_get(o, key));

    return n < 1 || n > most ? 0 : (int)n;
}

void spec_plan_keep(const json_t *plan, struct plan_job *job)
{
    const json_t *p = json_object_get(json_object_get(plan, "settled"), "parallel");
    int v = number(p, "virtual_workers", job->sequences);

    if (v > 0 && job->sequences % v == 0)
        job->virtual_workers = v;
    if (json_is_boolean(json_object_get(p, "sequence_parallel")))
        job->sequence_parallel = json_is_true(json_object_get(p, "sequence_parallel"));
}

json_t *spec_plan_json(const struct plan_result *plan)
{
    struct buf text;
    json_t *o = NULL;

    buf_init(&text, PLAN_TEXT_MAX);
    if (plan_print(plan, &text) == 0)
        o = json_loadb(buf_text(&text), text.len, 0, NULL);
    buf_clear(&text);
    return o;
}

int spec_settle(json_t *doc, const json_t *plan)
{
    const json_t *train = json_object_get(doc, "train");
    const char *samples = json_string_value(json_object_get(json_object_get(train, "data"), "samples"));
    json_auto_t *settled = json_deep_copy(json_object_get(plan, "settled"));

    if (!json_is_object(settled))
        return -EINVAL;
    if (samples && strcmp(samples, "documents") == 0) /* batch.micro is the policy's then, not the layout's */
        (void)json_object_del(settled, "train");
    if (json_is_string(json_object_get(doc, "parallel"))) /* the short form */
        (void)json_object_del(doc, "parallel");
    return json_object_update_recursive(doc, settled) == 0 ? 0 : -ENOMEM;
}

/* The index of a text among words; -1: it is none of them. */
static int word(const json_t *o, const char *key, const char *const *words)
{
    const char *text = json_string_value(json_object_get(o, key));

    for (int i = 0; text && words[i]; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    return -1;
}

/* A list of whole numbers from least to 1024. False: it is none, or longer than there may be stages. */
static bool counts(const json_t *list, json_int_t least, uint16_t ret[PLAN_STAGES_MAX], int *ret_n)
{
    const json_t *v;
    size_t i;

    if (json_array_size(list) > PLAN_STAGES_MAX)
        return false;
    json_array_foreach (list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > 1024)
            return false;
        ret[i] = (uint16_t)json_integer_value(v);
    }
    *ret_n = (int)json_array_size(list);
    return true;
}

int spec_plan_shape(const json_t *plan, struct plan_shape *ret)
{
    static const char *const schedules[] = {"1f1b", "interleaved", "zb-h1", NULL};
    static const char *const recomputes[] = {"none", "selective", "full", NULL};
    const json_t *settled = json_object_get(plan, "settled"), *p = json_object_get(settled, "parallel");
    const json_t *batch = json_object_get(json_object_get(settled, "train"), "batch");
    int schedule = word(p, "schedule", schedules), recompute = word(p, "recompute", recomputes);
    struct plan_shape s = {
        .tp = number(p, "tp", PLAN_RANKS_MAX),
        .pp = number(p, "pp", PLAN_RANKS_MAX),
        .dp = number(json_object_get(plan, "layout"), "dp", PLAN_RANKS_MAX),
        .cp = number(json_object_get(plan, "layout"), "cp", PLAN_RANKS_MAX),
        .chunks = number(p, "chunks", SCHEDULE_CHUNKS_MAX),
        .micro = number(batch, "micro", 1 << 20),
    };

    if (!s.tp || !s.pp || !s.dp || !s.chunks || !s.micro || schedule < 0 || recompute < 0 ||
        !counts(json_object_get(p, "layers"), 1, s.layers, &s.n_layers) ||
        !counts(json_object_get(p, "recompute_layers"), 0, s.remade, &s.n_remade))
        return -EINVAL;
    s.schedule = schedule == PIPELINE_ZB_H1 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
    s.recompute = (enum plan_recompute)recompute;
    *ret = s;
    return 0;
}
