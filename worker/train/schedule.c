#include "worker/train/schedule.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static const char *const op_name[] = {"F", "B", "SF", "RF", "SB", "RB"};

static void push(struct action_list *l, enum act_op op, int stage, int micro, int peer)
{
    l->v[l->n++] = (struct action){.op = op, .stage = (int16_t)stage, .micro = micro, .peer = (int16_t)peer};
}

/* Warm-up forwards, then one forward and one backward in turn, then the backwards that are left. GPipe is the
 * same with every forward in the warm-up. */
static void generate(const struct schedule *s, int r, struct action_list *l)
{
    int warm = s->kind == SCHEDULE_1F1B ? s->stages - 1 - r : s->micros, b = 0;

    if (warm > s->micros)
        warm = s->micros;
    for (int f = 0; f < warm; f++)
        push(l, ACT_F, r, f, -1);
    if (s->kind == SCHEDULE_FORWARD)
        return;
    for (int f = warm; f < s->micros; f++) {
        push(l, ACT_F, r, f, -1);
        push(l, ACT_B, r, b++, -1);
    }
    while (b < s->micros)
        push(l, ACT_B, r, b++, -1);
}

/* The rank whose message this compute action waits for, or -1. */
static int producer(const struct schedule *s, const struct action *a)
{
    if (a->op == ACT_F)
        return a->stage - 1;
    return a->stage + 1 < s->stages ? a->stage + 1 : -1;
}

static int consumer(const struct schedule *s, const struct action *a)
{
    if (a->op == ACT_B)
        return a->stage - 1;
    return a->stage + 1 < s->stages ? a->stage + 1 : -1;
}

/* Sweep the ranks with a cursor each: an action whose input has been placed is placed, followed by the send
 * of its result here and the matching receive there. */
