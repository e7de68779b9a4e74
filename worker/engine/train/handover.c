#include "worker/engine/train/handover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/train/store.h"
#include "worker/snapshot/capacity.h"

#define DURABLE_WITHIN_US (INT64_C(300) * 1000000) /* state may be in memory alone for so long */
#define COPY_AFTER_US (INT64_C(2) * 1000000)       /* what was taken over goes to disk, unless the job moves again */
#define PAGE ((size_t)4096)

/* Moments that every replica has to itself, weights that are not the masters, memory of a GPU and of several nodes
 * cannot be left. */
static bool may_leave(const struct handover *h)
{
    const struct rank *rank = h->rank;

    return rank->run.memory[0] && rank_nodes(h->rank) == 1 && rank->spec->parallel.zero == 1 &&
           !rank_coded(rank->spec->compress.dp) && !rank->k->device && !store_wanted(rank);
}

void handover_open(struct handover *h, const struct rank *rank, struct shard *shard, size_t arena_bytes)
{
    struct handoff_cfg cfg = {
        .memory = rank->run.memory,
        .tp_index = rank->mesh->tp_index,
        .cp_index = rank->mesh->cp_index,
        .pp_index = rank->mesh->pp_index,
        .dp_index = rank->mesh->dp_index,
        .weight_n = rank->params.weight_n,
        .masters = shard_is_narrow(rank),
        .arena_bytes = (arena_bytes + PAGE - 1) & ~(PAGE - 1),
    };
    struct merr why;

    h->rank = rank;
    h->shard = shard;
    if (rank->run.memory[0] && rank_nodes(h->rank) > 1 && rank_leads_node(rank))
        handoff_trim(rank->run.memory, 0); /* of when there was one */
    if (may_leave(h) && handoff_open(&cfg, &h->files, &why) < 0 && rank->mesh->rank == 0)
        log_info("state will not be handed over in memory: %s", why.text);
    h->durable_us = clock_wall_us(); /* nothing is lost yet */
}

void handover_close(struct handover *h)
{
    handoff_close(h->files);
    h->files = NULL;
}

int handover_agree(struct handover *h, struct merr *err)
{
    double without = !h->files;

    TRY(comm_all_reduce(h->rank->all, &without, 1, COMM_F64, COMM_SUM, err));
    h->agreed = without == 0;
    return 0;
}

void handover_clear(struct handover *h)
{
    if (!h->files || h->cleared)
        return;
    (void)handoff_mark_drop(h->rank->run.memory, NULL); /* before what it stands for goes */
    h->cleared = true;
    if (handoff_was_used(h->files))
        shard_zero(h->shard);
}

bool handover_left(const struct handover *h, uint64_t *ret_step)
{
    struct handoff_mark m;

    if (!h->agreed || !handoff_mark_get(h->rank->run.memory, &m))
        return false;
    *ret_step = m.step;
    return true;
}

int handover_check(const struct handover *h, struct merr *err)
{
    const struct rank *rank = h->rank;
    struct handoff_mark m;

    if (!h->agreed || h->cleared || !handoff_mark_get(rank->run.memory, &m))
        return merr_set(err, -EPROTO, "the state left in '%s' is not there any more", rank->run.memory);
    if (m.tp != rank->mesh->tp || m.cp != rank->mesh->cp || m.pp != rank->mesh->pp || m.chunks != rank->chunks ||
        (rank->mesh->rank == 0 && m.weight_n != rank->params.weight_n))
        return merr_set(err, -EPROTO,
                        "the state left in memory is of tp %d, cp %d, pp %d, chunks %d, this run of tp "
                        "%d, cp %d, pp %d, chunks %d",
                        m.tp, m.cp, m.pp, m.chunks, rank->mesh->tp, rank->mesh->cp, rank->mesh->pp, rank->chunks);
    if (rank->mesh->dp_index < m.dp && !handoff_was_used(h->files))
        return merr_set(err, -EPROTO, "the weights that replica %d left in memory are gone", rank->mesh->dp_index);
    return 0;
}

