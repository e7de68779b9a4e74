#include "server/control/runs.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/buf.h"
#include "base/log.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/source_nodes.h"
#include "server/control/incidents.h"
#include "server/control/ports.h"
#include "server/control/state.h"
#include "server/control/swaps.h"

/* A rank whose peers have lost it has ended by then, as its agent knows, or runs on behind a link that is broken.
 * Agents report once a second. */
#define CUT_US 500000

void runs_describe(const struct job_place *p, size_t n, char *ret, size_t size)
{
    size_t nodes = 0;

    for (size_t i = 0; i < n; i++)
        nodes += i == 0 || strcmp(p[i].node, p[i - 1].node) != 0;
    if (nodes == 1)
        (void)snprintf(ret, size, "%zu device%s of %s", n, n == 1 ? "" : "s", p[0].node);
    else
        (void)snprintf(ret, size, "%zu devices of %zu nodes", n, nodes);
}

void runs_adopt(struct core *c, struct entry *e)
{
    const struct slot *first = e->job.n_places > 0 ? cluster_slot(&c->cluster, &e->job.places[0]) : NULL;

    cluster_hold(&c->cluster, &e->job);
    ports_take(c, &e->job);
    e->pace.home_class = first ? first->class_ : e->pace.home_class;
}

void runs_release(struct core *c, const struct entry *e, const char *node)
{
    cluster_release(&c->cluster, &e->job, node);
    c->schedule_wanted = true;
}

