/* The cluster's nodes: what their slots say of classes, however they come, change and go, and how many there may be. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/cluster.h"
#include "server/cluster/slots.h"

/* A node of two slots: threads and memory of the first, and whether training may have the second. */
static struct node *come(struct cluster *cl, const char *name, int threads, int memory_mib, bool trains)
{
    struct node *n = cluster_add(cl, name, 1);
    json_auto_t *list = json_pack("[{s:i, s:s, s:i, s:i}, {s:i, s:s, s:s, s:i, s:b}]", "slot", 0, "class", "a",
                                  "threads", threads, "memory_mib", memory_mib, "slot", 1, "class", "b", "kind", "gpu",
                                  "threads", threads, "trains", trains);
    uint64_t sites = cl->sites;
    struct slots s;

    assert_non_null(n);
    assert_int_equal(slots_read(&cl->classes, list, &s), 0);
    slots_take(cl, n, &s);
    assert_int_equal(n->n_slots, 2);
    assert_true(cl->sites > sites);
    return n;
}

static void classes_have_the_least_that_any_node_has(void **state)
{
    struct cluster cl;
    const struct classes *k = &cl.classes;
    struct node *small;

    (void)state;
    assert_int_equal(cluster_init(&cl), 0);
    (void)come(&cl, "n1", 4, 1000, true);
    assert_int_equal(k->threads[0], 4);
    assert_int_equal(k->memory_mib[0], 1000);
    assert_int_equal(k->command, 0);
    small = come(&cl, "n2", 2, 800, false);
    assert_int_equal(k->threads[0], 2);
    assert_int_equal(k->memory_mib[0], 800);
    assert_int_equal(k->command, 2);
    assert_ptr_equal(come(&cl, "n2", 2, 800, false), small); /* again, as it was */
    assert_int_equal(k->threads[0], 2);
    (void)come(&cl, "n2", 8, 900, true); /* it has more now, and what it had does not count any longer */
    assert_int_equal(k->threads[0], 4);
    assert_int_equal(k->memory_mib[0], 900);
    assert_int_equal(k->command, 0);
    cluster_drop(&cl, small);
    assert_int_equal(k->memory_mib[0], 1000);
    cluster_clear(&cl);
}

static void there_are_so_many_nodes_each_once(void **state)
{
    struct cluster cl;

    (void)state;
    assert_int_equal(cluster_init(&cl), 0);
    for (int i = 0; i < CLUSTER_NODES_MAX; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_non_null(cluster_add(&cl, name, 1));
    }
    assert_null(cluster_add(&cl, "another", 1));
    assert_ptr_equal(cluster_add(&cl, "n7", 2), cluster_node(&cl, "n7"));
    assert_int_equal(cl.n_nodes, CLUSTER_NODES_MAX);
    cluster_clear(&cl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_have_the_least_that_any_node_has),
        cmocka_unit_test(there_are_so_many_nodes_each_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
