#include "scheduler/diagnose/hang.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

#define S 1000000LL
#define STARTS_US (600 * S) /* a state may be large and its disk slow */
#define SAVES_US (600 * S)
#define COMPUTES_LEAST_US (5 * S)
#define EVALUATES_LEAST_US (30 * S)
#define READS_MOST_US (300 * S)
#define SAVES_LEAST_US (60 * S)
#define ALLOWED_MOST_US (30 * 86400 * S)
#define COMPUTES_MOST_US (120 * S)
#define GAPS 5 /* times the longest normal gap; GAPS_LEAST where that is more than COMPUTES_MOST_US */
#define GAPS_LEAST 3

/* --- members of groups ------------------------------------------------------------------------------- */

struct member {
    uint32_t rank;
    uint32_t digest;
    uint64_t entered;
};

struct team {               /* a group with its members: member[first .. first + n) */
    uint64_t key, followed; /* followed: the greatest call whose absent members have been asked for */
    uint32_t first, n, filled;
    int size;
};

struct walk {
    const struct hang_rank *ranks;
    size_t n;
    uint32_t *slot; /* hash of keys: 1 + index of a team; mask + 1 places */
    size_t mask;
    struct team *team;
    size_t teams;
    struct member *member;
    uint32_t *stack; /* ranks that are waited for and not yet looked at */
    size_t depth;
    bool *met;
    struct hang_verdict *verdict;
    uint64_t full_key; /* of a call that all members have entered; 0: none was met */
    int full_waiter;
};

static struct team *team_find(const struct walk *w, uint64_t key, uint32_t **ret_slot)
{
    size_t i = (size_t)((key ^ key >> 32) * 0x9E3779B97F4A7C15ULL >> 20) & w->mask;

    while (w->slot[i] && w->team[w->slot[i] - 1].key != key)
        i = (i + 1) & w->mask;
    if (ret_slot)
        *ret_slot = &w->slot[i];
    return w->slot[i] ? &w->team[w->slot[i] - 1] : NULL;
}

static int index_groups(struct walk *w)
{
    size_t all = 0, places = 16;
    uint32_t at = 0, *of, *next;

    for (size_t i = 0; i < w->n; i++)
        all += w->ranks[i].n_groups;
    while (places < 2 * all)
        places *= 2;
    w->mask = places - 1;
    w->slot = calloc(places, sizeof(*w->slot));
    w->team = calloc(all + 1, sizeof(*w->team));
    w->member = calloc(all + 1, sizeof(*w->member));
    w->stack = calloc(w->n + 1, sizeof(*w->stack));
    w->met = calloc(w->n + 1, sizeof(*w->met));
    next = of = malloc((all + 1) * sizeof(*of)); /* the team of each group of each rank */
    if (!w->slot || !w->team || !w->member || !w->stack || !w->met || !of) {
        free(of);
        return -ENOMEM;
    }
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->ranks[i].n_groups; k++) {
            uint32_t *slot;
            struct team *t = team_find(w, w->ranks[i].group[k].key, &slot);

            if (!t) {
                t = &w->team[w->teams++];
                *t = (struct team){.key = w->ranks[i].group[k].key, .size = w->ranks[i].group[k].size};
                *slot = (uint32_t)w->teams;
            }
            t->n++;
            *next++ = (uint32_t)(t - w->team);
        }
    for (size_t i = 0; i < w->teams; i++) {
        w->team[i].first = at;
        at += w->team[i].n;
    }
    next = of;
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->ranks[i].n_groups; k++) {
            struct team *t = &w->team[*next++];

            w->member[t->first + t->filled++] =
                (struct member){(uint32_t)i, w->ranks[i].group[k].digest, w->ranks[i].group[k].entered};
        }
    free(of);
    return 0;
}

static void walk_clear(struct walk *w)
{
    free(w->slot);
    free(w->team);
    free(w->member);
    free(w->stack);
    free(w->met);
}

/* --- the walk ---------------------------------------------------------------------------------------- */

static void wait_for(struct walk *w, uint32_t rank)
{
    if (!w->met[rank])
        w->stack[w->depth++] = rank;
    w->met[rank] = true;
}

