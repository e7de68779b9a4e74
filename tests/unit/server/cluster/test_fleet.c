/* What is told of a node only beside the others: racks, quiet together, tests of its class. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/fleet.h"

#define NODES_MAX 64
#define HOUR INT64_C(3600000000)
#define NOW (1000 * HOUR)

static struct node node[NODES_MAX];
static struct node *by_name[NODES_MAX];
static struct cluster cl;

/* n nodes in one rack that give devices and against which nothing is known. */
static void make(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        node[i] = (struct node){
            .contact = NODE_READY, .registered = true, .rack = "r1", .seen_us = NOW, .health.known_us = NOW};
        (void)snprintf(node[i].name, sizeof(node[i].name), "n%02zu", i);
        by_name[i] = &node[i];
    }
    cl = (struct cluster){.nodes = by_name, .n_nodes = n};
}

static void take_out(size_t i, int64_t ago_us)
{
    node[i].health.state = HEALTH_QUARANTINED;
    node[i].health.term_us[0] = NOW - ago_us;
    node[i].health.n_terms = 1;
}

static void two_of_a_rack_within_the_hour_are_the_fault_of_the_rack(void **state)
{
    static const struct {
        int out;
        int64_t ago_us;
        const char *rack;
        bool fails;
    } table[] = {
        {0, 0, "r1", false},       {1, 0, "r1", false},    {2, 0, "r1", true},
        {2, HOUR - 1, "r1", true}, {2, HOUR, "r1", false}, /* long ago */ {2, 0, "r2", false}, /* another rack */
        {2, 0, "", false}, /* nobody said which rack it is */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        make(10);
        for (int k = 0; k < table[i].out; k++)
            take_out((size_t)k + 1, table[i].ago_us);
        (void)snprintf(node[0].rack, sizeof(node[0].rack), "%s", table[i].rack);
        if (fleet_rack_fails(&cl, &node[0], NOW) != table[i].fails)
            fail_msg("row %zu", i);
    }
    make(3); /* what it went through itself is not the rack's */
    take_out(0, 0);
    take_out(1, 0);
    assert_false(fleet_rack_fails(&cl, &node[0], NOW));
}

static void never_more_than_half_of_the_nodes_are_taken_out(void **state)
{
    static const struct {
        size_t nodes, out;
        int64_t ago_us;
        bool may;
    } table[] = {
        {1, 0, 0, false}, /* the last one */
        {2, 0, 0, true},         {2, 1, 2 * HOUR, false},  {4, 1, 2 * HOUR, true}, {4, 2, 2 * HOUR, false},
        {10, 4, 2 * HOUR, true}, {10, 5, 2 * HOUR, false}, {10, 1, 0, true},  /* within the hour two may go */
        {10, 2, 0, false},       {60, 2, 0, true},         {60, 3, 0, false}, /* and of 60 three */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        make(table[i].nodes);
        for (size_t k = 0; k < table[i].nodes; k++) /* racks of their own */
            (void)snprintf(node[k].rack, sizeof(node[k].rack), "r%zu", k);
        for (size_t k = 0; k < table[i].out; k++)
            take_out(k + 1, table[i].ago_us);
        if (fleet_may_convict(&cl, &node[0], NOW) != table[i].may)
            fail_msg("row %zu", i);
    }
    make(3);
    node[1].drain = node[2].drain = true; /* the only one that gives devices stays */
    assert_false(fleet_may_convict(&cl, &node[0], NOW));
    make(10);
    for (size_t k = 1; k < 6; k++)
        node[k].health.state = HEALTH_HELD; /* which a person has drained count as there */
    assert_true(fleet_may_convict(&cl, &node[0], NOW));
}

static void nodes_that_fall_silent_together_share_what_is_at_fault(void **state)
{
    static const struct {
        size_t nodes, quiet;
        bool silent;
    } table[] = {{4, 1, false}, {4, 2, false}, {4, 3, true}, {60, 3, false}, {60, 4, true}};
    size_t n;

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        make(table[i].nodes);
        for (size_t k = 0; k < table[i].quiet; k++)
            node[k].seen_us = NOW - NODE_SILENT_US - (int64_t)k;
        if (fleet_is_silent(&cl, &node[0], NOW, &n) != table[i].silent || n != table[i].quiet)
            fail_msg("row %zu: %zu silent", i, n);
    }
    make(2);
    node[0].seen_us = NOW - NODE_SILENT_US;
    node[1].seen_us = NOW - NODE_SILENT_US + 1;
    assert_false(fleet_silent_together(&node[0], &node[1], NOW)); /* the second is heard of still */
    node[1].seen_us = node[0].seen_us - 10000000;
    assert_true(fleet_silent_together(&node[0], &node[1], NOW));
    node[1].seen_us--; /* too long before */
    assert_false(fleet_silent_together(&node[0], &node[1], NOW));
    node[1].seen_us = node[0].seen_us;
    node[1].registered = false; /* not with this musterd */
    assert_false(fleet_silent_together(&node[0], &node[1], NOW));
    assert_false(fleet_is_silent(&cl, &node[0], NOW, NULL));
}

static void the_usual_rate_is_that_of_the_others(void **state)
{
    struct health_incident one = {.user = 1, .at_us = NOW - HOUR, .milli = 1000};

    (void)state;
    make(5);
    assert_true(fleet_rate(&cl, &node[0], NOW) > 0.9 * HEALTH_RATE_A_DAY &&
                fleet_rate(&cl, &node[0], NOW) < 1.1 * HEALTH_RATE_A_DAY);
    (void)health_blame(&node[0].health, &one); /* its own does not count */
    assert_true(fleet_rate(&cl, &node[0], NOW) < 1.1 * HEALTH_RATE_A_DAY);
    (void)health_blame(&node[1].health, &one);
    assert_true(fleet_rate(&cl, &node[0], NOW) > 2 * HEALTH_RATE_A_DAY);
}

static void a_test_is_compared_with_those_of_three_others_of_the_class(void **state)
{
    static const struct {
        double mine;
        int others;
        uint8_t class_;
        double median;
        bool behind;
    } table[] = {
        {4, 3, 0, 10, true},  {5, 3, 0, 10, false}, {4, 2, 0, 0, false}, /* too few */
        {4, 3, 1, 0, false},                                             /* of another class */
        {0, 3, 0, 10, false},                                            /* it has not told */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        static struct slot slot[5];
        json_auto_t *mine = json_pack("{s:f}", "rate", table[i].mine);
        double median = -1;

        make(5);
        for (size_t k = 0; k < 5; k++) {
            slot[k] = (struct slot){.class_ = k == 0 ? table[i].class_ : 0};
            node[k].slots = &slot[k];
            node[k].n_slots = 1;
        }
        for (int k = 1; k <= table[i].others; k++)
            node[k].test.result = json_pack("{s:f}", "rate", 9.0 + (k - 1));
        assert_true(fleet_is_behind(&cl, &node[0], mine, "rate", &median) == table[i].behind);
        if (median < table[i].median - 0.01 || median > table[i].median + 0.01)
            fail_msg("row %zu: median %g", i, median);
        for (size_t k = 1; k < 5; k++)
            json_decref(node[k].test.result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_of_a_rack_within_the_hour_are_the_fault_of_the_rack),
        cmocka_unit_test(never_more_than_half_of_the_nodes_are_taken_out),
        cmocka_unit_test(nodes_that_fall_silent_together_share_what_is_at_fault),
        cmocka_unit_test(the_usual_rate_is_that_of_the_others),
        cmocka_unit_test(a_test_is_compared_with_those_of_three_others_of_the_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
