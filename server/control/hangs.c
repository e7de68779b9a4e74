#include "server/control/hangs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/runs.h"
#include "server/control/stalls.h"
#include "server/control/state.h"

#define FRESH_US 4000000 /* what a rank told longer ago says nothing of now */
#define TOLD_LEAST 2     /* reports of one stall: a machine that was paused tells once of all its ranks */
#define EVIDENCE_RANKS 256
#define LISTED_RANKS 8

/* --- words ------------------------------------------------------------------------------------------- */

/* What a rank waits in: "all_reduce 412 of 'tp' at step 90", "a message of rank 3 in 'pp' at step 90". */
static void describe_wait(const struct stall *p, struct buf *out)
{
    if (p->rank.peer >= 0)
        (void)buf_printf(out, "a message %s rank %d in '%s'", p->rank.sends ? "to" : "of", p->rank.peer,
                         stalls_group_name(p));
    else
        (void)buf_printf(out, "%s %" PRIu64 " of '%s'", p->op, p->rank.call, stalls_group_name(p));
    (void)buf_printf(out, " at step %" PRIu64, p->step);
}

static void describe_roots(const struct entry *e, const struct hang_verdict *v, struct buf *out)
{
    for (size_t i = 0; i < v->roots && i < LISTED_RANKS && i < HANG_ROOTS_MAX; i++)
        (void)buf_printf(out, "%s%d on %s", i ? ", " : "", v->root[i], e->job.places[v->root[i]].node);
    if (v->roots > LISTED_RANKS)
        (void)buf_printf(out, " and %zu more", v->roots - LISTED_RANKS);
}

/* What follows "rank R on NODE: ". */
static void describe(const struct entry *e, const struct hang_verdict *v, struct buf *out)
{
    const struct stall *root = &e->run.stalls->of[v->root[0]],
                       *waiter = v->waiter < 0 ? NULL : &e->run.stalls->of[v->waiter];
    double idle_s = (double)root->rank.idle_us / 1e6;

    switch (v->class_) {
    case HANG_STOPPED:
        (void)buf_printf(out, "its process has been stopped for %.1f s, by a signal or a debugger", idle_s);
        break;
    case HANG_NOT_ENTERED:
        if (waiter) {
            (void)buf_addstr(out, "has not entered what the others wait in: ");
            (void)buf_printf(out, "%zu rank%s wait, rank %d in ", v->waiting, v->waiting == 1 ? "" : "s", v->waiter);
            describe_wait(waiter, out);
            (void)buf_printf(out, "; it has been in '%s' for %.1f s", root->phase, idle_s);
            return;
        }
        (void)buf_printf(out, "shows no sign of life in '%s' at step %" PRIu64 " for %.1f s", root->phase, root->step,
                         idle_s);
        return;
    case HANG_PHASE:
        (void)buf_printf(out, "has been in '%s' for %.1f s", root->phase, idle_s);
        break;
    case HANG_IN_CALL:
        (void)buf_addstr(out, "nothing moves in ");
        describe_wait(root, out);
        (void)buf_printf(out, " for %.1f s, in which all its ranks are: a link or a device of rank ", idle_s);
        describe_roots(e, v, out);
        return;
    case HANG_CYCLE:
        (void)buf_addstr(out, "ranks wait for each other in different operations, this one in ");
        describe_wait(root, out);
        return;
    default:
        return;
    }
    if (waiter) {
        (void)buf_printf(out, "; %zu rank%s wait, rank %d in ", v->waiting, v->waiting == 1 ? "" : "s", v->waiter);
        describe_wait(waiter, out);
    }
}

static json_t *evidence(const struct entry *e, const struct hang_verdict *v)
{
    json_t *ranks = json_array(), *roots = json_array();

    for (size_t i = 0; i < v->roots && i < HANG_ROOTS_MAX; i++)
        (void)json_array_append_new(roots, json_integer(v->root[i]));
    for (size_t i = 0; i < e->job.n_places && i < EVIDENCE_RANKS; i++) {
        const struct stall *p = &e->run.stalls->of[i];

        (void)json_array_append_new(ranks, json_pack("{s:I, s:s, s:s, s:b, s:I, s:I, s:s, s:s, s:I, s:I}", "rank",
                                                     (json_int_t)i, "node", e->job.places[i].node, "phase", p->phase,
                                                     "stopped", p->rank.stopped, "idle_us", (json_int_t)p->rank.idle_us,
                                                     "step", (json_int_t)p->step, "op", p->op, "group",
                                                     p->rank.inside ? stalls_group_name(p) : "", "call",
                                                     (json_int_t)p->rank.call, "peer", (json_int_t)p->rank.peer));
    }
    return json_pack("{s:s, s:s, s:o, s:I, s:o}", "type", "hang", "class", hang_class_name(v->class_), "roots", roots,
                     "waiting", (json_int_t)v->waiting, "ranks", ranks);
}

/* --- judging ----------------------------------------------------------------------------------------- */

void hangs_look(struct core *c, struct entry *e)
{
    size_t n = e->job.n_places;
    struct hang_rank *ranks;
    struct hang_verdict v;
    struct buf text;

    if (!e->run.stalls || !e->job.live || e->job.intent != JOB_GO_ON || e->job.state != JOB_RUNNING)
        return;
    for (size_t i = 0; i < n; i++)
        if (e->run.stalls->of[i].times < TOLD_LEAST || c->now.mono_us - e->run.stalls->of[i].told_us > FRESH_US ||
            e->run.ranks[i].phase != RANK_RUNNING)
            return;
    ranks = calloc(n, sizeof(*ranks));
    for (size_t i = 0; ranks && i < n; i++)
        ranks[i] = e->run.stalls->of[i].rank;
    if (!ranks || hang_judge(ranks, n, &v) < 0 || v.class_ == HANG_NONE) {
        free(ranks);
        return;
    }
    free(ranks);
    buf_init(&text, 1024);
    describe(e, &v, &text);
    e->run.hung = true;
    change_orders(c, &e->job);
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", "hang", buf_text(&text),
                evidence(e, &v));
    runs_fault(c, e, v.root[0], JOB_CLASS_SYSTEM, buf_text(&text), NULL, "scheduler");
    buf_clear(&text);
}