/* Weights for the replicas that were none of the generation before. */
static int copy_weights(struct handover *h, int before, struct merr *err)
{
    const struct rank *rank = h->rank;
    struct comm_group *g;
    int *ranks, n = 1, r;

    if (shard_is_narrow(rank)) /* all are made anew from the masters */
        return optim_publish(h->shard->optim, err);
    if (before >= rank->mesh->dp || (rank->mesh->dp_index > 0 && rank->mesh->dp_index < before))
        return 0;
    ranks = calloc(rank->mesh->dp, sizeof(*ranks));
    if (!ranks)
        return merr_set(err, -ENOMEM, "no memory for %d ranks", rank->mesh->dp);
    ranks[0] = mesh_rank(rank->mesh, rank->mesh->tp_index, rank->mesh->cp_index, 0, rank->mesh->pp_index);
    for (int i = before; i < rank->mesh->dp; i++)
        ranks[n++] = mesh_rank(rank->mesh, rank->mesh->tp_index, rank->mesh->cp_index, i, rank->mesh->pp_index);
    r = comm_group_new(rank->world, "handover", ranks, n, &g, err);
    free(ranks);
    return r < 0 ? r : comm_broadcast(g, h->shard->weights, rank->params.weight_n * sizeof(float), 0, err);
}

/* Memory of replicas that are no more stays for those to come, while there is plenty. */
static bool is_scarce(void)
{
    struct capacity here;

    capacity_here(&here);
    return here.free < here.total / 2;
}

int handover_take(struct handover *h, struct merr *err)
{
    const struct rank *rank = h->rank;
    struct handoff_mark m;

    if (!handoff_mark_get(rank->run.memory, &m))
        return merr_set(err, -EPROTO, "the state left in '%s' is not there any more", rank->run.memory);
    TRY(copy_weights(h, m.dp, err));
    TRY(comm_barrier(rank->all, err));
    h->shard->tokens = m.tokens;
    h->durable_us = m.durable_us;
    h->copy_us = clock_wall_us() + COPY_AFTER_US;
    if (rank->mesh->rank != 0)
        return 0;
    if (is_scarce())
        handoff_trim(rank->run.memory, rank->mesh->dp);
    return handoff_mark_drop(rank->run.memory,
                             err); /* no rank updates before this one meets it in the first step's sum */
}

int handover_leave(struct handover *h, struct merr *err)
{
    const struct rank *rank = h->rank;
    struct shard *shard = h->shard;
    struct handoff_mark m = {
        .generation = rank->run.generation,
        .step = shard->step,
        .tokens = shard->tokens,
        .durable_us = h->durable_us,
        .weight_n = rank->params.weight_n,
        .tp = rank->mesh->tp,
        .cp = rank->mesh->cp,
        .pp = rank->mesh->pp,
        .dp = rank->mesh->dp,
        .chunks = rank->chunks,
    };

    flight_phase_set(rank->flight, FLIGHT_CHECKPOINT, shard->step);
    TRY(comm_barrier(rank->all, err)); /* all have done their part of the update */
    return rank->mesh->rank == 0 ? handoff_mark_put(rank->run.memory, &m, err) : 0;
}

void handover_drop(struct handover *h)
{
    if (h->files && h->rank->mesh->rank == 0)
        handoff_trim(h->rank->run.memory, 0);
}

void handover_follow_snapshot(struct handover *h, const json_t *kv)
{
    const json_t *us = json_object_get(json_object_get(kv, "written_by"), "durable_us");
    uint64_t step;

    h->durable_us = json_is_integer(us) ? json_integer_value(us) : clock_wall_us();
    if (h->rank->mesh->rank == 0 && (mck_latest(h->rank->run.checkpoints, &step, NULL, NULL) != 1 ||
                                     (json_int_t)step < json_integer_value(json_object_get(kv, "step"))))
        h->copy_us = clock_wall_us() + COPY_AFTER_US;
}

void handover_note_durable(struct handover *h)
{
    h->durable_us = clock_wall_us();
}

void handover_note_copy(struct handover *h)
{
    h->copy_us = 0;
}

bool handover_must_be_durable(const struct handover *h)
{
    return h->rank->mesh->rank == 0 && clock_wall_us() - h->durable_us > DURABLE_WITHIN_US;
}

bool handover_copy_due(const struct handover *h)
{
    return h->rank->mesh->rank == 0 && h->copy_us > 0 && clock_wall_us() >= h->copy_us;
}
