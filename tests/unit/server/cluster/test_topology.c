#include "tests/unit/server/control/scene.h"

#include "server/cluster/links.h"
#include "server/cluster/topology.h"

static struct node *node(struct scene *s, const char *name)
{
    struct node *n = cluster_node(&s->core->cluster, name);

    assert_non_null(n);
    return n;
}

static void set_rack(struct scene *s, const char *name, const char *rack)
{
    (void)snprintf(node(s, name)->rack, sizeof(node(s, name)->rack), "%s", rack);
}

/* Nodes n0, n1 and so on of two devices, two a rack. */
static void make_nodes(struct scene *s, int n, bool racks)
{
    char name[8];

    for (int i = 0; i < n; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(scene_register(s, name, racks && i < n / 2 ? "old" : "new", 2), 200);
        if (racks)
            (void)snprintf(node(s, name)->rack, sizeof(node(s, name)->rack), "r%d", i / 2);
    }
}

static const char *place_of(struct scene *s, uint64_t job, size_t rank)
{
    struct entry *e = scene_entry(s, job);

    scene_turn(s);
    return rank < e->job.n_places ? e->job.places[rank].node : "none";
}

static void nodes_of_one_rack_have_one_number_and_others_their_own(void **state)
{
    struct scene *s = *state;

    make_nodes(s, 4, false);
    assert_int_equal(topology_number(&s->core->cluster), 0);
    assert_int_equal(node(s, "n0")->leaf, node(s, "n3")->leaf);
    set_rack(s, "n1", "r1");
    set_rack(s, "n3", "r1");
    assert_int_equal(topology_number(&s->core->cluster), 2);
    assert_int_equal(node(s, "n1")->leaf, node(s, "n3")->leaf);
    assert_int_not_equal(node(s, "n0")->leaf, node(s, "n2")->leaf);
    assert_int_not_equal(node(s, "n0")->leaf, node(s, "n1")->leaf);
}

static void a_job_for_one_rack_that_none_can_hold_is_refused_with_what_the_largest_has(void **state)
{
    struct scene *s = *state;

    make_nodes(s, 4, false);
    assert_int_equal(
        scene_try_submit(s, "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 4, \"within\": \"rack\"}}"), 0);
    assert_non_null(strstr(scene_refusal, "no rack has more than 2"));
    set_rack(s, "n1", "r1");
    set_rack(s, "n2", "r1");
    assert_true(
        scene_try_submit(s, "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 4, \"within\": \"rack\"}}") > 0);
    assert_string_equal(place_of(s, 1, 0), "n1");
    assert_string_equal(place_of(s, 1, 3), "n2");
}

/* Of racks with room it takes another than the first, and of nodes another than the tightest. */
static void classes_racks_and_nodes_can_be_preferred_and_nothing_waits_for_them(void **state)
{
    static const char *const wish[] = {"new", "r1", "n3"}, *const got[] = {"n2", "n2", "n3"};
    char spec[200];

    for (size_t i = 0; i < 3; i++) {
        struct scene *s = *state;
        uint64_t job;

        make_nodes(s, 4, true);
        (void)snprintf(spec, sizeof(spec), "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"prefer\": [\"%s\"]}}",
                       wish[i]);
        job = scene_submit(s, spec);
        assert_string_equal(place_of(s, job, 0), got[i]);
        for (int k = 0; k < 8; k++) /* fill up: the preferred ones are gone before the others */
            job = scene_submit(s, spec);
        scene_turn(s);
        assert_int_equal(s->core->jobs.by_state[JOB_STARTING], 8);
        (void)scene_stop(state);
        (void)scene_start(state);
    }
}

/* Each node's links were measured; those of n0 are a tenth as fast. */
static void a_job_of_several_nodes_keeps_off_slow_links_while_others_are_free(void **state)
{
    struct scene *s = *state;
    struct links_news news;
    char a[8], b[8];

    make_nodes(s, 4, false);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) {
            (void)snprintf(a, sizeof(a), "n%d", i);
            (void)snprintf(b, sizeof(b), "n%d", k);
            links_keep(node(s, a), node(s, b), k == 0 ? 1e8 : 1e9, s->clock.wall_us, &news);
        }
    (void)scene_submit(s, "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 4}}");
    assert_string_not_equal(place_of(s, 1, 0), "n0");
    assert_string_not_equal(place_of(s, 1, 3), "n0");
    (void)scene_submit(s, "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 4}}");
    assert_string_equal(place_of(s, 2, 0), "n0"); /* there is no other way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_of_one_rack_have_one_number_and_others_their_own, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(a_job_for_one_rack_that_none_can_hold_is_refused_with_what_the_largest_has,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(classes_racks_and_nodes_can_be_preferred_and_nothing_waits_for_them,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_job_of_several_nodes_keeps_off_slow_links_while_others_are_free, scene_start,
                                        scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
