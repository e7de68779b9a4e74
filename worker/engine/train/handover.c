/* From one generation to the next through the node's memory: what is left there, and taken over. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/snapshot/capacity.h"
#include "worker/engine/train/train_impl.h"

#define DURABLE_WITHIN_US (INT64_C(300) * 1000000) /* state may be in memory alone for so long */
#define COPY_AFTER_US (INT64_C(2) * 1000000)       /* what was taken over goes to disk, unless the job moves again */
#define PAGE ((size_t)4096)

static bool one_node(const struct train *t)
{
    return guard_leaders(t->run.node_of, t->run.world, NULL) == 1;
}

/* Moments that every replica has to itself, weights that are not the masters, memory of a GPU and of several nodes
 * cannot be left. */
static bool can_keep(const struct train *t)
{
    bool coded = t->spec->compress.dp[0] && strcmp(t->spec->compress.dp, "none") != 0;

    return t->run.memory[0] && one_node(t) && t->spec->parallel.zero == 1 && !coded && !t->k->device;
}

void train_keep_open(struct train *t, size_t arena_bytes)
{
    struct handoff_cfg cfg = {
        .memory = t->run.memory,
        .tp_index = t->mesh->tp_index,
        .cp_index = t->mesh->cp_index,
        .pp_index = t->mesh->pp_index,
        .dp_index = t->mesh->dp_index,
        .weight_n = t->params.weight_n,
        .arena_bytes = (arena_bytes + PAGE - 1) & ~(PAGE - 1),
    };
    struct merr why;

    if (t->run.memory[0] && !one_node(t) && t->run.node_of[t->mesh->rank] == t->mesh->rank)
        handoff_trim(t->run.memory, 0); /* of when there was one */
    if (can_keep(t) && handoff_open(&cfg, &t->keep, &why) < 0 && t->mesh->rank == 0)
        log_info("state will not be handed over in memory: %s", why.text);
    t->durable_us = clock_wall_us(); /* nothing is lost yet */
}

int train_keep_agree(struct train *t, struct merr *err)
{
    double without = !t->keep;

    TRY(comm_all_reduce(t->all, &without, 1, COMM_F64, COMM_SUM, err));
    t->keeps = without == 0;
    return 0;
}

void train_keep_touch(struct train *t)
{
    const struct optim_range *r = optim_ranges(t->optim);

    if (!t->keep)
        return;
    handoff_touch(t->weights, t->params.weight_n * sizeof(float));
    for (int i = 0; i < t->buffers; i++)
        handoff_touch(t->pool[i], t->params.grad_n * sizeof(float));
    for (int i = 0; i < 2; i++) {
        handoff_touch(optim_m(t->optim) + r[i].state, (r[i].end - r[i].begin) * sizeof(float));
        handoff_touch(optim_v(t->optim) + r[i].state, (r[i].end - r[i].begin) * sizeof(float));
    }
}

void train_state_clear(struct train *t)
{
    const struct optim_range *r = optim_ranges(t->optim);

    memset(t->weights, 0, t->params.weight_n * sizeof(float));
    for (int i = 0; i < 2; i++) {
        memset(optim_m(t->optim) + r[i].state, 0, (r[i].end - r[i].begin) * sizeof(float));
        memset(optim_v(t->optim) + r[i].state, 0, (r[i].end - r[i].begin) * sizeof(float));
    }
}

void train_keep_clear(struct train *t)
{
    if (!t->keep || t->keep_cleared)
        return;
    (void)handoff_mark_drop(t->run.memory, NULL); /* before what it stands for goes */
    t->keep_cleared = true;
    if (handoff_was_used(t->keep))
        train_state_clear(t);
}

bool train_kept(const struct train *t, uint64_t *ret_step)
{
    struct handoff_mark m;

    if (!t->keeps || !handoff_mark_get(t->run.memory, &m))
        return false;
    *ret_step = m.step;
    return true;
}

