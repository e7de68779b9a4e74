/* Cold starts: nothing runs, and far more gangs wait than fit, many of them larger than a node. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "base/philox.h"
#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define TYPES 4
#define KINDS 24
#define NODES_MAX 128
#define GANGS_MAX 600

static struct sched_node nodes[NODES_MAX];
static struct sched_job jobs[GANGS_MAX];
static struct rates_profile kinds[KINDS];
static uint32_t seed, draws;

static uint32_t draw(uint32_t below)
{
    uint32_t key[2] = {seed, 77}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static void make_kinds(void)
{
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < TYPES; t++)
            for (int i = 0, n = 1; i < 8; i++, n *= 2) {
                double speed = 1 + 0.4 * ((t * 7 + k * 5) % TYPES) + 0.05 * k, serial = 0.002 * (k + 1);

                kinds[k].points[t][i] =
                    (struct rates_point){.count = n, .rate_ups = (int64_t)(1e6 * speed / (serial + 1.0 / n))};
                kinds[k].n[t] = (uint8_t)(i + 1);
            }
}

static struct sched_job make_gang(uint64_t id, bool elastic)
{
    int32_t min = 8 << draw(6);

    min = draw(3) == 0 ? 1 << draw(4) : min;
    min = draw(4) == 0 ? min * 3 / 2 : min;
    return (struct sched_job){.id = id,
                              .tenant = draw(2),
                              .class_ = draw(4) ? SCHED_ELASTIC : SCHED_OPPORTUNISTIC,
                              .submit_us = draw(3600) * S,
                              .min = min,
                              .max = elastic ? min << draw(3) : min,
                              .types = draw(2) ? 1 + draw((1 << TYPES) - 1) : (1 << TYPES) - 1,
                              .home = -1,
                              .weight_milli = 500 + draw(1000),
                              .restart_us = 30 * S,
                              .remaining_us = 1000000 * S,
                              .rho_milli = 1000 + draw(1000),
                              .profile = &kinds[draw(KINDS)]};
}

/* most: devices that the second tenant may have; -1: no limit. */
static struct sched_plan start(size_t n_nodes, size_t gangs, bool elastic, int32_t most)
{
    const struct sched_tenant tenants[2] = {{.borrow = -1, .weight_milli = 1000},
                                            {.borrow = most, .weight_milli = 1000}};
    struct sched_input in = {.config = {.now_us = 4000 * S,
                                        .round_us = 60 * S,
                                        .starve_us = 1000000 * S,
                                        .grace_us = 30 * S,
                                        .hold_us = 120 * S,
                                        .mode = SCHED_FULL},
                             .nodes = nodes,
                             .n_nodes = n_nodes,
                             .tenants = tenants,
                             .n_tenants = 2,
                             .jobs = jobs,
                             .n_jobs = gangs};
    struct sched_plan p;
    struct merr err;

    draws = 0;
    for (size_t i = 0; i < n_nodes; i++)
        nodes[i] = (struct sched_node){.type = (uint8_t)(i * TYPES / n_nodes), .devices = 8, .leaf = (uint32_t)i / 16};
    for (size_t i = 0; i < gangs; i++) {
        jobs[i] = make_gang(i + 1, elastic);
        jobs[i].waiting_us = jobs[i].changed_us = jobs[i].submit_us;
    }
    if (sched_schedule(&in, &p, &err) < 0)
        fail_msg("seed %u: %s", seed, err.text);
    return p;
}

static void cold_starts_of_hundreds_of_gangs_come_within_a_hundredth_of_the_bound(void **state)
{
    static const struct {
        size_t nodes, gangs;
        bool elastic;
        int32_t most;
        int above; /* of ten, that end at the limit of choices and not at the bound */
    } cases[] = {{32, 300, true, -1, 0}, {128, 500, true, -1, 1}, {32, 600, false, -1, 1}, {32, 300, true, 100, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int above = 0;
        double sum = 0;

        for (seed = 1; seed <= 10; seed++) {
            struct sched_plan p = start(cases[i].nodes, cases[i].gangs, cases[i].elastic, cases[i].most);
            int32_t held = 0;

            for (size_t k = 0; k < cases[i].gangs; k++)
                held += jobs[k].tenant == 1 ? p.verdicts[k].shape.n[0] + p.verdicts[k].shape.n[1] : 0;
            assert_true(cases[i].most < 0 || held <= cases[i].most);
            above += p.gap_ppm > 10000;
            sum += (double)p.gap_ppm / 1e4;
            sched_plan_clear(&p);
        }
        print_message("%zu gangs, %zu devices: gap %.2f %% on average, %d of 10 above 1 %%\n", cases[i].gangs,
                      8 * cases[i].nodes, sum / 10, above);
        assert_true(above <= cases[i].above);
        assert_true(sum / 10 < 0.8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cold_starts_of_hundreds_of_gangs_come_within_a_hundredth_of_the_bound),
    };

    make_kinds();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
