/* When a node gives devices. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "server/cluster/node.h"

static void a_node_gives_devices_only_when_all_is_well_with_it(void **state)
{
    static const struct {
        struct node n;
        bool gives;
    } table[] = {
        {{.contact = NODE_READY, .registered = true}, true},
        {{.contact = NODE_READY}, false}, /* not with this musterd yet */
        {{.contact = NODE_UNKNOWN, .registered = true}, false},
        {{.contact = NODE_LOST, .registered = true}, false},
        {{.contact = NODE_READY, .registered = true, .drain = true}, false},
        {{.contact = NODE_READY, .registered = true, .health.check = HEALTH_CHECK_NO_WORK}, false},
        {{.contact = NODE_READY, .registered = true, .health.check = HEALTH_CHECK_DRAIN}, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        if (node_gives(&table[i].n) != table[i].gives)
            fail_msg("row %zu", i);
    node_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_node_gives_devices_only_when_all_is_well_with_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
