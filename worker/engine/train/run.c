#include "worker/engine/train/run.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/plan/shape.h"
#include "worker/engine/comm/comm.h"

static int take_layout(const struct assignment *a, int rank, struct run *r, struct merr *err)
{
    int tp = a->layout.tp, pp = a->layout.pp, cp = a->layout.cp, dp = a->layout.dp;

    if ((long)tp * pp > COMM_RANKS_MAX || (long)tp * pp * cp > COMM_RANKS_MAX ||
        (long)tp * pp * cp * dp > COMM_RANKS_MAX)
        return merr_set(err, -EINVAL, "tp %d x pp %d x cp %d x dp %d is more than %d ranks", tp, pp, cp, dp,
                        COMM_RANKS_MAX);
    r->world = tp * pp * cp * dp;
    if (a->world != r->world)
        return merr_set(err, -EINVAL, "world is %d but tp %d x pp %d x cp %d x dp %d make %d", a->world, tp, pp, cp, dp,
                        r->world);
    r->source_nodes = (int)a->n_source_nodes;
    if (r->source_nodes > COMM_RANKS_MAX - r->world)
        return merr_set(err, -EINVAL, "%d ranks and %d source nodes are more than %d", r->world, r->source_nodes,
                        COMM_RANKS_MAX);
    if (rank < 0 || rank >= r->world + r->source_nodes)
        return merr_set(err, -EINVAL, "rank %d of a world of %d", rank, r->world);
    r->rank = rank;
    mesh_init(&r->mesh, tp, cp, dp, pp, rank < r->world ? rank : 0);
    return 0;
}

/* Nodes get numbers by their first rank; ranks may be listed in any order. */
static int number_nodes(const struct assignment *a, struct run *r, struct merr *err)
{
    const char **name;

    if (a->n_ranks != (size_t)r->world)
        return merr_set(err, -EINVAL, "assignment.json lists %zu ranks of %d", a->n_ranks, r->world);
    name = calloc(r->world, sizeof(*name));
    r->node_of = calloc(r->world, sizeof(*r->node_of));
    if (!name || !r->node_of) {
        free(name);
        return merr_set(err, -ENOMEM, "no memory for %d ranks", r->world);
    }
    for (size_t i = 0; i < a->n_ranks; i++)
        name[a->ranks[i].rank] = a->ranks[i].node; /* each is there once: assignment_read() has looked */
    for (int i = 0; i < r->world; i++) {
        r->node_of[i] = i;
        for (int b = 0; b < i; b++)
            if (strcmp(name[i], name[b]) == 0) {
                r->node_of[i] = r->node_of[b];
                break;
            }
    }
    free(name);
    return 0;
}

static int read_spec(const struct assignment *a, struct run *r, struct merr *err)
{
    struct faults f = {.n = 0};
    int code = spec_from_json(a->spec, &r->spec, &f);

    if (code != 0)
        (void)merr_set(err, code, "the spec is not valid: %s: %s", f.n > 0 ? f.v[0].pointer : "",
                       f.n > 0 ? f.v[0].message : "");
    else if (r->spec->kind != JOB_TRAIN)
        code = merr_set(err, -EINVAL, "the job is not of kind 'train'");
    faults_clear(&f);
    return code;
}

/* Virtual workers of each replica, where they are not shared out evenly. */
static int take_share(const struct assignment *a, struct run *r, struct merr *err)
{
    int left = r->spec->parallel.virtual_workers;

    if (a->n_leaves == 0)
        return 0;
    if (a->n_leaves != (size_t)r->mesh.dp)
        return merr_set(err, -EINVAL, "'leaves' in assignment.json is not of dp %d replicas", r->mesh.dp);
    r->share = calloc(r->mesh.dp, sizeof(*r->share));
    if (!r->share)
        return merr_set(err, -ENOMEM, "no memory for %d replicas", r->mesh.dp);
    for (int i = 0; i < r->mesh.dp; i++) {
        if (a->leaves[i] > left)
            return merr_set(err, -EINVAL, "'leaves' in assignment.json does not share out the %d virtual workers",
                            r->spec->parallel.virtual_workers);
        r->share[i] = a->leaves[i];
        left -= a->leaves[i];
    }
    return left == 0 ? 0 : merr_set(err, -EINVAL, "'leaves' in assignment.json leaves out %d virtual workers", left);
}

static int checkpoint_folder(struct run *r, struct merr *err)
{
    const char *d = r->spec->checkpoint.dir;
    int n = d && d[0] == '/' ? snprintf(r->checkpoints, sizeof(r->checkpoints), "%s", d)
                             : snprintf(r->checkpoints, sizeof(r->checkpoints), "%s/%s", r->dir, d ? d : "checkpoints");

    return n < (int)sizeof(r->checkpoints) ? 0 : merr_set(err, -EINVAL, "the path of the checkpoints is too long");
}

