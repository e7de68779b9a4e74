#include "scheduler/diagnose/words.h"

#include <inttypes.h>
#include <string.h>

#include "base/ops.h"

#define LISTED_RANKS 8

static const struct phase {
    const char *name, *words;
    enum hang_phase phase;
} phases[] = {
    {"init", "its start", HANG_STARTS},
    {"rendezvous", "meeting the other ranks", HANG_STARTS},
    {"load", "loading its state", HANG_STARTS},
    {"data", "the data loader", HANG_READS},
    {"forward", "the forward pass", HANG_COMPUTES},
    {"backward", "the backward pass", HANG_COMPUTES},
    {"reduce", "the reduction of gradients", HANG_COMPUTES},
    {"update", "the optimizer's update", HANG_COMPUTES},
    {"eval", "the evaluation", HANG_EVALUATES},
    {"checkpoint", "the checkpoint", HANG_SAVES},
    {"exit", "its end", HANG_ENDS},
    {"program", "its own code", HANG_RUNS},
};

static const struct phase *find(const char *name)
{
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
        if (strcmp(phases[i].name, name) == 0)
            return &phases[i];
    return NULL;
}

enum hang_phase words_phase(const char *name)
{
    const struct phase *p = find(name);

    return p ? p->phase : HANG_STARTS;
}

const char *words_of_phase(const char *name)
{
    const struct phase *p = find(name);

    return p ? p->words : "a phase that it does not name";
}

/* "all-reduce" */
static void add_op(const char *op, struct buf *out)
{
    for (; *op; op++)
        (void)buf_printf(out, "%c", *op == '_' ? '-' : *op);
}

/* What a rank waits in: "all-reduce 412 of 'tp' at step 90", "a message of rank 3 in 'pp' at step 90". */
static void add_wait(const struct hang_rank *r, const struct words_rank *of, struct buf *out)
{
    const char *group = *of->group ? of->group : "?";

    if (r->peer >= 0) {
        (void)buf_printf(out, "a message %s rank %d in '%s'", r->sends ? "to" : "of", r->peer, group);
    } else {
        add_op(of->op, out);
        (void)buf_printf(out, " %" PRIu64 " of '%s'", r->call, group);
    }
    (void)buf_printf(out, " at step %" PRIu64, of->step);
}

static void add_roots(const struct words_rank *of, const struct hang_verdict *v, struct buf *out)
{
    for (size_t i = 0; i < v->roots && i < LISTED_RANKS && i < HANG_ROOTS_MAX; i++)
        (void)buf_printf(out, "%s%d on %s", i ? ", " : "", v->root[i], of[v->root[i]].node);
    if (v->roots > LISTED_RANKS)
        (void)buf_printf(out, " and %zu more", v->roots - LISTED_RANKS);
}

/* "; 7 others wait, rank 0 in …" */
static void add_waiter(const struct hang_rank *ranks, const struct words_rank *of, const struct hang_verdict *v,
                       struct buf *out)
{
    if (v->waiter < 0)
        return;
    (void)buf_printf(out, "; %zu other%s, rank %d in ", v->waiting, v->waiting == 1 ? " waits" : "s wait", v->waiter);
    add_wait(&ranks[v->waiter], &of[v->waiter], out);
}

/* Whether what the waiter waits in lacks the root itself, and not one that waits for it in turn. */
static bool lacks(const struct hang_rank *root, const struct hang_rank *waiter)
{
    for (size_t k = 0; k < root->n_groups; k++)
        if (root->group[k].key == waiter->key)
            return root->group[k].entered < waiter->call;
    return true; /* a member that has called nothing yet does not list the group */
}

static void add_not_entered(const struct hang_rank *ranks, const struct words_rank *of, size_t n,
                            const struct hang_verdict *v, struct buf *out)
{
    const struct hang_rank *root = &ranks[v->root[0]], *waiter = v->waiter < 0 ? NULL : &ranks[v->waiter];
    size_t with = 0;

    if (v->roots > 1) {
        (void)buf_addstr(out, "ranks ");
        add_roots(of, v, out);
    } else {
        (void)buf_printf(out, "rank %d on %s", v->root[0], of[v->root[0]].node);
    }
    if (!waiter) {
        (void)buf_printf(out, " %s no sign of life in %s at step %" PRIu64 " for %.1f s",
                         v->roots > 1 ? "show" : "shows", words_of_phase(of[v->root[0]].phase), of[v->root[0]].step,
                         (double)root->idle_us / 1e6);
        return;
    }
    for (size_t i = 0; i < n; i++)
        with += ranks[i].inside && !ranks[i].stopped && ranks[i].peer < 0 && ranks[i].key == waiter->key &&
                ranks[i].call == waiter->call;
    (void)buf_addstr(out, v->roots > 1 ? " have" : " has");
    if (waiter->peer >= 0 || !lacks(root, waiter)) {
        (void)buf_printf(out, " not come to what %zu other%s for, rank %d in ", v->waiting,
                         v->waiting == 1 ? " waits" : "s wait", v->waiter);
        add_wait(waiter, &of[v->waiter], out);
    } else {
        (void)buf_addstr(out, " not entered ");
        add_wait(waiter, &of[v->waiter], out);
        (void)buf_printf(out, " that %zu other%s in", with, with == 1 ? " waits" : "s wait");
        if (v->waiting > with)
            (void)buf_printf(out, ", and %zu more behind them", v->waiting - with);
    }
    if (v->roots > 1)
        (void)buf_printf(out, "; rank %d has been", v->root[0]);
    else
        (void)buf_addstr(out, "; it has been");
    if (*of[v->root[0]].section)
        (void)buf_printf(out, " in section '%s'", of[v->root[0]].section);
    else
        (void)buf_printf(out, " in %s", words_of_phase(of[v->root[0]].phase));
    (void)buf_printf(out, " for %.1f s", (double)root->idle_us / 1e6);
}