static int lower(struct schedule *s, const struct action_list *compute, struct merr *err)
{
    size_t *at = calloc(s->stages, sizeof(*at)), left = 0;
    int32_t *got = calloc((size_t)s->stages * 2, sizeof(*got)); /* messages placed: F, B of each rank */
    int r = 0;

    if (!at || !got)
        r = merr_set(err, -ENOMEM, "no memory to lower a schedule");
    for (int i = 0; i < s->stages; i++)
        left += compute[i].n;
    while (r == 0 && left > 0) {
        size_t before = left;

        for (int i = 0; i < s->stages; i++) {
            const struct action *a = &compute[i].v[at[i]];
            int to;

            if (at[i] == compute[i].n || (producer(s, a) >= 0 && got[2 * i + (a->op == ACT_B)] <= a->micro))
                continue;
            push(&s->rank[i], a->op, i, a->micro, -1);
            to = consumer(s, a);
            if (to >= 0) {
                push(&s->rank[i], a->op == ACT_F ? ACT_SF : ACT_SB, i, a->micro, to);
                push(&s->rank[to], a->op == ACT_F ? ACT_RF : ACT_RB, to, a->micro, i);
                got[2 * to + (a->op == ACT_B)] = a->micro + 1;
            }
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

static struct action_list *lists_new(int stages, size_t capacity)
{
    struct action_list *l = calloc(stages, sizeof(*l));

    for (int i = 0; l && i < stages; i++) {
        l[i].v = calloc(capacity, sizeof(*l[i].v));
        if (!l[i].v) {
            lists_free(l, stages);
            return NULL;
        }
    }
    return l;
}

int schedule_new(enum schedule_kind kind, int stages, int micros, struct schedule **ret, struct merr *err)
{
    struct action_list *compute = NULL;
    struct schedule *s;
    int r;

    if (stages < 1 || stages > SCHEDULE_STAGES_MAX || micros < 1 || micros > SCHEDULE_MICROS_MAX)
        return merr_set(err, -EINVAL, "a schedule of %d stages and %d micro-batches: want 1..%d and 1..%d", stages,
                        micros, SCHEDULE_STAGES_MAX, SCHEDULE_MICROS_MAX);
    s = calloc(1, sizeof(*s));
    if (s) {
        *s = (struct schedule){.stages = stages, .micros = micros, .kind = kind};
        s->rank = lists_new(stages, (size_t)micros * 6);
        compute = lists_new(stages, (size_t)micros * 2);
    }
    if (!s || !s->rank || !compute) {
        r = merr_set(err, -ENOMEM, "no memory for a schedule of %d micro-batches", micros);
        goto done;
    }
    for (int i = 0; i < stages; i++)
        generate(s, i, &compute[i]);
    r = lower(s, compute, err);
    if (r == 0)
        r = schedule_check(s, err);
done:
    lists_free(compute, stages);
    if (r != 0) {
        schedule_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

void schedule_free(struct schedule *s)
{
    if (!s)
        return;
    lists_free(s->rank, s->stages);
    free(s);
}

static int check_rank(const struct schedule *s, int r, struct merr *err)
{
    int f = 0, b = 0;

    for (size_t i = 0; i < s->rank[r].n; i++) {
        const struct action *a = &s->rank[r].v[i];

        if (a->stage != r || a->micro < 0 || a->micro >= s->micros)
            return merr_set(err, -EPROTO, "rank %d, action %zu: stage %d, micro-batch %d", r, i, a->stage, a->micro);
        if (a->op == ACT_F && a->micro != f++)
            return merr_set(err, -EPROTO, "rank %d: F%d out of order", r, a->micro);
        if (a->op == ACT_B && (a->micro != b++ || b > f))
            return merr_set(err, -EPROTO, "rank %d: B%d out of order", r, a->micro);
        /* The head's weight gradient is made in F of the last stage, the rest in B: without this a group of
         * micro-batches whose gradients are summed apart would run into the next. */
        if (a->op == ACT_F && r == s->stages - 1 && s->kind == SCHEDULE_1F1B && f != b + 1)
            return merr_set(err, -EPROTO, "rank %d: F%d before B%d", r, a->micro, b);
    }
    if (f != s->micros || b != (s->kind == SCHEDULE_FORWARD ? 0 : s->micros))
        return merr_set(err, -EPROTO, "rank %d: %d forwards and %d backwards of %d", r, f, b, s->micros);
    return 0;
}

int schedule_check(const struct schedule *s, struct merr *err)
{
    for (int r = 0; r < s->stages; r++) {
        int code = check_rank(s, r, err);

        if (code != 0)
            return code;
    }
    return 0;
}

static int is_message(const struct action *a)
{
    return a->op >= ACT_SF;
}

static int matches(const struct action *send, const struct action *receive, int receiver)
{
    return send->peer == receiver && receive->peer == send->stage && send->micro == receive->micro &&
           ((send->op == ACT_SF && receive->op == ACT_RF) || (send->op == ACT_SB && receive->op == ACT_RB));
}

struct simulation {
    const struct schedule *s;
    size_t *at;      /* [stages] next action */
    double *clock;   /* [stages] */
    double *arrived; /* [stages][micros][2]: when the input of F and of B was there */
    double f_time, b_time;
};

/* One action of rank r, or one message with its partner when both stand at it. Returns actions done. A receive
 * takes no time: the action that needs the message waits for it. */
static int advance(struct simulation *m, int r)
{
    const struct action *a = &m->s->rank[r].v[m->at[r]], *b;
    double *input;
    int p;

    if (m->at[r] == m->s->rank[r].n)
        return 0;
    if (!is_message(a)) {
        input = &m->arrived[((size_t)r * m->s->micros + a->micro) * 2 + (a->op == ACT_B)];
        if (m->clock[r] < *input)
            m->clock[r] = *input;
        m->clock[r] += a->op == ACT_F ? m->f_time : m->b_time;
        m->at[r]++;
        return 1;
    }
    p = a->peer;
    b = &m->s->rank[p].v[m->at[p]];
    if ((a->op != ACT_SF && a->op != ACT_SB) || m->at[p] == m->s->rank[p].n || !is_message(b) || !matches(a, b, p))
        return 0;
    m->arrived[((size_t)p * m->s->micros + a->micro) * 2 + (a->op == ACT_SB)] = m->clock[r];
    m->at[r]++;
    m->at[p]++;
    return 2;
}

static int simulate(struct simulation *m, struct merr *err)
{
    size_t left = 0;
    int moved;

    for (int i = 0; i < m->s->stages; i++)
        left += m->s->rank[i].n;
    while (left > 0) {
        size_t before = left;

        for (int i = 0; i < m->s->stages; i++)
            while ((moved = advance(m, i)) > 0)
                left -= moved;
        for (int i = 0; left == before && i < m->s->stages; i++) {
            const struct action *a = &m->s->rank[i].v[m->at[i]];

            if (m->at[i] < m->s->rank[i].n)
                return merr_set(err, -EDEADLK, "rank %d hangs at %d%s%d", i, a->stage, op_name[a->op], a->micro);
        }
    }
    return 0;
}

int schedule_simulate(const struct schedule *s, double f_time, double b_time, double *ret_span, struct merr *err)
{
    struct simulation m = {
        .s = s, .at = calloc(s->stages, sizeof(*m.at)), .clock = calloc(s->stages, sizeof(*m.clock)),
        .arrived = calloc((size_t)s->stages * s->micros * 2, sizeof(*m.arrived)), .f_time = f_time, .b_time = b_time,
    };
    double span = 0;
    int r = m.at && m.clock && m.arrived ? simulate(&m, err) : merr_set(err, -ENOMEM, "no memory to simulate");

    for (int i = 0; r == 0 && i < s->stages; i++)
        span = m.clock[i] > span ? m.clock[i] : span;
    free(m.at);
    free(m.clock);
    free(m.arrived);
    if (r == 0)
        *ret_span = span;
    return r;
}

int schedule_slots(const struct schedule *s, int rank)
{
    const struct action_list *l = &s->rank[rank];
    int begun = 0, done = 0, most = 1;

    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].op == (rank > 0 ? ACT_RF : ACT_F))
            begun++;
        if (begun - done > most)
            most = begun - done;
        if (l->v[i].op == (s->kind == SCHEDULE_FORWARD ? ACT_F : ACT_B))
            done++;
    }
    return most;
}

void schedule_print(const struct schedule *s, struct buf *out)
{
    for (int r = 0; r < s->stages; r++) {
        (void)buf_printf(out, "r%d:", r);
        for (size_t i = 0; i < s->rank[r].n; i++) {
            const struct action *a = &s->rank[r].v[i];

            (void)buf_printf(out, " %d%s%d", a->stage, op_name[a->op], a->micro);
        }
        (void)buf_addstr(out, "\n");
    }
}