/* A member that has called nothing in its group yet does not list it: any rank may be one that waits in nothing. */
static size_t ask_unlisted(struct walk *w, const struct team *t)
{
    size_t asked = 0;

    for (uint32_t i = 0; i < w->n; i++) {
        bool listed = w->ranks[i].inside;

        for (size_t k = 0; k < w->ranks[i].n_groups && !listed; k++)
            listed = w->ranks[i].group[k].key == t->key;
        if (!listed)
            wait_for(w, i);
        asked += !listed;
    }
    return asked;
}

static void follow_call(struct walk *w, uint32_t waiter)
{
    const struct hang_rank *r = &w->ranks[waiter];
    struct team *t = team_find(w, r->key, NULL);
    size_t absent = 0;

    if (!t || t->followed >= r->call)
        return;
    t->followed = r->call;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct member *m = &w->member[t->first + i];

        if (m->entered < r->call) {
            wait_for(w, m->rank);
            absent++;
        }
    }
    if (t->size > (int)t->n)
        absent += ask_unlisted(w, t);
    if (absent == 0 && w->full_key == 0) {
        w->full_key = t->key;
        w->full_waiter = (int)waiter;
    }
}

static void follow_message(struct walk *w, uint32_t waiter)
{
    const struct hang_rank *r = &w->ranks[waiter], *peer;

    if (r->peer < 0 || (size_t)r->peer >= w->n)
        return;
    peer = &w->ranks[r->peer];
    if (peer->inside && peer->peer == (int)waiter && peer->sends != r->sends && w->full_key == 0) {
        w->full_key = r->key; /* both are there: the message does not move */
        w->full_waiter = (int)waiter;
    }
    wait_for(w, (uint32_t)r->peer);
}

static void add_root(struct hang_verdict *v, uint32_t rank)
{
    if (v->roots < HANG_ROOTS_MAX)
        v->root[v->roots] = (int)rank;
    v->roots++;
}

static enum hang_class class_of(const struct hang_rank *r)
{
    return r->stopped                                           ? HANG_STOPPED
           : r->phase == HANG_COMPUTES || r->phase == HANG_RUNS ? HANG_NOT_ENTERED
                                                                : HANG_PHASE;
}

/* From one rank that waits to those that it waits for in the end. Returns false where one of them may go on. */
static bool walk_from(struct walk *w, uint32_t rank, int64_t gap_us)
{
    struct hang_verdict *v = w->verdict;

    wait_for(w, rank);
    while (w->depth > 0) {
        uint32_t at = w->stack[--w->depth];
        const struct hang_rank *r = &w->ranks[at];

        if (!r->told || r->idle_us < hang_limit_us(r, gap_us))
            return false; /* who is stopped may be let go on at once */
        if (r->inside && !r->stopped) {
            if (r->peer < 0)
                follow_call(w, at);
            else
                follow_message(w, at);
        } else {
            if (v->class_ == HANG_NONE || (r->stopped && v->class_ != HANG_STOPPED)) {
                v->class_ = class_of(r); /* a stopped process is a better reason than one that computes */
                v->roots = 0;
            }
            if (class_of(r) == v->class_)
                add_root(v, at);
        }
    }
    return true;
}

/* All members have entered the call: it holds where they have not left it. */
static void judge_full(struct walk *w)
{
    const struct team *t = team_find(w, w->full_key, NULL);
    const struct hang_rank *waiter = &w->ranks[w->full_waiter];

    w->verdict->class_ = HANG_IN_CALL;
    w->verdict->waiter = w->full_waiter;
    if (waiter->peer >= 0) {
        add_root(w->verdict, (uint32_t)(w->full_waiter < waiter->peer ? w->full_waiter : waiter->peer));
        add_root(w->verdict, (uint32_t)(w->full_waiter < waiter->peer ? waiter->peer : w->full_waiter));
        return;
    }
    for (uint32_t i = 0; t && i < t->n; i++) /* who has left it already is not where it holds */
        if (w->ranks[w->member[t->first + i].rank].inside && w->ranks[w->member[t->first + i].rank].key == t->key)
            add_root(w->verdict, w->member[t->first + i].rank);
}

/* Ranks wait for messages of each other, and each has made the calls of its last step until then: nobody has called in
 * another order, so that a message has got lost between them. False: it is not so, or not known. */
