#include "scheduler/plan/schedule.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static const char *const op_name[] = {"F", "B", "I", "W", "SF", "RF", "SB", "RB"};

static void push(struct action_list *l, enum act_op op, int stage, int micro, int peer)
{
    l->v[l->n++] = (struct action){.op = op, .stage = stage, .micro = micro, .peer = (int16_t)peer};
}

static int stages(const struct schedule *s)
{
    return s->ranks * s->chunks;
}

/* --- what is computed, in order ---------------------------------------------------------------------------- */

/* Goes through the micro-batches in rounds of at least as many as there are ranks (where there are that many), all
 * chunks of a round before the next. */
struct walk {
    const struct schedule *s;
    int rank;
    bool backward;
    int rounds, round, begin; /* begin: the round's first micro-batch */
    int pass, at;             /* chunk and micro-batch within the round */
};

static int round_size(const struct walk *w)
{
    return w->s->micros / w->rounds + (w->round < w->s->micros % w->rounds);
}

static struct walk walk_from(const struct schedule *s, int rank, bool backward)
{
    int rounds = s->micros / s->ranks;

    return (struct walk){.s = s, .rank = rank, .backward = backward, .rounds = rounds > 0 ? rounds : 1};
}

static void push_next(struct walk *w, enum act_op op, struct action_list *l)
{
    int chunk = w->backward ? w->s->chunks - 1 - w->pass : w->pass, size = round_size(w);

    push(l, op, chunk * w->s->ranks + w->rank, w->begin + w->at, -1);
    if (++w->at < size)
        return;
    w->at = 0;
    if (++w->pass < w->s->chunks)
        return;
    w->pass = 0;
    w->begin += size;
    w->round++;
}

/* Forwards before the first backward: enough for the last rank to have something to go back with, and for all ranks
 * between to be busy until that reaches them. */
static int warm_up(const struct schedule *s, int r)
{
    struct walk first = walk_from(s, r, false);
    int behind = s->ranks - 1 - r, all = s->micros * s->chunks, warm = all;

    if (s->kind == SCHEDULE_ZB_H1 || (s->kind == SCHEDULE_1F1B && s->chunks == 1))
        warm = (s->chunks - 1) * round_size(&first) + behind;
    else if (s->kind == SCHEDULE_1F1B)
        warm = (s->chunks - 1) * round_size(&first) + 2 * behind;
    return warm < all ? warm : all;
}

/* Warm-up forwards, then one forward and one backward in turn, then the backwards that are left. ZB-H1's weight parts
 * follow r behind, where they fill what would be idle time. */
static void generate(const struct schedule *s, int r, struct action_list *l)
{
    struct walk f = walk_from(s, r, false), b = walk_from(s, r, true), w = b;
    int all = s->micros * s->chunks, warm = warm_up(s, r), split = s->kind == SCHEDULE_ZB_H1;

    for (int i = 0; i < warm; i++)
        push_next(&f, ACT_F, l);
    if (s->kind == SCHEDULE_FORWARD)
        return;
    for (int i = 0; i < all; i++) {
        if (i < all - warm)
            push_next(&f, ACT_F, l);
        push_next(&b, split ? ACT_I : ACT_B, l);
        if (split && i >= r)
            push_next(&w, ACT_W, l);
    }
    for (int i = 0; split && i < r && i < all; i++)
        push_next(&w, ACT_W, l);
}

/* Whether what goes back next has not come forward yet, or too little of what other ranks wait for has. */
static bool wants_forward(const struct schedule *s, int r, int f, int b)
{
    return f < s->micros && (f < s->ranks - r + b || s->order[b] >= f);
}

/* 1F1B where a sequence's backwards wait for the forward of its last piece. */
static void generate_pieces(const struct schedule *s, int r, struct action_list *l)
{
    int f = 0;

    for (int b = 0; b < s->micros; b++) {
        while (wants_forward(s, r, f, b))
            push(l, ACT_F, r, f++, -1);
        push(l, ACT_B, r, s->order[b], -1);
    }
}

/* Sequences turned round. */
static void order_backwards(struct schedule *s, const int32_t *sequence)
{
    for (int i = 0, end; i < s->micros; i = end) {
        for (end = i + 1; end < s->micros && sequence[i] >= 0 && sequence[end] == sequence[i];)
            end++;
        for (int k = i; k < end; k++) {
            s->order[k] = i + end - 1 - k;
            s->turn[s->order[k]] = k;
        }
    }
}

/* When an action comes among those of its stage and direction. */
static int turn_of(const struct schedule *s, const struct action *a, bool backward)
{
    return backward && s->turn ? s->turn[a->micro] : a->micro;
}

/* --- messages ---------------------------------------------------------------------------------------------- */

