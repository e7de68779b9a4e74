/* Devices kept for who waits too long, and what is left to others. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define STARVE_S 1000
#define JOBS_MAX 64

static const struct rates_profile profile = {.points = {{{1, 1000000}}, {{1, 1000000}}}, .n = {1, 1}};

struct round_of { /* a snapshot: job 1 runs, job 2 starves, job 3 has just come */
    struct sched_node nodes[2];
    struct sched_tenant tenants[2];
    struct sched_job jobs[4];
    struct sched_place held[2];
    struct sched_input in;
};

/* Four devices of type 0 and four of type 1 on a node each. Job 1 is a command on `a` and `b` of these. */
static void fill(struct round_of *x, enum sched_mode mode, int32_t a, int32_t b)
{
    *x = (struct round_of){.nodes = {{.type = 0, .devices = 4}, {.type = 1, .devices = 4}},
                           .tenants = {{.borrow = -1, .weight_milli = 1000}, {.borrow = 2, .weight_milli = 1000}},
                           .held = {{.node = 0, .devices = a}, {.node = 1, .devices = b}}};
    for (uint64_t i = 0; i < 4; i++)
        x->jobs[i] = (struct sched_job){.id = i + 1,
                                        .min = 1,
                                        .max = 1,
                                        .types = 3,
                                        .home = -1,
                                        .weight_milli = 1000,
                                        .rho_milli = 1000,
                                        .waiting_us = 2000 * S,
                                        .profile = &profile};
    x->jobs[0].fixed = true;
    x->jobs[0].min = x->jobs[0].max = a + b;
    x->jobs[0].hetero_ok = true;
    x->jobs[0].workers = a + b;
    x->jobs[0].places = a > 0 ? x->held : x->held + 1;
    x->jobs[0].n_places = (size_t)(a > 0) + (b > 0);
    x->jobs[1].waiting_us = 0;
    x->in = (struct sched_input){
        .config = {.mode = mode, .now_us = 2000 * S, .round_us = 60 * S, .starve_us = STARVE_S * S},
        .nodes = x->nodes,
        .n_nodes = 2,
        .tenants = x->tenants,
        .n_tenants = 2,
        .jobs = x->jobs,
        .n_jobs = 4};
}

static struct sched_plan decide(const struct round_of *x)
{
    struct sched_plan plan;
    struct merr err = {""};

    if (sched_schedule(&x->in, &plan, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

/* Job 2 wants all four of one type. One is missing of type 1, three of type 0: type 1 is kept for it. */
static void of_its_types_only_the_one_it_lacks_least_of_is_kept(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct sched_plan plan;
        struct round_of x;

        fill(&x, (enum sched_mode)mode, 3, 1);
        x.jobs[1].min = x.jobs[1].max = 4;
        x.jobs[2].fixed = x.jobs[3].fixed = true;
        plan = decide(&x);
        assert_int_equal(plan.verdicts[1].action, SCHED_WAIT);
        assert_int_equal(plan.verdicts[2].action, SCHED_START);
        assert_int_equal(plan.verdicts[2].shape.type[0], 0);
        assert_int_equal(plan.verdicts[3].action, SCHED_WAIT);
        assert_int_equal(plan.verdicts[3].reason, SCHED_BEHIND);
        assert_int_equal(plan.verdicts[3].behind, 2);
        sched_plan_clear(&plan);
    }
}

/* Job 3 starves as well: the other type is kept for it. */
static void the_next_one_has_the_next_type_kept(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct sched_plan plan;
        struct round_of x;

        fill(&x, (enum sched_mode)mode, 3, 1);
        x.jobs[1].min = x.jobs[1].max = x.jobs[2].min = x.jobs[2].max = 4;
        x.jobs[2].waiting_us = 0;
        x.jobs[3].fixed = true;
        x.jobs[3].types = 1; /* type 0 */
        plan = decide(&x);
        assert_int_equal(plan.verdicts[1].action, SCHED_WAIT);
        assert_int_equal(plan.verdicts[2].action, SCHED_WAIT);
        assert_int_equal(plan.verdicts[3].reason, SCHED_BEHIND);
        assert_int_equal(plan.verdicts[3].behind, 3);
        sched_plan_clear(&plan);
    }
}

/* Who is held up by its tenant's limit needs none of the devices that are free. */
static void nothing_is_kept_for_who_waits_for_its_tenants_limit(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct sched_plan plan;
        struct round_of x;

        fill(&x, (enum sched_mode)mode, 1, 1);
        x.jobs[0].tenant = x.jobs[1].tenant = 1; /* two devices at most */
        x.jobs[2].fixed = x.jobs[3].fixed = true;
        plan = decide(&x);
        assert_int_equal(plan.verdicts[1].reason, SCHED_LIMIT);
        assert_int_equal(plan.verdicts[2].action, SCHED_START);
        assert_int_equal(plan.verdicts[3].action, SCHED_START);
        sched_plan_clear(&plan);
    }
}

