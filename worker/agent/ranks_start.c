/* The beginning of a run: its assignment read, its folder made, its ranks started or found again. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "worker/agent/launch.h"
#include "worker/agent/memory.h"
#include "worker/agent/ranks_priv.h"
#include "worker/agent/shim.h"

#define ASSIGNMENT_MAX (8 << 20)

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

        io_close(&rank->shim_fd);
        io_close(&rank->ready_fd);
        if (rank->flight)
            flight_close(rank->flight);
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

/* The giver of this node, where the job has left it: a rank after all that train, without a slot. */
static int read_giver(const struct ranks *r, const json_t *givers, struct run *run, struct merr *err)
{
    for (size_t i = 0; i < json_array_size(givers); i++) {
        const json_t *o = json_array_get(givers, i);

        if (strcmp(member_text(o, "node"), r->node) != 0)
            continue;
        if (member_int(o, "rank", -1) != run->world + (int)i)
            return merr_set(err, -EINVAL, "run %s: the giver of this node is not rank %d", run->job,
                            run->world + (int)i);
        run->ranks[run->n++] =
            (struct rank){.rank = run->world + (int)i, .slot = -1, .shim_fd = -1, .ready_fd = -1, .kill_us = INT64_MAX};
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
        run->ranks[run->n] = (struct rank){
            .rank = number, .slot = slot, .local_rank = run->n, .shim_fd = -1, .ready_fd = -1, .kill_us = INT64_MAX};
        run->n++;
    }
    return run->n > 0 ? 0 : read_giver(r, json_object_get(assignment, "givers"), run, err);
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
    if ((size_t)snprintf(run->folder, sizeof(run->folder), "%s/%s-g%llu", r->root, job,
                         (unsigned long long)generation) >= sizeof(run->folder))
        code = merr_set(err, -ENAMETOOLONG, "run %s: the path of its folder is too long", job);
    else
        code = read_ranks(r, assignment, slots, run, err);
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }
    *ret = run;
    return 0;
}

void ranks_watch_rank(struct ranks *r, struct rank *rank)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (rank->shim_fd >= 0)
        (void)epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, rank->shim_fd, &event);
    if (rank->ready_fd >= 0)
        (void)epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, rank->ready_fd, &event);
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

/* A rank's group in the hierarchy at root. */
static const char *rank_cgroup(const struct ranks *r, const char *root, const struct run *run, const struct rank *rank,
                               char *path)
{
    /* The root in the name keeps two agents of one machine apart. */
    (void)snprintf(path, PATH_MAX, "%.3000s/muster-%s-g%llu-r%d-%08x", root, run->job,
                   (unsigned long long)run->generation, rank->rank, (unsigned)hash_xxh3(r->root, strlen(r->root)));
    return path;
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

static int start_rank(struct ranks *r, struct run *run, struct rank *rank, struct merr *err)
{
    const json_t *list = json_object_get(run->assignment, "ranks");
    bool gives = rank->slot < 0;
    double share = r->shares && !gives ? r->shares[rank->slot] : 0;
    char cgroup[PATH_MAX], quota[PATH_MAX];
    struct launch l = {
        .self = r->self,
        .train = r->train,
        .cwd = r->cwd ? r->cwd : run->dir,
        .folder = run->folder,
        .cgroup = r->cgroup[0] ? rank_cgroup(r, r->cgroup, run, rank, cgroup) : NULL,
        .quota = share > 0 ? rank_cgroup(r, r->quota, run, rank, quota) : NULL,
        .share = share,
        .job = run->job,
        .job_dir = run->dir,
        .master_addr = master_address(list),
        .generation = run->generation,
        .rank = rank->rank,
        .world = run->world,
        .local_rank = rank->local_rank,
        .local_world = run->n,
        .node_rank = nodes_before(list, r->node),
        .master_port = member_int(run->assignment, "master_port", 0),
        .threads = r->threads,
        .visible = !r->visible ? NULL
                   : gives     ? ""
                               : r->visible[rank->slot],
        .with_parent = r->with_parent,
        .spec = run->spec,
    };
    pid_t shim;
    int code;

    code = launch_rank(&l, &shim, &rank->ready_fd, err);
    if (code < 0)
        return code;
    rank->shim.pid = shim;
    (void)proc_start_time(shim, &rank->shim.start);
    rank->shim_fd = (int)syscall(SYS_pidfd_open, shim, 0); /* our unreaped child: the number is its own */
    if (rank->shim_fd < 0) {
        code = merr_errno(err, -errno, "cannot watch the shim of rank %d", rank->rank);
        (void)kill(shim, SIGKILL);
        (void)waitpid(shim, NULL, 0);
        io_close(&rank->ready_fd);
        return code;
    }
    ranks_watch_rank(r, rank);
    return 0;
}

/* Memory for the snapshots of this node's ranks. Without it the run does without. */
static int give_memory(const struct ranks *r, struct run *run)
{
    char path[PATH_MAX];
    struct merr why;

    if (!r->memory || run->spec->kind != JOB_TRAIN)
        return 0;
    if (memory_open(r->memory, run->job, run->dir, path, &why) < 0)
        return json_object_set_new(run->assignment, "no_memory", json_string(why.text));
    if (r->memory_limit &&
        json_object_set_new(run->assignment, "memory_limit", json_integer((json_int_t)r->memory_limit)) < 0)
        return -1;
    return json_object_set_new(run->assignment, "memory", json_string(path));
}

/* Folder, assignment, flight pages: all that must be there before the first process is. */
static int make_folder(const struct ranks *r, struct run *run, struct merr *err)
{
    char path[PATH_MAX + 32], *text;
    int code;

    code = io_mkdirs(run->folder, 0700, err);
    if (code == 0)
        code = io_mkdirs(run->dir, 0755, err);
    (void)snprintf(path, sizeof(path), "%s/rendezvous", run->folder);
    if (code == 0)
        code = io_mkdirs(path, 0700, err);
    for (int i = 0; code == 0 && i < run->n; i++)
        code = flight_create(shim_path(path, sizeof(path), run->folder, run->ranks[i].rank, "flight"),
                             &run->ranks[i].flight, err);
    if (code < 0)
        return code;
    if (json_object_set_new(run->assignment, "node", json_string(r->node)) < 0 ||
        json_object_set_new(run->assignment, "threads", json_integer(r->threads)) < 0 ||
        json_object_set_new(run->assignment, "boot_id", json_string(r->boot_id)) < 0 || give_memory(r, run) < 0)
        return merr_set(err, -ENOMEM, "no memory for run %s", run->job);
    text = json_dumps(run->assignment, JSON_INDENT(1));
    if (!text)
        return merr_set(err, -ENOMEM, "no memory for run %s", run->job);
    (void)snprintf(path, sizeof(path), "%s/assignment.json", run->folder);
    code = io_publish_file(path, text, strlen(text), 0600, err);
    free(text);
    return code;
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
            ranks_end_rank(run, &run->ranks[i], EXIT_NODE, 0, clock_wall_us(), why.text);
    }
    return 0;
}