/* The stage whose message this compute action waits for, or -1. */
static int producer(const struct schedule *s, const struct action *a)
{
    if (a->op == ACT_F)
        return a->stage - 1;
    return a->op != ACT_W && a->stage + 1 < stages(s) ? a->stage + 1 : -1;
}

static int consumer(const struct schedule *s, const struct action *a)
{
    if (a->op == ACT_B || a->op == ACT_I)
        return a->stage - 1;
    return a->op == ACT_F && a->stage + 1 < stages(s) ? a->stage + 1 : -1;
}

/* Place the compute action if its input has been placed, then the send of its result here and the receive there. got
 * counts the messages placed of each stage, forward and backward. */
static bool place(struct schedule *s, const struct action *a, int32_t (*got)[2])
{
    bool backward = a->op != ACT_F;
    int r = a->stage % s->ranks, to = consumer(s, a);

    if (producer(s, a) >= 0 && got[a->stage][backward] <= turn_of(s, a, backward))
        return false;
    push(&s->rank[r], a->op, a->stage, a->micro, -1);
    if (to >= 0) {
        push(&s->rank[r], backward ? ACT_SB : ACT_SF, a->stage, a->micro, to % s->ranks);
        push(&s->rank[to % s->ranks], backward ? ACT_RB : ACT_RF, to, a->micro, r);
        got[to][backward] = turn_of(s, a, backward) + 1;
    }
    return true;
}

/* Sweep the ranks with a cursor each. */
static int lower(struct schedule *s, const struct action_list *compute, struct merr *err)
{
    size_t *at = calloc(s->ranks, sizeof(*at)), left = 0;
    int32_t(*got)[2] = calloc(stages(s), sizeof(*got));
    int r = 0;

    if (!at || !got)
        r = merr_set(err, -ENOMEM, "no memory to lower a schedule");
    for (int i = 0; i < s->ranks; i++)
        left += compute[i].n;
    while (r == 0 && left > 0) {
        size_t before = left;

        for (int i = 0; i < s->ranks; i++)
            if (at[i] < compute[i].n && place(s, &compute[i].v[at[i]], got)) {
                at[i]++;
                left--;
            }
        if (left == before)
            r = merr_set(err, -EDEADLK, "the schedule makes no progress with %zu actions left", left);
    }
    free(at);
    free(got);
    return r;
}

static void lists_free(struct action_list *l, int n)
{
    for (int i = 0; l && i < n; i++)
        free(l[i].v);
    free(l);
}

static struct action_list *lists_new(int ranks, size_t capacity)
{
    struct action_list *l = calloc(ranks, sizeof(*l));

    for (int i = 0; l && i < ranks; i++) {
        l[i].v = calloc(capacity, sizeof(*l[i].v));
        if (!l[i].v) {
            lists_free(l, ranks);
            return NULL;
        }
    }
    return l;
}

static int check_sizes(int ranks, int chunks, int micros, struct merr *err)
{
    if (ranks < 1 || ranks > SCHEDULE_RANKS_MAX || micros < 1 || micros > SCHEDULE_MICROS_MAX)
        return merr_set(err, -EINVAL, "a schedule of %d ranks and %d micro-batches: want 1..%d and 1..%d", ranks,
                        micros, SCHEDULE_RANKS_MAX, SCHEDULE_MICROS_MAX);
    if (chunks < 1 || chunks > SCHEDULE_CHUNKS_MAX || (long)chunks * micros > SCHEDULE_ACTIONS_MAX)
        return merr_set(err, -EINVAL,
                        "a schedule of %d chunks and %d micro-batches: want 1..%d chunks, at most %d in "
                        "all",
                        chunks, micros, SCHEDULE_CHUNKS_MAX, SCHEDULE_ACTIONS_MAX);
    if (chunks > 1 && ranks < 2)
        return merr_set(err, -EINVAL, "%d chunks on one rank would follow each other there: want 1", chunks);
    return 0;
}

static int make(enum schedule_kind kind, int ranks, int chunks, int micros, const int32_t *sequence,
                struct schedule **ret, struct merr *err)
{
    struct action_list *compute = NULL;
    struct schedule *s;
    int r = check_sizes(ranks, chunks, micros, err);

