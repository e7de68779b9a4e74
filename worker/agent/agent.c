#include "worker/agent/agent.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/protocol/incident.h"
#include "api/protocol/registration.h"
#include "base/io.h"
#include "base/log.h"
#include "base/version.h"
#include "worker/agent/agent_priv.h"
#include "worker/agent/guard.h"

#define POLL_WAIT_S 30
#define CALL_MS 30000
#define EXIT_MS 5000          /* for the last report */
#define REPORT_LEAST_US 50000 /* between two reports of ranks that stand still */
#define SAME_SIGNAL_US 2000000

/* --- what the server wants ----------------------------------------------------------------------- */

static bool same_run(const struct report_ref *run, const char *job, uint64_t generation)
{
    return (uint64_t)run->generation == generation && strcmp(run->job, job) == 0;
}

static bool is_wanted(const struct agent *a, const char *job, uint64_t generation)
{
    for (size_t i = 0; i < a->n_wanted; i++)
        if (same_run(&a->wanted[i].run, job, generation))
            return true;
    return false;
}

/* A run that was forgotten must not be started again by a set that was sent before the server said so. */
static bool was_forgotten(const struct agent *a, const struct report_ref *run)
{
    for (size_t i = 0; i < a->n_forgotten; i++)
        if (same_run(&a->forgotten[i], run->job, (uint64_t)run->generation))
            return true;
    return false;
}

/* Without memory it may be asked for once more: its folder is gone, so it would start anew. */
static void note_forgotten(struct agent *a, const struct report_ref *run)
{
    struct report_ref *grown = realloc(a->forgotten, (a->n_forgotten + 1) * sizeof(*grown));

    if (!grown)
        return;
    a->forgotten = grown;
    a->forgotten[a->n_forgotten++] = *run;
}

void agent_forget_wanted(struct agent *a)
{
    for (size_t i = 0; i < a->n_wanted; i++)
        json_decref(a->wanted[i].doc);
    free(a->wanted);
    a->wanted = NULL;
    a->n_wanted = 0;
}

/* Take in a new set. An assignment that cannot be read is logged once, and what runs by it is left alone. */
static int take_wanted(struct agent *a, const json_t *set)
{
    struct agent_wanted *all = calloc(json_array_size(set) + 1, sizeof(*all));
    struct assignment one;
    struct merr err;
    size_t n = 0;

    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < json_array_size(set); i++) {
        struct agent_wanted *w = &all[n];
        json_t *doc = json_array_get(set, i);

        w->readable = assignment_read(doc, &one, &err) == 0;
        if (!w->readable)
            log_error("%s", err.text);
        if (report_ref_read(doc, &w->run, NULL) < 0) {
            *w = (struct agent_wanted){.readable = false};
            continue;
        }
        n++;
        w->doc = json_incref(doc);
        if (!w->readable)
            continue;
        w->order = one.order;
        w->grace_s = one.grace_s;
        w->evidence = (uint64_t)one.evidence;
        w->devices_next = one.devices_next;
        w->warned_s = one.warned_s;
        w->trial = one.trial;
        w->trial_rank[0] = one.trial_rank;
        w->trial_rank[1] = one.trial_peer;
        assignment_clear(&one);
    }
    agent_forget_wanted(a);
    a->wanted = all;
    a->n_wanted = n;
    a->told = true;
    return 0;
}

static void start_wanted(struct agent *a, const struct agent_wanted *w)
{
    const char *job = w->run.job;
    uint64_t generation = (uint64_t)w->run.generation;
    struct run *run;
    struct merr err;
    int r;

    if (!w->readable || was_forgotten(a, &w->run))
        return;
    if (!ranks_find(a->ranks, job, generation)) {
        if (w->order == ASSIGNMENT_STOP)
            return; /* what is not there needs no stop */
        r = ranks_start(a->ranks, w->doc, &err);
        if (r == -EAGAIN)
            return; /* once the slot is free */
        if (r < 0) {
            log_error("cannot start %s generation %" PRIu64 ": %s", job, generation, err.text);
            return;
        }
        log_info("started %s generation %" PRIu64, job, generation);
        a->report_now = true;
    }
    run = ranks_find(a->ranks, job, generation);
    run->devices_next = w->devices_next;
    witness_ask(a->witness, run, w->evidence);
    if (w->order == ASSIGNMENT_STOP && witness_busy(a->witness, job, generation))
        return; /* in moments, once its ranks have been looked at */
    (void)ranks_order(a->ranks, job, generation, w->order, w->grace_s);
    ranks_try(a->ranks, job, generation, w->trial, w->trial_rank);
    ranks_warn(a->ranks, job, generation, w->warned_s); /* its program finds the order to save when the signal comes */
}