static int take_assignment(const struct assignment *a, int rank, struct run *r, struct merr *err)
{
    if (!a->node[0])
        return merr_set(err, -EINVAL,
                        "'node' in assignment.json is missing: its agent should say whose ranks are here");
    (void)snprintf(r->job, sizeof(r->job), "%s", a->job);
    (void)snprintf(r->user, sizeof(r->user), "%s", a->user);
    (void)snprintf(r->dir, sizeof(r->dir), "%s", a->dir);
    (void)snprintf(r->node, sizeof(r->node), "%s", a->node);
    (void)snprintf(r->memory, sizeof(r->memory), "%s", a->memory);
    if (!a->memory[0])
        (void)snprintf(r->no_memory, sizeof(r->no_memory), "%s", a->no_memory);
    r->generation = (uint64_t)a->generation;
    r->memory_limit = (uint64_t)a->memory_limit;
    r->measure_links = a->measure_links;
    r->pass_over = a->pass_over;
    r->threads = a->threads > 0 ? a->threads : 1;
    TRY(take_layout(a, rank, r, err));
    TRY(number_nodes(a, r, err));
    TRY(read_spec(a, r, err));
    TRY(take_share(a, r, err));
    return checkpoint_folder(r, err);
}

int run_parse(const char *text, size_t len, const char *folder, int rank, struct run *ret, struct merr *err)
{
    struct run r = {.world = 0};
    struct assignment a;
    json_error_t je;
    json_t *doc;
    int code;

    if (strlen(folder) >= sizeof(r.folder))
        return merr_set(err, -EINVAL, "the path of the run's folder is too long");
    (void)snprintf(r.folder, sizeof(r.folder), "%s", folder);
    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!doc)
        return merr_set(err, -EINVAL, "assignment.json line %d: %s", je.line, je.text);
    code = assignment_read(doc, &a, err);
    json_decref(doc);
    if (code < 0)
        return merr_prefix(err, code, "assignment.json");
    code = take_assignment(&a, rank, &r, err);
    assignment_clear(&a);
    if (code != 0) {
        run_clear(&r);
        return code;
    }
    *ret = r;
    return 0;
}

int run_read(const char *folder, int rank, struct run *ret, struct merr *err)
{
    char path[RUN_PATH_MAX + 32];
    struct buf b;
    int code;

    if (strlen(folder) >= RUN_PATH_MAX)
        return merr_set(err, -EINVAL, "the path of the run's folder is too long");
    (void)snprintf(path, sizeof(path), "%s/assignment.json", folder);
    buf_init(&b, ASSIGNMENT_BYTES_MAX);
    code = io_read_file(path, &b, err);
    if (code == 0)
        code = run_parse(buf_text(&b), b.len, folder, rank, ret, err);
    buf_clear(&b);
    return code;
}

void run_clear(struct run *r)
{
    free(r->node_of);
    r->node_of = NULL;
    free(r->share);
    r->share = NULL;
    spec_free(r->spec);
    r->spec = NULL;
}

int run_check(const struct run *r, struct merr *err)
{
    const struct job_spec *s = r->spec;

    if (s->parallel.recompute == RECOMPUTE_AUTO || s->parallel.schedule == PIPELINE_AUTO ||
        s->parallel.chunks == SPEC_AUTO)
        return merr_set(err, -EINVAL, "the spec of this run has \"auto\" in parallel, which its agent should settle");
    if (s->parallel.cp != r->mesh.cp)
        return merr_set(err, -EINVAL, "the assignment has cp %d, its spec %d", r->mesh.cp, s->parallel.cp);
    if (s->parallel.virtual_workers < r->mesh.dp)
        return merr_set(err, -EINVAL, "dp %d is more than the %d virtual workers", r->mesh.dp,
                        s->parallel.virtual_workers);
    return 0;
}

int run_micro(const struct job_spec *spec, int *ret, struct merr *err)
{
    int b = spec->train.batch.sequences, v = spec->parallel.virtual_workers, leaf;

    if (v < 1 || b < 1 || b % v != 0)
        return merr_set(err, -EINVAL, "a batch of %d sequences cannot be split over %d virtual workers", b, v);
    leaf = b / v;
    if (spec->train.batch.micro != SPEC_AUTO) {
        if (leaf % spec->train.batch.micro != 0)
            return merr_set(err, -EINVAL, "micro-batches of %d cannot make up a virtual worker's %d sequences",
                            spec->train.batch.micro, leaf);
        *ret = spec->train.batch.micro;
        return 0;
    }
    *ret = plan_micro(leaf, spec->train.batch.length);
    return 0;
}