/* What commands hold cannot be had, so others that give way when it is their time may use what is kept meanwhile; but
 * not between full rounds, when the next may put the devices together. */
static void who_gives_way_may_have_what_is_kept_until_commands_end(void **state)
{
    struct sched_plan plan;
    struct round_of x;

    (void)state;
    fill(&x, SCHED_FULL, 4, 1);
    x.jobs[1].min = x.jobs[1].max = 4;
    plan = decide(&x);
    assert_int_equal(plan.verdicts[1].action, SCHED_WAIT);
    assert_int_equal(plan.verdicts[2].action, SCHED_START);
    sched_plan_clear(&plan);
    x.in.config.mode = SCHED_FAST;
    plan = decide(&x);
    assert_int_equal(plan.verdicts[2].reason, SCHED_BEHIND);
    sched_plan_clear(&plan);
}

/* Commands of one device come without end; the ninth job wants all four of a node. In rounds of both modes. */
static void a_gang_gets_its_turn_beside_small_commands_that_never_end_coming(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct sched_job jobs[JOBS_MAX];
        struct sched_place at[JOBS_MAX];
        int64_t ends[JOBS_MAX] = {0}, waited = -1;
        const struct sched_node nodes[2] = {{.devices = 4}, {.devices = 4}};
        const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
        uint64_t id = 0;
        uint32_t draws = 0;
        size_t n = 0;

        for (int64_t now = 0; now < 10 * STARVE_S && waited < 0; now += 10) {
            struct sched_input in = {.config = {.mode = now % 60 == 0 ? SCHED_FULL : SCHED_FAST,
                                                .now_us = now * S,
                                                .round_us = 60 * S,
                                                .starve_us = STARVE_S * S},
                                     .nodes = nodes,
                                     .n_nodes = 2,
                                     .tenants = &tenant,
                                     .n_tenants = 1,
                                     .jobs = jobs};
            struct sched_plan plan;

            for (size_t i = 0; i < n; i++) /* who has ended goes */
                if (jobs[i].n_places > 0 && ends[i] <= now) {
                    n--;
                    memmove(jobs + i, jobs + i + 1, (n - i) * sizeof(*jobs));
                    memmove(at + i, at + i + 1, (n - i) * sizeof(*at));
                    memmove(ends + i, ends + i + 1, (n - i) * sizeof(*ends));
                    i--;
                }
            while (n < 24) {
                bool gang = ++id == 9;

                jobs[n] = (struct sched_job){.id = id,
                                             .min = gang ? 4 : 1,
                                             .max = gang ? 4 : 1,
                                             .types = 1,
                                             .home = -1,
                                             .weight_milli = 1000,
                                             .rho_milli = 1000,
                                             .fixed = true,
                                             .submit_us = now * S,
                                             .waiting_us = now * S,
                                             .profile = &profile};
                n++;
            }
            for (size_t i = 0; i < n; i++)
                jobs[i].places = jobs[i].n_places > 0 ? &at[i] : NULL;
            in.n_jobs = n;
            if (sched_schedule(&in, &plan, NULL) < 0)
                fail_msg("seed %u", seed);
            for (size_t i = 0; i < n; i++)
                if (plan.verdicts[i].action == SCHED_START) {
                    uint32_t key[2] = {seed, 1}, ctr[4] = {draws++, 0, 0, 0}, out[4];

                    philox4x32(ctr, key, out);
                    jobs[i].n_places = 1;
                    at[i] = plan.places[plan.verdicts[i].first];
                    ends[i] = now + 50 + out[0] % 400;
                    waited = jobs[i].id == 9 ? now : waited;
                }
            sched_plan_clear(&plan);
        }
        if (waited < 0 || waited > STARVE_S + 1000)
            fail_msg("seed %u: the gang began after %lld s", seed, (long long)waited);
    }
}

