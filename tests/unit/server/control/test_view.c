/* Jobs and nodes as answers show them. */
#include "tests/unit/server/control/scene.h"

#include "server/control/view.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

static const char *text_of(json_t *o, const char *name)
{
    static char text[256];

    (void)snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(o, name)));
    return text;
}

static void progress_takes_any_number_that_a_program_writes(void **state)
{
    static const struct {
        const char *line;
        json_int_t step, eta_s;
    } rows[] = {
        {"{\"step\": 0, \"step_ms\": 1000}", 1, 9},
        {"{\"step\": 9, \"step_ms\": 1000}", 10, 0},
        {"{\"step\": 99, \"step_ms\": 1000}", 100, 0},
        {"{}", 0, 0},
        {"{\"step\": -5, \"step_ms\": 1000}", 1, 9},
        {"{\"step\": 9223372036854775807, \"step_ms\": 1000}", 2147483648, 0},
        {"{\"step\": -9223372036854775807, \"step_ms\": 1e300}", 1, 1000000000},
        {"{\"step\": 1, \"step_ms\": -7}", 2, 1000000000},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *line = json_loads(rows[i].line, 0, NULL), *o = view_progress(line, 10);

        assert_non_null(o);
        if (json_integer_value(json_object_get(o, "step")) != rows[i].step ||
            json_integer_value(json_object_get(o, "eta_s")) != rows[i].eta_s)
            fail_msg("%s is shown as %s", rows[i].line, json_dumps(o, 0));
        json_decref(line);
        json_decref(o);
    }
}

static void steps_of_a_program_are_as_it_wrote_them(void **state)
{
    json_t *line = json_loads("{\"step\": 3}", 0, NULL), *o = view_progress(line, 0);

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(o, "step")), 3);
    json_decref(line);
    json_decref(o);
}

static void a_node_is_shown_as_it_can_be_used(void **state)
{
    struct scene *s = *state;
    json_t *o;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, ONE);
    scene_report_all(s, job, "running", 0);
    o = view_node(s->core, cluster_node(&s->core->cluster, "n1"));
    assert_string_equal(text_of(o, "state"), "ready");
    assert_string_equal(text_of(json_array_get(json_object_get(o, "slots"), 0), "state"), "busy");
    assert_string_equal(text_of(json_array_get(json_object_get(o, "slots"), 0), "job"), "j1");
    assert_string_equal(text_of(json_array_get(json_object_get(o, "slots"), 1), "state"), "free");
    json_decref(o);
    scene_slot(s, "n1", 1)->stale = true;
    cluster_node(&s->core->cluster, "n1")->drain = true;
    o = view_node(s->core, cluster_node(&s->core->cluster, "n1"));
    assert_string_equal(text_of(o, "state"), "draining");
    assert_string_equal(text_of(json_array_get(json_object_get(o, "slots"), 1), "state"), "quarantined");
    json_decref(o);
    scene_report_all(s, job, "exited", 0);
    o = view_node(s->core, cluster_node(&s->core->cluster, "n1"));
    assert_string_equal(text_of(o, "state"), "drained");
    json_decref(o);
}

static void a_job_that_waits_says_for_what(void **state)
{
    struct scene *s = *state;
    uint64_t first, second;
    json_t *o;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    first = scene_submit(s, ONE);
    scene_report_all(s, first, "running", 0);
    second = scene_submit(s, ONE);
    scene_turn(s);
    o = view_job(s->core, &scene_entry(s, second)->job, scene_entry(s, second), NULL);
    assert_string_equal(text_of(o, "state"), "queued");
    assert_true(strlen(text_of(json_object_get(o, "reason"), "text")) > 0);
    assert_null(json_object_get(o, "spec")); /* in lists it is left out */
    json_decref(o);
    o = view_job(s->core, &scene_entry(s, first)->job, scene_entry(s, first), scene_entry(s, first)->spec_text);
    assert_string_equal(text_of(o, "state"), "running");
    assert_int_equal(json_array_size(json_object_get(o, "assignment")), 1);
    assert_true(json_is_object(json_object_get(o, "spec")));
    json_decref(o);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(progress_takes_any_number_that_a_program_writes),
        TEST(steps_of_a_program_are_as_it_wrote_them),
        TEST(a_node_is_shown_as_it_can_be_used),
        TEST(a_job_that_waits_says_for_what),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
