/* Queues far longer than what could start. */
#include "tests/unit/test.h"

#include "base/philox.h"
#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define FRONT 24
#define BACK 400
#define SEEDS 40

static uint32_t draw(uint32_t seed, uint32_t n, uint32_t below)
{
    uint32_t key[2] = {seed, 9}, ctr[4] = {n, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static const struct sched_node nodes[] = {
    {.type = 0, .devices = 4}, {.type = 1, .devices = 4}, {.type = 0, .devices = 4}, {.type = 1, .devices = 4}};

static struct sched_input input_of(struct sched_job *jobs, const struct sched_tenant *tenants, size_t n,
                                   enum sched_mode mode)
{
    return (struct sched_input){
        .config = {.mode = mode, .now_us = 1000 * S, .round_us = 60 * S, .starve_us = 100000 * S},
        .nodes = nodes,
        .n_nodes = 4,
        .tenants = tenants,
        .n_tenants = 2,
        .jobs = jobs,
        .n_jobs = n};
}

static struct sched_job job_of(uint64_t id, int64_t weight, const struct rates_profile *profile)
{
    return (struct sched_job){.id = id,
                              .submit_us = 1000 * S,
                              .waiting_us = 1000 * S,
                              .min = 1,
                              .max = 4,
                              .types = 3,
                              .home = -1,
                              .weight_milli = weight,
                              .rho_milli = 1000,
                              .profile = profile};
}

static const struct rates_profile profile = {.points = {{{1, 1000000}, {4, 3500000}}, {{1, 1500000}, {4, 4000000}}},
                                             .n = {2, 2}};
static const struct sched_tenant tenants[] = {{.borrow = -1, .weight_milli = 1000},
                                              {.borrow = 2, .weight_milli = 1000}};

static bool alike(const struct sched_verdict *a, const struct sched_verdict *b)
{
    return a->action == b->action && a->shape.type[0] == b->shape.type[0] && a->shape.type[1] == b->shape.type[1] &&
           a->shape.n[0] == b->shape.n[0] && a->shape.n[1] == b->shape.n[1];
}

static void who_is_far_back_in_the_queue_changes_nothing_for_those_before(void **state)
{
    struct sched_job jobs[FRONT + BACK];

    (void)state;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        struct sched_plan alone, behind;
        struct sched_input in;
        struct merr err;

        for (uint32_t i = 0; i < FRONT + BACK; i++) {
            jobs[i] = job_of(i + 1, i < FRONT ? 8000 + draw(seed, i, 8000) : 1 + draw(seed, i, 20), &profile);
            jobs[i].types = 1 + draw(seed + 1000, i, 3);
            jobs[i].min = 1 + (int32_t)draw(seed + 2000, i, 3);
        }
        in = input_of(jobs, tenants, FRONT, SCHED_FULL);
        assert_int_equal(sched_schedule(&in, &alone, &err), 0);
        in.n_jobs = FRONT + BACK;
        assert_int_equal(sched_schedule(&in, &behind, &err), 0);
        for (size_t i = 0; i < FRONT; i++)
            if (!alike(&alone.verdicts[i], &behind.verdicts[i]))
                fail_msg("seed %u: job %zu has something else when others wait behind it", seed, i + 1);
        for (size_t i = FRONT; i < FRONT + BACK; i++)
            assert_int_equal(behind.verdicts[i].action, SCHED_WAIT);
        assert_int_equal(behind.verdicts[FRONT + BACK - 1].reason, SCHED_BUSY);
        sched_plan_clear(&alone);
        sched_plan_clear(&behind);
    }
}

static void a_tenant_at_its_limit_does_not_fill_the_queue_of_the_others(void **state)
{
    struct sched_job jobs[FRONT + BACK];
    struct sched_input in = input_of(jobs, tenants, FRONT + BACK, SCHED_FULL);
    struct sched_plan p;
    struct merr err;
    int32_t held[2] = {0};

    (void)state;
    for (uint32_t i = 0; i < FRONT + BACK; i++) { /* the heavy ones are of the tenant that may hold two devices */
        jobs[i] = job_of(i + 1, i < BACK ? 50000 : 1000, &profile);
        jobs[i].tenant = i < BACK;
    }
    assert_int_equal(sched_schedule(&in, &p, &err), 0);
    for (size_t i = 0; i < FRONT + BACK; i++)
        held[jobs[i].tenant] += p.verdicts[i].shape.n[0];
    assert_int_equal(held[1], 2);
    assert_int_equal(held[0], 14);
    sched_plan_clear(&p);
}

static void what_can_never_run_is_told_so_and_keeps_nobody_out(void **state)
{
    struct sched_job jobs[FRONT + BACK];
    struct sched_plan p;
    struct merr err;

    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct sched_input in = input_of(jobs, tenants, FRONT + BACK, (enum sched_mode)mode);
        int32_t held = 0;

        for (uint32_t i = 0; i < FRONT + BACK; i++) {
            jobs[i] = job_of(i + 1, i < BACK ? 50000 : 1000, &profile);
            jobs[i].min = i < BACK ? 20 : 1;
            jobs[i].max = i < BACK ? 40 : 4;
        }
        assert_int_equal(sched_schedule(&in, &p, &err), 0);
        for (size_t i = 0; i < FRONT + BACK; i++)
            held += p.verdicts[i].shape.n[0];
        assert_int_equal(held, 16);
        assert_int_equal(p.verdicts[0].reason, SCHED_TOO_BIG);
        sched_plan_clear(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_far_back_in_the_queue_changes_nothing_for_those_before),
        cmocka_unit_test(a_tenant_at_its_limit_does_not_fill_the_queue_of_the_others),
        cmocka_unit_test(what_can_never_run_is_told_so_and_keeps_nobody_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
