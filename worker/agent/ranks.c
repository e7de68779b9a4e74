#include "worker/agent/ranks.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/utf8.h"
#include "worker/agent/launch.h"
#include "worker/agent/memory.h"
#include "worker/agent/ranks_priv.h"
#include "worker/agent/shim.h"

#define TAIL_BYTES 8192
#define TAIL_LINES 20
#define KILL_AGAIN_US 5000000 /* between two hard signals */
#define LOOK_US 50000         /* between two looks at what gives no event */
#define SWEEP_US 10000000     /* between two looks for memory that nobody uses */

static void find_cgroup(struct ranks *r);

int ranks_new(const struct ranks_cfg *cfg, struct ranks **ret, struct merr *err)
{
    struct ranks *r = calloc(1, sizeof(*r));

    if (!r)
        return merr_set(err, -ENOMEM, "no memory for the table of runs");
    r->root = strdup(cfg->root);
    r->node = strdup(cfg->node);
    r->self = strdup(cfg->self);
    r->train = strdup(cfg->train);
    r->cwd = cfg->cwd ? strdup(cfg->cwd) : NULL;
    r->memory = cfg->memory ? strdup(cfg->memory) : NULL;
    r->memory_limit = cfg->memory_limit;
    r->threads = cfg->threads;
    r->with_parent = cfg->with_parent;
    r->slots = cfg->slots;
    r->visible = cfg->visible;
    r->shares = cfg->shares;
    r->quota = cfg->shares ? strdup(cfg->quota) : NULL;
    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    proc_boot_id(r->boot_id);
    if (!r->root || !r->node || !r->self || !r->train || (cfg->cwd && !r->cwd) || (cfg->memory && !r->memory) ||
        (cfg->shares && !r->quota) || r->epoll_fd < 0) {
        ranks_free(r);
        return merr_set(err, -ENOMEM, "no memory or descriptor for the table of runs");
    }
    if (cfg->cgroups)
        find_cgroup(r);
    *ret = r;
    return 0;
}

void ranks_free(struct ranks *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        ranks_run_free(r->v[i]);
    free(r->v);
    free(r->root);
    free(r->node);
    free(r->self);
    free(r->train);
    free(r->cwd);
    free(r->memory);
    free(r->quota);
    io_close(&r->epoll_fd);
    free(r);
}

/* The cgroup (v2) this process is in, if folders can be made in it. */
static void find_cgroup(struct ranks *r)
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    struct buf text;
    const char *own;

    buf_init(&text, 65536);
    own = io_read_file("/proc/self/cgroup", &text, NULL) == 0 ? strstr(buf_text(&text), "0::/") : NULL;
    for (size_t i = 0; own && !r->cgroup[0] && i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        char path[PATH_MAX], probe[PATH_MAX];
        int len = (int)strcspn(own + 3, "\n");

        (void)snprintf(path, sizeof(path), "%s%.*s", mounts[i], len > 1000 ? 1000 : len, own + 3);
        /* The root has no cgroup.kill, so a child is made to see. */
        (void)snprintf(probe, sizeof(probe), "%.1100s/muster-probe-%d", path, (int)getpid());
        if (mkdir(probe, 0755) == 0) {
            char kill_file[PATH_MAX];

            (void)snprintf(kill_file, sizeof(kill_file), "%.1200s/cgroup.kill", probe);
            if (access(kill_file, W_OK) == 0)
                (void)snprintf(r->cgroup, sizeof(r->cgroup), "%s", path);
            (void)rmdir(probe);
        }
    }
    buf_clear(&text);
}

size_t ranks_count(const struct ranks *r)
{
    return r->n;
}

const struct run *ranks_at(const struct ranks *r, size_t i)
{
    assert(i < r->n);
    return r->v[i];
}

static struct run *find(const struct ranks *r, const char *job, uint64_t generation, size_t *ret_at)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i]->generation == generation && strcmp(r->v[i]->job, job) == 0) {
            if (ret_at)
                *ret_at = i;
            return r->v[i];
        }
    return NULL;
}

const struct run *ranks_find(const struct ranks *r, const char *job, uint64_t generation)
{
    return find(r, job, generation, NULL);
}

bool ranks_run_ended(const struct run *run)
{
    for (int i = 0; i < run->n; i++)
        if (run->ranks[i].state != RANK_EXITED)
            return false;
    return true;
}

/* --- ends --------------------------------------------------------------------------------------- */

