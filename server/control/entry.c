#include "server/control/entry.h"

#include <stdlib.h>
#include <string.h>

#include "api/spec_plan.h"
#include "base/hash.h"
#include "scheduler/diagnose/lag.h"
#include "server/cluster/step_parts.h"
#include "server/control/stalls.h"

#define LEAVE_SLACK_S 10 /* for the agents to hear of it, to kill, and to report */

void entry_set_classes(struct entry *e, const struct classes *k, const struct job_spec *spec)
{
    e->classes_missing = !classes_of_spec(k, spec, &e->classes);
}

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
    uint64_t of[] = {h, hash_xxh3(data, len)};

    return hash_xxh3(of, sizeof(of));
}

/* What makes a step of one job as long as another's on the same devices, its layout aside. */
static uint64_t alike_of(const struct job_spec *spec)
{
    uint64_t h = (uint64_t)spec->kind;

    if (spec->kind == JOB_TRAIN) {
        struct plan_job p = spec_plan_job(spec);
        const struct plan_model *m = &p.model;
        int of[] = {(int)m->family,      m->layers,  m->hidden,   m->heads, m->kv_heads, m->ffn,
                    m->context,          m->vocab,   p.sequences, p.length, p.zero,      p.bf16,
                    p.sequence_parallel, p.cp_heads, p.dp_coded,  p.stored, m->dim,      m->window,
                    m->qk_norm,          m->fused};

        h = mix(h, of, sizeof(of));
        h = mix(h, spec->sequence.policy, strlen(spec->sequence.policy));
        return mix(h, spec->compress.dp, strlen(spec->compress.dp));
    }
    for (char **a = spec->command.argv; a && *a; a++)
        h = mix(h, *a, strlen(*a));
    return h;
}

/* *ret stays NULL where there are none. False: no memory. */
static bool keep_names(const struct spec_names *names, struct spec_names **ret)
{
    if (names->n > 0 && (*ret = malloc(sizeof(**ret))))
        **ret = *names;
    return names->n == 0 || *ret;
}

struct entry *entry_new(const struct classes *k, const struct job_spec *spec)
{
    struct entry *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->plan.facts = spec_plan_facts(spec);
    e->pace.workers = e->plan.facts.virtual_workers;
    if (spec->kind == JOB_TRAIN) {
        struct plan_wish wish = spec_plan_wish(spec);

        e->plan.open = plan_wish_open(&wish);
    }
    e->run.fault_rank = -1;
    e->steps = spec->kind == JOB_TRAIN ? spec->train.steps : 0;
    e->alike = alike_of(spec);
    e->grace_s = spec->kind == JOB_COMMAND ? spec->command.grace_s : 10;
    if (spec->kind == JOB_COMMAND) {
        e->elastic = spec->command.elastic;
        e->one_a_node = spec->command.launcher != LAUNCH_RANKS;
        e->stop_s = spec->command.stop_s;
        if (spec->command.bundle && !(e->bundle = strdup(spec->command.bundle))) {
            entry_free(e);
            return NULL;
        }
    }
    e->hetero_ok = spec->devices.hetero_ok && spec->devices.class_change != CLASS_CHANGE_NEVER;
    e->moves = spec->devices.class_change == CLASS_CHANGE_AT_CHECKPOINT ||
               (e->hetero_ok && spec->kind == JOB_TRAIN && spec->parallel.exact == EXACT_RELAXED);
    e->memory_mib = spec->resources.memory_mib;
    e->cpus = spec->resources.cpus;
    e->within = spec->devices.within == WITHIN_RACK;
    if (!keep_names(&spec->devices.exclude, &e->exclude) || !keep_names(&spec->devices.prefer, &e->prefer)) {
        entry_free(e);
        return NULL;
    }
    entry_set_classes(e, k, spec);
    return e;
}

uint64_t entry_classes(const struct entry *e, const struct classes *k)
{
    return classes_roomy(k, classes_usable(k, e->job.kind, e->classes), e->memory_mib, e->cpus);
}

struct job_spec *entry_spec(const struct entry *e)
{
    struct job_spec *spec = NULL;
    struct faults f = {.n = 0};

    (void)spec_from_text(e->spec_text, strlen(e->spec_text), &spec, &f);
    faults_clear(&f);
    return spec;
}

void entry_free(struct entry *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->run.n_keys; i++) {
        free(e->run.keys[i].key);
        free(e->run.keys[i].value);
    }
    free(e->run.keys);
    job_clear(&e->job);
    free(e->exclude);
    free(e->prefer);
    free(e->bundle);
    free(e->spec_text);
    free(e->refusal);
    stalls_free(e->run.stalls);
    lag_free(e->run.lag);
    step_parts_free(e->run.parts);
    json_decref(e->run.slow);
    free(e->run.ranks);
    free(e->offsets);
    free(e->notes.v);
    free(e->target);
    free(e);
}

static bool is_named(const struct spec_names *names, const char *name)
{
    for (size_t i = 0; names && i < names->n; i++)
        if (strcmp(names->v[i], name) == 0)
            return true;
    return false;
}

bool entry_excludes(const struct entry *e, const char *node)
{
    return is_named(e->exclude, node);
}

bool entry_prefers(const struct entry *e, const char *name)
{
    return is_named(e->prefer, name);
}

int64_t entry_leave_us(const struct entry *e, int64_t usual_us)
{
    int64_t own_us = e->elastic ? (int64_t)(e->stop_s + e->grace_s + LEAVE_SLACK_S) * 1000000 : 0;

    return own_us > usual_us ? own_us : usual_us;
}

void entry_target_clear(struct entry *e)
{
    e->run.hand_over = false;
    free(e->target);
    e->target = NULL;
    e->n_target = 0;
}