/* Make the node like the wanted set. Stops come first: they free slots. */
static void reconcile(struct agent *a)
{
    if (!a->told || a->ending)
        return;
    for (size_t i = 0; i < ranks_count(a->ranks); i++) {
        const struct run *run = ranks_at(a->ranks, i);

        if (!ranks_run_ended(run) && run->order != ASSIGNMENT_STOP && !is_wanted(a, run->job, run->generation)) {
            log_info("stopping %s generation %" PRIu64 ": it is not wanted any more", run->job, run->generation);
            (void)ranks_order(a->ranks, run->job, run->generation, ASSIGNMENT_STOP, -1);
        }
    }
    for (size_t i = 0; i < a->n_wanted; i++)
        start_wanted(a, &a->wanted[i]);
}

/* --- calls ---------------------------------------------------------------------------------------- */

/* An answer that is no success, for the log: its status and what the problem document says. */
static void log_refusal(const char *call, int status, const char *body, size_t len)
{
    json_auto_t *doc = json_loadb(body, len, 0, NULL);
    const char *detail = json_string_value(json_object_get(doc, "detail"));

    log_warn("the server answers %s with %d%s%s", call, status, detail ? ": " : "", detail ? detail : "");
}

/* Common to all answers that are not 200. */
static void not_well(struct agent *a, struct backoff *b, const char *call, int status, const char *body, size_t len,
                     const char *why)
{
    if (status == 404 && strcmp(call, "register") != 0) {
        if (a->registered)
            log_info("the server does not know this node: registering");
        a->registered = false;
    } else if (status < 0) {
        if (!a->out_of_reach)
            log_warn("the server is out of reach (%s); ranks go on, trying again", why);
        a->out_of_reach = true;
    } else if (b->failures == 0 || b->failures % 16 == 0) {
        log_refusal(call, status, body, len);
    }
    backoff_failed(b, machine_mono_us(a->machine));
}

static void well(struct agent *a, struct backoff *b)
{
    if (a->out_of_reach)
        log_info("the server is back in reach");
    a->out_of_reach = false;
    backoff_worked(b);
}

/* A new set is there: make the node like it. */
static void take_set(struct agent *a, const struct assignment_set *set)
{
    if (take_wanted(a, set->list) < 0)
        return; /* of the same version as before: asked for again */
    a->version = set->version;
    sessions_take(a->sessions, set->sessions);
    /* What the set does not speak of any more cannot be started by an older one. */
    for (size_t i = a->n_forgotten; i-- > 0;)
        if (!is_wanted(a, a->forgotten[i].job, (uint64_t)a->forgotten[i].generation))
            a->forgotten[i] = a->forgotten[--a->n_forgotten];
    reconcile(a);
}

static void poll_done(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct agent *a = arg;
    json_auto_t *doc = status == 200 ? json_loadb(body, len, 0, NULL) : NULL;
    struct assignment_set set;

    a->polling = false;
    if (status == 204 || status == 304) {
        well(a, &a->poll_backoff);
        return;
    }
    if (assignment_set_read(doc, &set, NULL) < 0) {
        not_well(a, &a->poll_backoff, "a poll", status, body, len, why);
        return;
    }
    well(a, &a->poll_backoff);
    if (a->registered) /* else it is an answer from before: the next poll tells all again */
        take_set(a, &set);
    assignment_set_clear(&set);
}

static void register_done(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct agent *a = arg;
    json_auto_t *doc = status == 200 ? json_loadb(body, len, 0, NULL) : NULL;
    struct registration_answer answer;

    a->reporting = false;
    a->removed = status == 410;
    if (registration_answer_read(doc, &answer, NULL) < 0) {
        not_well(a, &a->report_backoff, "register", status, body, len, why);
        return;
    }
    well(a, &a->report_backoff);
    log_info("registered with the server");
    a->registered = true;
    a->version = 0; /* whatever we knew, hear all of it again */
    a->heartbeat_us = answer.heartbeat_s * INT64_C(1000000);
    a->report_now = true;
}

