#include "worker/engine/train/train.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/exit.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/flight/flight_read.h"
#include "worker/engine/train/links.h"
#include "worker/engine/train/owner.h"
#include "worker/engine/train/peak.h"
#include "worker/engine/train/resume.h"
#include "worker/engine/train/source_node.h"
#include "worker/engine/train/step.h"

/* All of a rank: each part is its module's, here they are wired. */
struct train {
    struct rank rank;
    struct source source;
    struct shard shard;
    struct handover handover;
    struct save save;
    struct step step;
};

static struct flight *signal_flight; /* for the handler: set before it is installed */

/* A SIGTERM that comes before there is a page to note it on waits until there is. */
static void hold_terminate(bool hold)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static void on_terminate(int number)
{
    (void)number;
    flight_order_set(signal_flight, FLIGHT_ABORT); /* one atomic store */
}

static int open_flight(struct rank *rank, struct merr *err)
{
    struct sigaction sa = {.sa_handler = on_terminate};
    char path[RUN_PATH_MAX + 32];
    int r;

    (void)snprintf(path, sizeof(path), "%s/rank-%05d.flight", rank->run.folder, rank->run.rank);
    r = flight_open(path, &rank->flight, err);
    if (r == -ENOENT) /* started by hand: nobody watches, but the rank needs its page */
        r = flight_create(path, &rank->flight, err);
    if (r != 0)
        return r;
    signal_flight = rank->flight;
    if (sigaction(SIGTERM, &sa, NULL) != 0 || sigaction(SIGINT, &sa, NULL) != 0)
        return merr_errno(err, -errno, "cannot handle SIGTERM");
    hold_terminate(false);
    return 0;
}

/* --- from start to end ----------------------------------------------------------------------------------- */

/* MUSTER_CUDA_GRAPHS: "off", or CUDA graphs take the place of calls. */
static int use_graphs(bool *ret, struct merr *err)
{
    const char *word = getenv("MUSTER_CUDA_GRAPHS");

    if (word && strcmp(word, "off") != 0)
        return merr_set(err, -EINVAL, "MUSTER_CUDA_GRAPHS is '%.32s': want off, or nothing", word);
    *ret = !word;
    return 0;
}

/* strict: bits of a document do not depend on what is packed beside it. */
static int use_library(const struct rank *rank, struct kern_cfg *cfg, struct merr *err)
{
    const char *word = getenv("MUSTER_CUDNN");

    if (word && strcmp(word, "off") != 0 && strcmp(word, "need") != 0)
        return merr_set(err, -EINVAL, "MUSTER_CUDNN is '%.32s': want off, need, or nothing", word);
    cfg->own = rank->spec->parallel.exact == EXACT_STRICT || (word && strcmp(word, "off") == 0);
    cfg->library_needed = word && strcmp(word, "need") == 0;
    return 0;
}

static void wire(struct train *t)
{
    t->save.rank = &t->rank;
    t->save.shard = &t->shard;
    t->save.handover = &t->handover;
    t->step.rank = &t->rank;
    t->step.shard = &t->shard;
    t->step.source = &t->source;
    t->step.save = &t->save;
    t->step.handover = &t->handover;
    t->step.fault_rank = -1;
}

/* Ranks of one stage do the same in each step where their replicas have as many micro-batches: with documents, or
 * codecs that replicas choose by themselves, only those of one replica do. */
static uint32_t role_of(const struct train *t)
{
    const struct rank *rank = &t->rank;
    const struct mesh *m = rank->mesh;
    bool own = t->source.docs || rank_coded(rank->spec->compress.tp) || rank_coded(rank->spec->compress.pp) ||
               rank_coded(rank->spec->compress.dp);
    uint32_t leaves = (uint32_t)(t->source.leaf_end - t->source.leaf_begin);

    return 1 + (uint32_t)m->pp_index + (uint32_t)m->pp * (own ? (uint32_t)m->dp_index : leaves);
}