static void add_call(uint32_t digest, struct buf *out)
{
    const char *group, *op = ops_of_digest(digest, &group);

    if (digest) {
        add_op(op, out);
        (void)buf_printf(out, " of '%s'", group);
    } else {
        (void)buf_addstr(out, "left out");
    }
}

/* Spans of steps are odd and begin with 1; of members of one group only the call's number is known. */
static void add_odd(const struct order_odd *odd, struct buf *out)
{
    const char *group, *theirs;
    bool same =
        strcmp(ops_of_digest(odd->did, &group), ops_of_digest(odd->others, &theirs)) == 0 && strcmp(theirs, group) == 0;

    if (odd->span > 0)
        (void)buf_printf(out,
                         " has called something else than its peers: operation %" PRIu64 " of step %" PRIu64 " is ",
                         odd->op + 1, odd->span / 2);
    else
        (void)buf_printf(out, " has called something else than its peers: call %" PRIu64 " is ", odd->op);
    add_call(odd->did, out);
    if (odd->others && same)
        (void)buf_addstr(out, " of another size, type or root than theirs");
    else if (odd->others) {
        (void)buf_addstr(out, ", theirs is ");
        add_call(odd->others, out);
    } else {
        (void)buf_addstr(out, ", and was another in the step before");
    }
}

/* A rank of which a heartbeat is all that is known. */
static void add_beats(const struct hang_rank *ranks, const struct words_rank *of, const struct hang_verdict *v,
                      struct buf *out)
{
    const struct hang_rank *root = &ranks[v->root[0]];
    double idle_s = (double)root->idle_us / 1e6;
    bool many = v->roots > 1, frozen = of[v->root[0]].frozen;

    (void)buf_addstr(out, many ? "ranks " : "rank ");
    add_roots(of, v, out);
    if (v->class_ == HANG_STOPPED)
        (void)buf_printf(out, ": %s %s has been %s since step %" PRIu64 "%s; the last sign of life came %.1f s ago",
                         many ? "each" : "its", frozen ? "control group" : "process", frozen ? "frozen" : "stopped",
                         root->step, frozen ? "" : ", by a signal or a debugger", idle_s);
    else if (v->class_ == HANG_PHASE)
        (void)buf_printf(
            out, " %s been in section '%s' for %.1f s, which was to take %.1f s at most; %" PRIu64 " steps are done",
            many ? "have" : "has", of[v->root[0]].section, idle_s, (double)root->allowed_us / 1e6, root->step);
    else
        (void)buf_printf(out, " %s done no step since step %" PRIu64 ", for %.1f s, and %s in no section",
                         many ? "have" : "has", root->step, idle_s, many ? "are" : "is");
}

void words_verdict(const struct hang_rank *ranks, const struct words_rank *of, size_t n, const struct hang_verdict *v,
                   struct buf *out)
{
    const struct hang_rank *root = &ranks[v->root[0]];
    double idle_s = (double)root->idle_us / 1e6;

    if (v->class_ == HANG_NONE)
        return;
    if (of[v->root[0]].beats) {
        add_beats(ranks, of, v, out);
        return;
    }
    if (v->class_ == HANG_NOT_ENTERED || (v->class_ == HANG_PHASE && root->phase == HANG_READS && v->roots < n)) {
        add_not_entered(ranks, of, n, v, out);
        return;
    }
    (void)buf_printf(out, "rank %d on %s", v->root[0], of[v->root[0]].node);
    switch (v->class_) {
    case HANG_STOPPED:
        if (of[v->root[0]].frozen)
            (void)buf_printf(out, ": its control group has been frozen for %.1f s", idle_s);
        else
            (void)buf_printf(out, ": its process has been stopped for %.1f s, by a signal or a debugger", idle_s);
        add_waiter(ranks, of, v, out);
        break;
    case HANG_PHASE:
        if (*of[v->root[0]].section)
            (void)buf_printf(out, " has been in section '%s' for %.1f s, which was to take %.1f s at most",
                             of[v->root[0]].section, idle_s, (double)root->allowed_us / 1e6);
        else
            (void)buf_printf(out, " has been in %s for %.1f s, longer than that may take",
                             words_of_phase(of[v->root[0]].phase), idle_s);
        if (v->roots == n && n > 1)
            (void)buf_printf(out, ", as have all %zu ranks: the storage that they share is suspected", n);
        add_waiter(ranks, of, v, out);
        break;
    case HANG_IN_CALL:
        (void)buf_addstr(out, ": nothing moves in ");
        add_wait(root, &of[v->root[0]], out);
        (void)buf_printf(out, " for %.1f s, in which all its ranks are: a link or a device of rank%s ", idle_s,
                         v->roots == 1 ? "" : "s");
        add_roots(of, v, out);
        break;
    case HANG_DIFFERS:
        add_odd(&v->odd, out);
        break;
    case HANG_CYCLE:
        (void)buf_addstr(out, ": ranks wait for each other in different operations, this one in ");
        add_wait(root, &of[v->root[0]], out);
        break;
    default:
        break;
    }
}