/* The server's clock was read between the report and its answer: what lies outside of that is this node's fault. */
static void take_clock(struct agent *a, int64_t now_ms)
{
    int64_t server_us = now_ms * 1000, now_us = machine_wall_us(a->machine);

    checkup_skew(a->checkup, server_us < a->sent_wall_us - 1000 ? a->sent_wall_us - server_us
                             : server_us > now_us               ? now_us - server_us
                                                                : 0);
}

static void take_over(struct agent *a, const struct report_answer *answer)
{
    struct merr err;

    if (a->checkup && answer->test != 0)
        checkup_test(a->checkup, answer->test);
    if (a->checkup && answer->now_ms > 0)
        take_clock(a, answer->now_ms);

    machine_keep_images(a->machine, answer->warm, a->ending ? 0 : answer->n_warm);
    if (ship_ack(a->ship, &answer->acks) && a->report_more)
        a->report_now = true; /* else its disk takes none now: it is not asked again and again */
    for (size_t i = 0; i < answer->n_stale; i++)
        (void)ranks_order(a->ranks, answer->stale[i].job, (uint64_t)answer->stale[i].generation, ASSIGNMENT_STOP, -1);
    for (size_t i = 0; i < answer->n_forget; i++) {
        const struct report_ref *run = &answer->forget[i];
        uint64_t generation = (uint64_t)run->generation;

        if (!ranks_find(a->ranks, run->job, generation) || !ship_done(a->ship, run->job, generation))
            continue;
        if (ranks_forget(a->ranks, run->job, generation, &err) < 0)
            log_warn("%s", err.text);
        else
            note_forgotten(a, run);
    }
}

static void report_done(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct agent *a = arg;
    json_auto_t *doc = status == 200 ? json_loadb(body, len, 0, NULL) : NULL;
    struct report_answer answer;

    a->reporting = false;
    if (status == 413 && a->report_bytes > SHIP_REPORT_MIN) {
        a->report_bytes /= 2;
        a->report_now = true;
        return;
    }
    if (report_answer_read(doc, &answer, NULL) < 0) {
        not_well(a, &a->report_backoff, "a report", status, body, len, why);
        return;
    }
    well(a, &a->report_backoff);
    if (a->report_bytes < SHIP_REPORT_MAX)
        a->report_bytes += SHIP_REPORT_MIN;
    take_over(a, &answer);
    report_answer_clear(&answer);
    reconcile(a);
}

/* The runs of this node as reports have them. Returns 0 or -ENOMEM. */
static int list_runs(const struct agent *a, struct report_run **ret, size_t *ret_n)
{
    size_t n = ranks_count(a->ranks);
    struct report_run *all = calloc(n + 1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (ranks_run_report(ranks_at(a->ranks, i), &all[i]) < 0) {
            while (i-- > 0)
                report_run_clear(&all[i]);
            free(all);
            return -ENOMEM;
        }
        (void)ship_trouble(a->ship, all[i].job, (uint64_t)all[i].generation, all[i].trouble, sizeof(all[i].trouble));
    }
    *ret = all;
    *ret_n = n;
    return 0;
}

/* POST doc (taken over) to path. */
static void post_new(struct agent *a, const char *path, json_t *doc, calls_done *done, int timeout_ms)
{
    char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    struct merr err;
    int r = text ? calls_begin(a->calls,
                               &(struct call){.method = "POST",
                                              .path = path,
                                              .body = text,
                                              .len = strlen(text),
                                              .timeout_ms = timeout_ms,
                                              .done = done,
                                              .arg = a},
                               &err)
                 : merr_set(&err, -ENOMEM, "no memory for a report");

    if (r < 0) {
        if (a->report_backoff.failures == 0)
            log_error("%s", err.text);
        backoff_failed(&a->report_backoff, machine_mono_us(a->machine));
    }
    a->reporting = r == 0;
    free(text);
    json_decref(doc);
}

static bool slot_in_use(const struct agent *a, int slot)
{
    for (size_t i = 0; i < ranks_count(a->ranks); i++)
        for (int k = 0; k < ranks_at(a->ranks, i)->n; k++) {
            const struct rank *rank = &ranks_at(a->ranks, i)->ranks[k];

            if (rank->slot == slot && rank->state != RANK_EXITED)
                return true;
        }
    return false;
}

/* What a GPU does not tell is null. */
static json_t *known(long long value)
{
    return value < 0 ? json_null() : json_integer(value);
}

