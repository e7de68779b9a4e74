/* What comes, and what would come otherwise: from a snapshot, of which nothing changes. */
#include "tests/unit/server/control/scene.h"

#include "server/control/outlook.h"

#define LIMITED "devices: {min: %1$d, max: %1$d}\npriority: %2$d\ncommand: {argv: [x]}\nlimits: {time_s: 600}\n"
#define ENDLESS "devices: {min: %1$d, max: %1$d}\npriority: %2$d\ncommand: {argv: [x]}\n"

static uint64_t submit(struct scene *s, const char *format, int devices, int priority)
{
    char spec[200];

    (void)snprintf(spec, sizeof(spec), format, devices, priority);
    return scene_submit(s, spec);
}

static const char *name_of(uint64_t job)
{
    static char id[4][24];
    static size_t n;

    n = (n + 1) % COUNT(id);
    (void)snprintf(id[n], sizeof(id[n]), "j%llu", (unsigned long long)job);
    return id[n];
}

static struct scene_answer plan(struct scene *s)
{
    return scene_call(s, outlook_plan, scene_request(NULL, NULL, NULL), NULL);
}

static struct scene_answer what_if(struct scene *s, json_t *body)
{
    return scene_call(s, outlook_what_if, scene_request(NULL, NULL, NULL), body);
}

static const json_t *row(const struct scene_answer *a, const char *list, uint64_t job)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(a->body, list), i, one) {
        if (strcmp(json_string_value(json_object_get(one, "job")), name_of(job)) == 0)
            return one;
    }
    return NULL;
}

static const char *text(const json_t *o, const char *name)
{
    const char *t = json_string_value(json_object_get(o, name));

    return t ? t : "";
}

static void the_plan_says_until_when_who_runs_and_who_comes_then(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    uint64_t runs, waits;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    runs = submit(s, LIMITED, 2, 50);
    scene_report_all(s, runs, "running", 0);
    waits = submit(s, LIMITED, 1, 50);
    scene_wait(s, 2);
    a = plan(s);
    assert_int_equal(a.status, 200);
    assert_true(json_is_true(json_object_get(row(&a, "jobs", runs), "runs")));
    assert_int_equal(json_integer_value(json_object_get(row(&a, "jobs", runs), "devices")), 2);
    assert_string_equal(text(row(&a, "jobs", waits), "basis"), "time-limits");
    assert_string_equal(text(row(&a, "jobs", waits), "after"), name_of(runs));
    assert_string_equal(text(row(&a, "jobs", waits), "starts"), text(row(&a, "jobs", runs), "ends"));
    assert_true(strcmp(text(row(&a, "jobs", waits), "starts"), text(a.body, "at")) > 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(row(&a, "jobs", waits), "classes"), 0)), "a");
    assert_int_equal(json_integer_value(json_object_get(a.body, "left_out")), 0);
}

static void what_if_answers_for_a_node_more_a_priority_and_other_devices(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    uint64_t runs, first, second;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    runs = submit(s, LIMITED, 1, 50);
    scene_report_all(s, runs, "running", 0);
    first = submit(s, LIMITED, 2, 50);
    second = submit(s, LIMITED, 2, 50);
    scene_wait(s, 2);
    a = what_if(s, json_pack("{s:s, s:{s:s, s:i, s:i}}", "job", name_of(first), "add_nodes", "class", "a", "nodes", 1,
                             "devices", 2));
    assert_int_equal(a.status, 200);
    assert_true(strcmp(text(json_object_get(a.body, "now"), "starts"), text(a.body, "at")) > 0);
    assert_string_equal(text(json_object_get(a.body, "then"), "starts"), text(a.body, "at")); /* at once */
    a = what_if(s, json_pack("{s:s, s:i}", "job", name_of(second), "priority", 100));
    assert_true(
        strcmp(text(json_object_get(a.body, "then"), "starts"), text(json_object_get(a.body, "now"), "starts")) < 0);
    assert_true(strcmp(text(row(&a, "others", first), "starts_then"), text(row(&a, "others", first), "starts_now")) >
                0);
    a = what_if(s, json_pack("{s:s, s:i, s:i}", "job", name_of(first), "min", 1, "max", 1));
    assert_string_equal(text(json_object_get(a.body, "then"), "starts"), text(a.body, "at"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(a.body, "then"), "devices")), 1);
    assert_int_equal(scene_entry(s, first)->job.state, JOB_QUEUED); /* nothing has changed */
    a = plan(s);
    assert_int_equal(json_integer_value(json_object_get(row(&a, "jobs", first), "devices")), 2);
}

static void what_makes_no_sense_is_refused_in_words(void **state)
{
    static const char *const edge[] = {
        "{}",
        "{\"job\": 5}",
        "{\"job\": \"j99\"}",
        "{\"job\": \"j1\", \"priority\": 101}",
        "{\"job\": \"j1\", \"priority\": \"high\"}",
        "{\"job\": \"j1\", \"min\": 0}",
        "{\"job\": \"j1\", \"min\": 5, \"max\": 4}",
        "{\"job\": \"j1\", \"min\": 99999999999}",
        "{\"job\": \"j1\", \"add_nodes\": 1}",
        "{\"job\": \"j1\", \"add_nodes\": {\"class\": \"b\", \"nodes\": 1, \"devices\": 1}}",
        "{\"job\": \"j1\", \"add_nodes\": {\"class\": \"a\", \"nodes\": 1001, \"devices\": 1}}",
        "{\"job\": \"j1\", \"add_nodes\": {\"class\": \"a\", \"nodes\": 1, \"devices\": -1}}",
    };
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(submit(s, ENDLESS, 1, 50), 1);
    for (size_t i = 0; i < COUNT(edge); i++) {
        struct scene_answer a = what_if(s, json_loads(edge[i], 0, NULL));

        if (a.status != 422 || !*text(a.body, "detail"))
            fail_msg("%s: %d %s", edge[i], a.status, text(a.body, "detail"));
    }
    assert_int_equal(what_if(s, json_pack("{s:s}", "job", "j1")).status, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_plan_says_until_when_who_runs_and_who_comes_then, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(what_if_answers_for_a_node_more_a_priority_and_other_devices, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_refused_in_words, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
