/* The ranks of a run as groups, and the codecs between them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "worker/engine/train/train_impl.h"

static int group(struct train *t, const char *name, const int *ranks, int n, struct comm_group **ret, struct merr *err)
{
    return n > 1 ? comm_group_new(t->world, name, ranks, n, ret, err) : 0;
}

static int open_groups(struct train *t, struct merr *err)
{
    int *ranks = calloc(t->run.world, sizeof(*ranks)), r = 0;

    if (!ranks)
        return merr_set(err, -ENOMEM, "no memory for %d ranks", t->run.world);
    for (int i = 0; i < t->run.world; i++)
        ranks[i] = i;
    r = comm_group_new(t->world, "world", ranks, t->run.world, &t->all, err);
    if (r == 0)
        r = group(t, "tp", ranks, mesh_tp_ranks(t->mesh, ranks), &t->tp, err);
    if (r == 0)
        r = group(t, "kv", ranks, mesh_kv_ranks(t->mesh, t->model.kv_copies, ranks), &t->kv, err);
    if (r == 0)
        r = group(t, "cp", ranks, mesh_cp_ranks(t->mesh, ranks), &t->cp, err);
    if (r == 0)
        r = group(t, "dp", ranks, mesh_dp_ranks(t->mesh, ranks), &t->dp, err);
    if (r == 0)
        r = group(t, "pp", ranks, mesh_pp_ranks(t->mesh, ranks), &t->pp, err);
    if (r == 0 && t->model.tied)
        r = group(t, "pair", ranks, mesh_pair_ranks(t->mesh, ranks), &t->pair, err);
    free(ranks);
    return r;
}

static int open_wires(struct train *t, struct merr *err)
{
    const char *const codec[BYTES] = {t->spec->compress.tp, t->spec->compress.pp,
                                      t->keyed ? "none" : t->spec->compress.dp};
    struct comm_group *const g[BYTES] = {t->tp, t->pp, t->dp};

    for (int i = 0; i < BYTES; i++) {
        struct wire_cfg cfg = {
            .group = g[i], .codec = codec[i], .seed = t->spec->train.init.seed, .place = (uint32_t)t->mesh->pp_index};

        TRY(wire_new(&cfg, &t->wire[i], err));
    }
    if (t->keyed && t->dp)
        comm_group_name_codec(t->dp, t->spec->compress.dp);
    return 0;
}

/* MUSTER_NCCL: "off", "need" (without it the job ends), or where it can be used. */
static int use_nccl(const struct train *t, struct comm_cfg *cfg, struct merr *err)
{
    const char *word = getenv("MUSTER_NCCL");

    if (word && strcmp(word, "off") != 0 && strcmp(word, "need") != 0)
        return merr_set(err, -EINVAL, "MUSTER_NCCL is '%.32s': want off or need, or nothing", word);
    cfg->device = t->k->device;
    cfg->device_apart = word && strcmp(word, "off") == 0;
    cfg->device_needed = word && strcmp(word, "need") == 0;
    return 0;
}

int train_world_open(struct train *t, size_t shared_bytes, struct merr *err)
{
    char rendezvous[RUN_PATH_MAX + 16];
    struct comm_cfg cfg = {
        .rank = t->mesh->rank,
        .size = t->run.world,
        .generation = t->run.generation,
        .rendezvous = rendezvous,
        .node_of = t->run.node_of,
        .flight = t->flight,
        .shared_bytes = shared_bytes,
        .shared_fd = t->keep ? handoff_arena(t->keep) : 0,
    };

    TRY(use_nccl(t, &cfg, err));
    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", t->run.folder);
    flight_phase_set(t->flight, FLIGHT_RENDEZVOUS, 0);
    TRY(comm_world_open(&cfg, &t->world, err));
    if (t->mesh->rank == 0 && *comm_device_said(t->world))
        log_info("sums of large tensors %s: %s", comm_device_used(t->world) ? "stay on GPUs" : "go through the host",
                 comm_device_said(t->world));
    TRY(open_groups(t, err));
    TRY(train_measure_links(t, err));
    TRY(train_keep_agree(t, err));
    return open_wires(t, err);
}