    if (r != 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (s) {
        *s = (struct schedule){.ranks = ranks, .chunks = chunks, .micros = micros, .kind = kind};
        s->rank = lists_new(ranks, (size_t)micros * chunks * 7);
        compute = lists_new(ranks, (size_t)micros * chunks * 3);
        s->slots = calloc((size_t)ranks * (size_t)chunks, sizeof(*s->slots));
        s->order = sequence ? calloc(micros, sizeof(*s->order)) : NULL;
        s->turn = sequence ? calloc(micros, sizeof(*s->turn)) : NULL;
    }
    if (!s || !s->rank || !s->slots || !compute || (sequence && (!s->order || !s->turn))) {
        r = merr_set(err, -ENOMEM, "no memory for a schedule of %d micro-batches", micros);
        goto done;
    }
    if (sequence)
        order_backwards(s, sequence);
    for (int i = 0; i < ranks; i++)
        (sequence ? generate_pieces : generate)(s, i, &compute[i]);
    r = lower(s, compute, err);
    if (r < 0)
        goto done;
    r = schedule_check(s, err);
done:
    lists_free(compute, ranks);
    if (r != 0) {
        schedule_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

int schedule_new(enum schedule_kind kind, int ranks, int chunks, int micros, struct schedule **ret, struct merr *err)
{
    return make(kind, ranks, chunks, micros, NULL, ret, err);
}

int schedule_new_pieces(int ranks, int micros, const int32_t *sequence, struct schedule **ret, struct merr *err)
{
    return make(SCHEDULE_1F1B, ranks, 1, micros, sequence, ret, err);
}

void schedule_free(struct schedule *s)
{
    if (!s)
        return;
    free(s->order);
    free(s->turn);
    free(s->slots);
    lists_free(s->rank, s->ranks);
    free(s);
}

/* --- checks ------------------------------------------------------------------------------------------------ */

static int check_stage(const struct schedule *s, int stage, struct merr *err)
{
    const struct action_list *l = &s->rank[stage % s->ranks];
    int done[ACT_W + 1] = {0}, back = s->kind == SCHEDULE_FORWARD ? 0 : s->micros;

    for (size_t i = 0; i < l->n; i++) {
        const struct action *a = &l->v[i];

        if (a->stage < 0 || a->stage >= stages(s) || a->stage % s->ranks != stage % s->ranks || a->micro < 0 ||
            a->micro >= s->micros)
            return merr_set(err, -EPROTO, "rank %d, action %zu: stage %d, micro-batch %d", stage % s->ranks, i,
                            a->stage, a->micro);
        if (a->stage != stage || a->op > ACT_W)
            continue;
        if (turn_of(s, a, a->op != ACT_F) != done[a->op]++)
            return merr_set(err, -EPROTO, "stage %d: %s%d out of order", stage, op_name[a->op], a->micro);
        if (done[ACT_B] + done[ACT_I] > done[ACT_F] || done[ACT_W] > done[ACT_I] ||
            (a->op != ACT_F && a->micro >= done[ACT_F]))
            return merr_set(err, -EPROTO, "stage %d: %s%d before what it needs", stage, op_name[a->op], a->micro);
    }
    if (done[ACT_F] != s->micros || done[ACT_B] + done[ACT_I] != back || done[ACT_I] != done[ACT_W])
        return merr_set(err, -EPROTO, "stage %d: %d forwards, %d whole backwards, %d and %d in parts, of %d", stage,
                        done[ACT_F], done[ACT_B], done[ACT_I], done[ACT_W], s->micros);
    return 0;
}

int schedule_check(const struct schedule *s, struct merr *err)
{
    for (int i = 0; i < stages(s); i++) {
        int code = check_stage(s, i, err);

        if (code != 0)
            return code;
    }
    return 0;
}

/* --- simulation -------------------------------------------------------------------------------------------- */

static bool is_message(const struct action *a)
{
    return a->op >= ACT_SF;
}

static bool matches(const struct schedule *s, const struct action *send, const struct action *receive)
{
    int to = send->op == ACT_SF ? send->stage + 1 : send->stage - 1;

    return receive->stage == to && receive->micro == send->micro && send->peer == to % s->ranks &&
           receive->peer == send->stage % s->ranks &&
           ((send->op == ACT_SF && receive->op == ACT_RF) || (send->op == ACT_SB && receive->op == ACT_RB));
}

struct simulation {
    const struct schedule *s;
    const struct schedule_times *t;
    bool alike;      /* t is of every stage */
    size_t *at;      /* [ranks] next action */
    double *clock;   /* [ranks] */
    double *arrived; /* [stages][micros][2]: when the input of F and of the backward was there */
};

static double *arrival(const struct simulation *m, int stage, int micro, bool backward)
{
    return &m->arrived[((size_t)stage * m->s->micros + micro) * 2 + backward];
}

static const struct schedule_times *times_of(const struct simulation *m, int stage)
{
    return m->alike ? m->t : &m->t[stage];
}

static double duration(const struct schedule_times *t, const struct action *a)
{
    switch (a->op) {
    case ACT_F:
        return t->f;
    case ACT_B:
        return t->i + t->w;
    case ACT_I:
        return t->i;
    default:
        return t->w;
    }
}

/* One action of rank r, or one message with its partner when both stand at it. Returns actions done. A receive
 * takes no time: the action that needs the message waits for it. */
static int advance(struct simulation *m, int r)
{
    const struct action *a = &m->s->rank[r].v[m->at[r]], *b;
    int p;

    if (m->at[r] == m->s->rank[r].n)
        return 0;
    if (!is_message(a)) {
        double input = a->op == ACT_W ? 0 : *arrival(m, a->stage, a->micro, a->op != ACT_F);

        m->clock[r] = (m->clock[r] < input ? input : m->clock[r]) + duration(times_of(m, a->stage), a);
        m->at[r]++;
        return 1;
    }
    p = a->peer;
    if ((a->op != ACT_SF && a->op != ACT_SB) || m->at[p] == m->s->rank[p].n)
        return 0;
    b = &m->s->rank[p].v[m->at[p]];
    if (!is_message(b) || !matches(m->s, a, b))
        return 0;
    *arrival(m, b->stage, b->micro, a->op == ACT_SB) =
        m->clock[r] + times_of(m, a->op == ACT_SF ? a->stage : b->stage)->hop;
    m->at[r]++;
    m->at[p]++;
    return 2;
}

static int simulate(struct simulation *m, struct merr *err)
{
    size_t left = 0;
    int moved;

    for (int i = 0; i < m->s->ranks; i++)
        left += m->s->rank[i].n;
    while (left > 0) {
        size_t before = left;

        for (int i = 0; i < m->s->ranks; i++)
            while ((moved = advance(m, i)) > 0)
                left -= moved;
        for (int i = 0; left == before && i < m->s->ranks; i++) {
            const struct action *a = &m->s->rank[i].v[m->at[i]];

            if (m->at[i] < m->s->rank[i].n)
                return merr_set(err, -EDEADLK, "rank %d hangs at %d%s%d", i, a->stage, op_name[a->op], a->micro);
        }
    }
    return 0;
}

int schedule_simulate(const struct schedule *s, const struct schedule_times *t, int n, double *ret_span,
                      struct merr *err)
{
    struct simulation m = {
        .s = s,
        .t = t,
        .alike = n == 1,
        .at = calloc(s->ranks, sizeof(*m.at)),
        .clock = calloc(s->ranks, sizeof(*m.clock)),
        .arrived = calloc((size_t)stages(s) * s->micros * 2, sizeof(*m.arrived)),
    };
    double span = 0;
    int r;

    assert(n == 1 || n == stages(s));
    r = m.at && m.clock && m.arrived ? simulate(&m, err) : merr_set(err, -ENOMEM, "no memory to simulate");
    for (int i = 0; r == 0 && i < s->ranks; i++)
        span = m.clock[i] > span ? m.clock[i] : span;
    free(m.at);
    free(m.clock);
    free(m.arrived);
    if (r == 0)
        *ret_span = span;
    return r;
}

/* --- what else there is to know ---------------------------------------------------------------------------- */

static int count_slots(const struct schedule *s, int rank, int chunk)
{
    const struct action_list *l = &s->rank[rank];
    int stage = chunk * s->ranks + rank, begun = 0, done = 0, oldest = 0, most = 1;

    for (size_t i = 0; i < l->n; i++) {
        const struct action *a = &l->v[i];

        if (a->stage != stage)
            continue;
        begun += a->op == (stage > 0 ? ACT_RF : ACT_F);
        most = begun - oldest > most ? begun - oldest : most;
        done += s->kind == SCHEDULE_FORWARD ? a->op == ACT_F : a->op == ACT_B || a->op == ACT_W;
        /* of a sequence in pieces, the first one is the last to be done */
        oldest = !s->turn || done == s->micros || s->turn[oldest] < done ? done : oldest;
    }
    return most;
}

int schedule_slots(const struct schedule *s, int rank, int chunk)
{
    int32_t *slots = &s->slots[rank * s->chunks + chunk];

    if (*slots == 0)
        *slots = count_slots(s, rank, chunk);
    return *slots;
}

int schedule_bodies(const struct schedule *s, int rank, const bool *drop)
{
    const struct action_list *l = &s->rank[rank];
    int held = 0, most = 1;

    for (size_t i = 0; i < l->n; i++) {
        const struct action *a = &l->v[i];
        bool working = a->op == ACT_F || (a->op == ACT_B && drop[a->micro]);

        most = held + working > most ? held + working : most;
        if (a->op <= ACT_B && !drop[a->micro])
            held += a->op == ACT_F ? 1 : -1;
    }
    return most;
}

void schedule_print(const struct schedule *s, struct buf *out)
{
    for (int r = 0; r < s->ranks; r++) {
        (void)buf_printf(out, "r%d:", r);
        for (size_t i = 0; i < s->rank[r].n; i++) {
            const struct action *a = &s->rank[r].v[i];

            (void)buf_printf(out, " %d%s%d", a->stage, op_name[a->op], a->micro);
        }
        (void)buf_addstr(out, "\n");
    }
}