/* --- after a restart of the agent --------------------------------------------------------------- */

/* *ret is new. -ENOENT when the folder holds no assignment. */
static int read_assignment(const char *folder, json_t **ret, struct merr *err)
{
    char path[PATH_MAX + 32];
    struct buf text;
    json_error_t je;
    int code;

    (void)snprintf(path, sizeof(path), "%s/assignment.json", folder);
    buf_init(&text, ASSIGNMENT_MAX);
    code = io_read_file(path, &text, err);
    if (code == 0) {
        json_t *doc = json_loadb(buf_text(&text), text.len, 0, &je);

        if (doc)
            *ret = doc;
        else
            code = merr_set(err, -EPROTO, "'%s' is damaged: line %d: %s", path, je.line, je.text);
    }
    buf_clear(&text);
    return code;
}

static void adopt_rank(struct ranks *r, struct run *run, struct rank *rank, bool same_boot)
{
    char path[PATH_MAX];
    struct shim_exit end;
    struct shim_pids pids;

    if (flight_open(shim_path(path, sizeof(path), run->folder, rank->rank, "flight"), &rank->flight, NULL) < 0)
        rank->flight = NULL;
    if (shim_read_exit(run->folder, rank->rank, &end, NULL) == 0) {
        ranks_end_rank(run, rank, end.exit_code, end.signal, end.at_us, NULL);
        return;
    }
    if (!same_boot) {
        (void)shim_write_exit(run->folder, rank->rank, EXIT_NODE, 0, NULL);
        ranks_end_rank(run, rank, EXIT_NODE, 0, clock_wall_us(), "the machine was started anew while this rank ran");
        return;
    }
    if (shim_read_pids(run->folder, rank->rank, &pids, NULL) == 0) {
        rank->shim = pids.shim;
        rank->child = pids.rank;
        rank->state = RANK_RUNNING;
        rank->shim_fd = proc_open(pids.shim);
        if (rank->shim_fd < 0)
            rank->shim_fd = -1; /* gone: ranks_tick ends the rank */
        ranks_watch_rank(r, rank);
    }
}

static int adopt_run(struct ranks *r, const char *folder, struct merr *err)
{
    json_auto_t *assignment = NULL;
    struct run *run = NULL;
    bool same_boot;
    int code;

    code = read_assignment(folder, &assignment, err);
    if (code == -ENOENT)
        return io_remove_tree(folder, err);
    if (code == 0) /* also on a slot that is offered no more: what runs there is to be ended */
        code = new_run(r, assignment, INT_MAX, &run, err);
    if (code == 0 && strcmp(run->folder, folder) != 0)
        code = merr_set(err, -EPROTO, "'%s' holds the assignment of '%s'", folder, run->folder);
    if (code == 0)
        code = ranks_insert(r, run, err);
    if (code < 0) {
        ranks_run_free(run);
        return code;
    }
    run->spec = read_spec(assignment, NULL);
    same_boot = strcmp(member_text(assignment, "boot_id"), r->boot_id) == 0;
    for (int i = 0; i < run->n; i++)
        adopt_rank(r, run, &run->ranks[i], same_boot);
    return 0;
}

int ranks_adopt(struct ranks *r, struct merr *err)
{
    DIR *dir = opendir(r->root);
    struct dirent *e;
    struct merr first = {""}, each;
    int code = 0;

    if (!dir)
        return errno == ENOENT ? 0 : merr_errno(err, -errno, "cannot read '%s'", r->root);
    while ((e = readdir(dir))) {
        char folder[PATH_MAX];
        struct stat st;
        int one;

        if (e->d_name[0] == '.' || !strstr(e->d_name, "-g"))
            continue;
        if ((size_t)snprintf(folder, sizeof(folder), "%s/%s", r->root, e->d_name) >= sizeof(folder))
            continue;
        if (lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        one = adopt_run(r, folder, &each); /* one bad folder does not hide the others */
        if (one < 0 && code == 0) {
            code = one;
            first = each;
        }
    }
    (void)closedir(dir);
    if (code < 0)
        (void)merr_set(err, code, "%s", first.text);
    return code;
}