/* The last lines of a log as a new array. */
static json_t *log_tail(const char *folder, int rank)
{
    char path[PATH_MAX], text[TAIL_BYTES], *p = text, *end;
    IO_CLOSE_AUTO int fd = open(shim_path(path, sizeof(path), folder, rank, "log"), O_RDONLY | O_CLOEXEC);
    json_t *list = json_array();
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    size_t skip = size > TAIL_BYTES ? (size_t)size - TAIL_BYTES : 0, lines = 0;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text), (off_t)skip);

    if (n <= 0 || !list)
        return list;
    utf8_patch(text, (size_t)n);
    end = text + n;
    if (end[-1] == '\n')
        end--;
    for (p = end; p > text && (p[-1] != '\n' || ++lines < TAIL_LINES); p--)
        ;
    while (p < end) {
        size_t len = (size_t)(end - p);
        char *stop = memchr(p, '\n', len);

        if (stop)
            len = (size_t)(stop - p);
        (void)json_array_append_new(list, json_stringn(p, len));
        p += len + 1;
    }
    return list;
}

static bool bad_end(const struct rank *rank)
{
    return rank->exit_code != EXIT_DONE && rank->exit_code != EXIT_DRAINED;
}

void ranks_end_rank(struct run *run, struct rank *rank, int exit_code, int signal, int64_t ended_us, const char *reason)
{
    int me = (int)(rank - run->ranks);

    assert(rank->state != RANK_EXITED);
    rank->state = RANK_EXITED;
    rank->exit_code = exit_code;
    rank->signal = signal;
    rank->ended_us = ended_us;
    rank->kill_us = INT64_MAX;
    io_close(&rank->shim_fd);
    io_close(&rank->ready_fd);
    if (!bad_end(rank))
        return;
    rank->log_tail = log_tail(run->folder, rank->rank);
    if (reason && rank->log_tail) {
        char line[MERR_TEXT_MAX + 16];

        (void)snprintf(line, sizeof(line), "muster: %s", reason);
        (void)json_array_append_new(rank->log_tail, json_string(line));
    }
    /* One that gave up because others were gone, or was told to stop, is never the first cause. */
    if (exit_code != EXIT_ABORTED && run->order != RUN_STOP &&
        (run->first_bad < 0 ? !run->failed : ended_us < run->ranks[run->first_bad].ended_us))
        run->first_bad = me;
}

/* Kill whatever still carries the mark of this rank in its environment: what a lost shim left behind. Returns
 * how many were alive. */
static int kill_marked(const struct run *run, const struct rank *rank)
{
    DIR *dir = opendir("/proc");
    char mark[PATH_MAX + 32], number[32];
    struct dirent *e;
    struct buf env;
    int alive = 0;

    if (!dir)
        return 0;
    (void)snprintf(mark, sizeof(mark), "MUSTER_RUN_DIR=%s", run->folder);
    (void)snprintf(number, sizeof(number), "RANK=%d", rank->rank);
    buf_init(&env, 8 << 20);
    while ((e = readdir(dir))) {
        struct proc_id id = {.pid = (pid_t)strtol(e->d_name, NULL, 10)};
        bool marked = false, numbered = false;
        char path[300];

        if (id.pid <= 0 || id.pid == getpid() || proc_start_time(id.pid, &id.start) < 0)
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/environ", e->d_name);
        buf_reset(&env);
        if (io_read_file(path, &env, NULL) < 0 || !env.len)
            continue;
        for (const char *p = env.data; p < env.data + env.len; p += strlen(p) + 1) {
            marked |= strcmp(p, mark) == 0;
            numbered |= strcmp(p, number) == 0;
        }
        if (marked && numbered && proc_alive(id)) {
            (void)proc_kill(id, SIGKILL);
            alive++;
        }
    }
    buf_clear(&env);
    (void)closedir(dir);
    return alive;
}

/* The shim of a rank is gone: read how the rank ended, or see to it that it has. */
static void finish_rank(struct run *run, struct rank *rank, int64_t now_us)
{
    struct shim_exit end;
    struct shim_pids pids;

    if (rank->shim.pid > 0)
        (void)waitpid(rank->shim.pid, NULL, WNOHANG); /* ECHILD for an adopted one */
    if (shim_read_exit(run->folder, rank->rank, &end, NULL) == 0) {
        ranks_end_rank(run, rank, end.exit_code, end.signal, end.at_us, NULL);
        return;
    }
    if (!rank->child.pid && shim_read_pids(run->folder, rank->rank, &pids, NULL) == 0)
        rank->child = pids.rank;
    (void)proc_kill(rank->child, SIGKILL);
    if (proc_alive(rank->child) || kill_marked(run, rank) > 0) {
        io_close(&rank->shim_fd); /* it would be readable for ever; the deadline brings us back */
        rank->kill_us = now_us + LOOK_US;
        return;
    }
    (void)shim_write_exit(run->folder, rank->rank, EXIT_NODE, 0, NULL);
    ranks_end_rank(run, rank, EXIT_NODE, 0, clock_wall_us(), "the process that watches this rank was lost");
}