/* How the rank's program ended by itself; 0: others ended it, or it has not ended. */
static uint64_t signature_of(const struct rank *r)
{
    static const int sent_by_others[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    int of[] = {(int)r->exit.cause, r->exit.status, r->exit.signal};

    if (r->phase != RANK_EXITED || r->exit.cause == EXIT_CAUSE_NODE)
        return 0;
    for (size_t i = 0; i < sizeof(sent_by_others) / sizeof(sent_by_others[0]); i++)
        if (r->exit.signal == sent_by_others[i])
            return 0;
    return hash_xxh3(of, sizeof(of));
}

static struct act_incident incident_of(const struct core *c, const struct entry *e, int rank, enum act_class class_,
                                       const char *words)
{
    const char *node = e->job.places[rank].node;
    const struct node *n = cluster_node(&c->cluster, node);
    struct act_incident i = {.class_ = class_,
                             .node = hash_xxh3(node, strlen(node)),
                             .heard_us = n ? n->seen_wall_us : 0,
                             .signature = signature_of(&e->run.ranks[rank]),
                             .step = e->job.kind == JOB_TRAIN ? 0 : -1,
                             .words = words};

    for (size_t k = 0; e->job.layout.dp * e->job.layout.cp > 1 && k < e->job.n_places; k++)
        i.replicas = i.replicas || strcmp(e->job.places[k].node, node) != 0;
    for (size_t k = 0; e->job.kind == JOB_TRAIN && k < e->job.n_places; k++)
        i.step = (int64_t)e->run.ranks[k].step > i.step ? (int64_t)e->run.ranks[k].step : i.step;
    return i;
}

void runs_fault(struct core *c, struct entry *e, int rank, enum act_class class_, const char *message, json_t *log_tail,
                const char *actor)
{
    const struct rank *r = &e->run.ranks[rank];
    struct act_incident incident = incident_of(c, e, rank, class_, message);
    enum job_class whose = job_class_of(class_);
    char text[700];
    json_t *outcome;
    struct merr err;

    assert((size_t)rank < e->job.n_places);
    if (e->run.fault_message[0] && !e->run.judged)
        message = e->run.fault_message;
    if (e->run.judged) /* its verdict names the rank itself */
        (void)snprintf(text, sizeof(text), "%s", message);
    else
        (void)snprintf(text, sizeof(text), "rank %d on %s: %s", rank, e->job.places[rank].node, message);
    incidents_failure(c, e, rank, text);
    incidents_ask(c, e);
    outcome = json_pack("{s:s, s:s, s:i, s:s, s:o, s:i, s:s?, s:O?}", "class", job_class_name(whose), "message", text,
                        "rank", rank, "node", e->job.places[rank].node, "exit_code",
                        r->phase != RANK_EXITED || r->exit.status < 0 ? json_null() : json_integer(r->exit.status),
                        "signal", r->exit.signal, "cause", exit_cause_names[r->exit.cause], "log_tail", log_tail);
    if (!outcome)
        outcome = json_pack("{s:s, s:s}", "class", job_class_name(whose), "message", "a rank failed");
    (void)change_job(c, e,
                     &(struct job_cause){
                         .kind = CAUSE_FAULT, .actor = actor, .text = text, .incident = &incident, .outcome = outcome},
                     &err);
    json_decref(outcome);
    swaps_claim(c, e, class_);
    if (class_ != ACT_IN_CALL) /* of that all who are in the call are suspected */
        care_blame(c, e, e->job.places[rank].node, class_, 1, text);
}

void runs_tell_roots(struct core *c, const struct entry *e, bool known, const char *actor)
{
    json_t *roots = json_array();
    BUF_CLEAR_AUTO struct buf text;
    size_t n = 0;

    buf_init(&text, 512);
    for (size_t i = 0; i < e->job.n_places; i++) {
        if (!e->run.ranks[i].of_itself)
            continue;
        (void)buf_printf(&text, "%s%zu on %s", n > 0 ? ", " : "ranks ", i, e->job.places[i].node);
        (void)json_array_append_new(roots, json_integer((json_int_t)i));
        n++;
    }
    (void)buf_addstr(&text, " failed, each of itself; the others ended since they did");
    if (n > 1 || known)
        events_note(c, e->job.id, e->job.user, "note", e->job.generation, actor, "roots", buf_text(&text),
                    json_pack("{s:s, s:o}", "type", "roots", "roots", roots));
    else
        json_decref(roots);
}

/* The ranks that most others have lost, up to three. Returns how many others; 0: nobody has lost one. */
static size_t lost_by_most(const struct entry *e, size_t ret[3], size_t *ret_n)
{
    size_t n = e->job.n_places, most = 0, *by = calloc(n + 1, sizeof(*by));

    *ret_n = 0;
    for (size_t i = 0; by && i < n; i++) {
        size_t lost = (size_t)e->run.ranks[i].exit.lost;

        if (lost > 0 && lost <= n && lost != i + 1 && ++by[lost - 1] > most)
            most = by[lost - 1];
    }
    for (size_t i = 0; by && i < n && most > 0 && *ret_n < 3; i++)
        if (by[i] == most)
            ret[(*ret_n)++] = i;
    free(by);
    return most;
}

bool runs_look_cut(struct core *c, struct entry *e, const struct node *n, const char *actor)
{
    size_t lost[3], n_lost = 0, by = 0, other = 0;
    char text[300];

    if (!e->run.gave_up || e->job.kind != JOB_TRAIN || e->job.state != JOB_RUNNING || e->job.intent != JOB_GO_ON ||
        c->now.mono_us - e->run.gave_up_us < CUT_US)
        return false;
    by = lost_by_most(e, lost, &n_lost);
    if (by == 0 || e->run.ranks[lost[0]].phase != RANK_RUNNING || strcmp(e->job.places[lost[0]].node, n->name) != 0)
        return false;
    while ((size_t)e->run.ranks[other].exit.lost != lost[0] + 1)
        other++;
    (void)snprintf(text, sizeof(text),
                   "rank %zu on %.64s has lost it, and it runs: the connection between these nodes is broken", other,
                   e->job.places[other].node);
    runs_fault(c, e, (int)lost[0], ACT_IN_CALL, text, NULL, actor);
    care_blame(c, e, n->name, ACT_IN_CALL, 2, text);
    care_blame(c, e, e->job.places[other].node, ACT_IN_CALL, 2, text);
    return true;
}

/* None of the ranks failed of itself: the one that most others lost did, or one of two that were lost by as many.
 * Where that tells nothing, the first rank that can say why it ended stands for all. */
static void fault_of_nobody(struct core *c, struct entry *e, const char *actor)
{
    const char *why = "its ranks gave up and none told why";
    size_t rank = 0, lost[3], n_lost, by = lost_by_most(e, lost, &n_lost);
    char text[EXIT_WHY_MAX];

    if (n_lost == 1 || n_lost == 2) {
        (void)snprintf(text, sizeof(text), "no rank failed of itself, and %zu of %zu others lost %s", by,
                       e->job.n_places - 1, n_lost == 1 ? "this one" : "each of these two");
        if (n_lost == 2)
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ": it and rank %zu on %.64s", lost[1],
                           e->job.places[lost[1]].node);
        runs_fault(c, e, (int)lost[0], ACT_CRASH, text, NULL, actor);
        if (n_lost == 2)
            care_blame(c, e, e->job.places[lost[1]].node, ACT_CRASH, 1, text);
        return;
    }
    for (size_t i = e->job.n_places; i-- > 0;)
        if (e->run.ranks[i].exit.why[0])
            why = e->run.ranks[rank = i].exit.why;
    runs_fault(c, e, (int)rank, ACT_CRASH, why, NULL, actor);
}

