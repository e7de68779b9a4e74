#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched.h"

#define S INT64_C(1000000)
#define NOW (100000 * S)
#define NODES 8
#define JOBS 16

struct world {
    struct sched_node nodes[NODES];
    struct sched_tenant tenant;
    struct sched_job jobs[JOBS];
    struct sched_place places[JOBS];
    struct rates_profile profile;
    struct sched_input in;
    struct sched_plan plan;
};

/* Nodes of 4 devices, two a rack. */
static void world_init(struct world *w, size_t nodes)
{
    memset(w, 0, sizeof(*w));
    for (size_t i = 0; i < nodes; i++)
        w->nodes[i] = (struct sched_node){.devices = 4, .leaf = (uint32_t)(i / 2)};
    w->tenant = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    for (int t = 0; t < 2; t++) {
        w->profile.points[t][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
        w->profile.n[t] = 1;
    }
    w->in = (struct sched_input){
        .config = {.now_us = NOW, .round_us = 60 * S, .starve_us = 1000 * S, .hold_us = 120 * S, .spread = true},
        .nodes = w->nodes,
        .n_nodes = nodes,
        .tenants = &w->tenant,
        .n_tenants = 1,
        .jobs = w->jobs};
}

static struct sched_job *add(struct world *w, int32_t n)
{
    size_t at = w->in.n_jobs++;

    w->jobs[at] = (struct sched_job){.id = at + 1,
                                     .min = n,
                                     .max = n,
                                     .types = 3,
                                     .home = -1,
                                     .submit_us = NOW - (int64_t)(JOBS - at) * S,
                                     .waiting_us = NOW - (int64_t)(JOBS - at) * S,
                                     .weight_milli = 1000,
                                     .restart_us = 5 * S,
                                     .remaining_us = -1,
                                     .rho_milli = 1000,
                                     .profile = &w->profile};
    return &w->jobs[at];
}

/* It runs on n devices of a node, and is not touched. */
static void put(struct world *w, uint32_t node, int32_t n)
{
    struct sched_job *j = add(w, n);

    w->places[j - w->jobs] = (struct sched_place){.node = node, .devices = n};
    j->places = &w->places[j - w->jobs];
    j->n_places = 1;
    j->fixed = true;
    j->changed_us = NOW - 500 * S;
}

static const struct sched_verdict *decide(struct world *w, int mode, size_t job)
{
    struct merr err;

    w->in.config.mode = (enum sched_mode)mode;
    if (sched_schedule(&w->in, &w->plan, &err) != 0)
        fail_msg("%s", err.text);
    return &w->plan.verdicts[job];
}

/* How many racks the job is in. */
static int racks_of(const struct world *w, size_t job)
{
    const struct sched_verdict *v = &w->plan.verdicts[job];
    uint32_t seen = 0;

    for (size_t i = v->first; i < v->first + v->n; i++)
        seen |= UINT32_C(1) << w->nodes[w->plan.places[i].node].leaf;
    return __builtin_popcount(seen);
}

static void a_gang_lies_within_one_rack_where_one_has_room(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 4);
        put(&w, 0, 1); /* of the first rack 3 and 4 are free; of the second 2, a tighter gap for the rest of the gang */
        put(&w, 2, 2);
        put(&w, 3, 4);
        add(&w, 6);
        assert_int_equal(decide(&w, mode, 3)->action, SCHED_START);
        assert_int_equal(racks_of(&w, 3), 1);
        sched_plan_clear(&w.plan);
    }
}

static void a_gang_takes_several_racks_where_none_has_room_for_all_of_it(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4);
    put(&w, 0, 2);
    put(&w, 2, 2);
    add(&w, 8);
    assert_int_equal(decide(&w, SCHED_FAST, 2)->action, SCHED_START);
    assert_int_equal(racks_of(&w, 2), 2);
    sched_plan_clear(&w.plan);
}

static void a_job_that_asks_for_one_rack_gets_one_or_waits(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;

        world_init(&w, 4);
        put(&w, 0, 2);
        put(&w, 2, 2);
        add(&w, 8)->within = true;
        assert_int_equal(decide(&w, mode, 2)->action, SCHED_WAIT);
        sched_plan_clear(&w.plan);
        w.jobs[2].min = w.jobs[2].max = 6;
        assert_int_equal(decide(&w, mode, 2)->action, SCHED_START);
        assert_int_equal(racks_of(&w, 2), 1);
        sched_plan_clear(&w.plan);
    }
}

/* Small jobs would otherwise take whatever comes free in either rack, for ever. */
static void devices_are_kept_within_one_rack_for_a_job_that_has_waited_too_long(void **state)
{
    struct world w;
    uint32_t rack = 9;

    (void)state;
    world_init(&w, 4);
    for (uint32_t i = 0; i < 4; i++) {
        put(&w, i, 3);
        w.jobs[i].limit_us = (int64_t)(100 + 100 * i) * S;
    }
    add(&w, 8)->within = true;
    w.jobs[4].waiting_us = w.jobs[4].submit_us = NOW - 2000 * S;
    for (int i = 0; i < 4; i++)
        add(&w, 1);
    assert_int_equal(decide(&w, SCHED_FAST, 4)->action, SCHED_WAIT);
    assert_int_equal(w.plan.verdicts[4].kept, 2);
    assert_int_equal(w.plan.verdicts[4].starts_us, NOW + 200 * S);
    for (size_t j = 5; j < 9; j++) /* others start in the other rack alone */
        for (size_t i = w.plan.verdicts[j].first; i < w.plan.verdicts[j].first + w.plan.verdicts[j].n; i++)
            rack = w.nodes[w.plan.places[i].node].leaf;
    assert_int_equal(rack, 1);
    sched_plan_clear(&w.plan);
}

/* It starts at once on others where the ones that it would rather have are taken. */
static void a_job_takes_the_class_that_it_prefers_unless_that_is_taken(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++)
        for (uint32_t type = 0; type < 2; type++) {
            struct world w;
            const struct sched_verdict *v;

            world_init(&w, 2);
            w.nodes[1].type = 1;
            w.profile.points[type][0].rate_ups = 700000; /* also where it is slower there */
            add(&w, 4)->prefer = UINT32_C(1) << type;
            v = decide(&w, mode, 0);
            assert_int_equal(v->action, SCHED_START);
            assert_int_equal(v->shape.type[0], type);
            sched_plan_clear(&w.plan);
            put(&w, type, 4);
            v = decide(&w, mode, 0);
            assert_int_equal(v->action, SCHED_START);
            assert_int_equal(v->shape.type[0], 1 - type);
            sched_plan_clear(&w.plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gang_lies_within_one_rack_where_one_has_room),
        cmocka_unit_test(a_gang_takes_several_racks_where_none_has_room_for_all_of_it),
        cmocka_unit_test(a_job_that_asks_for_one_rack_gets_one_or_waits),
        cmocka_unit_test(devices_are_kept_within_one_rack_for_a_job_that_has_waited_too_long),
        cmocka_unit_test(a_job_takes_the_class_that_it_prefers_unless_that_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
