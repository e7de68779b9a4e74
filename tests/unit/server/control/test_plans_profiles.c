/* What nodes have measured of their devices: taken in by class, planned by, and shown. */
#include "tests/unit/server/control/scene.h"

#include <math.h>

#include "server/cluster/profiles.h"
#include "server/control/learn.h"
#include "server/control/plans.h"

static const char train[] =
    "devices: {min: 2, max: 2}\ntrain:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: "
    "256}\n  data: {path: /c.txt, tokenizer: bytes}\n  batch: {sequences: 8, micro: 1}\n  steps: 100\n"
    "parallel: {tp: 1, virtual_workers: 4}\n";

/* A profile with one rate of products; new. */
static json_t *profile(double tflops)
{
    return json_pack("{s:i, s:i, s:[[i, i, i, f]], s:i}", "version", 1, "threads", 1, "products", 64, 64, 64, tflops,
                     "program_mib", 8);
}

/* A node with two slots of a class registers, with profiles, which is taken over. Returns the status. */
static int register_new(struct scene *s, const char *node, const char *class_, json_t *profiles)
{
    json_t *slots = json_array();

    for (int i = 0; i < 2; i++)
        (void)json_array_append_new(slots, json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", i, "kind", "cpu", "class",
                                                     class_, "threads", 1, "memory_mib", 4096));
    return scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                      json_pack("{s:s, s:s, s:s, s:s, s:o, s:[], s:o}", "node", node, "address", "10.0.0.1", "boot_id",
                                "b1", "incarnation", node, "slots", slots, "runs", "profiles", profiles))
        .status;
}

static double rate_of(struct scene *s, const char *class_)
{
    const struct cluster *cl = &s->core->cluster;
    const struct plan_profile *p = profiles_of(cl, classes_find(&cl->classes, class_), 1);

    return p ? p->f32.product[0].flops[PROFILE_FORWARD] * 1e-12 : 0;
}

static double step_ms(struct scene *s, uint64_t job, const char **ret_rates)
{
    const json_t *plan = scene_entry(s, job)->job.plan;

    *ret_rates = json_string_value(json_object_get(plan, "rates"));
    return json_number_value(json_object_get(plan, "step_ms"));
}

static uint64_t run_one(struct scene *s)
{
    uint64_t job = scene_submit(s, train);

    scene_turn(s);
    assert_true(scene_entry(s, job)->job.live);
    return job;
}

static void a_class_with_a_profile_is_planned_by_it(void **state)
{
    struct scene *s = *state;
    const char *rates;
    double assumed, measured;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "fast", 2), 200);
    assumed = step_ms(s, run_one(s), &rates);
    assert_string_equal(rates, "assumed");
    assert_int_equal(register_new(s, "n2", "slow", json_pack("{s:o}", "slow", profile(1e-6))), 200);
    job = run_one(s);
    measured = step_ms(s, job, &rates);
    assert_string_equal(rates, "measured");
    assert_true(measured > 1000 * assumed);
}

static void of_several_nodes_the_middle_counts_and_a_node_counts_once(void **state)
{
    struct scene *s = *state;
    uint64_t sites;

    assert_int_equal(register_new(s, "n1", "a", json_pack("{s:o}", "a", profile(1))), 200);
    assert_int_equal(register_new(s, "n2", "a", json_pack("{s:o}", "a", profile(2))), 200);
    assert_int_equal(register_new(s, "n3", "a", json_pack("{s:o}", "a", profile(50))), 200);
    assert_true(fabs(rate_of(s, "a") - 2) < 1e-9);
    for (int i = 0; i < 5; i++)
        assert_int_equal(register_new(s, "n3", "a", json_pack("{s:o}", "a", profile(60))), 200);
    assert_true(fabs(rate_of(s, "a") - 2) < 1e-9);
    sites = s->core->cluster.sites;
    assert_false(profiles_take(&s->core->cluster, cluster_node(&s->core->cluster, "n3"), NULL, NULL));
    assert_int_equal(s->core->cluster.sites, sites);
}

static void more_nodes_than_count_take_the_place_of_the_oldest(void **state)
{
    struct scene *s = *state;
    char name[16];

    for (int i = 0; i < 3 * PROFILES_NODES; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(register_new(s, name, "a", json_pack("{s:o}", "a", profile(i < PROFILES_NODES ? 1 : 3))), 200);
    }
    assert_int_equal(profiles_nodes(&s->core->cluster, classes_find(&s->core->cluster.classes, "a")), PROFILES_NODES);
    assert_true(fabs(rate_of(s, "a") - 3) < 1e-9);
}

static void a_node_cannot_say_anything_of_a_class_that_it_does_not_offer(void **state)
{
    struct scene *s = *state;

    assert_int_equal(register_new(s, "n1", "a", json_pack("{s:o}", "a", profile(1))), 200);
    assert_int_equal(register_new(s, "n2", "b", json_pack("{s:o, s:o}", "a", profile(9), "nowhere", profile(9))), 200);
    assert_true(fabs(rate_of(s, "a") - 1) < 1e-9);
    assert_true(rate_of(s, "b") == 0);
}

static void what_is_no_profile_is_left_out_and_the_node_stays(void **state)
{
    static const char *const bad[] = {"null", "{\"products\": [[1, 2]]}", "{\"products\": [[1, 1, 1, 1e999]]}",
                                      "{\"version\": 99}", "{\"ops\": {\"x\": 1}}"};
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *one = json_loads(bad[i], JSON_DECODE_ANY, NULL);

        assert_int_equal(register_new(s, "n1", "a", json_pack("{s:o}", "a", one ? one : json_null())), 200);
        assert_true(rate_of(s, "a") == 0);
    }
}

static void runs_teach_nothing_of_a_class_with_a_profile(void **state)
{
    struct scene *s = *state;
    json_auto_t *line = json_pack("{s:f}", "step_ms", 1e6);
    uint64_t job;

    assert_int_equal(register_new(s, "n1", "a", json_pack("{s:o}", "a", profile(0.01))), 200);
    job = run_one(s);
    scene_report_all(s, job, "running", 0);
    for (int i = 0; i < 5; i++)
        learn_metrics(s->core, scene_entry(s, job), 1, line);
    assert_true(classes_speed(&s->core->cluster.classes, classes_find(&s->core->cluster.classes, "a"), false) == 1);
}

static void the_list_has_each_class_that_was_measured(void **state)
{
    struct scene *s = *state;
    const json_t *list, *one;

    assert_int_equal(scene_register(s, "n0", "unmeasured", 2), 200);
    assert_int_equal(register_new(s, "n1", "a", json_pack("{s:o}", "a", profile(0.5))), 200);
    list = json_object_get(scene_call(s, plans_profiles, scene_request(NULL, NULL, NULL), NULL).body, "profiles");
    assert_int_equal(json_array_size(list), 1);
    one = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(one, "class")), "a");
    assert_int_equal(json_integer_value(json_object_get(one, "nodes")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(one, "profile"), "program_mib")), 8);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)
    const struct CMUnitTest tests[] = {
        TEST(a_class_with_a_profile_is_planned_by_it),
        TEST(of_several_nodes_the_middle_counts_and_a_node_counts_once),
        TEST(more_nodes_than_count_take_the_place_of_the_oldest),
        TEST(a_node_cannot_say_anything_of_a_class_that_it_does_not_offer),
        TEST(what_is_no_profile_is_left_out_and_the_node_stays),
        TEST(runs_teach_nothing_of_a_class_with_a_profile),
        TEST(the_list_has_each_class_that_was_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
