/* Nodes of a provider: what is read of queues, and what is asked for and handed back, by made-up clusters. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "server/cluster/allocations.h"

#define S INT64_C(1000000)
#define NOW (1000000 * S)
#define SEED 7

static uint32_t draw(uint32_t *at)
{
    uint32_t key[2] = {SEED, 0}, ctr[4] = {(*at)++}, out[4];

    philox4x32(ctr, key, out);
    return out[0];
}

static struct allocations *queues_new(const char *text)
{
    struct allocations *all = calloc(1, sizeof(*all));
    struct merr err;

    assert_non_null(all);
    assert_int_equal(allocations_read_queues(text, all, &err), 0);
    return all;
}

static void a_queue_is_read_whole_or_refused_by_name(void **state)
{
    static const struct {
        const char *text, *fault; /* NULL: it is well */
    } row[] = {
        {"p", NULL},
        {"p:devices=8,class=h100,most=16,fixed=2,time=8h,idle=10m,grace=30s,account=a@b,options=--qos x,agent=--rack 1",
         NULL},
        {"p;q:most=1", NULL},
        {"", "names no queue"},
        {"p;p", "twice"},
        {"p q", "no name of a queue"},
        {"p:devices=0", "devices=0"},
        {"p:devices=257", "devices=257"},
        {"p:devices=1x", "devices=1x"},
        {"p:most=0", "most=0"},
        {"p:fixed=9", "fixed=9 is more than most=8"},
        {"p:time=5m", "time=5m"}, /* a node that leaves as it comes */
        {"p:class=a b", "class=a b"},
        {"p:class", "'class'"},
        {"p:colour=red", "colour=red"},
        {"a;b;c;d;e;f;g;h;i;j;k;l;m;n;o;p;q", "16 queues"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct allocations *all = calloc(1, sizeof(*all));
        struct merr err = {.text = ""};
        int r = allocations_read_queues(row[i].text, all, &err);

        if (row[i].fault ? r != -EINVAL || !strstr(err.text, row[i].fault) : r != 0)
            fail_msg("'%s': %d, %s", row[i].text, r, err.text);
        free(all);
    }
}

