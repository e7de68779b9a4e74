/* The beginning of a run: its assignment read, its folder made, its ranks started or found again. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/agent/ranks_priv.h"

static bool usable_job(const char *job)
{
    return *job && strlen(job) < RANKS_JOB_MAX && *job != '.' &&
           strspn(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(job);
}

void ranks_run_free(struct run *run)
{
    if (!run)
        return;
    for (int i = 0; i < run->n; i++) {
        struct rank *rank = &run->ranks[i];

        machine_rank_free(rank->on_machine);
        json_decref(rank->log_tail);
    }
    free(run->ranks);
    json_decref(run->assignment);
    spec_free(run->spec);
    free(run);
}

static int member_int(const json_t *o, const char *name, int fallback)
{
    const json_t *v = json_object_get(o, name);

    return json_is_integer(v) ? (int)json_integer_value(v) : fallback;
}

static const char *member_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

/* How many different nodes come before the first rank of node (all of them for NULL). */
static int nodes_before(const json_t *list, const char *node)
{
    int n = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = member_text(json_array_get(list, i), "node");
        bool seen = false;

        if (node && strcmp(name, node) == 0)
            break;
        for (size_t j = 0; j < i && !seen; j++)
            seen = strcmp(name, member_text(json_array_get(list, j), "node")) == 0;
        n += !seen;
    }
    return n;
}

/* This node as a source node, where the job has left it: a rank after all that train, without a slot. */
static int read_source_node(const struct ranks *r, const json_t *list, struct run *run, struct merr *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);

        if (strcmp(member_text(o, "node"), r->node) != 0)
            continue;
        if (member_int(o, "rank", -1) != run->world + (int)i)
            return merr_set(err, -EINVAL, "run %s: this node's entry in 'givers' is not rank %d", run->job,
                            run->world + (int)i);
        run->ranks[run->n++] = (struct rank){.rank = run->world + (int)i, .slot = -1, .kill_us = INT64_MAX};
        return 0;
    }
    return merr_set(err, -EINVAL, "run %s: no rank is for node '%s'", run->job, r->node);
}

/* The ranks of this node. slots: how many it has; INT_MAX for a run that was started when there were others. */
static int read_ranks(const struct ranks *r, const json_t *assignment, int slots, struct run *run, struct merr *err)
{
    const json_t *list = json_object_get(assignment, "ranks");
    size_t size = json_array_size(list);

    run->ranks = calloc(size ? size : 1, sizeof(*run->ranks));
    if (!run->ranks)
        return merr_set(err, -ENOMEM, "no memory for %zu ranks", size);
    for (size_t i = 0; i < size; i++) {
        const json_t *o = json_array_get(list, i);
        int number = member_int(o, "rank", -1), slot = member_int(o, "slot", -1);

        if (number < 0 || number >= run->world)
            return merr_set(err, -EINVAL, "run %s: rank %d is not within a world of %d", run->job, number, run->world);
        if (strcmp(member_text(o, "node"), r->node) != 0)
            continue;
        if (slot < 0 || slot >= slots)
            return merr_set(err, -EINVAL, "run %s: rank %d is put on slot %d, but this node has %d", run->job, number,
                            slot, slots);
        run->ranks[run->n] = (struct rank){.rank = number, .slot = slot, .local_rank = run->n, .kill_us = INT64_MAX};
        run->n++;
    }
    return run->n > 0 ? 0 : read_source_node(r, json_object_get(assignment, "givers"), run, err);
}

static struct job_spec *read_spec(const json_t *assignment, struct merr *err)
{
    struct job_spec *spec = NULL;
    struct faults *f = calloc(1, sizeof(*f));

    if (!f) {
        merr_set(err, -ENOMEM, "spec: no memory");
        return NULL;
    }
    if (spec_from_json(json_object_get(assignment, "spec"), &spec, f) < 0)
        merr_set(err, -EINVAL, "spec: %s: %s", f->n ? f->v[0].pointer : "", f->n ? f->v[0].message : "no memory");
    faults_clear(f);
    free(f);
    return spec;
}

/* A run read from an assignment (borrowed), without any process. New. */
static int new_run(const struct ranks *r, const json_t *assignment, int slots, struct run **ret, struct merr *err)
{
    const char *job = member_text(assignment, "job"), *dir = member_text(assignment, "dir");
    json_int_t generation = json_integer_value(json_object_get(assignment, "generation"));
    const json_t *list = json_object_get(assignment, "ranks");
    struct run *run;
    int code;

    if (!usable_job(job) || generation < 1 || !json_is_array(list))
        return merr_set(err, -EINVAL, "an assignment without a usable job, generation or ranks: '%s'", job);
    if (dir[0] != '/' || strlen(dir) >= sizeof(run->dir))
        return merr_set(err, -EINVAL, "run %s: its folder must be an absolute path, not '%s'", job, dir);
    run = calloc(1, sizeof(*run));
    if (!run)
        return merr_set(err, -ENOMEM, "no memory for run %s", job);
    run->generation = (uint64_t)generation;
    (void)snprintf(run->job, sizeof(run->job), "%s", job);
    (void)snprintf(run->dir, sizeof(run->dir), "%s", dir);
    run->first_bad = -1;
    run->world = member_int(assignment, "world", (int)json_array_size(list));
    run->grace_s = member_int(assignment, "grace_s", RANKS_GRACE_S);
    run->nodes = nodes_before(list, NULL) + (int)json_array_size(json_object_get(assignment, "givers"));
    run->assignment = json_deep_copy(assignment);
    code = machine_run_folder(r->machine, job, run->generation, run->folder, err);
    if (code == 0)
        code = read_ranks(r, assignment, slots, run, err);
    for (int i = 0; code == 0 && i < run->n; i++) {
        run->ranks[i].on_machine = machine_rank_new(r->machine, run->folder, run->ranks[i].rank);
        if (!run->ranks[i].on_machine)
            code = merr_set(err, -ENOMEM, "no memory for run %s", job);
    }
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }
    *ret = run;
    return 0;
}

