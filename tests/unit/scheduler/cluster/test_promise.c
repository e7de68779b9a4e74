/* How long a gang waits at most while small jobs come without end: until it starves, until what then runs for good has
 * ended, and two rounds. A cluster is played round by round; the seed says what comes. */
#include "tests/unit/short.h"
#include "tests/unit/test.h"

#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define STARVE_S 900
#define ROUND_S 60
#define HOLD_S 120
#define LONGEST_S 400 /* that a command runs */
#define JOBS_MAX 160
#define NODES 4
#define SIZE 4 /* devices of a node */

static const struct rates_profile profile = {.points = {{{1, 1000000}, {2, 1900000}, {4, 3600000}, {16, 12000000}}},
                                             .n = {4}};

enum mix { UNLIMITED, LIMITED, ELASTIC, ALL, MIXES };

struct play {
    uint32_t seed, draws;
    enum mix mix;
    size_t backlog; /* small jobs that wait at any time */
    struct sched_job jobs[JOBS_MAX];
    struct sched_place at[JOBS_MAX][NODES];
    int64_t began_s[JOBS_MAX], ends_s[JOBS_MAX], limit_s[JOBS_MAX]; /* the latter 0: none */
    size_t n;
    uint64_t id, gang;
    int64_t gang_s, head_s, worst_s; /* submitted at; nobody has waited longer since; the longest wait from then on */
    int gangs;
};

static uint32_t draw(struct play *p, uint32_t below)
{
    uint32_t key[2] = {p->seed, 3}, ctr[4] = {p->draws++}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static void drop(struct play *p, size_t i)
{
    p->n--;
    memmove(p->jobs + i, p->jobs + i + 1, (p->n - i) * sizeof(*p->jobs));
    memmove(p->at + i, p->at + i + 1, (p->n - i) * sizeof(*p->at));
    memmove(p->began_s + i, p->began_s + i + 1, (p->n - i) * sizeof(*p->began_s));
    memmove(p->limit_s + i, p->limit_s + i + 1, (p->n - i) * sizeof(*p->limit_s));
    memmove(p->ends_s + i, p->ends_s + i + 1, (p->n - i) * sizeof(*p->ends_s));
}

static struct sched_job *submit(struct play *p, int64_t now_s, int32_t min, int32_t max, bool fixed)
{
    p->jobs[p->n] = (struct sched_job){.id = ++p->id,
                                       .min = min,
                                       .max = max,
                                       .workers = max,
                                       .types = 1,
                                       .home = -1,
                                       .weight_milli = 1000,
                                       .rho_milli = 1000,
                                       .restart_us = 5 * S,
                                       .remaining_us = -1,
                                       .fixed = fixed,
                                       .submit_us = now_s * S,
                                       .waiting_us = now_s * S,
                                       .changed_us = now_s * S,
                                       .profile = &profile};
    p->limit_s[p->n] = 0;
    return &p->jobs[p->n++];
}

static void submit_small(struct play *p, int64_t now_s)
{
    bool elastic = p->mix == ELASTIC || (p->mix == ALL && draw(p, 3) == 0);
    int32_t min = 1 + (int32_t)draw(p, 2);
    struct sched_job *j = submit(p, now_s, min, elastic ? 4 : min, !elastic);

    if (p->mix == LIMITED || (p->mix == ALL && draw(p, 2)))
        p->limit_s[j - p->jobs] = 20 + draw(p, LONGEST_S - 20);
}

static void come_and_go(struct play *p, int64_t now_s)
{
    size_t waits = 0;

    for (size_t i = p->n; i-- > 0;)
        if (p->jobs[i].n_places > 0 && p->ends_s[i] <= now_s)
            drop(p, i);
    for (size_t i = 0; i < p->n; i++)
        waits += p->jobs[i].n_places == 0;
    if (p->gang == 0 && now_s > 300 && draw(p, 10) == 0) {
        int32_t size = 1 + (int32_t)draw(p, NODES);

        p->gang_s = now_s;
        p->head_s = -1;
        p->gang = submit(p, now_s, size * SIZE, size * SIZE, true)->id;
    }
    for (; waits < p->backlog && p->n < JOBS_MAX; waits++)
        submit_small(p, now_s);
}

/* Since the gang starves and nobody waits who has waited longer; 0: it does not yet. */
static int64_t waited(struct play *p, int64_t now_s)
{
    bool head = p->gang && now_s - p->gang_s > STARVE_S;

    for (size_t i = 0; i < p->n && head; i++)
        head = p->jobs[i].n_places > 0 || p->jobs[i].waiting_us >= p->gang_s * S;
    if (head && p->head_s < 0)
        p->head_s = now_s;
    return p->gang && p->head_s >= 0 ? now_s - p->head_s : 0;
}

static void show(struct play *p, size_t i, int64_t now_s)
{
    struct sched_job *j = &p->jobs[i];
    int64_t ran_s = j->n_places > 0 ? now_s - p->began_s[i] : 0;

    j->places = j->n_places > 0 ? p->at[i] : NULL;
    j->limit_us = p->limit_s[i] > 0 ? (p->limit_s[i] - ran_s) * S : 0;
}

static void follow(struct play *p, int64_t now_s, const struct sched_plan *plan)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct sched_verdict *v = &plan->verdicts[i];
        struct sched_job *j = &p->jobs[i];

        if (v->action == SCHED_KEEP || v->action == SCHED_WAIT)
            continue;
        if (v->action == SCHED_START)
            p->began_s[i] = now_s;
        if (v->action == SCHED_START)
            p->ends_s[i] =
                now_s + (p->limit_s[i] > 0 ? 1 + draw(p, (uint32_t)p->limit_s[i]) : 50 + draw(p, LONGEST_S - 50));
        if (v->action == SCHED_START && j->id == p->gang) {
            p->worst_s = waited(p, now_s) > p->worst_s ? waited(p, now_s) : p->worst_s;
            p->gangs++;
            p->gang = 0;
        }
        if (v->n == 0)
            j->waiting_us = now_s * S;
        j->changed_us = now_s * S;
        memcpy(p->at[i], plan->places + v->first, v->n * sizeof(p->at[i][0]));
        j->n_places = v->n;
        j->home = 0;
    }
}

