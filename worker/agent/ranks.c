#include "worker/agent/ranks.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/agent/ranks_priv.h"
#include "worker/flight/flight_read.h"

#define KILL_AGAIN_US 5000000 /* between two hard signals */
#define LOOK_US 50000         /* between two looks at what gives no event */
#define SWEEP_US 10000000     /* between two looks for memory that nobody uses */

int ranks_new(const struct ranks_cfg *cfg, struct ranks **ret, struct merr *err)
{
    struct ranks *r = calloc(1, sizeof(*r));

    if (!r)
        return merr_set(err, -ENOMEM, "no memory for the table of runs");
    r->machine = cfg->machine;
    r->slots = cfg->slots;
    r->failed = cfg->failed;
    r->arg = cfg->arg;
    r->node = strdup(cfg->node);
    if (!r->node) {
        ranks_free(r);
        return merr_set(err, -ENOMEM, "no memory for the table of runs");
    }
    *ret = r;
    return 0;
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
    assignment_clear(&run->assignment);
    spec_free(run->spec);
    free(run);
}

void ranks_free(struct ranks *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        ranks_run_free(r->v[i]);
    free(r->v);
    free(r->node);
    free(r);
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

struct run *ranks_find(const struct ranks *r, const char *job, uint64_t generation)
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

static bool is_command(const struct run *run)
{
    return run->spec && run->spec->kind == JOB_COMMAND;
}

bool ranks_is_launched(const struct run *run, const struct rank *rank)
{
    return is_command(run) && run->spec->command.launcher == LAUNCH_TORCHRUN && rank != run->ranks;
}

static bool bad_end(const struct rank *rank)
{
    return !exit_well(&rank->exit);
}

/* A command that saved and ended since somebody else sent it SIGTERM, maybe itself: were it taken to have obeyed, its
 * job would be queued again without an end. */
static void judge_unordered(const struct run *run, enum job_kind kind, struct rank_exit *e)
{
    if (kind != JOB_COMMAND || e->cause != EXIT_CAUSE_DRAINED || run->order >= ASSIGNMENT_HAND_OVER || run->failed)
        return;
    e->cause = EXIT_CAUSE_ABORTED;
    utf8_copy(e->why, sizeof(e->why), "somebody else than Muster sent it SIGTERM, and it ended");
}

void ranks_end_rank(struct run *run, struct rank *rank, const struct rank_exit *end)
{
    enum job_kind kind = run->spec ? run->spec->kind : JOB_TRAIN;
    int me = (int)(rank - run->ranks);

    assert(rank->state != RANK_EXITED);
    rank->state = RANK_EXITED;
    rank->exit = exit_settle(*end, kind);
    judge_unordered(run, kind, &rank->exit);
    rank->kill_us = INT64_MAX;
    machine_rank_done(rank->on_machine);
    if (!bad_end(rank))
        return;
    rank->log_tail = machine_rank_tail(rank->on_machine);
    if (rank->exit.why[0] && rank->log_tail) {
        char line[EXIT_WHY_MAX + 16];

        (void)snprintf(line, sizeof(line), "muster: %s", rank->exit.why);
        (void)json_array_append_new(rank->log_tail, json_string(line));
    }
    /* One that gave up because others were gone, or was told to stop, is never the first cause. */
    if (rank->exit.cause != EXIT_CAUSE_ABORTED && run->order != ASSIGNMENT_STOP &&
        (run->first_bad < 0 ? !run->failed : end->at_ms < run->ranks[run->first_bad].exit.at_ms))
        run->first_bad = me;
}

void ranks_lose_rank(const struct ranks *r, struct run *run, struct rank *rank, const char *reason)
{
    ranks_fail_rank(r, run, rank, EXIT_CAUSE_NODE, reason);
}

void ranks_fail_rank(const struct ranks *r, struct run *run, struct rank *rank, enum exit_cause cause,
                     const char *reason)
{
    struct rank_exit e = {.status = -1, .cause = cause, .at_ms = machine_wall_us(r->machine) / 1000};

    utf8_copy(e.why, sizeof(e.why), reason);
    machine_rank_keep_exit(rank->on_machine, &e);
    ranks_end_rank(run, rank, &e);
}

/* The shim of a rank is gone: read how the rank ended, or see to it that it has. */
static void finish_rank(const struct ranks *r, struct run *run, struct rank *rank, int64_t now_us)
{
    struct rank_exit end;

    if (machine_rank_exit(rank->on_machine, &end) == 0) {
        ranks_end_rank(run, rank, &end);
    } else if (machine_rank_clear(rank->on_machine)) {
        ranks_lose_rank(r, run, rank, "the process that watches this rank was lost");
    } else {
        rank->kill_us = now_us + LOOK_US;
    }
}

/* All that a launcher has started ends with it: of how it ended the launcher's end tells. */
static bool finish_launched(struct run *run, struct rank *rank)
{
    struct rank_exit end = run->ranks[0].exit;

    if (!machine_rank_clear(rank->on_machine)) /* its group may outlive a shim that was lost */
        return false;
    if (!exit_well(&end)) {
        end.cause = EXIT_CAUSE_ABORTED;
        (void)snprintf(end.why, sizeof(end.why), "its launcher, rank %d, has ended", run->ranks[0].rank);
    }
    ranks_end_rank(run, rank, &end);
    return true;
}

/* --- orders ------------------------------------------------------------------------------------- */

/* Seconds that it has to obey a file before it is sent SIGTERM. */
static int stop_s(const struct run *run)
{
    return is_command(run) && run->spec->command.elastic ? run->spec->command.stop_s : 0;
}

/* A command reads its orders from a file, if it wants to know more than a signal says. */
static void tell_program(const struct ranks *r, const struct run *run, enum program_order order, const char *reason)
{
    struct program_telling t = {.order = order, .reason = reason, .devices_now = run->world};

    if (!is_command(run))
        return;
    if (order >= PROGRAM_STOP)
        t.deadline_us = machine_wall_us(r->machine) +
                        (int64_t)(run->grace_s + (order == PROGRAM_ABORT ? 0 : stop_s(run))) * 1000000;
    if (order == PROGRAM_SCALE)
        t.devices_next = run->devices_next;
    machine_run_tell(r->machine, run->folder, &t);
}

/* Ask a rank to end: a flight order for the engine, SIGTERM for what may not look at it; SIGKILL at last. */
static void end_rank_softly(const struct run *run, struct rank *rank, bool signal, int64_t now_us)
{
    int64_t kill_us = now_us + (int64_t)run->grace_s * 1000000;

    if (rank->state == RANK_EXITED)
        return;
    machine_rank_order(rank->on_machine, FLIGHT_ABORT);
    if (signal)
        machine_rank_signal(rank->on_machine, SIGTERM);
    if (kill_us < rank->kill_us)
        rank->kill_us = kill_us;
}

/* The grace is over. */
static void end_rank_hard(struct rank *rank, int64_t now_us)
{
    machine_rank_kill(rank->on_machine, ++rank->kills);
    rank->kill_us = now_us + KILL_AGAIN_US;
}

static void end_softly(const struct ranks *r, struct run *run)
{
    run->ask_us = INT64_MAX;
    for (int i = 0; i < run->n; i++)
        end_rank_softly(run, &run->ranks[i], true, machine_mono_us(r->machine));
}

static void tell_flight(struct run *run, enum flight_order order)
{
    for (int i = 0; i < run->n; i++)
        if (run->ranks[i].state != RANK_EXITED)
            machine_rank_order(run->ranks[i].on_machine, order);
}

int ranks_order(struct ranks *r, const char *job, uint64_t generation, enum assignment_order order, int grace_s)
{
    struct run *run = find(r, job, generation, NULL);

    if (!run)
        return -ENOENT;
    if (order == ASSIGNMENT_STOP && run->order == ASSIGNMENT_STOP && grace_s >= 0 && grace_s < run->grace_s) {
        run->grace_s = grace_s; /* less patience than before */
        for (int i = 0; i < run->n; i++)
            end_rank_softly(run, &run->ranks[i], false, machine_mono_us(r->machine));
    }
    if (order == run->order || (run->order >= ASSIGNMENT_HAND_OVER && order < run->order))
        return 0;
    if (grace_s >= 0)
        run->grace_s = grace_s > ASSIGNMENT_GRACE_S_MAX ? ASSIGNMENT_GRACE_S_MAX : grace_s;
    run->order = order;
    if (order == ASSIGNMENT_SAVE) {
        tell_flight(run, FLIGHT_SAVE);
        tell_program(r, run, PROGRAM_SAVE, "a checkpoint is wanted");
    } else if (order != ASSIGNMENT_STOP && order != ASSIGNMENT_RUN && !is_command(run)) {
        tell_flight(run, order == ASSIGNMENT_DRAIN  ? FLIGHT_DRAIN
                         : order == ASSIGNMENT_MOVE ? FLIGHT_MOVE
                                                    : FLIGHT_HAND_OVER);
    } else if (order >= ASSIGNMENT_HAND_OVER) { /* a command may save and go on later, or is over: both end it */
        if (order == ASSIGNMENT_STOP && !run->failed)
            tell_program(r, run, PROGRAM_ABORT, "the job is cancelled, or a rank of it has failed");
        else if (order != ASSIGNMENT_STOP && run->devices_next > 0 && run->spec->command.elastic)
            tell_program(r, run, PROGRAM_SCALE, "the job is to go on with other devices");
        else if (order != ASSIGNMENT_STOP)
            tell_program(r, run, PROGRAM_STOP, "the job is to end here and goes on later");
        if (order != ASSIGNMENT_STOP && stop_s(run) > 0)
            run->ask_us = machine_mono_us(r->machine) + (int64_t)stop_s(run) * 1000000;
        else
            end_softly(r, run);
    }
    return 0;
}

static int signal_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"SIGHUP", SIGHUP}, {"SIGINT", SIGINT}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].number;
    return 0;
}

