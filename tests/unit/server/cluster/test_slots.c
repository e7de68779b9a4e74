/* What a node says that it offers: taken whole or refused whole, and what is known of a slot outlives it. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/cluster.h"
#include "server/cluster/slots.h"

static int read_text(struct classes *k, const char *text, struct slots *ret)
{
    json_auto_t *list = json_loads(text, JSON_DECODE_ANY, NULL);

    assert_non_null(list);
    return slots_read(k, list, ret);
}

static void a_list_of_slots_is_checked_before_anything_changes(void **state)
{
    static const struct {
        const char *text;
        int r;
    } table[] = {
        {"[]", 0},
        {"[{\"slot\": 0, \"class\": \"a\"}]", 0},
        {"[{\"slot\": 0, \"class\": \"a\", \"kind\": \"gpu\", \"threads\": 4, \"memory_mib\": 0, \"trains\": false}]",
         0},
        {"{}", -EINVAL},
        {"7", -EINVAL},
        {"[7]", -EINVAL},
        {"[{\"class\": \"a\"}]", -EINVAL},
        {"[{\"slot\": 0}]", -EINVAL},
        {"[{\"slot\": -1, \"class\": \"a\"}]", -EINVAL},
        {"[{\"slot\": 2147483648, \"class\": \"a\"}]", -EINVAL},
        {"[{\"slot\": 0.5, \"class\": \"a\"}]", -EINVAL},
        {"[{\"slot\": 0, \"class\": \"\"}]", -EINVAL},
        {"[{\"slot\": 0, \"class\": \"a/b\"}]", -EINVAL},
        {"[{\"slot\": 0, \"class\": 1}]", -EINVAL},
        {"[{\"slot\": 0, \"class\": \"a\", \"threads\": -1}]", -EINVAL},
        {"[{\"slot\": 0, \"class\": \"a\", \"memory_mib\": \"8\"}]", -EINVAL},
        {"[{\"slot\": 0, \"class\": \"a\", \"trains\": 1}]", -EINVAL},
        {"[{\"slot\": 3, \"class\": \"a\"}, {\"slot\": 3, \"class\": \"a\"}]", -EINVAL}, /* twice */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct classes k = {.n = 0};
        struct slots s = {.n = 99};
        int r = read_text(&k, table[i].text, &s);

        if (r != table[i].r)
            fail_msg("row %zu: %d", i, r);
        if (r < 0)
            assert_int_equal(s.n, 99);
        else
            free(s.v);
    }
}

static void a_list_is_of_so_many_slots_and_a_cluster_of_so_many_classes(void **state)
{
    json_auto_t *many = json_array();
    struct classes k = {.n = 0};
    struct slots s;

    (void)state;
    for (int i = 0; i < SLOTS_MAX; i++)
        (void)json_array_append_new(many, json_pack("{s:i, s:s}", "slot", i, "class", "a"));
    assert_int_equal(slots_read(&k, many, &s), 0);
    assert_int_equal(s.n, SLOTS_MAX);
    free(s.v);
    (void)json_array_append_new(many, json_pack("{s:i, s:s}", "slot", SLOTS_MAX, "class", "a"));
    assert_int_equal(slots_read(&k, many, &s), -EINVAL);
    for (int i = 1; i < CLASSES_MAX; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "c%d", i);
        assert_int_equal(classes_add(&k, name), i);
    }
    assert_int_equal(read_text(&k, "[{\"slot\": 0, \"class\": \"another\"}]", &s), -EINVAL);
}

static void gpus_train_only_where_that_is_said(void **state)
{
    struct classes k = {.n = 0};
    struct slots s;

    (void)state;
    assert_int_equal(read_text(&k,
                               "[{\"slot\": 0, \"class\": \"a\", \"kind\": \"cpu\"}, {\"slot\": 1, \"class\": "
                               "\"b\", \"kind\": \"gpu\"}, {\"slot\": 2, \"class\": \"b\", \"kind\": \"gpu\", "
                               "\"trains\": true}]",
                               &s),
                     0);
    assert_true(s.v[0].trains);
    assert_false(s.v[1].trains);
    assert_true(s.v[2].trains);
    free(s.v);
}

static void a_slot_keeps_its_job_and_a_slow_device_its_verdict_while_it_is_of_its_class(void **state)
{
    struct cluster cl = {.n_nodes = 0};
    struct node *n = calloc(1, sizeof(*n));
    struct slots s;

    (void)state;
    assert_int_equal(read_text(&cl.classes, "[{\"slot\": 1, \"class\": \"a\"}, {\"slot\": 2, \"class\": \"a\"}]", &s),
                     0);
    slots_take(&cl, n, &s);
    assert_int_equal(n->n_slots, 2);
    assert_int_equal(s.n, 0);
    for (size_t i = 0; i < 2; i++) {
        n->slots[i].job = 7;
        n->slots[i].rank = (int)i;
        n->slots[i].ill = n->slots[i].spare = n->slots[i].slow.slow = true;
    }
    assert_int_equal(read_text(&cl.classes,
                               "[{\"slot\": 2, \"class\": \"b\"}, {\"slot\": 1, \"class\": \"a\"}, {\"slot\": 3, "
                               "\"class\": \"a\"}]",
                               &s),
                     0);
    slots_take(&cl, n, &s);
    assert_true(node_slot(n, 1)->job == 7 && node_slot(n, 1)->slow.slow && node_slot(n, 1)->spare);
    assert_true(node_slot(n, 2)->job == 7 && node_slot(n, 2)->rank == 1 && node_slot(n, 2)->ill);
    assert_false(node_slot(n, 2)->slow.slow); /* another kind of device is another device */
    assert_false(node_slot(n, 2)->spare);
    assert_true(node_slot(n, 3)->job == 0 && !node_slot(n, 3)->ill);
    assert_null(node_slot(n, 4));
    assert_null(node_slot(NULL, 1));
    node_free(n);
}

static void what_is_written_is_read(void **state)
{
    struct cluster cl = {.n_nodes = 0};
    struct node *n = calloc(1, sizeof(*n));
    json_auto_t *first = NULL, *second = NULL;
    struct slots s;

    (void)state;
    assert_int_equal(read_text(&cl.classes,
                               "[{\"slot\": 5, \"class\": \"a\", \"kind\": \"gpu\", \"threads\": 3, "
                               "\"memory_mib\": 9, \"trains\": true}]",
                               &s),
                     0);
    slots_take(&cl, n, &s);
    first = slots_record(&cl.classes, n);
    assert_int_equal(slots_read(&cl.classes, first, &s), 0);
    slots_take(&cl, n, &s);
    second = slots_record(&cl.classes, n);
    assert_true(json_equal(first, second));
    assert_true(slots_usable(&n->slots[0]));
    n->slots[0].stale = true; /* a process of a run that is over is on it */
    assert_false(slots_usable(&n->slots[0]));
    n->slots[0] = (struct slot){.ill = true};
    assert_false(slots_usable(&n->slots[0]));
    node_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_slots_is_checked_before_anything_changes),
        cmocka_unit_test(a_list_is_of_so_many_slots_and_a_cluster_of_so_many_classes),
        cmocka_unit_test(gpus_train_only_where_that_is_said),
        cmocka_unit_test(a_slot_keeps_its_job_and_a_slow_device_its_verdict_while_it_is_of_its_class),
        cmocka_unit_test(what_is_written_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
