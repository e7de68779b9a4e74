/* What users and projects are due: use that fades, shares of a tree, and a cluster that comes to follow them. */
#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"
#include "scheduler/cluster/share.h"

#define S INT64_C(1000000)
#define HOUR (3600 * S)

static void use_is_forgotten_by_half_with_each_half_life(void **state)
{
    static const struct {
        int64_t span_us, half_us;
        double want;
    } rows[] = {
        {0, HOUR, 100},     {HOUR, HOUR, 50}, {2 * HOUR, HOUR, 25},   {HOUR / 2, HOUR, 70.710678},
        {-HOUR, HOUR, 100}, {HOUR, 0, 100},   {2000 * HOUR, HOUR, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_float_equal(share_decay(100, rows[i].span_us, rows[i].half_us), rows[i].want, 1e-5);
}

/* A run counts as its parts do, each forgotten since it was over. */
static void a_run_counts_as_the_sum_of_its_parts(void **state)
{
    double parts = 0;

    (void)state;
    for (int i = 0; i < 100; i++)
        parts = share_decay(parts, HOUR / 10, HOUR) + share_of_run(4, HOUR / 10, HOUR);
    assert_float_equal(parts / share_of_run(4, 10 * HOUR, HOUR), 1, 1e-6);
    assert_float_equal(share_of_run(4, HOUR, 0), 4.0 * (double)HOUR, 1);
    assert_float_equal(share_of_run(4, -HOUR, HOUR), 0, 0);
    assert_float_equal(share_of_run(2, S, 1000000 * HOUR), 2.0 * (double)S, 10);
}

static void shares_follow_weights_level_by_level(void **state)
{
    static const struct {
        const char *what;
        struct share_node nodes[6];
        size_t n;
        int64_t want[6];
    } rows[] = {
        {"alone", {{SHARE_NONE, 1000, 9e12, true}}, 1, {1000}},
        {"even", {{SHARE_NONE, 1000, 9e12, true}, {SHARE_NONE, 1000, 9e12, true}}, 2, {1000, 1000}},
        {"one had all", {{SHARE_NONE, 1000, 9e12, true}, {SHARE_NONE, 1000, 0, true}}, 2, {69, 64000}},
        {"who wants nothing takes no part",
         {{SHARE_NONE, 1000, 9e12, false}, {SHARE_NONE, 1000, 9e9, true}},
         2,
         {1000, 1000}},
        {"had as its weight says", {{SHARE_NONE, 3000, 9e12, true}, {SHARE_NONE, 1000, 3e12, true}}, 2, {1000, 1000}},
        {"a user of a project beside one that had nothing",
         {{SHARE_NONE, 1000, 0, false}, {SHARE_NONE, 1000, 0, true}, {0, 1000, 8e12, true}, {0, 1000, 8e12, true}},
         4,
         {69, 64000, 69, 69}},
        {"projects below projects",
         {{2, 1000, 8e12, true}, {2, 1000, 0, true}, {SHARE_NONE, 1000, 0, false}, {SHARE_NONE, 1000, 8e12, true}},
         4,
         {69, 64000, 1000, 1000}},
        {"little is as good as nothing", {{SHARE_NONE, 1000, 1e6, true}, {SHARE_NONE, 1000, 0, true}}, 2, {1000, 1000}},
        {"a ring of parents ends", {{1, 1000, 0, true}, {0, 1000, 0, true}}, 2, {1000, 1000}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct share_node nodes[6];
        int64_t got[6];

        memcpy(nodes, rows[i].nodes, sizeof(nodes));
        share_all(nodes, rows[i].n, got);
        for (size_t k = 0; k < rows[i].n; k++)
            if (got[k] != rows[i].want[k])
                fail_msg("%s: node %zu has %lld, want %lld", rows[i].what, k, (long long)got[k],
                         (long long)rows[i].want[k]);
    }
}

/* --- a cluster that follows the shares ------------------------------------------------------------------- */

#define JOBS 64
#define DEVICES 8

static const struct rates_profile profile = {.points = {{{1, 1000000}}}, .n = {1}};

struct play {
    struct sched_job jobs[JOBS];
    struct sched_place at[JOBS];
    int64_t ends_us[JOBS];
    int user[JOBS];
    size_t n;
    uint64_t id;
    double use[2];
    int64_t had_us[2];
};

static void submit(struct play *p, int user, int64_t now_us)
{
    p->jobs[p->n] = (struct sched_job){.id = ++p->id,
                                       .min = 1,
                                       .max = 1,
                                       .types = 1,
                                       .home = -1,
                                       .weight_milli = 1000,
                                       .rho_milli = 1000,
                                       .fixed = true,
                                       .submit_us = now_us,
                                       .waiting_us = now_us,
                                       .profile = &profile};
    p->user[p->n++] = user;
}

static void drop(struct play *p, size_t i)
{
    p->n--;
    memmove(p->jobs + i, p->jobs + i + 1, (p->n - i) * sizeof(*p->jobs));
    memmove(p->ends_us + i, p->ends_us + i + 1, (p->n - i) * sizeof(*p->ends_us));
    memmove(p->user + i, p->user + i + 1, (p->n - i) * sizeof(*p->user));
}

static void start(struct play *p, int64_t now_us, uint32_t seed, const struct share_node nodes[2])
{
    const struct sched_node node = {.devices = DEVICES};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    struct share_node all[2] = {nodes[0], nodes[1]};
    struct sched_plan plan;
    struct merr err;
    int64_t milli[2];

    share_all(all, 2, milli);
    for (size_t i = 0; i < p->n; i++) {
        int64_t waited = now_us - p->jobs[i].waiting_us;

        p->jobs[i].share_milli = milli[p->user[i]];
        p->jobs[i].places = p->jobs[i].n_places > 0 ? &p->at[i] : NULL;
        p->at[i] = (struct sched_place){.devices = 1};
        if (p->jobs[i].n_places == 0)
            p->jobs[i].rho_milli = 1000 + (waited < 1800 * S ? waited : 1800 * S) * 1000 / (600 * S);
    }
    assert_int_equal(
        sched_schedule(&(struct sched_input){.config = {.mode = (now_us / S) % 60 == 0 ? SCHED_FULL : SCHED_FAST,
                                                        .now_us = now_us,
                                                        .round_us = 60 * S,
                                                        .starve_us = 1000 * HOUR},
                                             .nodes = &node,
                                             .n_nodes = 1,
                                             .tenants = &tenant,
                                             .n_tenants = 1,
                                             .jobs = p->jobs,
                                             .n_jobs = p->n},
                       &plan, &err),
        0);
    for (size_t i = 0; i < p->n; i++)
        if (plan.verdicts[i].action == SCHED_START) {
            uint32_t key[2] = {seed, (uint32_t)p->jobs[i].id}, ctr[4] = {0}, out[4];

            philox4x32(ctr, key, out);
            p->jobs[i].n_places = 1;
            p->ends_us[i] = now_us + (300 + out[0] % 600) * S;
        }
    sched_plan_clear(&plan);
}

/* One user has forty jobs waiting at any time, the other eight. They come to have what their weights say, and who comes
 * back after a pause is not paid back for all of it. */
static void two_users_come_to_have_what_their_weights_say(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 6; seed++) {
        int64_t weight = seed % 2 ? 1000 : 3000;
        struct play p = {.n = 0};

        for (int64_t now = 0; now < 24 * HOUR; now += 30 * S) {
            size_t waits[2] = {0};

            for (int u = 0; u < 2; u++)
                p.use[u] = share_decay(p.use[u], 30 * S, 2 * HOUR);
            for (size_t i = p.n; i-- > 0;) {
                if (p.jobs[i].n_places > 0) {
                    p.use[p.user[i]] += share_of_run(1, 30 * S, 2 * HOUR);
                    p.had_us[p.user[i]] += now > 6 * HOUR ? 30 * S : 0;
                }
                if (p.jobs[i].n_places > 0 && p.ends_us[i] <= now)
                    drop(&p, i);
            }
            for (size_t i = 0; i < p.n; i++)
                waits[p.user[i]] += p.jobs[i].n_places == 0;
            for (; waits[0] < 40; waits[0]++)
                submit(&p, 0, now);
            for (; now > 3 * HOUR && waits[1] < 8; waits[1]++)
                submit(&p, 1, now);
            start(&p, now, seed,
                  (struct share_node[2]){{SHARE_NONE, 1000, p.use[0], true},
                                         {SHARE_NONE, weight, p.use[1], now > 3 * HOUR}});
        }
        if (fabs((double)p.had_us[1] / (double)(p.had_us[0] + p.had_us[1]) - (weight == 1000 ? 0.5 : 0.75)) > 0.06)
            fail_msg("seed %u: of weights 1 and %g they had %lld and %lld s", seed, (double)weight / 1000,
                     (long long)(p.had_us[0] / S), (long long)(p.had_us[1] / S));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(use_is_forgotten_by_half_with_each_half_life),
        cmocka_unit_test(a_run_counts_as_the_sum_of_its_parts),
        cmocka_unit_test(shares_follow_weights_level_by_level),
        cmocka_unit_test(two_users_come_to_have_what_their_weights_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