/* Look for somebody's program on the GPU of slot i, on which we run none. */
static void find_stranger(struct agent *a, int i, const struct nvml_sample *s, char why[GPUS_WHY_MAX])
{
    struct strangers *v = &a->strangers[i];
    bool in_use = slot_in_use(a, i);
    pid_t stranger;

    if (v->in_use && !in_use)
        gpus_hurry(a->gpus);
    stranger = strangers_find(v, s, in_use, machine_has_image(a->machine, i), machine_mono_us(a->machine));
    if (stranger > 0 && !*why)
        (void)snprintf(why, GPUS_WHY_MAX, "process %d, which is of no job here, uses it", (int)stranger);
}

/* How the GPUs do. One without a rank of ours that runs somebody's program is not free. NULL: there are none. */
static json_t *gpus_json(struct agent *a)
{
    json_t *list = a->gpus ? json_array() : NULL;

    for (int i = 0; list && i < a->devices.n; i++) {
        const struct device *d = &a->devices.v[i];
        const struct nvml_gpu *g;
        struct gpus_finding found;
        struct nvml_sample s;
        char why[GPUS_WHY_MAX];
        int64_t age_us;
        json_t *one;

        if (d->gpu < 0)
            continue;
        g = gpus_at(a->gpus, d->gpu);
        gpus_sample(a->gpus, d->gpu, &s, why);
        find_stranger(a, i, &s, why);
        one = json_pack("{s:i,s:s,s:s,s:s,s:o,s:b,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:o,s:s}", "slot", i, "uuid", g->uuid,
                        "name", g->name, "pci", g->pci, "numa", known(g->numa), "mig", g->mig, "memory_mib",
                        g->memory_mib, "memory_used_mib", known(s.memory_used_mib), "utilization", known(s.utilization),
                        "power_w", known(s.power_w), "temperature_c", known(s.temperature_c), "power_limit_w",
                        known(s.power_limit_w), "sm_mhz", known(s.sm_mhz), "slowed", s.slowed, "ecc_uncorrected",
                        known(s.ecc_uncorrected), "why", why);
        if (one && gpus_found(a->gpus, d->gpu, &found, &age_us))
            (void)json_object_set_new(one, "found",
                                      json_pack("{s:I,s:s,s:i,s:b,s:s,s:I}", "code", (json_int_t)found.code, "level",
                                                xid_level_names[found.level], "blame", found.blame, "node", found.node,
                                                "what", found.what, "age_ms", (json_int_t)(age_us / 1000)));
        (void)json_array_append_new(list, one);
    }
    return list;
}

/* New; NULL: not known. */
static json_t *nic_json(const struct nic *nic)
{
    if (nic->family == PLAN_NIC_UNKNOWN)
        return NULL;
    return json_pack("{s:s,s:o}", "family", plan_nic_name(nic->family), "gbit_s",
                     nic->gbit_s > 0 ? json_real(nic->gbit_s) : json_null());
}

static void send_register(struct agent *a)
{
    struct registration r = {
        .seq = (int64_t)++a->seq, .slots = devices_json(&a->devices), .gpus = gpus_json(a), .nic = nic_json(&a->nic)};
    json_t *doc = NULL;

    r.health = a->checkup ? checkup_health(a->checkup) : NULL;
    r.profiles = profiles_json(a->profiles);
    (void)snprintf(r.node, sizeof(r.node), "%s", a->node);
    (void)snprintf(r.incarnation, sizeof(r.incarnation), "%s", a->incarnation);
    (void)snprintf(r.succeeds, sizeof(r.succeeds), "%s", a->succeeds);
    (void)snprintf(r.address, sizeof(r.address), "%s", a->address);
    (void)snprintf(r.version, sizeof(r.version), "%s", MUSTER_VERSION);
    r.shared_account = machine_is_shared(a->machine);
    (void)snprintf(r.rack, sizeof(r.rack), "%s", a->rack ? a->rack : "");
    r.no_exec = !a->sessions;
    r.leaves_at_us = a->leave_at_us;
    r.leaving = a->leaving_us > 0;
    machine_boot_id(a->machine, r.boot_id);
    if (list_runs(a, &r.runs, &r.n_runs) == 0)
        doc = registration_write(&r);
    registration_clear(&r);
    post_new(a, "/v1/agents/register", doc, register_done, CALL_MS);
}

