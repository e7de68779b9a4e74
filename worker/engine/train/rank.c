#include "worker/engine/train/rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "checkpoint/checkpoint.h"
#include "worker/engine/model/context/context.h"
#include "worker/engine/recover/guard.h"
#include "worker/engine/train/state.h"

/* --- the model --------------------------------------------------------------------------------------------- */

/* The config of the model in the job's own checkpoints, else of init.from; new, NULL when fresh weights are made or the
 * weights say nothing of it. */
static int config_of_weights(const struct rank *rank, json_t **ret, struct merr *err)
{
    const char *from = rank->spec->train.init.from;
    struct mck *c = NULL;
    uint64_t step;
    int r;

    *ret = NULL;
    if (!from)
        return 0;
    /* the job's own: what it began from may be gone by now */
    if (mck_latest(rank->run.checkpoints, &step, NULL, NULL) != 1 ||
        mck_open(rank->run.checkpoints, step, &c, NULL) != 0) {
        r = state_open(from, &c, err);
        if (r != 0)
            return merr_prefix(err, r, "init.from '%s'", from);
    }
    *ret = json_incref(json_object_get(mck_kv(c), "model"));
    mck_free(c);
    return 0;
}

/* The model the spec and the weights it starts from describe together. */
static int read_model(struct rank *rank, struct merr *err)
{
    json_t *source = NULL;
    int r;

    TRY(config_of_weights(rank, &source, err));
    r = model_from_spec(rank->spec, source, rank->mesh->tp, rank->mesh->tp_index, &rank->model, err);
    json_decref(source);
    return r;
}

/* Which layers are whose. */
static int plan_stages(struct rank *rank, struct merr *err)
{
    struct layer_range chunk[PARAM_CHUNKS_MAX];
    int pp = rank->mesh->pp;

    rank->chunks = pp > 1 ? rank->spec->parallel.chunks : 1;
    if (rank->chunks > PARAM_CHUNKS_MAX || rank->model.layers / pp < rank->chunks)
        return merr_set(err, -EINVAL, "%d layers cannot be split over pp %d with chunks %d", rank->model.layers, pp,
                        rank->chunks);
    rank->split = (struct plan_split){
        .layers = rank->model.layers, .stages = pp * rank->chunks, .head_cost = model_head_cost(&rank->model)};
    if (pp > 1 && rank->spec->parallel.layers.n == rank->split.stages)
        rank->split.given = rank->spec->parallel.layers.v;
    for (int i = 0; i < rank->chunks; i++)
        plan_split_layers(&rank->split, i * pp + rank->mesh->pp_index, &chunk[i].begin, &chunk[i].end);
    return params_init(&rank->params, &rank->model, chunk, rank->chunks, rank->mesh->first, rank->mesh->last, err);
}

int rank_plan(struct rank *rank, struct merr *err)
{
    const struct job_spec *s = rank->spec;

    TRY(run_check(&rank->run, err));
    TRY(read_model(rank, err));
    TRY(context_check(&(struct context_cfg){.mode = s->parallel.cp_mode, .size = rank->mesh->cp}, &rank->model, err));
    TRY(plan_stages(rank, err));
    if (s->parallel.exact != EXACT_STRICT || !rank_coded(s->compress.dp))
        return 0;
    return keyed_new(s->compress.dp, s->train.init.seed, &rank->params, &rank->keyed, err);
}

/* --- the other ranks --------------------------------------------------------------------------------------- */

static int group(struct rank *rank, const char *name, const int *ranks, int n, struct comm_group **ret,
                 struct merr *err)
{
    if (n <= 1)
        return 0;
    TRY(comm_group_new(rank->world, name, ranks, n, ret, err));
    comm_group_order(*ret, strcmp(name, "pp") == 0);
    return 0;
}

/* ranks: room for all of them. */
static int fill_groups(struct rank *rank, int *ranks, struct merr *err)
{
    const struct mesh *mesh = rank->mesh;

    for (int i = 0; i < rank->run.world; i++)
        ranks[i] = i;
    TRY(comm_group_new(rank->world, "world", ranks, rank->run.world, &rank->all, err));
    comm_group_order(rank->all, false);
    TRY(group(rank, "tp", ranks, mesh_tp_ranks(mesh, ranks), &rank->tp, err));
    TRY(group(rank, "kv", ranks, mesh_kv_ranks(mesh, rank->model.kv_copies, ranks), &rank->kv, err));
    TRY(group(rank, "cp", ranks, mesh_cp_ranks(mesh, ranks), &rank->cp, err));
    TRY(group(rank, "dp", ranks, mesh_dp_ranks(mesh, ranks), &rank->dp, err));
    TRY(group(rank, "pp", ranks, mesh_pp_ranks(mesh, ranks), &rank->pp, err));
    return rank->model.tied ? group(rank, "pair", ranks, mesh_pair_ranks(mesh, ranks), &rank->pair, err) : 0;
}