void ranks_warn(struct ranks *r, const char *job, uint64_t generation, int limit_s)
{
    struct run *run = limit_s > 0 ? find(r, job, generation, NULL) : NULL;
    int signal = run && is_command(run) ? signal_of(run->spec->limits.warn_signal) : 0;

    if (!run || run->warned_s == limit_s)
        return;
    run->warned_s = limit_s;
    for (int i = 0; i < run->n && signal > 0; i++)
        if (run->ranks[i].state != RANK_EXITED)
            machine_rank_signal(run->ranks[i].on_machine, signal);
}

void ranks_try(struct ranks *r, const char *job, uint64_t generation, int number, const int rank[2])
{
    struct run *run = number > 0 ? find(r, job, generation, NULL) : NULL;

    if (!run || is_command(run) || run->trial == number)
        return;
    run->trial = number;
    for (int i = 0; i < run->n; i++)
        if ((run->ranks[i].rank == rank[0] || run->ranks[i].rank == rank[1]) && run->ranks[i].state != RANK_EXITED)
            machine_rank_try(run->ranks[i].on_machine, (uint32_t)number);
}

/* One has failed: the others of this node give up. */
static void abort_mates(const struct ranks *r, struct run *run, int64_t now_us)
{
    run->failed = true;
    tell_program(r, run, PROGRAM_ABORT, "another rank of the job has failed");
    for (int i = 0; i < run->n; i++)
        end_rank_softly(run, &run->ranks[i], is_command(run), now_us);
}

