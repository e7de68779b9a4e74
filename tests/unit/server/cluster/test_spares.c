/* Devices that are kept free: how many are wanted, and which are set aside. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/cluster.h"
#include "server/cluster/spares.h"

#define NOW INT64_C(1700000000000000)

static void spares_are_read_whole_or_not_at_all(void **state)
{
    static const struct {
        const char *text;
        int r, n;
        bool warm; /* of a */
    } row[] = {
        {NULL, 0, 0, false},
        {"", 0, 0, false},
        {"a=2", 0, 2, false},
        {"a=2:warm", 0, 2, true},
        {"b=1:warm,a=3", 0, 3, false},
        {"a=0", 0, 0, false},
        {"a=4097", -EINVAL, 0, false},
        {"a=-1", -EINVAL, 0, false},
        {"a", -EINVAL, 0, false},
        {"=1", -EINVAL, 0, false},
        {"a=", -EINVAL, 0, false},
        {"a=:warm", -EINVAL, 0, false},
        {"a=1:hot", -EINVAL, 0, false},
        {"a=1:warmer", -EINVAL, 0, false},
        {"a,b=1", -EINVAL, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct spares s = {.n = 0};
        struct merr err;
        int r = spares_read(row[i].text, &s, &err);

        if (r != row[i].r || spares_of(&s, "a") != row[i].n || spares_warm(&s, "a") != row[i].warm)
            fail_msg("'%s': %d, %d", row[i].text ? row[i].text : "NULL", r, spares_of(&s, "a"));
        if (r < 0)
            assert_non_null(strstr(err.text, "CLASS=N"));
    }
}

/* A node that gives its n free slots, of class a. */
static struct node *put(struct cluster *cl, const char *name, size_t n)
{
    struct node *node = cluster_add(cl, name, 1);

    assert_non_null(node);
    node->contact = NODE_READY;
    node->registered = true;
    node->slots = calloc(n, sizeof(*node->slots));
    assert_non_null(node->slots);
    node->n_slots = n;
    for (size_t k = 0; k < n; k++)
        node->slots[k] = (struct slot){.slot = (int)k, .class_ = classes_add(&cl->classes, "a")};
    return node;
}

static void settle(struct cluster *cl, const char *text, const struct spares_claims *claims)
{
    static const struct spares_claims none;
    struct spares s;
    struct merr err;

    assert_int_equal(spares_read(text, &s, &err), 0);
    spares_settle(cl, &s, claims ? claims : &none, NOW);
}

static void spares_stand_together_where_least_runs(void **state)
{
    struct cluster cl;
    struct node *n[3];

    (void)state;
    assert_int_equal(cluster_init(&cl), 0);
    for (int i = 0; i < 3; i++)
        n[i] = put(&cl, i == 0 ? "n1" : i == 1 ? "n2" : "n3", 4);
    n[0]->slots[0].job = n[2]->slots[0].job = 7;
    settle(&cl, "a=3", NULL);
    assert_int_equal(spares_on(n[1], 0), 3);
    settle(&cl, "a=5", NULL); /* the rest on the last of those that are as good */
    assert_int_equal(spares_on(n[1], 0), 4);
    assert_int_equal(spares_on(n[2], 0), 1);
    assert_false(n[2]->slots[0].spare);
    settle(&cl, "a=1", NULL);
    assert_int_equal(spares_on(n[0], 0) + spares_on(n[1], 0) + spares_on(n[2], 0), 1);
    settle(&cl, "b=4", NULL); /* of which there is none */
    assert_int_equal(spares_on(n[0], 0) + spares_on(n[1], 0) + spares_on(n[2], 0), 0);
    cluster_clear(&cl);
}

static void what_is_not_fit_is_no_spare_and_another_takes_its_place(void **state)
{
    (void)state;
    for (int fault = 0; fault < 6; fault++) {
        struct cluster cl;
        struct node *bad, *good;
        struct slot *s;

        assert_int_equal(cluster_init(&cl), 0);
        bad = put(&cl, "n2", 1);
        good = put(&cl, "n1", 1);
        s = &bad->slots[0];
        settle(&cl, "a=1", NULL);
        assert_true(s->spare); /* the last by name of two that are as good */
        s->job = fault == 0 ? 7 : 0;
        s->stale = fault == 1;
        s->ill = fault == 2;
        s->slow.slow = fault == 3;
        bad->drain = fault == 4;
        bad->contact = fault == 5 ? NODE_LOST : NODE_READY;
        settle(&cl, "a=1", NULL);
        if (s->spare || !good->slots[0].spare)
            fail_msg("fault %d", fault);
        cluster_clear(&cl);
    }
}

static void a_node_on_which_something_has_failed_of_late_gets_none(void **state)
{
    struct cluster cl;
    struct health_incident incident = {.user = 1, .at_us = NOW - SPARES_CALM_US + 1, .milli = 100};
    struct node *n;

    (void)state;
    assert_int_equal(cluster_init(&cl), 0);
    n = put(&cl, "n1", 2);
    (void)health_blame(&n->health, &incident);
    settle(&cl, "a=1", NULL);
    assert_int_equal(spares_on(n, 0), 0);
    n->health.incident[0].at_us = NOW - SPARES_CALM_US;
    settle(&cl, "a=1", NULL);
    assert_int_equal(spares_on(n, 0), 1);
    cluster_clear(&cl);
}

static void spares_that_jobs_are_to_get_are_set_aside_elsewhere(void **state)
{
    struct cluster cl;
    struct node *first, *second;
    const struct node *claimed[1];
    const struct spares_claims claims = {.of_class = {1}, .nodes = claimed, .n = 1};

    (void)state;
    assert_int_equal(cluster_init(&cl), 0);
    first = put(&cl, "n1", 2);
    claimed[0] = second = put(&cl, "n2", 2);
    settle(&cl, "a=1", NULL);
    assert_int_equal(spares_on(second, 0), 1);
    settle(&cl, "a=1", &claims);
    assert_int_equal(spares_on(second, 0), 1); /* it is the job's yet */
    assert_int_equal(spares_on(first, 0), 1);  /* and this one is the next's */
    cluster_clear(&cl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spares_are_read_whole_or_not_at_all),
        cmocka_unit_test(spares_stand_together_where_least_runs),
        cmocka_unit_test(what_is_not_fit_is_no_spare_and_another_takes_its_place),
        cmocka_unit_test(a_node_on_which_something_has_failed_of_late_gets_none),
        cmocka_unit_test(spares_that_jobs_are_to_get_are_set_aside_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