static void nodes_are_named_after_their_allocation(void **state)
{
    static const struct {
        const char *node;
        uint64_t id;
    } row[] = {{"a3-0", 3}, {"a12-34", 12}, {"a3", 0},  {"a3-", 0},   {"a0-1", 0},
               {"b3-0", 0}, {"a3-x", 0},    {"a-1", 0}, {"a+3-1", 0}, {"", 0}};
    struct allocation a = {.id = 12};
    char name[ALLOCATIONS_NAME_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        if (allocations_of_node(row[i].node) != row[i].id)
            fail_msg("%s", row[i].node);
    allocations_node(&a, 34, name);
    assert_string_equal(name, "a12-34");
}

static void what_is_kept_comes_back_in_order_and_numbers_are_not_given_again(void **state)
{
    struct allocations *all = queues_new("p"), *back = queues_new("p");
    struct allocation *a;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_non_null(allocations_add(all, "p", i + 1, NOW + i));
    all->v[1].state = ALLOCATION_RUNS;
    memcpy(all->v[1].reference, "4711", 5);
    for (size_t i = all->n; i-- > 0;) {
        json_t *o = allocations_record(&all->v[i]);
        char name[16];

        (void)snprintf(name, sizeof(name), "a%llu", (unsigned long long)all->v[i].id);
        assert_int_equal(allocations_take(back, name, o), 0);
        json_object_set_new(o, "state", json_string("lost"));
        assert_int_equal(allocations_take(back, name, o), -EINVAL);
        json_decref(o);
    }
    assert_int_equal(back->n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(back->v[i].id, i + 1);
    a = allocations_find(back, 2);
    assert_int_equal(a->state, ALLOCATION_RUNS);
    assert_string_equal(a->reference, "4711");
    allocations_drop(back, a);
    assert_null(allocations_find(back, 2));
    assert_int_equal(allocations_find(back, 3)->nodes, 3);
    assert_int_equal(allocations_add(back, "p", 1, NOW)->id, 4);
    free(all);
    free(back);
}

static void a_need_is_met_from_what_is_there_then_by_asking_once(void **state)
{
    struct allocations *all = queues_new("p:devices=4,most=4,time=1h;q:devices=8,most=2,time=8h");
    struct allocation_need need[] = {{.devices = 6, .queues = 3}, {.devices = 2, .queues = 1}};
    struct allocation_step step[ALLOCATIONS_STEPS_MAX];
    struct allocation *a;

    (void)state;
    assert_int_equal(allocations_plan(all, need, 2, NOW, step), 1); /* two nodes of four serve both */
    assert_false(step[0].release);
    assert_int_equal(step[0].queue, 0);
    assert_int_equal(step[0].nodes, 2);
    assert_int_equal(step[0].need, 0);
    a = allocations_add(all, "p", 2, NOW);
    assert_int_equal(allocations_plan(all, need, 2, NOW + S, step), 0); /* they are to come */
    a->state = ALLOCATION_RUNS;
    a->arrived = 2;
    a->free = 8;
    a->ends_us = NOW + 3600 * S;
    assert_int_equal(allocations_plan(all, need, 2, NOW + S, step), 0);
    need[1].devices = 3;
    assert_int_equal(allocations_plan(all, need, 2, NOW + S, step), 1); /* all that it lacks, in whole nodes */
    assert_int_equal(step[0].nodes, 1);
    assert_int_equal(step[0].need, 1);
    need[0] = (struct allocation_need){.devices = 8, .queues = 3, .limit_us = 2 * 3600 * S}; /* longer than p lasts */
    assert_int_equal(allocations_plan(all, need, 1, NOW + S, step), 1);
    assert_int_equal(step[0].queue, 1);
    need[0].limit_us = 9 * 3600 * S; /* than any */
    assert_int_equal(allocations_plan(all, need, 1, NOW + S, step), 0);
    need[0] = (struct allocation_need){.devices = 17, .queues = 3}; /* more than either may have */
    a->free = 0;
    assert_int_equal(allocations_plan(all, need, 1, NOW + S, step), 0);
    free(all);
}

static void what_nobody_needs_is_handed_back_after_its_time_and_the_fixed_stay(void **state)
{
    struct allocations *all = queues_new("p:devices=4,most=8,fixed=1,idle=5m");
    struct allocation_step step[ALLOCATIONS_STEPS_MAX];

    (void)state;
    assert_int_equal(allocations_plan(all, NULL, 0, NOW, step), 1);
    assert_int_equal(step[0].nodes, 1);
    assert_true(step[0].need == SIZE_MAX);
    for (int i = 0; i < 3; i++) {
        struct allocation *a = allocations_add(all, "p", 1, NOW);

        a->state = ALLOCATION_RUNS;
        a->arrived = 1;
        a->free = 4;
        a->granted_us = NOW;
    }
    all->v[2].busy = true;
    assert_int_equal(allocations_plan(all, NULL, 0, NOW, step), 0);
    assert_int_equal(allocations_plan(all, NULL, 0, NOW + 299 * S, step), 0);
    assert_int_equal(allocations_plan(all, NULL, 0, NOW + 300 * S, step), 2); /* the busy one is the one that is held */
    assert_true(step[0].release && step[1].release);
    assert_int_equal(step[0].id, 2);
    assert_int_equal(step[1].id, 1);
    all->v[1].busy = true; /* and is needed again */
    assert_int_equal(allocations_plan(all, NULL, 0, NOW + 301 * S, step), 1);
    all->v[1].busy = false;
    assert_int_equal(allocations_plan(all, NULL, 0, NOW + 302 * S, step), 1); /* its time begins anew */
    free(all);
}

static void nodes_that_do_not_come_are_handed_back_and_asked_for_anew(void **state)
{
    struct allocations *all = queues_new("p:devices=4,most=1");
    const struct allocation_need need = {.devices = 4, .queues = 1};
    struct allocation_step step[ALLOCATIONS_STEPS_MAX];
    struct allocation *a = allocations_add(all, "p", 1, NOW);

    (void)state;
    a->state = ALLOCATION_RUNS;
    a->granted_us = NOW;
    assert_int_equal(allocations_plan(all, &need, 1, NOW + ALLOCATIONS_ARRIVE_US, step), 0);
    assert_int_equal(allocations_plan(all, &need, 1, NOW + ALLOCATIONS_ARRIVE_US + 1, step), 1);
    assert_true(step[0].release);
    a->state = ALLOCATION_RELEASED;
    assert_int_equal(allocations_plan(all, &need, 1, NOW + ALLOCATIONS_ARRIVE_US + 2, step), 1);
    assert_false(step[0].release);
    free(all);
}

/* Whatever comes, no queue is asked for more nodes than it may have, and nothing that works is handed back. */
static void no_plan_goes_beyond_a_queue_or_takes_what_works(void **state)
{
    uint32_t at = 0;

    (void)state;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 2000; round++) {
        struct allocations *all = queues_new("p:devices=4,most=6,fixed=1,idle=1m;q:devices=2,most=3");
        struct allocation_need need[4];
        struct allocation_step step[ALLOCATIONS_STEPS_MAX];
        int held[2] = {0};
        size_t n;

        for (uint32_t i = 0, k = draw(&at) % 5; i < k; i++) {
            size_t q = draw(&at) % 2;
            int nodes = 1 + (int)(draw(&at) % 2);
            struct allocation *a;

            if (held[q] + nodes > all->queues[q].most)
                continue;
            a = allocations_add(all, all->queues[q].name, nodes, NOW);
            a->state = (enum allocation_state)(draw(&at) % 4);
            a->arrived = a->state == ALLOCATION_RUNS ? (int)(draw(&at) % (uint32_t)(nodes + 1)) : 0;
            a->free = a->arrived * all->queues[q].devices;
            a->busy = a->arrived > 0 && draw(&at) % 2 == 0;
            a->idle_us = draw(&at) % 2 ? NOW - 600 * S : 0;
            held[q] += a->state == ALLOCATION_RELEASED ? 0 : nodes;
        }
        for (size_t i = 0; i < COUNT(need); i++)
            need[i] = (struct allocation_need){.devices = 1 + (int)(draw(&at) % 30), .queues = draw(&at) % 4};
        n = allocations_plan(all, need, draw(&at) % (COUNT(need) + 1), NOW, step);
        for (size_t i = 0; i < n; i++) {
            if (step[i].release && allocations_find(all, step[i].id)->busy)
                fail_msg("round %d: a%llu works", round, (unsigned long long)step[i].id);
            if (!step[i].release)
                held[step[i].queue] += step[i].nodes;
        }
        for (size_t q = 0; q < 2; q++)
            if (held[q] > all->queues[q].most)
                fail_msg("round %d: %d nodes of queue %zu", round, held[q], q);
        free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_is_read_whole_or_refused_by_name),
        cmocka_unit_test(nodes_are_named_after_their_allocation),
        cmocka_unit_test(what_is_kept_comes_back_in_order_and_numbers_are_not_given_again),
        cmocka_unit_test(a_need_is_met_from_what_is_there_then_by_asking_once),
        cmocka_unit_test(what_nobody_needs_is_handed_back_after_its_time_and_the_fixed_stay),
        cmocka_unit_test(nodes_that_do_not_come_are_handed_back_and_asked_for_anew),
        cmocka_unit_test(no_plan_goes_beyond_a_queue_or_takes_what_works),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
