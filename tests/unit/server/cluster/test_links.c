/* Links between nodes: what is kept of measurements, and when a run is to measure again. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/links.h"

#define HOUR INT64_C(3600000000)

static struct node *node(struct cluster *cl, int i)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "n%03d", i);
    return cluster_add(cl, name, 1);
}

static int start(void **state)
{
    struct cluster *cl = calloc(1, sizeof(*cl));

    *state = cl;
    return cl ? cluster_init(cl) : -1;
}

static int stop(void **state)
{
    cluster_clear(*state);
    free(*state);
    return 0;
}

static void both_ends_know_a_measurement_and_noise_is_none(void **state)
{
    struct node *a = node(*state, 2), *b = node(*state, 1);
    struct links_news news;

    links_keep(a, b, 1e9, 5, &news);
    assert_true(news.other);
    assert_string_equal(news.pair, "n001/n002");
    assert_int_equal(news.n_forgotten, 0);
    assert_int_equal(a->n_links, 1);
    assert_int_equal(b->n_links, 1);
    assert_ptr_equal(b->links[0].to, a);
    links_keep(b, a, 1.02e9, 6, &news);
    assert_false(news.other);
    assert_int_equal(a->n_links, 1);
    assert_int_equal(a->links[0].at_us, 6);
    links_keep(a, b, 2e9, 7, &news);
    assert_true(news.other);
}

static void links_stay_in_the_order_of_names_and_the_oldest_makes_room(void **state)
{
    struct node *hub = node(*state, 0);
    struct links_news news;

    for (int i = NODE_LINKS_MAX; i >= 1; i--) {
        links_keep(hub, node(*state, i), 1e9, 1000 - i, &news);
        assert_int_equal(news.n_forgotten, 0);
    }
    assert_int_equal(hub->n_links, NODE_LINKS_MAX);
    for (size_t i = 1; i < hub->n_links; i++)
        assert_true(strcmp(hub->links[i - 1].to->name, hub->links[i].to->name) < 0);
    links_keep(hub, node(*state, 500), 1e9, 2000, &news);
    assert_int_equal(hub->n_links, NODE_LINKS_MAX);
    assert_int_equal(news.n_forgotten, 1);
    (void)snprintf(news.pair, sizeof(news.pair), "n000/n%03d", NODE_LINKS_MAX);
    assert_string_equal(news.forgotten[0], news.pair);
    assert_int_equal(node(*state, NODE_LINKS_MAX)->n_links, 0);
}

static void a_pair_is_forgotten_on_both_sides_once(void **state)
{
    struct node *a = node(*state, 1), *b = node(*state, 2);
    char pair[LINKS_PAIR_MAX] = "unchanged";
    struct links_news news;

    assert_false(links_forget(a, b, pair));
    assert_string_equal(pair, "unchanged");
    links_keep(a, b, 1e9, 5, &news);
    assert_true(links_forget(b, a, pair));
    assert_string_equal(pair, "n001/n002");
    assert_int_equal(a->n_links + b->n_links, 0);
}

static void a_run_measures_when_some_pair_of_its_nodes_was_not_for_an_hour(void **state)
{
    struct job_place places[3] = {{.node = "n001"}, {.node = "n002"}, {.node = "n002"}};
    struct job j = {.kind = JOB_TRAIN, .places = places, .n_places = 3};
    struct node *a = node(*state, 1), *b = node(*state, 2);
    struct links_news news;

    assert_true(links_due(*state, &j, HOUR));
    links_keep(a, b, 1e9, HOUR, &news);
    assert_false(links_due(*state, &j, 2 * HOUR));
    assert_true(links_due(*state, &j, 2 * HOUR + 1));
    j.kind = JOB_COMMAND;
    assert_false(links_due(*state, &j, 9 * HOUR));
    j = (struct job){.kind = JOB_TRAIN, .places = places + 1, .n_places = 2}; /* on one node */
    assert_false(links_due(*state, &j, 9 * HOUR));
}