int train_adopt_check(struct train *t, struct merr *err)
{
    struct handoff_mark m;

    if (!t->keeps || t->keep_cleared || !handoff_mark_get(t->run.memory, &m))
        return merr_set(err, -EPROTO, "the state left in '%s' is not there any more", t->run.memory);
    if (m.tp != t->mesh->tp || m.cp != t->mesh->cp || m.pp != t->mesh->pp || m.chunks != t->chunks ||
        (t->mesh->rank == 0 && m.weight_n != t->params.weight_n))
        return merr_set(err, -EPROTO,
                        "the state left in memory is of tp %d, cp %d, pp %d, chunks %d, this run of tp "
                        "%d, cp %d, pp %d, chunks %d",
                        m.tp, m.cp, m.pp, m.chunks, t->mesh->tp, t->mesh->cp, t->mesh->pp, t->chunks);
    if (t->mesh->dp_index < m.dp && !handoff_was_used(t->keep))
        return merr_set(err, -EPROTO, "the weights that replica %d left in memory are gone", t->mesh->dp_index);
    return 0;
}

/* Weights for the replicas that were none of the generation before. */
static int copy_weights(struct train *t, int before, struct merr *err)
{
    struct comm_group *g;
    int *ranks, n = 1, r;

    if (before >= t->mesh->dp || (t->mesh->dp_index > 0 && t->mesh->dp_index < before))
        return 0;
    ranks = calloc(t->mesh->dp, sizeof(*ranks));
    if (!ranks)
        return merr_set(err, -ENOMEM, "no memory for %d ranks", t->mesh->dp);
    ranks[0] = mesh_rank(t->mesh, t->mesh->tp_index, t->mesh->cp_index, 0, t->mesh->pp_index);
    for (int i = before; i < t->mesh->dp; i++)
        ranks[n++] = mesh_rank(t->mesh, t->mesh->tp_index, t->mesh->cp_index, i, t->mesh->pp_index);
    r = comm_group_new(t->world, "handover", ranks, n, &g, err);
    free(ranks);
    return r < 0 ? r : comm_broadcast(g, t->weights, t->params.weight_n * sizeof(float), 0, err);
}

/* Memory of replicas that are no more stays for those to come, while there is plenty. */
static bool is_scarce(void)
{
    struct capacity room;

    capacity_here(&room);
    return room.free < room.total / 2;
}

int train_adopt(struct train *t, struct merr *err)
{
    struct handoff_mark m;

    if (!handoff_mark_get(t->run.memory, &m))
        return merr_set(err, -EPROTO, "the state left in '%s' is not there any more", t->run.memory);
    TRY(copy_weights(t, m.dp, err));
    TRY(comm_barrier(t->all, err));
    t->tokens = m.tokens;
    t->durable_us = m.durable_us;
    t->copy_us = clock_wall_us() + COPY_AFTER_US;
    if (t->mesh->rank != 0)
        return 0;
    if (is_scarce())
        handoff_trim(t->run.memory, t->mesh->dp);
    return handoff_mark_drop(t->run.memory, err); /* no rank updates before this one meets it in the first step's sum */
}

int train_hand_over(struct train *t, struct merr *err)
{
    struct handoff_mark m = {
        .generation = t->run.generation,
        .step = t->step,
        .tokens = t->tokens,
        .durable_us = t->durable_us,
        .weight_n = t->params.weight_n,
        .tp = t->mesh->tp,
        .cp = t->mesh->cp,
        .pp = t->mesh->pp,
        .dp = t->mesh->dp,
        .chunks = t->chunks,
    };

    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    TRY(comm_barrier(t->all, err)); /* all have done their part of the update */
    return t->mesh->rank == 0 ? handoff_mark_put(t->run.memory, &m, err) : 0;
}

void train_keep_drop(struct train *t)
{
    if (t->keep && t->mesh->rank == 0)
        handoff_trim(t->run.memory, 0);
}

void train_follow_memory(struct train *t, const json_t *kv)
{
    const json_t *us = json_object_get(json_object_get(kv, "written_by"), "durable_us");
    uint64_t step;

    t->durable_us = json_is_integer(us) ? json_integer_value(us) : clock_wall_us();
    if (t->mesh->rank == 0 && (mck_latest(t->run.checkpoints, &step, NULL, NULL) != 1 ||
                               (json_int_t)step < json_integer_value(json_object_get(kv, "step"))))
        t->copy_us = clock_wall_us() + COPY_AFTER_US;
}

bool train_must_be_durable(const struct train *t)
{
    return t->mesh->rank == 0 && clock_wall_us() - t->durable_us > DURABLE_WITHIN_US;
}

bool train_copy_due(const struct train *t)
{
    return t->mesh->rank == 0 && t->copy_us > 0 && clock_wall_us() >= t->copy_us;
}
