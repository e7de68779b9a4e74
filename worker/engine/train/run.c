#include "worker/engine/train/run.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/plan/shape.h"
#include "worker/engine/comm/comm.h"

#define ASSIGNMENT_MAX (8u << 20) /* bytes */

static int text_field(const json_t *doc, const char *key, char *out, size_t size, struct merr *err)
{
    const char *s = json_string_value(json_object_get(doc, key));

    if (!s || !*s)
        return merr_set(err, -EINVAL, "assignment.json has no '%s'", key);
    if (strlen(s) >= size)
        return merr_set(err, -EINVAL, "'%s' in assignment.json is longer than %zu bytes", key, size - 1);
    (void)snprintf(out, size, "%s", s);
    return 0;
}

static int size_field(const json_t *o, const char *key, int fallback, int max, int *ret, struct merr *err)
{
    const json_t *v = json_object_get(o, key);

    if (!v && fallback > 0) {
        *ret = fallback;
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > max)
        return merr_set(err, -EINVAL, "'%s' in assignment.json is not a number from 1 to %d", key, max);
    *ret = (int)json_integer_value(v);
    return 0;
}

static int read_layout(const json_t *doc, int rank, struct run *r, struct merr *err)
{
    const json_t *l = json_object_get(doc, "layout");
    int tp, pp, cp, dp, world;

    TRY(size_field(l, "tp", 1, COMM_RANKS_MAX, &tp, err));
    TRY(size_field(l, "pp", 1, COMM_RANKS_MAX, &pp, err));
    TRY(size_field(l, "cp", 1, COMM_RANKS_MAX, &cp, err));
    TRY(size_field(l, "dp", 1, COMM_RANKS_MAX, &dp, err));
    if ((long)tp * pp > COMM_RANKS_MAX || (long)tp * pp * cp > COMM_RANKS_MAX ||
        (long)tp * pp * cp * dp > COMM_RANKS_MAX)
        return merr_set(err, -EINVAL, "tp %d x pp %d x cp %d x dp %d is more than %d ranks", tp, pp, cp, dp,
                        COMM_RANKS_MAX);
    r->world = tp * pp * cp * dp;
    TRY(size_field(doc, "world", r->world, COMM_RANKS_MAX, &world, err));
    if (world != r->world)
        return merr_set(err, -EINVAL, "world is %d but tp %d x pp %d x cp %d x dp %d make %d", world, tp, pp, cp, dp,
                        r->world);
    r->source_nodes = (int)json_array_size(json_object_get(doc, "givers"));
    if (r->source_nodes > COMM_RANKS_MAX - r->world)
        return merr_set(err, -EINVAL, "%d ranks and %d source nodes are more than %d", r->world, r->source_nodes,
                        COMM_RANKS_MAX);
    if (rank < 0 || rank >= r->world + r->source_nodes)
        return merr_set(err, -EINVAL, "rank %d of a world of %d", rank, r->world);
    r->rank = rank;
    mesh_init(&r->mesh, tp, cp, dp, pp, rank < r->world ? rank : 0);
    return 0;
}

/* Each is of a node on which the job does not train. */
static int check_source_nodes(const json_t *doc, const struct run *r, const char *const *name, struct merr *err)
{
    const json_t *o;
    size_t i;

    json_array_foreach (json_object_get(doc, "givers"), i, o) {
        const char *node = json_string_value(json_object_get(o, "node"));
        bool trains = false;

        for (int a = 0; node && a < r->world; a++)
            trains |= strcmp(name[a], node) == 0;
        if (!node || trains || json_integer_value(json_object_get(o, "rank")) != (json_int_t)(r->world + (int)i))
            return merr_set(err, -EINVAL,
                            "entry %zu of 'givers' in assignment.json has no node of its own or is not "
                            "rank %d",
                            i, r->world + (int)i);
    }
    return 0;
}