static int open_groups(struct rank *rank, struct merr *err)
{
    int *ranks = calloc(rank->run.world, sizeof(*ranks));
    int r = ranks ? fill_groups(rank, ranks, err) : merr_set(err, -ENOMEM, "no memory for %d ranks", rank->run.world);

    free(ranks);
    return r;
}

/* MUSTER_NCCL: "off", "need" (without it the job ends), or where it can be used. */
static int use_nccl(const struct rank *rank, struct comm_cfg *cfg, struct merr *err)
{
    const char *word = getenv("MUSTER_NCCL");

    if (word && strcmp(word, "off") != 0 && strcmp(word, "need") != 0)
        return merr_set(err, -EINVAL, "MUSTER_NCCL is '%.32s': want off or need, or nothing", word);
    cfg->device = rank->k->device;
    cfg->device_apart = word && strcmp(word, "off") == 0;
    cfg->device_needed = word && strcmp(word, "need") == 0;
    return 0;
}

int rank_meet(struct rank *rank, size_t shared_bytes, int shared_fd, struct merr *err)
{
    char rendezvous[RUN_PATH_MAX + 16];
    struct comm_cfg cfg = {
        .rank = rank->mesh->rank,
        .size = rank->run.world,
        .generation = rank->run.generation,
        .rendezvous = rendezvous,
        .node_of = rank->run.node_of,
        .flight = rank->flight,
        .shared_bytes = shared_bytes,
        .shared_fd = shared_fd,
        .threads = rank->run.threads,
    };

    TRY(use_nccl(rank, &cfg, err));
    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", rank->run.folder);
    flight_phase_set(rank->flight, FLIGHT_RENDEZVOUS, 0);
    TRY(comm_world_open(&cfg, &rank->world, err));
    if (rank->mesh->rank == 0 && *comm_device_said(rank->world))
        log_info("sums of large tensors %s: %s", comm_device_used(rank->world) ? "stay on GPUs" : "go through the host",
                 comm_device_said(rank->world));
    return open_groups(rank, err);
}

int rank_open_wires(struct rank *rank, struct merr *err)
{
    const char *const codec[BYTES] = {rank->spec->compress.tp, rank->spec->compress.pp,
                                      rank->keyed ? "none" : rank->spec->compress.dp};
    struct comm_group *const g[BYTES] = {rank->tp, rank->pp, rank->dp};

    for (int i = 0; i < BYTES; i++) {
        struct wire_cfg cfg = {.group = g[i],
                               .codec = codec[i],
                               .seed = rank->spec->train.init.seed,
                               .place = (uint32_t)rank->mesh->pp_index};

        TRY(wire_new(&cfg, &rank->wire[i], err));
    }
    if (rank->keyed && rank->dp)
        comm_group_name_codec(rank->dp, rank->spec->compress.dp);
    return 0;
}

int rank_ranks_here(const struct rank *rank)
{
    int here = 0;

    for (int i = 0; i < rank->run.world; i++)
        here += rank->run.node_of[i] == rank->run.node_of[rank->mesh->rank];
    return here;
}

int rank_nodes(const struct rank *rank)
{
    return guard_leaders(rank->run.node_of, rank->run.world, NULL);
}

bool rank_leads_node(const struct rank *rank)
{
    return rank->run.node_of[rank->mesh->rank] == rank->mesh->rank;
}

enum kern_type rank_type(const struct rank *rank)
{
    return rank->spec->train.precision == PRECISION_BF16 ? KERN_BF16 : KERN_F32;
}

bool rank_coded(const char *codec)
{
    return *codec && strcmp(codec, "none") != 0;
}

void rank_clear(struct rank *rank)
{
    for (int i = 0; i < BYTES; i++)
        wire_free(rank->wire[i]);
    comm_world_close(rank->world);
    if (rank->stream)
        rank->k->stream_free(rank->stream);
    keyed_free(rank->keyed);
    params_clear(&rank->params);
    report_free(rank->report);
    run_clear(&rank->run);
}