static void what_a_rank_tells_is_read_with_care(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } table[] = {
        {"{\"rank\": 0, \"to\": [{\"rank\": 1, \"bytes_per_s\": 5}]}", true},
        {"{\"rank\": 0, \"to\": [{\"rank\": 0, \"bytes_per_s\": 5}]}", false}, /* the same node */
        {"{\"rank\": 0, \"to\": [{\"rank\": 2, \"bytes_per_s\": 5}]}", false},
        {"{\"rank\": -1, \"to\": [{\"rank\": 1, \"bytes_per_s\": 5}]}", false},
        {"{\"rank\": 0, \"to\": [{\"rank\": 1, \"bytes_per_s\": 0}]}", false},
        {"{\"rank\": 0, \"to\": [{\"rank\": 1, \"bytes_per_s\": 1e300}]}", false},
        {"{\"rank\": 0, \"to\": [{\"rank\": 1, \"bytes_per_s\": \"5\"}]}", false},
        {"{\"rank\": 0, \"to\": 7}", false},
        {"[]", false},
    };
    struct job_place places[2] = {{.node = "n001"}, {.node = "n002"}};
    struct job j = {.places = places, .n_places = 2};
    struct links_measured m;

    (void)node(*state, 1);
    (void)node(*state, 2);
    for (size_t i = 0; i < COUNT(table); i++) {
        json_t *event = json_loads(table[i].text, 0, NULL);

        assert_non_null(event);
        if (links_read_measured(*state, &j, event, 0, &m) != table[i].good)
            fail_msg("row %zu", i);
        json_decref(event);
    }
}

/* Of a run on four nodes one reaches all others at a third of what it did: both ends of a pair measure at once. */
static void what_a_runs_nodes_measure_names_the_node_or_the_pair_that_became_slow(void **state)
{
    struct job_place places[4];
    struct job j = {.kind = JOB_TRAIN, .places = places, .n_places = 4};
    struct node *n[4], *other;
    struct cells_finding f;
    struct links_news news;

    for (int i = 0; i < 4; i++) {
        n[i] = node(*state, i);
        places[i] = (struct job_place){.slot = i};
        (void)snprintf(places[i].node, sizeof(places[i].node), "%s", n[i]->name);
    }
    for (int64_t at = 1; at <= 3; at++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < i; k++) {
                bool hurt = (at == 2 && (i == 2 || k == 2)) || (at == 3 && i == 3 && k == 0);

                assert_null(links_judge(*state, &j, at, &f, &other));
                assert_int_equal(f.known, 0); /* not all of them have measured since */
                links_keep(n[i], n[k], (1 + 0.1 * i + 0.02 * (double)at) * (hurt ? 3e8 : 1e9), at, &news);
                if (i < 3 || k < 2)
                    continue;
                if (at == 1) {
                    assert_null(links_judge(*state, &j, at, &f, &other));
                    assert_int_equal(f.class_, CELLS_WELL);
                    assert_int_equal(f.known, 12);
                } else if (at == 2) {
                    assert_ptr_equal(links_judge(*state, &j, at, &f, &other), n[2]);
                    assert_int_equal(f.class_, CELLS_NODE);
                    assert_null(other);
                    assert_true(f.factor > 3 && f.factor < 3.7);
                } else {
                    struct node *one = links_judge(*state, &j, at, &f, &other);

                    assert_int_equal(f.class_, CELLS_CELL);
                    assert_true((one == n[0] && other == n[3]) || (one == n[3] && other == n[0]));
                }
            }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(both_ends_know_a_measurement_and_noise_is_none),
        TEST(links_stay_in_the_order_of_names_and_the_oldest_makes_room),
        TEST(a_pair_is_forgotten_on_both_sides_once),
        TEST(a_run_measures_when_some_pair_of_its_nodes_was_not_for_an_hour),
        TEST(what_a_rank_tells_is_read_with_care),
        TEST(what_a_runs_nodes_measure_names_the_node_or_the_pair_that_became_slow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