/* What there is to do, before anything large is allocated and other ranks are met. */
static int plan(struct train *t, struct merr *err)
{
    const struct run *run = &t->rank.run;

    TRY(owner_claim(run->checkpoints, &(struct owner){.user = run->user, .job = run->job, .dir = run->dir}, err));
    TRY(rank_plan(&t->rank, err));
    TRY(source_open(&t->source, &t->rank, err));
    TRY(source_plan(&t->source, err));
    TRY(shard_plan(&t->shard, &t->rank, &t->source, err));
    TRY(step_init(&t->step, err));
    flight_role_set(t->rank.flight, role_of(t));
    return shard_check_fit(&t->shard, err);
}

static int meet(struct train *t, struct merr *err)
{
    struct handover *h = &t->handover;

    handover_open(h, &t->rank, &t->shard, shard_shared_bytes(&t->shard, true));
    TRY(rank_meet(&t->rank, shard_shared_bytes(&t->shard, h->files), h->files ? handoff_arena(h->files) : 0, err));
    TRY(links_measure(&t->rank, err));
    TRY(handover_agree(h, err));
    return rank_open_wires(&t->rank, err);
}

static int gate(void *arg, int place, struct merr *err)
{
    return save_gate(arg, place, err);
}

static int build(struct train *t, struct merr *err)
{
    struct handoff *files = t->handover.files;
    struct shard_place place = {
        .shared = files,
        .m = files ? handoff_m(files) : NULL,
        .v = files ? handoff_v(files) : NULL,
        .master = files ? handoff_master(files) : NULL,
        .gate = gate,
        .gate_arg = &t->save,
    };

    TRY(shard_build(&t->shard, &place, err));
    shard_touch(&t->shard);
    return 0;
}

/* Until nobody holds the job before its state is read (hold.h). */
static int wait_held(const struct train *t, struct merr *err)
{
    const struct hold *hold = &t->step.hold;
    int64_t deadline_us = clock_mono_us() + HOLD_MOST_S * INT64_C(1000000);

    while (hold_start_wanted(hold)) {
        if (flight_aborted(t->rank.flight))
            return merr_set(err, -ECANCELED, "told to give up");
        if (clock_mono_us() > deadline_us)
            return merr_set(err, -EINVAL, "'%s' has held the run before its start for %d s", hold->path, HOLD_MOST_S);
        (void)poll(NULL, 0, HOLD_LOOK_MS);
    }
    return 0;
}

static int train_run(struct train *t, struct merr *err)
{
    struct rank *rank = &t->rank;
    const char *kernels = getenv("MUSTER_KERNELS");
    struct kern_cfg cfg = {.threads = rank->run.threads, .apart = rank->run.world == 1};

    TRY(hold_init(&t->step.hold, rank->spec->name, err));
    TRY(kern_find(kernels ? kernels : "auto", &rank->k, err));
    TRY(use_graphs(&cfg.record, err));
    TRY(use_library(rank, &cfg, err));
    TRY(plan(t, err));
    TRY(meet(t, err));
    TRY(rank->k->stream_new(&cfg, &rank->stream, err));
    TRY(peak_measure(rank, &t->step.peak_flops, err));
    shard_print_plan(&t->shard);
    TRY(build(t, err));
    TRY(wait_held(t, err));
    TRY(resume_state(rank, &t->shard, &t->handover, err));
    TRY(save_seal(&t->save, err));
    TRY(step_check_start(&t->step, err));
    TRY(report_cut(rank->report, t->shard.step, err));
    TRY(source_begin(&t->source, t->shard.step, t->shard.stage[0], err));
    return step_loop(&t->step, err);
}

static void train_clear(struct train *t)
{
    save_close(&t->save);
    shard_clear(&t->shard);
    step_clear(&t->step);
    source_close(&t->source);
    rank_clear(&t->rank);
    handover_close(&t->handover); /* once nothing computes in its files any more */
}

static const char *class_of(enum exit_cause cause)
{
    return cause == EXIT_CAUSE_USER || cause == EXIT_CAUSE_NUMBERS   ? "user"
           : cause == EXIT_CAUSE_NODE || cause == EXIT_CAUSE_REPLICA ? "node"
                                                                     : "system";
}

/* Whether the rank has made the calls of its last step until now, so that not it but a peer calls something else. */
static bool calls_as_usual(const struct flight *f)
{
    struct flight_order_of o = {.odd = 0};

    if (f)
        flight_read_order(f, &o);
    return o.odd == 1;
}

