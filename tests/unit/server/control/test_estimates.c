#include "tests/unit/server/control/scene.h"

#include "server/control/estimates.h"

static const char holder[] = "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 2}, \"limits\": {\"time_s\": "
                             "600}}",
                  waits[] = "{\"command\": {\"argv\": [\"y\"]}, \"devices\": {\"min\": 2}}";

static json_t *job_view(struct scene *s, uint64_t id)
{
    char name[24];

    (void)snprintf(name, sizeof(name), "j%llu", (unsigned long long)id);
    return scene_call(s, jobs_get, scene_request(name, NULL, NULL), NULL).body;
}

static json_t *report_row(struct scene *s, const char *basis)
{
    json_t *all = scene_call(s, estimates_report, scene_request(NULL, NULL, NULL), NULL).body, *row;
    size_t i;

    json_array_foreach (json_object_get(all, "estimates"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "basis")), basis) == 0)
            return row;
    }
    return NULL;
}

/* A job runs for at most ten minutes, and another one waits for its devices. */
static uint64_t begin(struct scene *s, uint64_t *ret_first)
{
    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    *ret_first = scene_submit(s, holder);
    scene_turn(s);
    scene_report_all(s, *ret_first, "running", 0);
    return scene_submit(s, waits);
}

static void a_job_says_its_place_and_its_start_with_the_basis(void **state)
{
    struct scene *s = *state;
    uint64_t first, second = begin(s, &first), third = scene_submit(s, waits);
    const json_t *starts;
    json_t *o;

    scene_turn(s);
    o = job_view(s, second);
    starts = json_object_get(o, "starts");
    assert_string_equal(json_string_value(json_object_get(starts, "basis")), "time-limits");
    assert_string_equal(json_string_value(json_object_get(starts, "after")), "j1");
    assert_string_equal(json_string_value(json_object_get(starts, "at")),
                        json_string_value(json_object_get(json_object_get(o, "estimate"), "at")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "queue"), "ahead")), 0);
    o = job_view(s, third);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "queue"), "ahead")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "queue"), "ahead_devices")), 2);
    assert_true(json_is_null(json_object_get(json_object_get(o, "starts"), "at")));
}

static void the_first_estimate_is_kept_and_counted_when_the_job_has_started(void **state)
{
    struct scene *s = *state;
    uint64_t first, second = begin(s, &first);
    json_t *row;

    scene_turn(s);
    assert_null(report_row(s, "time-limits"));
    scene_restart(s); /* the estimate is stored with the job */
    (void)scene_register(s, "n1", "cpu", 2);
    assert_true(scene_entry(s, second)->job.estimate.made_us > 0);
    scene_report_all(s, first, "running", 0);
    scene_wait(s, 100);
    scene_report_all(s, first, "exited", 0); /* five hundred seconds before its limit */
    scene_wait(s, 1);
    assert_true(scene_entry(s, second)->job.live);
    row = report_row(s, "time-limits");
    assert_non_null(row);
    assert_int_equal(json_integer_value(json_object_get(row, "count")), 1);
    assert_in_range(json_integer_value(json_object_get(row, "median_error_s")), 490, 500);
    assert_true(json_number_value(json_object_get(row, "in_time")) == 1.0);
    assert_true(json_number_value(json_object_get(json_object_get(job_view(s, second), "estimate"), "late_s")) < -490);
}

static void the_report_outlives_the_server(void **state)
{
    struct scene *s = *state;
    uint64_t first;

    (void)begin(s, &first);
    scene_turn(s);
    scene_report_all(s, first, "exited", 0);
    scene_wait(s, 20);
    assert_non_null(report_row(s, "time-limits"));
    scene_restart(s);
    assert_int_equal(json_integer_value(json_object_get(report_row(s, "time-limits"), "count")), 1);
}

static void a_record_of_the_report_that_cannot_be_read_is_dropped(void **state)
{
    static const char *const bad[] = {"", "{}", "{\"count\": -1}", "{\"count\": 1, \"in_time\": 2}", "[]"};
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        store_put(s->store, STORE_ESTIMATES, "time-limits", bad[i]);
        scene_turn(s);
        scene_restart(s);
        assert_null(report_row(s, "time-limits"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_says_its_place_and_its_start_with_the_basis, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(the_first_estimate_is_kept_and_counted_when_the_job_has_started, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(the_report_outlives_the_server, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_record_of_the_report_that_cannot_be_read_is_dropped, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