/* All ranks are over and nobody failed first: an end by orders, or a run whose first cause was never seen. */
static void run_over(struct core *c, struct entry *e, bool all_done, bool drained, const char *actor)
{
    struct job_holder *holders;
    struct merr err;
    const char *failure = "", *then;
    char text[800];
    size_t n;

    if (!all_done && !drained && e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING)
        fault_of_nobody(c, e, actor);
    if (e->job.state == JOB_RECOVERING && (e->job.intent == JOB_FAIL || e->job.intent == JOB_GO_ON))
        failure = json_string_value(json_object_get(e->job.outcome, "message"));
    if (all_done && e->job.state == JOB_STARTING)
        (void)change_job(c, e, &(struct job_cause){.kind = CAUSE_STARTED, .actor = actor, .text = "all ranks ran"},
                         &err);
    then = all_done && e->job.state != JOB_RECOVERING ? "every rank is done"
           : e->job.intent == JOB_CANCEL              ? "cancelled; every rank has ended"
           : e->job.intent == JOB_SUSPEND             ? "suspended; its devices are free"
           : e->job.intent == JOB_TIME_UP             ? "it has run for its time limit"
           : e->job.intent == JOB_FAIL                ? "no restart is left"
           : e->job.intent == JOB_RESCALE             ? "saved; starts again on other devices"
           : e->job.state == JOB_RECOVERING           ? "waits to start again"
                                                      : "saved and queued again";
    (void)snprintf(text, sizeof(text), "%s%s%s", failure ? failure : "", failure && *failure ? "; " : "", then);
    holders = source_nodes_of_run(&e->job, drained && !all_done, &n);
    if (change_job(c, e, &(struct job_cause){.kind = CAUSE_OVER, .actor = actor, .text = text, .all_done = all_done},
                   &err) < 0) {
        log_error("job j%llu: %s", (unsigned long long)e->job.id, err.text);
        free(holders);
        return;
    }
    source_nodes_hold(c, e, holders, n);
}

void runs_follow(struct core *c, struct entry *e, const char *actor)
{
    size_t running = 0, over = 0, done = 0, drained = 0, n = e->job.n_places;
    struct merr err;
    char text[160];

    if (!e->job.live)
        return;
    for (size_t i = 0; i < n; i++) {
        const struct rank *r = &e->run.ranks[i];

        running += r->phase == RANK_RUNNING || r->phase == RANK_EXITED;
        over += r->phase == RANK_EXITED;
        done += r->phase == RANK_EXITED && exit_done(&r->exit);
        drained += r->phase == RANK_EXITED && exit_well(&r->exit);
    }
    if (e->job.state == JOB_STARTING && running == n && over < n) {
        char where[80];

        runs_describe(e->job.places, n, where, sizeof(where));
        (void)snprintf(text, sizeof(text), "%s on %s", e->job.kind == JOB_TRAIN ? "training" : "running", where);
        (void)change_job(c, e, &(struct job_cause){.kind = CAUSE_STARTED, .actor = actor, .text = text}, &err);
    }
    if (over == n)
        run_over(c, e, done == n, drained == n, actor);
}