int ranks_insert(struct ranks *r, struct run *run, struct merr *err)
{
    struct run **v;

    if (r->n == RANKS_RUNS_MAX)
        return merr_set(err, -ENOSPC, "this node holds %d runs already; the server must forget some first",
                        RANKS_RUNS_MAX);
    v = realloc(r->v, (r->n + 1) * sizeof(*v));
    if (!v)
        return merr_set(err, -ENOMEM, "no memory for run %s", run->job);
    r->v = v;
    r->v[r->n++] = run;
    return 0;
}

static const char *master_address(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);

        if (member_int(o, "rank", -1) == 0 && *member_text(o, "address"))
            return member_text(o, "address");
    }
    return "127.0.0.1";
}

static int start_rank(const struct ranks *r, const struct run *run, const struct rank *rank, struct merr *err)
{
    const json_t *list = json_object_get(run->assignment, "ranks");
    struct machine_launch l = {
        .job = run->job,
        .job_dir = run->dir,
        .master_addr = master_address(list),
        .generation = run->generation,
        .world = run->world,
        .local_rank = rank->local_rank,
        .local_world = run->n,
        .node_rank = nodes_before(list, r->node),
        .master_port = member_int(run->assignment, "master_port", 0),
        .slot = rank->slot,
        .spec = run->spec,
    };

    return machine_rank_start(rank->on_machine, &l, err);
}

/* Folder, assignment, flight pages: all that must be there before the first process is. */
static int make_folder(const struct ranks *r, struct run *run, struct merr *err)
{
    int code = machine_run_make(r->machine, run->folder, run->dir, err);

    for (int i = 0; code == 0 && i < run->n; i++)
        code = machine_rank_page(run->ranks[i].on_machine, err);
    if (code < 0)
        return code;
    if (json_object_set_new(run->assignment, "node", json_string(r->node)) < 0)
        return merr_set(err, -ENOMEM, "no memory for run %s", run->job);
    return machine_run_keep(r->machine, run->folder, run->job, run->dir, run->spec->kind, run->assignment, err);
}

static bool slot_taken(const struct ranks *r, const struct run *run)
{
    for (size_t i = 0; i < r->n; i++)
        for (int j = 0; j < r->v[i]->n; j++)
            for (int k = 0; k < run->n; k++)
                if (run->ranks[k].slot >= 0 && r->v[i]->ranks[j].state != RANK_EXITED &&
                    r->v[i]->ranks[j].slot == run->ranks[k].slot)
                    return true;
    return false;
}

int ranks_start(struct ranks *r, const json_t *assignment, struct merr *err)
{
    struct run *run = NULL;
    struct merr why;
    int code;

    code = new_run(r, assignment, r->slots, &run, err);
    if (code < 0)
        return code;
    if (ranks_find(r, run->job, run->generation)) {
        ranks_run_free(run);
        return 0;
    }
    if (slot_taken(r, run))
        code = merr_set(err, -EAGAIN, "run %s: one of its slots is not free yet", run->job);
    else
        code = ranks_insert(r, run, err);
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }

    /* From here on what fails is a rank that has ended: the server learns it like any other end. */
    run->spec = read_spec(assignment, &why);
    code = run->spec ? make_folder(r, run, &why) : -EINVAL;
    for (int i = 0; i < run->n; i++) {
        if (code == 0)
            code = start_rank(r, run, &run->ranks[i], &why);
        if (code < 0)
            ranks_end_rank(run, &run->ranks[i], EXIT_NODE, 0, machine_wall_us(r->machine), why.text);
    }
    return 0;
}

/* --- after a restart of the agent --------------------------------------------------------------- */

static void adopt_rank(const struct ranks *r, struct run *run, struct rank *rank, bool same_boot)
{
    enum machine_sight sight = machine_rank_find(rank->on_machine);
    struct shim_exit end;

    if (machine_rank_exit(rank->on_machine, &end) == 0) {
        ranks_end_rank(run, rank, end.exit_code, end.signal, end.at_us, NULL);
    } else if (!same_boot) {
        machine_rank_keep_exit(rank->on_machine, EXIT_NODE);
        ranks_end_rank(run, rank, EXIT_NODE, 0, machine_wall_us(r->machine),
                       "the machine was started anew while this rank ran");
    } else if (sight == MACHINE_RUNNING) {
        rank->state = RANK_RUNNING; /* or gone by now: ranks_tick ends it then */
    }
}

static int adopt_run(void *arg, const char *folder, const json_t *assignment, bool same_boot, struct merr *err)
{
    struct ranks *r = arg;
    struct run *run = NULL;
    int code;

    code = new_run(r, assignment, INT_MAX, &run, err); /* also on a slot that is offered no more: it is to be ended */
    if (code == 0 && strcmp(run->folder, folder) != 0)
        code = merr_set(err, -EPROTO, "'%s' holds the assignment of '%s'", folder, run->folder);
    if (code == 0)
        code = ranks_insert(r, run, err);
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }
    run->spec = read_spec(assignment, NULL);
    for (int i = 0; i < run->n; i++)
        adopt_rank(r, run, &run->ranks[i], same_boot);
    return 0;
}

int ranks_adopt(struct ranks *r, struct merr *err)
{
    return machine_each_run(r->machine, adopt_run, r, err);
}
