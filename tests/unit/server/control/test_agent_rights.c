/* test_agent_rights - whose agent may do what: each answer of the pure decisions, as tables */
#include "tests/unit/test.h"

#include <string.h>

#include "server/control/agent_rights.h"

static void a_token_speaks_for_its_node_alone_and_the_shared_one_for_nodes_without(void **state)
{
    static const struct {
        struct agent_ask ask;
        enum agent_verdict verdict;
    } t[] = {
        {{.bound = "n1", .node = "n1"}, AGENT_MAY},
        {{.bound = "n1", .node = "n1", .shared = true, .enrolled = true}, AGENT_MAY},
        {{.bound = "n1", .node = "n2", .shared = true}, AGENT_OTHER_NODE},
        {{.bound = "n1", .node = "n1.evil", .shared = true}, AGENT_OTHER_NODE},
        {{.bound = "n1", .node = "", .shared = true}, AGENT_OTHER_NODE},
        {{.bound = "", .node = "n1", .shared = true}, AGENT_MAY},
        {{.bound = "", .node = "n1", .shared = true, .enrolled = true}, AGENT_ENROLLED},
        {{.bound = "", .node = "n1"}, AGENT_NOT_SHARED},
        {{.bound = "", .node = "n1", .enrolled = true}, AGENT_NOT_SHARED},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        if (agent_may_speak(&t[i].ask) != t[i].verdict)
            fail_msg("row %zu", i);
}

static void a_call_without_its_incarnation_is_of_no_agent(void **state)
{
    (void)state;
    assert_true(agent_is_registered("i1", "i1"));
    assert_false(agent_is_registered("i2", "i1"));
    assert_false(agent_is_registered(NULL, "i1"));
    assert_false(agent_is_registered("", "i1"));
    assert_false(agent_is_registered("", "")); /* a node that never registered */
    assert_false(agent_is_registered(NULL, ""));
}

static void a_rendezvous_key_is_written_by_its_ranks_node_alone(void **state)
{
    static struct job_place places[] = {{.node = "a"}, {.node = "b"}, {.node = "a"}, {.node = "c"}};
    static struct job_holder holders[] = {{.node = "d"}};
    static const struct job j = {.places = places, .n_places = COUNT(places), .holders = holders, .n_holders = 1};
    static const struct {
        const char *key, *node;
    } owner[] = {
        {"ucx-0", "a"},      {"ucx-1", "b"},       {"shm-2", "a"},        {"nccl-3", "c"},      {"give.ucx-0", "a"},
        {"give.ucx-4", "d"}, {"guard.ucx-0", "a"}, {"guard.ucx-1", "b"},  {"guard.ucx-2", "c"}, {"guard.ucx-3", NULL},
        {"ucx-5", NULL},     {"ucx", NULL},        {"ucx-", NULL},        {"ucx-1x", NULL},     {"ucx-01", NULL},
        {"ucx--1", "b"},     {"", NULL},           {"ucx-9999999", NULL}, {"-1", "b"},
    };
    static const char *const nodes[] = {"a", "b", "c", "d", "e", ""};

    (void)state;
    for (size_t i = 0; i < COUNT(owner); i++)
        for (size_t k = 0; k < COUNT(nodes); k++)
            if (agent_may_put_key(&j, nodes[k], owner[i].key) !=
                (owner[i].node && strcmp(owner[i].node, nodes[k]) == 0))
                fail_msg("node '%s', key '%s'", nodes[k], owner[i].key);
    for (size_t k = 0; k < COUNT(nodes); k++)
        assert_int_equal(agent_has_part(&j, nodes[k]), k < 4);
}

static void a_join_code_is_good_once_and_not_for_long(void **state)
{
    static const struct agent_code fresh = {.node = "n1", .expires_us = 100, .used_by = ""};
    static const struct agent_code used = {.node = "n1", .expires_us = 100, .used_by = "hash"};

    (void)state;
    assert_int_equal(agent_may_join(NULL, "hash", 0), AGENT_CODE_UNKNOWN);
    assert_int_equal(agent_may_join(&fresh, "hash", 99), AGENT_JOINS);
    assert_int_equal(agent_may_join(&fresh, "hash", 100), AGENT_CODE_OVER);
    assert_int_equal(agent_may_join(&used, "hash", 99), AGENT_JOINED); /* the answer was lost: told again */
    assert_int_equal(agent_may_join(&used, "other", 99), AGENT_CODE_USED);
    assert_int_equal(agent_may_join(&used, "hash", 100), AGENT_CODE_OVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_speaks_for_its_node_alone_and_the_shared_one_for_nodes_without),
        cmocka_unit_test(a_call_without_its_incarnation_is_of_no_agent),
        cmocka_unit_test(a_rendezvous_key_is_written_by_its_ranks_node_alone),
        cmocka_unit_test(a_join_code_is_good_once_and_not_for_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
