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

/* How many different nodes come before the first rank of node (all of them for NULL). */
static int nodes_before(const struct assignment *a, const char *node)
{
    int n = 0;

    for (size_t i = 0; i < a->n_ranks; i++) {
        bool seen = false;

        if (node && strcmp(a->ranks[i].node, node) == 0)
            break;
        for (size_t j = 0; j < i && !seen; j++)
            seen = strcmp(a->ranks[i].node, a->ranks[j].node) == 0;
        n += !seen;
    }
    return n;
}

/* The ranks of this node. slots: how many it has; INT_MAX for a run that was started when there were others. */
static int take_ranks(const struct ranks *r, int slots, struct run *run, struct merr *err)
{
    const struct assignment *a = &run->assignment;

    run->ranks = calloc(a->n_ranks + 1, sizeof(*run->ranks));
    if (!run->ranks)
        return merr_set(err, -ENOMEM, "no memory for %zu ranks", a->n_ranks);
    for (size_t i = 0; i < a->n_ranks; i++) {
        const struct assignment_rank *one = &a->ranks[i];

        if (strcmp(one->node, r->node) != 0)
            continue;
        if (one->slot < 0 || one->slot >= slots)
            return merr_set(err, -EINVAL, "run %s: rank %d is put on slot %d, but this node has %d", run->job,
                            one->rank, one->slot, slots);
        run->ranks[run->n] =
            (struct rank){.rank = one->rank, .slot = one->slot, .local_rank = run->n, .kill_us = INT64_MAX};
        run->n++;
    }
    /* This node as a source node, where the job has left it: a rank after all that train, without a slot. */
    for (size_t i = 0; run->n == 0 && i < a->n_source_nodes; i++)
        if (strcmp(a->source_nodes[i].node, r->node) == 0)
            run->ranks[run->n++] = (struct rank){.rank = a->source_nodes[i].rank, .slot = -1, .kill_us = INT64_MAX};
    return run->n > 0 ? 0 : merr_set(err, -EINVAL, "run %s: no rank is for node '%s'", run->job, r->node);
}

/* Put the values of secrets into the places where the variables name them. They are in memory alone. */
static int fill_secrets(struct run *run, struct merr *err)
{
    json_t *values = run->assignment.secrets;
    int r = 0;

    for (char **one = run->spec->kind == JOB_COMMAND ? run->spec->command.env : NULL; one && *one && r == 0; one++) {
        size_t n = strcspn(*one, "=@");
        const char *value = (*one)[n] == '@' ? json_string_value(json_object_get(values, *one + n + 1)) : NULL;
        char *filled = NULL;

        if ((*one)[n] != '@')
            continue;
        if (!value)
            r = merr_set(err, -ENOENT, "the value of secret '%s' was not sent", *one + n + 1);
        else if (asprintf(&filled, "%.*s=%s", (int)n, *one, value) < 0)
            r = merr_set(err, -ENOMEM, "no memory for run %s", run->job);
        if (r == 0) {
            free(*one);
            *one = filled;
        }
    }
    json_decref(values);
    run->assignment.secrets = NULL; /* what is kept in the run's folder is without them */
    return r;
}

static struct job_spec *read_spec(const struct assignment *a, struct merr *err)
{
    struct job_spec *spec = NULL;
    struct faults *f = calloc(1, sizeof(*f));

    if (!f) {
        merr_set(err, -ENOMEM, "spec: no memory");
        return NULL;
    }
    if (spec_from_json(a->spec, &spec, f) < 0)
        merr_set(err, -EINVAL, "spec: %s: %s", f->n ? f->v[0].pointer : "", f->n ? f->v[0].message : "no memory");
    faults_clear(f);
    free(f);
    return spec;
}