/* Nodes get numbers by their first rank; ranks may be listed in any order but each once. */
static int read_nodes(const json_t *doc, struct run *r, struct merr *err)
{
    const json_t *ranks = json_object_get(doc, "ranks"), *o;
    const char **name;
    size_t i;
    int code = 0;

    if (json_array_size(ranks) != (size_t)r->world)
        return merr_set(err, -EINVAL, "assignment.json lists %zu ranks of %d", json_array_size(ranks), r->world);
    name = calloc(r->world, sizeof(*name));
    r->node_of = calloc(r->world, sizeof(*r->node_of));
    if (!name || !r->node_of) {
        free(name);
        return merr_set(err, -ENOMEM, "no memory for %d ranks", r->world);
    }
    json_array_foreach (ranks, i, o) {
        json_int_t rank =
            json_is_integer(json_object_get(o, "rank")) ? json_integer_value(json_object_get(o, "rank")) : -1;
        const char *node = json_string_value(json_object_get(o, "node"));

        if (rank < 0 || rank >= r->world || name[rank] || !node) {
            code = merr_set(err, -EINVAL, "entry %zu of 'ranks' in assignment.json has no own rank or no node", i);
            break;
        }
        name[rank] = node;
    }
    if (code == 0)
        code = check_source_nodes(doc, r, name, err);
    for (int a = 0; code == 0 && a < r->world; a++) {
        r->node_of[a] = a;
        for (int b = 0; b < a; b++)
            if (strcmp(name[a], name[b]) == 0) {
                r->node_of[a] = r->node_of[b];
                break;
            }
    }
    free(name);
    return code;
}

static int read_spec(const json_t *doc, struct run *r, struct merr *err)
{
    struct faults f = {.n = 0};
    int code = spec_from_json(json_object_get(doc, "spec"), &r->spec, &f);

    if (code != 0)
        (void)merr_set(err, code, "the spec is not valid: %s: %s", f.n > 0 ? f.v[0].pointer : "",
                       f.n > 0 ? f.v[0].message : "");
    else if (r->spec->kind != JOB_TRAIN)
        code = merr_set(err, -EINVAL, "the job is not of kind 'train'");
    faults_clear(&f);
    return code;
}

/* "leaves" of an assignment: virtual workers of each replica, where they are not shared out evenly. */
static int read_share(const json_t *doc, struct run *r, struct merr *err)
{
    const json_t *list = json_object_get(doc, "leaves");
    int left = r->spec->parallel.virtual_workers;

    if (!list)
        return 0;
    if (json_array_size(list) != (size_t)r->mesh.dp)
        return merr_set(err, -EINVAL, "'leaves' in assignment.json is not of dp %d replicas", r->mesh.dp);
    r->share = calloc(r->mesh.dp, sizeof(*r->share));
    if (!r->share)
        return merr_set(err, -ENOMEM, "no memory for %d replicas", r->mesh.dp);
    for (int i = 0; i < r->mesh.dp; i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));

        if (n < 1 || n > left)
            return merr_set(err, -EINVAL, "'leaves' in assignment.json does not share out the %d virtual workers",
                            r->spec->parallel.virtual_workers);
        r->share[i] = (int)n;
        left -= (int)n;
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

static int read_document(const json_t *doc, int rank, struct run *r, struct merr *err)
{
    const json_t *g = json_object_get(doc, "generation"), *limit = json_object_get(doc, "memory_limit");

    TRY(text_field(doc, "job", r->job, sizeof(r->job), err));
    TRY(text_field(doc, "dir", r->dir, sizeof(r->dir), err));
    TRY(text_field(doc, "node", r->node, sizeof(r->node), err));
    if (!json_is_integer(g) || json_integer_value(g) < 1)
        return merr_set(err, -EINVAL, "'generation' in assignment.json is not a number from 1");
    r->generation = (uint64_t)json_integer_value(g);
    if (json_object_get(doc, "memory"))
        TRY(text_field(doc, "memory", r->memory, sizeof(r->memory), err));
    else if (json_object_get(doc, "no_memory"))
        TRY(text_field(doc, "no_memory", r->no_memory, sizeof(r->no_memory), err));
    if (limit && json_integer_value(limit) < 1)
        return merr_set(err, -EINVAL, "'memory_limit' in assignment.json is not a number from 1");
    r->memory_limit = (uint64_t)json_integer_value(limit);
    r->measure_links = json_is_true(json_object_get(doc, "measure_links"));
    TRY(size_field(doc, "threads", 1, 1024, &r->threads, err));
    TRY(read_layout(doc, rank, r, err));
    TRY(read_nodes(doc, r, err));
    TRY(read_spec(doc, r, err));
    TRY(read_share(doc, r, err));
    return checkpoint_folder(r, err);
}