static bool job_done(const struct run *run)
{
    for (int i = 0; i < run->n; i++) {
        if (!exit_done(&run->ranks[i].exit))
            return false;
    }
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
    code = machine_run_remove(r->machine, run->folder, err);
    if (code < 0)
        return code;
    r->v[at] = r->v[--r->n];
    /* a source node's is done with unless the job has come back meanwhile */
    machine_memory_close(r->machine, job, job_done(run) && !has_run(r, job));
    ranks_run_free(run);
    return 0;
}

/* --- events ------------------------------------------------------------------------------------- */

static int64_t sooner(int64_t a_us, int64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

int64_t ranks_deadline(const struct ranks *r)
{
    int64_t deadline_us = INT64_MAX;

    for (size_t i = 0; i < r->n; i++)
        for (int j = 0; j < r->v[i]->n; j++) {
            const struct rank *rank = &r->v[i]->ranks[j];
            int64_t next_us = sooner(rank->kill_us, r->v[i]->ask_us);

            if (rank->state == RANK_EXITED ||
                (ranks_is_launched(r->v[i], rank) && r->v[i]->ranks[0].state != RANK_EXITED))
                continue;
            /* An adopted rank without its pid file or its shim gives no event. */
            if (!machine_rank_watched(rank->on_machine) && machine_mono_us(r->machine) + LOOK_US < next_us)
                next_us = machine_mono_us(r->machine) + LOOK_US;
            if (next_us < deadline_us)
                deadline_us = next_us;
        }
    return deadline_us;
}

static bool tick_rank(struct ranks *r, struct run *run, struct rank *rank, int64_t now_us)
{
    enum machine_sight sight;
    bool changed = false;

    if (rank->state == RANK_EXITED)
        return false;
    if (ranks_is_launched(run, rank)) {
        if (run->ranks[0].state == RANK_EXITED)
            return finish_launched(run, rank);
        changed = rank->state != run->ranks[0].state;
        rank->state = run->ranks[0].state;
        return changed;
    }
    sight = machine_rank_look(rank->on_machine);
    if (sight == MACHINE_GONE) {
        finish_rank(r, run, rank, now_us);
        if (rank->state == RANK_EXITED)
            return true;
    }
    if (rank->state == RANK_STARTING && sight == MACHINE_RUNNING) {
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

    if (now_us >= r->sweep_us) { /* no deadline of ours: whenever there is something else to do */
        machine_memory_sweep(r->machine, has_run, r);
        r->sweep_us = now_us + SWEEP_US;
    }

    for (size_t i = 0; i < r->n; i++) {
        struct run *run = r->v[i];
        bool bad = false;

        if (now_us >= run->ask_us)
            end_softly(r, run);
        for (int j = 0; j < run->n; j++) {
            changed |= tick_rank(r, run, &run->ranks[j], now_us);
            bad |= run->ranks[j].state == RANK_EXITED && bad_end(&run->ranks[j]);
        }
        if (bad && !run->failed && r->failed && run->order != ASSIGNMENT_STOP)
            r->failed(r->arg, run);
        if (bad && !run->failed)
            abort_mates(r, run, now_us);
    }
    return changed;
}

/* --- reports ------------------------------------------------------------------------------------ */

/* look: tell what it waits in also where it goes on, and not what is told once. failed: a rank of its run has: tell
 * how far it came. */
static void report_rank(const struct rank *rank, enum job_kind kind, bool look, bool failed, struct report_rank *ret)
{
    static const enum report_state state[] = {
        [RANK_STARTING] = REPORT_STARTING, [RANK_RUNNING] = REPORT_RUNNING, [RANK_EXITED] = REPORT_EXITED};
    enum flight_phase phase;
    uint64_t step;

    *ret = (struct report_rank){.rank = rank->rank,
                                .slot = rank->slot,
                                .state = state[rank->state],
                                .pid = machine_rank_pid(rank->on_machine),
                                .step = -1,
                                .stall = {.peer = -1}};
    if (machine_rank_progress(rank->on_machine, &step, &phase)) {
        ret->step = (int64_t)step;
        (void)snprintf(ret->phase, sizeof(ret->phase), "%s", flight_read_phase_name(phase));
    }
    if (kind == JOB_COMMAND)
        ret->ack = machine_rank_ack(rank->on_machine);
    if (rank->state == RANK_RUNNING || failed)
        ret->stall = machine_rank_stall(rank->on_machine, kind, look || failed ? 1 : MACHINE_STALL_US);
    if (rank->state == RANK_RUNNING) {
        ret->steps = look ? NULL : machine_rank_steps(rank->on_machine, &ret->n_steps);
    }
    if (rank->state == RANK_EXITED) {
        ret->exit = rank->exit;
        ret->log_tail = json_incref(rank->log_tail);
    }
}

static int run_report(const struct run *run, bool look, struct report_run *ret)
{
    struct report_run all = {.generation = (int64_t)run->generation};

    all.ranks = calloc((size_t)run->n, sizeof(*all.ranks));
    if (!all.ranks)
        return -ENOMEM;
    (void)snprintf(all.job, sizeof(all.job), "%s", run->job);
    (void)snprintf(all.proof, sizeof(all.proof), "%s", run->assignment.proof);
    for (int i = 0; i < run->n; i++)
        report_rank(&run->ranks[i], is_command(run) ? JOB_COMMAND : JOB_TRAIN, look, run->failed,
                    &all.ranks[all.n_ranks++]);
    *ret = all;
    return 0;
}

int ranks_run_report(const struct run *run, struct report_run *ret)
{
    return run_report(run, false, ret);
}

int ranks_run_look(const struct run *run, struct report_run *ret)
{
    return run_report(run, true, ret);
}