/* Job 2 wants all four of type 0 when job 1, a command on three of them, ends by its limit in 90 s. */
static void a_job_that_ends_before_the_reservation_begins_passes_and_one_that_does_not_waits(void **state)
{
    static const struct {
        int64_t holder_s, limit_s;
        bool passes;
    } row[] = {{90, 60, true}, {90, 90, true}, {90, 91, false}, {90, 120, false}, {90, 0, false}, {0, 60, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
            struct sched_plan plan;
            struct round_of x;

            fill(&x, (enum sched_mode)mode, 3, 0);
            for (int k = 0; k < 3; k++)
                x.jobs[k].types = 1;
            x.jobs[0].remaining_us = -1;
            x.jobs[0].limit_us = row[i].holder_s * S;
            x.jobs[1].min = x.jobs[1].max = 4;
            x.jobs[2].limit_us = row[i].limit_s * S;
            x.jobs[2].fixed = true;
            x.in.n_jobs = 3;
            plan = decide(&x);
            assert_int_equal(plan.verdicts[0].action, SCHED_KEEP);
            assert_int_equal(plan.verdicts[1].action, SCHED_WAIT);
            if (plan.verdicts[2].action != (row[i].passes ? SCHED_START : SCHED_WAIT))
                fail_msg("row %zu, mode %d: %s, %s", i, mode, sched_action_name(plan.verdicts[2].action),
                         sched_reason_name(plan.verdicts[2].reason));
            if (!row[i].passes)
                assert_int_equal(plan.verdicts[2].reason, SCHED_BEHIND);
            sched_plan_clear(&plan);
        }
}

/* Two elastic jobs could give way in the next full round: then nobody passes. */
static void nobody_passes_where_the_reservation_may_begin_in_the_next_round(void **state)
{
    struct sched_plan plan;
    struct round_of x;

    (void)state;
    fill(&x, SCHED_FAST, 3, 0);
    for (int k = 0; k < 3; k++)
        x.jobs[k].types = 1;
    x.jobs[0].fixed = false;
    x.jobs[0].remaining_us = -1;
    x.jobs[0].limit_us = 90 * S;
    x.jobs[1].min = x.jobs[1].max = 4;
    x.jobs[2].limit_us = 30 * S;
    x.in.n_jobs = 3;
    plan = decide(&x);
    assert_int_equal(plan.verdicts[2].action, SCHED_WAIT);
    sched_plan_clear(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_ends_before_the_reservation_begins_passes_and_one_that_does_not_waits),
        cmocka_unit_test(nobody_passes_where_the_reservation_may_begin_in_the_next_round),
        cmocka_unit_test(of_its_types_only_the_one_it_lacks_least_of_is_kept),
        cmocka_unit_test(the_next_one_has_the_next_type_kept),
        cmocka_unit_test(nothing_is_kept_for_who_waits_for_its_tenants_limit),
        cmocka_unit_test(who_gives_way_may_have_what_is_kept_until_commands_end),
        cmocka_unit_test(a_gang_gets_its_turn_beside_small_commands_that_never_end_coming),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