int run_parse(const char *text, size_t len, const char *folder, int rank, struct run *ret, struct merr *err)
{
    struct run r = {.world = 0};
    json_error_t je;
    json_t *doc;
    int code;

    if (strlen(folder) >= sizeof(r.folder))
        return merr_set(err, -EINVAL, "the path of the run's folder is too long");
    (void)snprintf(r.folder, sizeof(r.folder), "%s", folder);
    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!doc)
        return merr_set(err, -EINVAL, "assignment.json line %d: %s", je.line, je.text);
    code = read_document(doc, rank, &r, err);
    json_decref(doc);
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
    buf_init(&b, ASSIGNMENT_MAX);
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

static bool is_named(const char *word)
{
    return *word && strcmp(word, "none") != 0;
}

static bool is_auto(const char *word)
{
    return strcmp(word, "auto") == 0;
}

int run_check_supported(const struct run *r, struct merr *err)
{
    const struct job_spec *s = r->spec;

    if (s->parallel.recompute == RECOMPUTE_AUTO || s->parallel.schedule == PIPELINE_AUTO ||
        s->parallel.chunks == SPEC_AUTO)
        return merr_set(err, -EINVAL, "the spec of this run has \"auto\" in parallel, which its agent should settle");
    if (s->parallel.recompute != RECOMPUTE_NONE && s->parallel.schedule == PIPELINE_ZB_H1)
        return merr_set(err, -ENOTSUP,
                        "parallel.recompute does not go with schedule 'zb-h1', whose second half of a "
                        "backward needs the activations too; use '1f1b' or 'interleaved'");
    if (s->parallel.exact == EXACT_STRICT && r->mesh.cp > 1)
        return merr_set(err, -ENOTSUP, "parallel.exact 'strict' is not built for cp above 1; use cp 1 or 'relaxed'");
    if (s->parallel.exact == EXACT_STRICT &&
        (is_auto(s->compress.tp) || is_auto(s->compress.pp) || is_auto(s->compress.dp)))
        return merr_set(err, -ENOTSUP,
                        "parallel.exact 'strict' does not go with 'auto' as a codec, which decides by "
                        "measurement; name the codec");
    if (s->parallel.zero == 0 && is_named(s->compress.dp))
        return merr_set(err, -ENOTSUP, "compress.dp '%s' needs parallel.zero 1", s->compress.dp);
    if (strcmp(s->sequence.policy, "chunk") == 0 &&
        (s->parallel.chunks > 1 || s->parallel.schedule == PIPELINE_ZB_H1 || s->parallel.sequence_parallel ||
         strcmp(s->memory.policy, "mimose") == 0))
        return merr_set(err, -ENOTSUP,
                        "sequence.policy 'chunk' is not built for parallel.chunks above 1, schedule "
                        "'zb-h1', sequence_parallel and memory.policy 'mimose'");
    if (s->parallel.cp != r->mesh.cp)
        return merr_set(err, -EINVAL, "the assignment has cp %d, its spec %d", r->mesh.cp, s->parallel.cp);
    if (s->train.data.samples == SAMPLES_STREAM && s->sequence.policy[0] && strcmp(s->sequence.policy, "pad") != 0)
        return merr_set(err, -ENOTSUP, "sequence.policy '%s' is for train.data.samples 'documents'; use 'pad'",
                        s->sequence.policy);
    if (is_named(s->memory.policy) &&
        (s->parallel.schedule == PIPELINE_ZB_H1 || s->parallel.recompute != RECOMPUTE_NONE))
        return merr_set(err, -ENOTSUP,
                        "memory.policy '%s' goes neither with parallel.recompute nor with schedule "
                        "'zb-h1'",
                        s->memory.policy);
    if (strcmp(s->memory.policy, "mimose") == 0 && s->memory.activation_budget_mib < 1)
        return merr_set(err, -EINVAL, "memory.policy 'mimose' needs memory.activation_budget_mib");
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