/* How long the next report may wait: until a rank that stands still has done so for as long as it may. */
static int64_t report_wait_us(const struct agent *a, const struct report *r)
{
    int64_t wait_us = a->heartbeat_us;

    for (size_t i = 0; i < r->n_runs; i++)
        for (size_t k = 0; k < r->runs[i].n_ranks; k++) {
            const struct report_rank *rank = &r->runs[i].ranks[k];
            int64_t left_us = rank->stall.idle_us > 0 ? incident_limit_us(rank) - rank->stall.idle_us : 0;

            if (left_us > 0 && left_us < wait_us)
                wait_us = left_us > REPORT_LEAST_US ? left_us : REPORT_LEAST_US;
        }
    return wait_us;
}

static json_t *report_json(struct agent *a)
{
    struct report r = {.seq = (int64_t)++a->seq, .gpus = gpus_json(a)};
    json_t *doc = NULL;

    r.pressure = machine_pressure(a->machine);
    r.steal = machine_steal(a->machine);
    r.host = calloc(REPORT_HOST_NUMBERS, sizeof(*r.host)); /* without memory none */
    r.n_host = r.host ? REPORT_HOST_NUMBERS : 0;
    if (r.host)
        machine_host(a->machine, r.host);
    r.health = a->checkup ? checkup_health(a->checkup) : NULL;
    r.test = a->checkup ? checkup_result(a->checkup) : NULL;
    (void)snprintf(r.incarnation, sizeof(r.incarnation), "%s", a->incarnation);
    if (list_runs(a, &r.runs, &r.n_runs) == 0)
        doc = report_write(&r);
    a->report_us = machine_mono_us(a->machine) + report_wait_us(a, &r);
    report_clear(&r);
    return doc;
}

static void send_report(struct agent *a, int timeout_ms)
{
    json_t *pieces = json_object(), *doc;
    char path[256];
    bool more = false;

    ship_sync(a->ship, a->ranks);
    (void)ship_collect(a->ship, a->report_bytes, pieces, &more);
    doc = report_json(a); /* with what has come of looking at the files */
    (void)json_object_update(doc, pieces);
    json_decref(pieces);
    (void)snprintf(path, sizeof(path), "/v1/agents/%s/report", a->node);
    a->report_now = false;
    a->report_more = more;
    a->sent_wall_us = machine_wall_us(a->machine);
    post_new(a, path, doc, report_done, timeout_ms);
}

static void send_poll(struct agent *a)
{
    char path[256];
    struct merr err;

    (void)snprintf(path, sizeof(path), "/v1/agents/%s/assignments?version=%lld&wait=%d&incarnation=%s", a->node,
                   (long long)a->version, POLL_WAIT_S, a->incarnation);
    if (calls_begin(
            a->calls,
            &(struct call){
                .method = "GET", .path = path, .timeout_ms = (POLL_WAIT_S + 10) * 1000, .done = poll_done, .arg = a},
            &err) < 0) {
        log_error("%s", err.text);
        backoff_failed(&a->poll_backoff, machine_mono_us(a->machine));
    } else {
        a->polling = true;
    }
}

/* --- the loop ------------------------------------------------------------------------------------- */