static bool judge_lost(struct walk *w)
{
    uint32_t *seen = w->stack, at, from = 0; /* no rank is left in it */

    memset(seen, 0, (w->n + 1) * sizeof(*seen));
    for (uint32_t start = 0; start < w->n && from == 0; start++) {
        for (at = start;
             seen[at] == 0 && w->ranks[at].inside && w->ranks[at].peer >= 0 && (size_t)w->ranks[at].peer < w->n;
             at = (uint32_t)w->ranks[at].peer)
            seen[at] = start + 1;
        from = seen[at] == start + 1 ? at + 1 : 0;
    }
    if (from == 0)
        return false;
    at = from - 1;
    do { /* once around */
        if (!w->ranks[at].order || w->ranks[at].order->odd != 1)
            return false;
        at = (uint32_t)w->ranks[at].peer;
    } while (at != from - 1);
    do {
        add_root(w->verdict, at);
        at = (uint32_t)w->ranks[at].peer;
    } while (at != from - 1);
    w->verdict->class_ = HANG_IN_CALL;
    w->verdict->waiter = (int)at;
    return true;
}

/* A rank that waits for the root itself, else one that waits at all; -1: none does. */
static int waiter_for(const struct walk *w, int root)
{
    int any = -1;

    for (size_t i = 0; i < w->n; i++) {
        const struct hang_rank *r = &w->ranks[i], *of = &w->ranks[root];
        const struct hang_group *g = of->group;

        if (!r->inside || (int)i == root)
            continue;
        any = any < 0 ? (int)i : any;
        if (r->peer == root)
            return (int)i;
        for (size_t k = 0; r->peer < 0 && k < of->n_groups; k++)
            if (g[k].key == r->key && g[k].entered < r->call)
                return (int)i;
    }
    return any;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int64_t within(int64_t us, int64_t least, int64_t most)
{
    return us < least ? least : us > most ? most : us;
}

int64_t hang_deadline_us(const struct hang_rank *r, int64_t gap_us)
{
    enum hang_phase phase = r->phase;
    int64_t least = phase == HANG_EVALUATES || phase == HANG_RUNS ? EVALUATES_LEAST_US : COMPUTES_LEAST_US, us;

    if (r->allowed_us > 0) /* half as much again, since such words are guesses */
        return r->allowed_us > ALLOWED_MOST_US ? ALLOWED_MOST_US : r->allowed_us + r->allowed_us / 2;
    if (phase == HANG_SAVES && r->usual_us > 0)
        return within(GAPS * within(r->usual_us, 1, SAVES_US), SAVES_LEAST_US, SAVES_US);
    if (phase == HANG_READS && r->usual_us > 0)
        return within(GAPS * within(r->usual_us, 1, READS_MOST_US), COMPUTES_LEAST_US, READS_MOST_US);
    if (phase == HANG_SAVES || phase == HANG_ENDS)
        return SAVES_US;
    if (phase == HANG_STARTS || gap_us <= 0)
        return STARTS_US;
    if (gap_us >= COMPUTES_MOST_US / GAPS)
        us = gap_us >= COMPUTES_MOST_US / GAPS_LEAST ? GAPS_LEAST * gap_us : COMPUTES_MOST_US;
    else
        us = GAPS * gap_us;
    return us < least ? least : us;
}

int64_t hang_limit_us(const struct hang_rank *r, int64_t gap_us)
{
    return r->stopped ? COMPUTES_LEAST_US : hang_deadline_us(r, gap_us);
}

const char *hang_class_name(enum hang_class class_)
{
    static const char *const name[HANG_CLASSES] = {"none",    "stopped", "not-entered", "phase",
                                                   "in-call", "cycle",   "differs"};

    return name[class_];
}

/* --- who called something else ------------------------------------------------------------------------ */

/* Of members that are at the same call of their group, those that are few: true where there are any. */
static bool find_odd_member(struct walk *w, const struct team *t, uint32_t *digest)
{
    struct hang_verdict *v = w->verdict;
    uint64_t newest = 0;
    uint32_t most = w->member[t->first].digest;
    bool same = true;
    size_t n = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        newest = w->member[t->first + i].entered > newest ? w->member[t->first + i].entered : newest;
        same = same && w->member[t->first + i].digest == most;
    }
    if (same)
        return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (w->member[t->first + i].entered == newest && w->member[t->first + i].digest)
            digest[n++] = w->member[t->first + i].digest;
    most = order_most(digest, n);
    if (most == 0)
        return false;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct member *m = &w->member[t->first + i];

        if (m->entered != newest || !m->digest || m->digest == most)
            continue;
        if (!v->odd.found)
            v->roots = 0;
        v->odd = (struct order_odd){.op = newest, .did = m->digest, .others = most, .found = true};
        add_root(v, m->rank);
    }
    return v->odd.found;
}

