#include "tests/unit/server/control/scene.h"

#include "base/clock.h"

/* A command on two devices that is to have ended so many seconds from now, with a time limit (0: none). */
static uint64_t submit(struct scene *s, int by_s, int time_s)
{
    char at[CLOCK_RFC3339_MAX], spec[256];

    clock_rfc3339(s->clock.wall_us + by_s * SECOND, at);
    (void)snprintf(spec, sizeof(spec),
                   "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": 2}, \"limits\": {\"time_s\": %d, "
                   "\"finish_by\": \"%s\"}}",
                   time_s, at);
    return scene_submit(s, spec);
}

static json_t *finish_of_job(struct scene *s, uint64_t id)
{
    char name[24];

    (void)snprintf(name, sizeof(name), "j%llu", (unsigned long long)id);
    return json_object_get(scene_call(s, jobs_get, scene_request(name, NULL, NULL), NULL).body, "finish");
}

static const char *text_of(const json_t *o, const char *field)
{
    const char *text = json_string_value(json_object_get(o, field));

    return text ? text : "";
}

/* The part of the answer to the last submit. */
static json_t *answered(void)
{
    static json_t *last;

    json_decref(last);
    last = json_loads(scene_accepted, 0, NULL);
    return json_object_get(last, "finish");
}

/* How many events of this code the store keeps. */
static int count_events(struct scene *s, const char *code)
{
    json_t *all = store_memory_dump(s->memory);
    char *text = json_dumps(all, 0);
    int n = 0;

    assert_non_null(text);
    for (const char *p = text; (p = strstr(p, code)); p++)
        n++;
    free(text);
    json_decref(all);
    return n;
}

static void the_answer_to_a_submit_says_whether_the_job_will_have_ended(void **state)
{
    struct scene *s = *state;
    json_t *answer;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    (void)submit(s, 1000, 600);
    answer = answered();
    assert_string_equal(text_of(answer, "verdict"), "will");
    assert_string_equal(text_of(answer, "needs_basis"), "time-limit");
    assert_int_equal(json_integer_value(json_object_get(answer, "needs_s")), 600);
    assert_int_equal(json_integer_value(json_object_get(answer, "devices")), 2);
    scene_turn(s);
    scene_report_all(s, 1, "running", 0);
    (void)submit(s, 1300, 600); /* after the first, which ends in ten minutes at the latest */
    answer = answered();
    assert_string_equal(text_of(answer, "verdict"), "likely");
    assert_string_equal(text_of(answer, "starts_basis"), "time-limits");
    (void)submit(s, 5, 0);
    assert_string_equal(text_of(answered(), "verdict"), "unknown");
    assert_non_null(strstr(text_of(answered(), "text"), "give it limits.time_s"));
}

static void a_job_that_will_be_late_is_told_once_also_over_a_restart(void **state)
{
    struct scene *s = *state;
    uint64_t id;
    int told;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    id = submit(s, 60, 0);
    scene_turn(s);
    scene_report_all(s, id, "running", 0);
    scene_wait(s, 50);
    assert_false(scene_entry(s, id)->job.told_late);
    scene_wait(s, 200);
    assert_true(scene_entry(s, id)->job.told_late);
    assert_string_equal(text_of(finish_of_job(s, id), "verdict"), "cannot");
    told = count_events(s, "finish_late");
    assert_int_not_equal(told, 0);
    scene_wait(s, 100);
    assert_int_equal(count_events(s, "finish_late"), told);
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    scene_wait(s, 200);
    assert_int_equal(count_events(s, "finish_late"), told);
}

static void a_job_without_the_wish_says_nothing_of_it(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    assert_null(finish_of_job(s, scene_submit(s, "{\"command\": {\"argv\": [\"x\"]}}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_answer_to_a_submit_says_whether_the_job_will_have_ended, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(a_job_that_will_be_late_is_told_once_also_over_a_restart, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(a_job_without_the_wish_says_nothing_of_it, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