/* Returns the longest that a gang waited, of those that began and of the one that still waits. */
static int64_t play(uint32_t seed, enum mix mix, size_t backlog)
{
    static const struct sched_node nodes[NODES] = {
        {.devices = SIZE}, {.devices = SIZE}, {.devices = SIZE}, {.devices = SIZE}};
    static const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    struct play p = {.seed = seed, .mix = mix, .backlog = backlog};
    int64_t now_s;

    for (now_s = 0; now_s < 10000; now_s += 10) {
        struct sched_plan plan;
        struct merr err = {""};

        come_and_go(&p, now_s);
        (void)waited(&p, now_s);
        for (size_t i = 0; i < p.n; i++)
            show(&p, i, now_s);
        if (sched_schedule(&(struct sched_input){.config = {.mode = now_s % ROUND_S == 0 ? SCHED_FULL : SCHED_FAST,
                                                            .now_us = now_s * S,
                                                            .round_us = ROUND_S * S,
                                                            .hold_us = HOLD_S * S,
                                                            .starve_us = STARVE_S * S},
                                                 .nodes = nodes,
                                                 .n_nodes = NODES,
                                                 .tenants = &tenant,
                                                 .n_tenants = 1,
                                                 .jobs = p.jobs,
                                                 .n_jobs = p.n},
                           &plan, &err) < 0)
            fail_msg("seed %u: %s", seed, err.text);
        follow(&p, now_s, &plan);
        sched_plan_clear(&plan);
    }
    assert_true(p.gangs > 0 || p.gang > 0);
    return waited(&p, now_s) > p.worst_s ? waited(&p, now_s) : p.worst_s;
}

static void a_gangs_wait_is_bounded_whatever_small_jobs_come(void **state)
{
    static const char *const names[MIXES] = {"commands", "commands with time limits", "elastic jobs", "all of them"};

    (void)state;
    for (uint32_t seed = 1; seed <= (uint32_t)test_rounds(40); seed++)
        for (int mix = 0; mix < MIXES; mix++) {
            size_t backlog = seed % 3 == 0 ? 100 : seed % 3 == 1 ? 40 : 12;
            int64_t took_s = play(seed, (enum mix)mix, backlog);

            if (took_s > LONGEST_S + 2 * ROUND_S + (mix >= ELASTIC ? HOLD_S : 0))
                fail_msg("seed %u, %s, %zu of them waiting: a gang waited for %lld s", seed, names[mix], backlog,
                         (long long)took_s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gangs_wait_is_bounded_whatever_small_jobs_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
