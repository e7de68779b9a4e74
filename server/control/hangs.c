#include "server/control/hangs.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/ops.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/incidents.h"
#include "server/control/runs.h"
#include "server/control/stalls.h"
#include "server/control/state.h"

#define FRESH_US 4000000 /* what a rank told longer ago says nothing of now */
#define TOLD_LEAST 2     /* reports of one stall: a machine that was paused tells once of all its ranks */
#define EVIDENCE_RANKS 256

static json_t *evidence(const struct incident_rank *ranks, size_t n, const struct hang_verdict *v)
{
    json_t *list = json_array(), *roots = json_array(), *odd = NULL;

    for (size_t i = 0; i < v->roots && i < HANG_ROOTS_MAX; i++)
        (void)json_array_append_new(roots, json_integer(v->root[i]));
    for (size_t i = 0; i < n && i < EVIDENCE_RANKS; i++) {
        const struct report_rank *t = &ranks[i].told;

        (void)json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:b, s:I, s:I, s:s, s:I, s:I}", "rank",
                                                    (json_int_t)i, "node", ranks[i].node, "phase", t->phase, "stopped",
                                                    t->stall.stopped, "idle_us", (json_int_t)t->stall.idle_us, "step",
                                                    (json_int_t)t->step, "op", t->stall.op, "call",
                                                    (json_int_t)t->stall.call, "peer", (json_int_t)t->stall.peer));
    }
    if (v->odd.found) {
        const char *group, *theirs, *op = ops_of_digest(v->odd.did, &group);
        const char *op_theirs = ops_of_digest(v->odd.others, &theirs);

        odd =
            json_pack("{s:I, s:I, s:s, s:s, s:s, s:s}", "step", (json_int_t)(v->odd.span / 2), "operation",
                      (json_int_t)v->odd.op, "op", op, "group", group, "op_others", op_theirs, "group_others", theirs);
    }
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:o*}", "type", "hang", "class", hang_class_name(v->class_), "roots",
                     roots, "waiting", (json_int_t)v->waiting, "ranks", list, "odd", odd);
}

/* --- judging ----------------------------------------------------------------------------------------- */

static enum act_class act_of(enum hang_class class_)
{
    static const enum act_class of[HANG_CLASSES] = {
        [HANG_NONE] = ACT_CRASH,      [HANG_STOPPED] = ACT_STOPPED, [HANG_NOT_ENTERED] = ACT_NOT_ENTERED,
        [HANG_PHASE] = ACT_PHASE,     [HANG_IN_CALL] = ACT_IN_CALL, [HANG_CYCLE] = ACT_DISORDER,
        [HANG_DIFFERS] = ACT_DISORDER};

    return of[class_];
}

/* Whether a rank has told of a stall that is more than a moment, and just now. */
static bool stands_still(const struct core *c, const struct entry *e, size_t i)
{
    const struct stall *s = &e->run.stalls->of[i];

    return s->times >= TOLD_LEAST && c->now.mono_us - s->told_us <= FRESH_US && e->run.ranks[i].phase == RANK_RUNNING;
}

/* A rank that its heartbeat alone tells of is judged by itself; of others all stand still, or nothing is known. */
static bool is_to_judge(const struct core *c, const struct entry *e)
{
    bool all = true, beats = false;

    for (size_t i = 0; i < e->job.n_places; i++) {
        bool still = stands_still(c, e, i);

        all = all && still;
        beats = beats || (still && e->run.stalls->of[i].told.stall.beats);
    }
    return all || beats;
}

/* Nothing moves in a call: each node of those that are in it may be why. */
static void blame_all(struct core *c, const struct entry *e, const struct hang_verdict *v, const char *why)
{
    char nodes[HANG_ROOTS_MAX][JOB_NODE_MAX];
    size_t n = 0, k;

    for (size_t i = 0; i < v->roots && i < HANG_ROOTS_MAX; i++) {
        const char *node = e->job.places[v->root[i]].node;

        for (k = 0; k < n && strcmp(nodes[k], node) != 0;)
            k++;
        if (k == n)
            memcpy(nodes[n++], node, JOB_NODE_MAX);
    }
    for (k = 0; k < n; k++)
        care_blame(c, e, nodes[k], ACT_IN_CALL, n, why);
}

static void tell(struct core *c, struct entry *e, const struct incident_rank *ranks, const struct hang_verdict *v,
                 const char *text)
{
    size_t n = e->job.n_places;

    e->run.judged = true;
    change_orders(c, &e->job);
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", "hang", text, evidence(ranks, n, v));
    incidents_hang(c, e, ranks, n, v, text);
    if (v->class_ == HANG_IN_CALL)
        blame_all(c, e, v, text);
    runs_fault(c, e, v->root[0], act_of(v->class_), text, NULL, "scheduler");
}

void hangs_look(struct core *c, struct entry *e)
{
    size_t n = e->job.n_places;
    struct incident_rank *ranks;
    struct hang_verdict v;
    BUF_CLEAR_AUTO struct buf text;

    buf_init(&text, INCIDENT_TEXT_MAX - 1);
    if (!e->run.stalls || e->run.hung || !e->job.live || e->job.intent != JOB_GO_ON || e->job.state != JOB_RUNNING)
        return;
    if (!is_to_judge(c, e))
        return;
    ranks = stalls_list(e->run.stalls, e->job.places);
    for (size_t i = 0; ranks && i < n; i++)
        if (!stands_still(c, e, i))
            ranks[i].told.stall.idle_us = 0;
    if (ranks && incident_judge(ranks, n, &v, &text) == 0 && v.class_ != HANG_NONE) {
        e->run.hung = true;
        tell(c, e, ranks, &v, buf_text(&text));
    }
    free(ranks);
}

bool hangs_blame(struct core *c, struct entry *e, int rank)
{
    size_t n = e->job.n_places;
    struct incident_rank *ranks;
    struct hang_verdict v;
    BUF_CLEAR_AUTO struct buf text;
    bool found;

    buf_init(&text, INCIDENT_TEXT_MAX - 1);
    if (!e->run.stalls || e->job.kind != JOB_TRAIN || e->run.ranks[rank].exit.cause != EXIT_CAUSE_INTERNAL)
        return false;
    ranks = stalls_list(e->run.stalls, e->job.places);
    found = ranks && incident_judge_odd(ranks, n, &v, &text) == 0 && v.class_ != HANG_NONE;
    if (found && e->run.fault_message[0])
        (void)buf_printf(&text, "; rank %d: %s", rank, e->run.fault_message);
    if (found)
        tell(c, e, ranks, &v, buf_text(&text));
    free(ranks);
    return found;
}