static const struct order_list *list_of(const void *arg, size_t i)
{
    return ((const struct hang_rank *)arg)[i].order;
}

static int judge_order(struct walk *w)
{
    struct hang_verdict *v = w->verdict;
    uint32_t *digest = malloc((w->n + 1) * sizeof(*digest));
    int rank[HANG_ROOTS_MAX];
    struct order_odd odd;
    size_t n;

    if (!digest)
        return -ENOMEM;
    for (size_t i = 0; i < w->teams && !v->odd.found; i++)
        (void)(w->team[i].n > 2 && find_odd_member(w, &w->team[i], digest));
    free(digest);
    if (!v->odd.found && (n = order_find(list_of, w->ranks, w->n, rank, HANG_ROOTS_MAX, &odd)) > 0) {
        v->odd = odd;
        v->roots = n;
        memcpy(v->root, rank, (n < HANG_ROOTS_MAX ? n : HANG_ROOTS_MAX) * sizeof(*rank));
    }
    if (v->odd.found) {
        v->class_ = HANG_DIFFERS;
        v->waiter = -1;
    }
    return 0;
}

/* The walk has met all ranks, and none of them goes on. */
static int conclude(struct walk *w)
{
    struct hang_verdict *v = w->verdict;

    if (v->class_ == HANG_NONE && w->full_key)
        judge_full(w);
    if (v->class_ == HANG_NONE && w->n > 0 && !judge_lost(w)) {
        v->class_ = HANG_CYCLE;
        for (uint32_t i = 0; i < w->n; i++)
            add_root(v, i);
    }
    if (v->class_ == HANG_CYCLE || v->class_ == HANG_IN_CALL)
        TRY(judge_order(w));
    if (v->waiter < 0 && v->roots > 0 && v->class_ != HANG_CYCLE)
        v->waiter = waiter_for(w, v->root[0]);
    qsort(v->root, v->roots < HANG_ROOTS_MAX ? v->roots : HANG_ROOTS_MAX, sizeof(v->root[0]), by_number);
    return 0;
}

static int judge(struct walk *w)
{
    const struct hang_rank *ranks = w->ranks;
    int64_t gap_us = 0;

    TRY(index_groups(w));
    for (size_t i = 0; i < w->n; i++) {
        gap_us = ranks[i].gap_us > gap_us ? ranks[i].gap_us : gap_us;
        w->verdict->waiting += ranks[i].told && ranks[i].inside && !ranks[i].stopped;
    }
    /* Every rank is walked from: a run hangs when all its ranks do, in the end. Those met before cost nothing. */
    for (uint32_t i = 0; i < w->n; i++)
        if (!w->met[i] && !walk_from(w, i, gap_us)) {
            *w->verdict = (struct hang_verdict){.class_ = HANG_NONE, .waiter = -1};
            return 0;
        }
    return conclude(w);
}

static int judge_calls(struct walk *w)
{
    TRY(index_groups(w));
    return judge_order(w);
}

int hang_odd(const struct hang_rank *ranks, size_t n, struct hang_verdict *ret)
{
    struct hang_verdict v = {.class_ = HANG_NONE, .waiter = -1};
    struct walk w = {.ranks = ranks, .n = n, .verdict = &v, .full_waiter = -1};
    int r = judge_calls(&w);

    if (r == 0)
        *ret = v;
    walk_clear(&w);
    return r;
}

int hang_judge(const struct hang_rank *ranks, size_t n, struct hang_verdict *ret)
{
    struct hang_verdict v = {.class_ = HANG_NONE, .waiter = -1};
    struct walk w = {.ranks = ranks, .n = n, .verdict = &v, .full_waiter = -1};
    int r = judge(&w);

    if (r == 0)
        *ret = v;
    walk_clear(&w);
    return r;
}