/* --- orders ------------------------------------------------------------------------------------- */

static void signal_shim(const struct rank *rank, int signal)
{
    if (rank->shim_fd >= 0)
        (void)proc_kill_fd(rank->shim_fd, signal);
}

/* Ask a rank to end: a flight order for the engine, SIGTERM for what may not look at it; SIGKILL at last. */
static void end_rank_softly(const struct run *run, struct rank *rank, bool signal, int64_t now_us)
{
    int64_t kill_us = now_us + (int64_t)run->grace_s * 1000000;

    if (rank->state == RANK_EXITED)
        return;
    if (rank->flight)
        flight_order_set(rank->flight, FLIGHT_ABORT);
    if (signal)
        signal_shim(rank, SIGTERM);
    if (kill_us < rank->kill_us)
        rank->kill_us = kill_us;
}

/* The grace is over. */
static void end_rank_hard(struct rank *rank, int64_t now_us)
{
    rank->kills++;
    signal_shim(rank, SHIM_KILL);
    if (rank->kills > 1) {
        signal_shim(rank, SIGCONT); /* somebody may have stopped the shim */
        (void)proc_kill(rank->child, SIGKILL);
    }
    if (rank->kills > 2)
        signal_shim(rank, SIGKILL); /* takes the rank along; we then look after the rest */
    rank->kill_us = now_us + KILL_AGAIN_US;
}

static void tell_flight(struct run *run, enum flight_order order)
{
    for (int i = 0; i < run->n; i++)
        if (run->ranks[i].flight && run->ranks[i].state != RANK_EXITED)
            flight_order_set(run->ranks[i].flight, order);
}

int ranks_order(struct ranks *r, const char *job, uint64_t generation, enum run_order order, int grace_s)
{
    struct run *run = find(r, job, generation, NULL);
    bool command;

    if (!run)
        return -ENOENT;
    if (order == RUN_STOP && run->order == RUN_STOP && grace_s >= 0 && grace_s < run->grace_s) {
        run->grace_s = grace_s; /* less patience than before */
        for (int i = 0; i < run->n; i++)
            end_rank_softly(run, &run->ranks[i], false, clock_mono_us());
    }
    if (order == run->order || (run->order >= RUN_HAND_OVER && order < run->order))
        return 0;
    if (grace_s >= 0)
        run->grace_s = grace_s > RANKS_GRACE_S_MAX ? RANKS_GRACE_S_MAX : grace_s;
    run->order = order;
    command = run->spec && run->spec->kind == JOB_COMMAND;
    if (order == RUN_SAVE) {
        tell_flight(run, FLIGHT_SAVE);
    } else if (order != RUN_STOP && order != RUN_GO && !command) {
        tell_flight(run, order == RUN_DRAIN ? FLIGHT_DRAIN : order == RUN_MOVE ? FLIGHT_MOVE : FLIGHT_HAND_OVER);
    } else if (order >= RUN_HAND_OVER) { /* a command has nothing to save: both end it */
        for (int i = 0; i < run->n; i++)
            end_rank_softly(run, &run->ranks[i], true, clock_mono_us());
    }
    return 0;
}

/* One has failed: the others of this node give up. */
static void abort_mates(struct run *run, int64_t now_us)
{
    bool command = run->spec && run->spec->kind == JOB_COMMAND;

    run->failed = true;
    for (int i = 0; i < run->n; i++)
        end_rank_softly(run, &run->ranks[i], command, now_us);
}

static bool job_done(const struct run *run)
{
    for (int i = 0; i < run->n; i++)
        if (run->ranks[i].exit_code != EXIT_DONE)
            return false;
    return true;
}

static bool has_run(const void *arg, const char *job)
{
    const struct ranks *r = arg;

    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->v[i]->job, job) == 0)
            return true;
    return false;
}

int ranks_forget(struct ranks *r, const char *job, uint64_t generation, struct merr *err)
{
    size_t at;
    struct run *run = find(r, job, generation, &at);
    int code;

    if (!run)
        return 0;
    if (!ranks_run_ended(run))
        return merr_set(err, -EBUSY, "run %s-g%llu has live ranks", job, (unsigned long long)generation);
    code = io_remove_tree(run->folder, err);
    if (code < 0)
        return code;
    r->v[at] = r->v[--r->n];
    if (r->memory) /* a giver's is done with unless the job has come back meanwhile */
        memory_close(r->memory, job, job_done(run) && !has_run(r, job));
    ranks_run_free(run);
    return 0;
}

void ranks_drop_memory(struct ranks *r)
{
    if (r->memory)
        (void)io_remove_tree(r->memory, NULL);
}