/* A run of an assignment, which it takes over, without any process. New. On failure the assignment is as it was. */
static int new_run(const struct ranks *r, struct assignment *a, int slots, struct run **ret, struct merr *err)
{
    json_int_t each = json_integer_value(json_object_get(json_object_get(a->spec, "command"), "ranks"));
    struct run *run;
    int code;

    if (!usable_job(a->job))
        return merr_set(err, -EINVAL, "an assignment without a usable job: '%s'", a->job);
    if (a->dir[0] != '/')
        return merr_set(err, -EINVAL, "run %s: its folder must be an absolute path, not '%s'", a->job, a->dir);
    run = calloc(1, sizeof(*run));
    if (!run)
        return merr_set(err, -ENOMEM, "no memory for run %s", a->job);
    run->generation = (uint64_t)a->generation;
    (void)snprintf(run->job, sizeof(run->job), "%s", a->job);
    (void)snprintf(run->dir, sizeof(run->dir), "%s", a->dir);
    run->first_bad = -1;
    run->ask_us = INT64_MAX;
    run->world = a->world;
    run->grace_s = a->grace_s;
    run->nodes = nodes_before(a, NULL) + (int)a->n_source_nodes;
    run->assignment = *a;
    code = machine_run_folder(r->machine, run->job, run->generation, run->folder, err);
    if (code == 0)
        code = take_ranks(r, slots, run, err);
    for (int i = 0; code == 0 && i < run->n; i++) {
        run->ranks[i].on_machine = machine_rank_new(r->machine, run->folder, run->ranks[i].rank);
        if (!run->ranks[i].on_machine)
            code = merr_set(err, -ENOMEM, "no memory for run %s", run->job);
        else if (each > 1 && each <= SPEC_RANKS_MAX)
            machine_rank_share(run->ranks[i].on_machine, (int)each);
    }
    if (code < 0) {
        memset(&run->assignment, 0, sizeof(run->assignment));
        ranks_run_free(run);
        return code;
    }
    memset(a, 0, sizeof(*a));
    *ret = run;
    return 0;
}

/* Put a run into the table. -ENOSPC. */
static int insert(struct ranks *r, struct run *run, struct merr *err)
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

static const char *master_address(const struct assignment *a)
{
    for (size_t i = 0; i < a->n_ranks; i++)
        if (a->ranks[i].rank == 0 && a->ranks[i].address[0])
            return a->ranks[i].address;
    return "127.0.0.1";
}

static int start_rank(const struct ranks *r, const struct run *run, const struct rank *rank, struct merr *err)
{
    struct machine_launch l = {
        .job = run->job,
        .job_dir = run->dir,
        .user = run->assignment.unix_user,
        .owner = run->assignment.user,
        .trace = run->assignment.trace,
        .node = r->node,
        .nodes = run->nodes,
        .resumes = run->assignment.resumes,
        .ends_at_us = run->assignment.ends_at_us,
        .master_addr = master_address(&run->assignment),
        .generation = run->generation,
        .world = run->world,
        .local_rank = rank->local_rank,
        .local_world = run->n,
        .node_rank = nodes_before(&run->assignment, r->node),
        .master_port = run->assignment.master_port,
        .slot = rank->slot,
        .spec = run->spec,
    };
    int slots[PLAN_RANKS_MAX];

    if (ranks_is_launched(run, run->ranks + run->n - 1)) {
        for (int i = 0; i < run->n; i++) {
            if (run->ranks[i].rank != run->ranks[0].rank + i)
                return merr_set(err, -EINVAL, "a launcher's ranks follow each other, and %d is not %d",
                                run->ranks[i].rank, run->ranks[0].rank + i);
            slots[i] = run->ranks[i].slot;
        }
        l.launched = slots;
    }
    return machine_rank_start(rank->on_machine, &l, err);
}