/* Whose fault an error is. */
static enum exit_cause cause_of(const struct train *t, int code)
{
    if (t->rank.flight && flight_aborted(t->rank.flight))
        return EXIT_CAUSE_ABORTED;
    switch (-code) {
    case EINVAL:
    case ENOTSUP:
    case ENOENT:
    case EACCES:
    case EPERM:
    case EISDIR:
    case ENOTDIR:
    case EFBIG:
    case EBADMSG:
    case EMSGSIZE:
    case ELOOP:
    case ENAMETOOLONG:
        return EXIT_CAUSE_USER;
    case EDOM: /* found by all; one rank stands for it */
        return t->step.fault_rank != t->rank.mesh->rank ? EXIT_CAUSE_ABORTED : t->step.fault_cause;
    case ENOMEM: /* a GPU is the rank's own: another one would be as full */
        return t->rank.k && t->rank.k->device ? EXIT_CAUSE_USER : EXIT_CAUSE_NODE;
    case EIO:
    case ENOSPC:
    case EROFS:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENODEV:
        return EXIT_CAUSE_NODE;
    case ECANCELED:
    case ECONNRESET:
    case ETIMEDOUT:
    case EPIPE:
    case ECONNREFUSED:
    case ESTALE: /* a later attempt of the job */
        return EXIT_CAUSE_ABORTED;
    case EPROTO:
        return calls_as_usual(t->rank.flight) ? EXIT_CAUSE_ABORTED : EXIT_CAUSE_INTERNAL;
    default:
        return EXIT_CAUSE_INTERNAL;
    }
}

static enum exit_cause finish(struct train *t, int code, const struct merr *err)
{
    enum exit_cause cause;

    if (code >= 0)
        return code == 0 ? EXIT_CAUSE_DONE : EXIT_CAUSE_DRAINED;
    cause = cause_of(t, code);
    log_error("%s", err->text);
    if (cause != EXIT_CAUSE_ABORTED && t->rank.report)
        (void)report_event_take(t->rank.report,
                                json_pack("{s:s, s:s, s:i, s:s}", "type", "fault", "class", class_of(cause), "rank",
                                          t->rank.run.mesh.rank, "message", err->text),
                                NULL);
    return cause;
}

/* Leave the cause of the end for whoever watches, also where the run could not be read. Returns the status to end
 * with. */
static int tell_cause(struct flight *flight, const char *folder, int rank, enum exit_cause cause)
{
    struct flight *page = flight;
    char path[RUN_PATH_MAX + 32];

    (void)snprintf(path, sizeof(path), "%s/rank-%05d.flight", folder, rank);
    if (page || flight_open(path, &page, NULL) == 0)
        flight_cause_set(page, cause);
    if (!flight && page)
        flight_close(page);
    return exit_status(cause);
}

int train_main(const char *folder, int rank)
{
    struct train t = {.rank = {.world = NULL}};
    struct merr err = {""};
    enum exit_cause cause;
    int code;

    wire(&t);
    hold_terminate(true);
    code = run_read(folder, rank, &t.rank.run, &err);
    if (code == 0) {
        t.rank.spec = t.rank.run.spec;
        t.rank.mesh = &t.rank.run.mesh;
        code = open_flight(&t.rank, &err);
    } else {
        (void)report_open(folder, folder, rank > 0 ? rank : 1, &t.rank.report, NULL);
    }
    if (code == 0 && rank >= t.rank.run.world) {
        cause = source_node_run(&t.rank.run, t.rank.flight);
        run_clear(&t.rank.run);
        return tell_cause(t.rank.flight, folder, rank, cause);
    }
    if (code == 0)
        code = report_open(t.rank.run.folder, t.rank.run.dir, rank, &t.rank.report, &err);
    if (code == 0)
        code = train_run(&t, &err);
    cause = finish(&t, code, &err);
    if (t.rank.flight)
        flight_phase_set(t.rank.flight, FLIGHT_EXIT, t.shard.step);
    if (t.rank.flight && cause != EXIT_CAUSE_DONE && cause != EXIT_CAUSE_DRAINED)
        flight_order_set(t.rank.flight, FLIGHT_ABORT); /* nothing on the way out may wait for a peer */
    train_clear(&t);
    return tell_cause(t.rank.flight, folder, rank,
                      cause); /* the page stays mapped: the handler may still write to it */
}
