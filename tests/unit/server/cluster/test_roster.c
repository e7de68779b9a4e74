/* Agents of nodes that were removed: until when, and how many, are known. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/cluster/roster.h"

#define SECOND INT64_C(1000000)

static void an_agent_is_told_to_end_for_thirty_days(void **state)
{
    static struct roster r;
    static const struct {
        const char *node, *incarnation;
        int64_t after_s;
        bool has;
    } table[] = {
        {"n1", "a", 0, true},  {"n1", "b", 0, false}, /* the one that came back */
        {"n2", "a", 0, false}, {"n1", "", 0, false},  {"n1", "a", ROSTER_S, true}, {"n1", "a", ROSTER_S + 1, false},
    };

    (void)state;
    r.n = 0;
    assert_string_equal(roster_add(&r, "n1", "a", 5 * SECOND)->node, "n1");
    for (size_t i = 0; i < COUNT(table); i++)
        if (roster_has(&r, table[i].node, table[i].incarnation, (5 + table[i].after_s) * SECOND) != table[i].has)
            fail_msg("row %zu", i);
}

static void the_newest_replace_the_oldest(void **state)
{
    static struct roster r;
    char node[16];

    (void)state;
    assert_false(roster_has(&r, "n0", "a", 0));
    for (int i = 0; i <= ROSTER_MAX; i++) {
        (void)snprintf(node, sizeof(node), "n%d", i);
        (void)roster_add(&r, node, "a", 0);
    }
    assert_false(roster_has(&r, "n0", "a", 0));
    assert_true(roster_has(&r, "n1", "a", 0));
    assert_true(roster_has(&r, node, "a", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_is_told_to_end_for_thirty_days),
        cmocka_unit_test(the_newest_replace_the_oldest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