/* Folder, assignment, flight pages: all that must be there before the first process is. */
static int make_folder(const struct ranks *r, struct run *run, struct merr *err)
{
    int code = machine_run_make(r->machine, run->folder, run->dir, run->assignment.unix_user, err);

    for (int i = 0; code == 0 && i < run->n; i++)
        code = machine_rank_page(run->ranks[i].on_machine, err);
    if (code < 0)
        return code;
    (void)snprintf(run->assignment.node, sizeof(run->assignment.node), "%s", r->node);
    return machine_run_keep(r->machine, run->folder, run->spec->kind, &run->assignment, err);
}

/* What the names of its ports stand for must be free where rank 0 is to be: another program may have taken one. */
static int check_ports(const struct ranks *r, const struct run *run, struct merr *err)
{
    if (run->spec->kind != JOB_COMMAND || run->ranks[0].rank != 0)
        return 0;
    for (size_t i = 0; i < run->spec->command.ports.n; i++) {
        int code = machine_port_free(r->machine, assignment_port(run->assignment.master_port, i), err);

        if (code < 0)
            return merr_prefix(err, code, "port '%s' of the job", run->spec->command.ports.v[i]);
    }
    return 0;
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

int ranks_start(struct ranks *r, const json_t *doc, struct merr *err)
{
    struct assignment a;
    struct run *run = NULL;
    struct merr why;
    int code;

    code = assignment_read(doc, &a, err);
    if (code < 0)
        return code;
    code = new_run(r, &a, r->slots, &run, err);
    assignment_clear(&a);
    if (code < 0)
        return code;
    if (ranks_find(r, run->job, run->generation)) {
        ranks_run_free(run);
        return 0;
    }
    if (slot_taken(r, run))
        code = merr_set(err, -EAGAIN, "run %s: one of its slots is not free yet", run->job);
    else
        code = insert(r, run, err);
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }

    /* From here on what fails is a rank that has ended: the server learns it like any other end. */
    run->spec = read_spec(&run->assignment, &why);
    code = run->spec ? fill_secrets(run, &why) : -EINVAL;
    if (code == 0)
        code = check_ports(r, run, &why);
    if (code == 0)
        code = make_folder(r, run, &why);
    for (int i = 0; i < run->n; i++) {
        if (code == 0)
            code = ranks_is_launched(run, &run->ranks[i]) ? 0 : start_rank(r, run, &run->ranks[i], &why);
        if (code < 0)
            ranks_fail_rank(r, run, &run->ranks[i], code == -EACCES ? EXIT_CAUSE_USER : EXIT_CAUSE_NODE, why.text);
    }
    return 0;
}

/* --- after a restart of the agent --------------------------------------------------------------- */

static void adopt_rank(const struct ranks *r, struct run *run, struct rank *rank, bool same_boot)
{
    enum machine_sight sight = machine_rank_find(rank->on_machine);
    struct rank_exit end;

    if (machine_rank_exit(rank->on_machine, &end) == 0) {
        ranks_end_rank(run, rank, &end);
    } else if (!same_boot) {
        ranks_lose_rank(r, run, rank, "the machine was started anew while this rank ran");
    } else if (sight == MACHINE_RUNNING) {
        rank->state = RANK_RUNNING; /* or gone by now: ranks_tick ends it then */
    }
}

static int adopt_run(void *arg, const char *folder, struct assignment *assignment, bool same_boot, struct merr *err)
{
    struct ranks *r = arg;
    struct run *run = NULL;
    int code;

    code = new_run(r, assignment, INT_MAX, &run, err); /* also on a slot that is offered no more: it is to be ended */
    if (code == 0 && strcmp(run->folder, folder) != 0)
        code = merr_set(err, -EPROTO, "'%s' holds the assignment of '%s'", folder, run->folder);
    if (code == 0)
        code = insert(r, run, err);
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }
    run->spec = read_spec(&run->assignment, NULL);
    for (int i = 0; i < run->n; i++)
        adopt_rank(r, run, &run->ranks[i], same_boot);
    return 0;
}

int ranks_adopt(struct ranks *r, struct merr *err)
{
    return machine_each_run(r->machine, adopt_run, r, err);
}