/* --- events ------------------------------------------------------------------------------------- */

int ranks_fd(const struct ranks *r)
{
    return r->epoll_fd;
}

int64_t ranks_deadline(const struct ranks *r)
{
    int64_t deadline_us = INT64_MAX;

    for (size_t i = 0; i < r->n; i++)
        for (int j = 0; j < r->v[i]->n; j++) {
            const struct rank *rank = &r->v[i]->ranks[j];
            int64_t next_us = rank->kill_us;

            if (rank->state == RANK_EXITED)
                continue;
            /* An adopted rank without its pid file or its shim gives no event. */
            if (rank->shim_fd < 0 && clock_mono_us() + LOOK_US < next_us)
                next_us = clock_mono_us() + LOOK_US;
            if (next_us < deadline_us)
                deadline_us = next_us;
        }
    return deadline_us;
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Has the shim of a rank come, and is it gone? */
static bool shim_gone(struct ranks *r, struct run *run, struct rank *rank)
{
    struct shim_pids pids;

    if (rank->shim_fd >= 0)
        return readable(rank->shim_fd);
    if (shim_read_pids(run->folder, rank->rank, &pids, NULL) == 0) {
        rank->shim = pids.shim;
        rank->child = pids.rank;
        rank->shim_fd = proc_open(pids.shim);
        if (rank->shim_fd < 0) {
            rank->shim_fd = -1;
            return true;
        }
        ranks_watch_rank(r, rank);
        return false;
    }
    /* No word from a shim: gone unless one holds the log and is about to write its ids. */
    return launch_log_free(run->folder, rank->rank) == 0;
}

static bool tick_rank(struct ranks *r, struct run *run, struct rank *rank, int64_t now_us)
{
    struct shim_pids pids;
    bool changed = false;

    if (rank->state == RANK_EXITED)
        return false;
    if (rank->ready_fd >= 0 && readable(rank->ready_fd))
        io_close(&rank->ready_fd);
    if (shim_gone(r, run, rank)) {
        finish_rank(run, rank, now_us);
        if (rank->state == RANK_EXITED)
            return true;
    }
    if (rank->state == RANK_STARTING && rank->ready_fd < 0 &&
        shim_read_pids(run->folder, rank->rank, &pids, NULL) == 0) {
        rank->child = pids.rank;
        rank->state = RANK_RUNNING;
        changed = true;
    }
    if (now_us >= rank->kill_us)
        end_rank_hard(rank, now_us);
    return changed;
}

bool ranks_tick(struct ranks *r, int64_t now_us)
{
    bool changed = false;

    if (r->memory && now_us >= r->sweep_us) { /* no deadline of ours: whenever there is something else to do */
        memory_sweep(r->memory, has_run, r, clock_wall_us());
        r->sweep_us = now_us + SWEEP_US;
    }

    for (size_t i = 0; i < r->n; i++) {
        struct run *run = r->v[i];
        bool bad = false;

        for (int j = 0; j < run->n; j++) {
            changed |= tick_rank(r, run, &run->ranks[j], now_us);
            bad |= run->ranks[j].state == RANK_EXITED && bad_end(&run->ranks[j]);
        }
        if (bad && !run->failed)
            abort_mates(run, now_us);
    }
    return changed;
}

/* --- reports ------------------------------------------------------------------------------------ */

static json_t *rank_json(const struct rank *rank)
{
    static const char *const states[] = {"starting", "running", "exited"};
    json_t *o = json_pack("{s:i,s:i,s:s,s:I}", "rank", rank->rank, "slot", rank->slot, "state", states[rank->state],
                          "pid", (json_int_t)rank->child.pid);

    if (o && rank->flight) {
        (void)json_object_set_new(o, "step", json_integer((json_int_t)flight_step(rank->flight)));
        (void)json_object_set_new(o, "phase", json_string(flight_phase_name(flight_phase_get(rank->flight, NULL))));
    }
    if (o && rank->state == RANK_EXITED) {
        (void)json_object_set_new(o, "exit_code", json_integer(rank->exit_code));
        (void)json_object_set_new(o, "signal", json_integer(rank->signal));
        if (rank->log_tail)
            (void)json_object_set(o, "log_tail", rank->log_tail);
    }
    return o;
}

json_t *ranks_run_json(const struct run *run)
{
    json_t *list = json_array(), *o;

    for (int i = 0; list && i < run->n; i++)
        (void)json_array_append_new(list, rank_json(&run->ranks[i]));
    o = json_pack("{s:s,s:I,s:o}", "job", run->job, "generation", (json_int_t)run->generation, "ranks",
                  list); /* stolen, also on failure */
    return o;
}