static int64_t sooner(int64_t a_us, int64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

/* Make every call that is due. Returns when the next one is. */
static int64_t make_calls(struct agent *a, int64_t now_us)
{
    int64_t next_us = INT64_MAX, due_us;

    if (!a->reporting) {
        due_us = a->report_backoff.until_us;
        if (a->registered && !a->report_now && a->report_us > due_us)
            due_us = a->report_us;
        if (now_us < due_us)
            next_us = due_us;
        else if (a->registered)
            send_report(a, CALL_MS);
        else
            send_register(a);
    }
    if (a->registered && !a->polling) {
        if (now_us < a->poll_backoff.until_us)
            next_us = sooner(next_us, a->poll_backoff.until_us);
        else
            send_poll(a);
    }
    return next_us;
}

/* From now on the server moves away what runs here, and takes the node off its list once that is done. */
static void begin_to_leave(struct agent *a, int64_t now_us)
{
    int64_t wall_us = machine_wall_us(a->machine), by_us = wall_us + a->leave_within_us;

    if (a->leave_at_us == 0 || by_us < a->leave_at_us)
        a->leave_at_us = by_us;
    a->leaving_us = now_us;
    a->registered = false; /* which tells it */
    log_info("leaving: the server is to move away what runs here within %lld s",
             (long long)((a->leave_at_us - wall_us) / 1000000));
}

/* A signal was taken. One that comes with the first, as from who signals all processes of a node, is no second one. */
static bool ends_at(struct agent *a, int64_t now_us)
{
    if (a->leave_within_us == 0)
        return true;
    if (a->leaving_us == 0)
        begin_to_leave(a, now_us);
    return now_us - a->leaving_us > SAME_SIGNAL_US;
}

static bool told_to_end(struct agent *a)
{
    int64_t now_us = machine_mono_us(a->machine), left_us = a->leave_at_us - machine_wall_us(a->machine);
    struct signalfd_siginfo info;

    if (a->helper && guard_lost(a->helper)) {
        a->helper_lost = true;
        return true;
    }
    if (read(a->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info) && ends_at(a, now_us))
        return true;
    if (a->leave_at_us > 0 && a->leaving_us == 0 && left_us <= a->leave_within_us)
        begin_to_leave(a, now_us);
    return a->leave_at_us > 0 && left_us <= 0;
}

static bool any_alive(const struct agent *a)
{
    for (size_t i = 0; i < ranks_count(a->ranks); i++)
        if (!ranks_run_ended(ranks_at(a->ranks, i)))
            return true;
    return false;
}

/* Look after what has happened to ranks. */
static void look(struct agent *a, int64_t now_us)
{
    if (ranks_tick(a->ranks, now_us)) {
        a->report_now = true;
        reconcile(a); /* a slot may be free now */
    }
}

int64_t agent_tick(struct agent *a, int64_t now_us)
{
    int64_t next_us, measured_us;

    look(a, now_us);
    if (profiles_tick(a->profiles, any_alive(a), now_us, &measured_us))
        a->registered = false; /* which tells them */
    if (witness_tick(a->witness, now_us, &next_us))
        reconcile(a);
    next_us = sooner(next_us, sooner(mirror_tick(a->mirror, now_us), make_calls(a, now_us)));
    next_us = sooner(next_us, node_cert_tick(a->cert, now_us));
    next_us = sooner(next_us, measured_us);
    sessions_tick(a->sessions, a->ranks, now_us);
    return sooner(next_us, ranks_deadline(a->ranks));
}

static void wait_until(struct agent *a, int64_t deadline_us)
{
    int fds[4] = {machine_fd(a->machine), a->signal_fd, mirror_fd(a->mirror), a->helper};

    calls_wait(a->calls, fds, a->helper ? 4 : 3, deadline_us);
}

void agent_loop(struct agent *a)
{
    while (!a->removed && !told_to_end(a)) {
        int64_t next_us = agent_tick(a, machine_mono_us(a->machine));
        int64_t ahead_us = machine_mono_us(a->machine) - machine_wall_us(a->machine);

        if (a->leave_at_us > 0)
            next_us = sooner(next_us, a->leave_at_us - (a->leaving_us ? 0 : a->leave_within_us) + ahead_us);
        wait_until(a, next_us);
    }
}

static void wait_once(struct agent *a, int64_t deadline_us)
{
    wait_until(a, sooner(deadline_us, ranks_deadline(a->ranks)));
    look(a, machine_mono_us(a->machine));
}

void agent_stop_ranks(struct agent *a)
{
    int64_t deadline_us = machine_mono_us(a->machine);

    for (size_t i = 0; i < ranks_count(a->ranks); i++) {
        const struct run *run = ranks_at(a->ranks, i);
        int64_t end_us = machine_mono_us(a->machine) + ((int64_t)run->grace_s + 30) * 1000000;

        (void)ranks_order(a->ranks, run->job, run->generation, ASSIGNMENT_STOP, -1);
        if (end_us > deadline_us)
            deadline_us = end_us;
    }
    a->ending = true; /* nothing is started any more, also not what a poll that is under way brings */
    while (any_alive(a) && machine_mono_us(a->machine) < deadline_us)
        wait_once(a, deadline_us);
    if (any_alive(a))
        log_error("some ranks could not be ended; see 'ps' for processes that do not die");
    /* One last report, so that the server need not wait for the node to be lost. */
    deadline_us = machine_mono_us(a->machine) + EXIT_MS * 1000;
    while (a->reporting && machine_mono_us(a->machine) < deadline_us)
        wait_once(a, deadline_us);
    if (a->registered && !a->reporting && !a->out_of_reach)
        send_report(a, EXIT_MS);
    while (a->reporting && machine_mono_us(a->machine) < deadline_us)
        wait_once(a, deadline_us);
}
