/* What users had lately, projects within projects, and limits of single classes: how the server holds to them. */
#include "tests/unit/server/control/scene.h"

#include "server/control/usage.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x], grace_s: 5}\n"
#define IN(project) "project: " project "\n" ONE

static int put(struct scene *s, const char *project, const char *body)
{
    return scene_call(s, projects_put, scene_request(project, NULL, NULL), json_loads(body, 0, NULL)).status;
}

static bool starts(struct scene *s, uint64_t job)
{
    scene_turn(s);
    return scene_entry(s, job)->job.live;
}

static void end(struct scene *s, uint64_t job)
{
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
}

static void projects_lie_within_projects_and_never_in_a_ring(void **state)
{
    static const struct {
        const char *project, *body;
        int status;
    } rows[] = {
        {"lab", "{\"quota\": 3}", 200},
        {"vision", "{\"parent\": \"lab\"}", 200},
        {"speech", "{\"parent\": \"lab\", \"quota\": 2}", 200},
        {"speech", "{\"parent\": \"nobody\"}", 422},
        {"lab", "{\"parent\": \"vision\"}", 422},
        {"lab", "{\"parent\": \"lab\"}", 422},
        {"lab", "{\"parent\": 7}", 422},
        {"deep1", "{\"parent\": \"vision\"}", 200},
        {"deep2", "{\"parent\": \"deep1\"}", 200},
        {"deep3", "{\"parent\": \"deep2\"}", 200},
        {"deep4", "{\"parent\": \"deep3\"}", 200},
        {"deep5", "{\"parent\": \"deep4\"}", 200},
        {"deep6", "{\"parent\": \"deep5\"}", 200},
        {"deep7", "{\"parent\": \"deep6\"}", 200},
        {"deep8", "{\"parent\": \"deep7\"}", 422},
        {"top", "{}", 200},
        {"lab", "{\"parent\": \"top\", \"quota\": 3}", 422}, /* what is within it is too deep then */
        {"lab", "{\"quota\": 3}", 200},
        {"vision", "{\"parent\": \"lab\", \"classes\": {\"a\": {\"quota\": 1}}}", 200},
        {"vision", "{\"parent\": \"lab\", \"classes\": {\"a\": {\"borrow\": 1}}}", 422},
        {"vision", "{\"parent\": \"lab\", \"classes\": {\"a\": {\"quota\": 1, \"x\": 1}}}", 422},
        {"vision", "{\"parent\": \"lab\", \"classes\": [1]}", 422},
    };
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (put(s, rows[i].project, rows[i].body) != rows[i].status)
            fail_msg("row %zu: project %s with %s is not answered with %d", i, rows[i].project, rows[i].body,
                     rows[i].status);
    assert_int_equal(scene_call(s, projects_remove, scene_request("lab", NULL, NULL), NULL).status, 409);
    assert_int_equal(scene_call(s, projects_remove, scene_request("speech", NULL, NULL), NULL).status, 200);
    scene_restart(s);
    assert_string_equal(project_find(&s->core->cluster.projects, "vision")->parent, "lab");
    assert_int_equal(project_class(project_find(&s->core->cluster.projects, "vision"), "a")->quota, 1);
}

static void the_limit_of_a_project_is_that_of_all_within_it(void **state)
{
    struct scene *s = *state;
    uint64_t jobs[3];

    assert_int_equal(put(s, "lab", "{\"quota\": 2}"), 200);
    assert_int_equal(put(s, "vision", "{\"parent\": \"lab\"}"), 200);
    assert_int_equal(put(s, "speech", "{\"parent\": \"lab\"}"), 200);
    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
    jobs[0] = scene_submit(s, IN("vision"));
    jobs[1] = scene_submit(s, IN("speech"));
    jobs[2] = scene_submit(s, IN("speech"));
    assert_true(starts(s, jobs[0]) && starts(s, jobs[1]));
    assert_false(starts(s, jobs[2]));
    assert_int_equal(scene_entry(s, jobs[2])->wait.code, EXPLAIN_LIMIT);
    assert_true(starts(s, scene_submit(s, ONE))); /* others are not held up */
    end(s, jobs[0]);
    assert_true(starts(s, jobs[2]));
    assert_int_equal(scene_try_submit(s, "project: vision\ndevices: {min: 3, max: 3}\ncommand: {argv: [x]}\n"), 0);
    assert_non_null(strstr(scene_refusal, "project 'lab' may have 2"));
}

static void a_project_has_no_more_of_a_class_than_its_limit_and_all_it_wants_of_others(void **state)
{
    struct scene *s = *state;
    uint64_t jobs[5];
    int of_a = 0, live = 0;

    assert_int_equal(put(s, "vision", "{\"classes\": {\"a\": {\"quota\": 1, \"borrow\": 1}}}"), 200);
    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    assert_int_equal(scene_register(s, "n2", "b", 2), 200);
    for (int i = 0; i < 5; i++)
        jobs[i] = scene_submit(s, IN("vision"));
    scene_wait(s, 10);
    for (int i = 0; i < 5; i++) {
        const struct job *j = &scene_entry(s, jobs[i])->job;

        live += j->live;
        of_a += j->live && strcmp(j->places[0].node, "n1") == 0;
    }
    assert_int_equal(of_a, 2);
    assert_int_equal(live, 4);
    assert_int_equal(scene_try_submit(s, "project: vision\ndevices: {min: 3, max: 3, classes: [a]}\n"
                                         "command: {argv: [x]}\n"),
                     0);
    assert_non_null(strstr(scene_refusal, "may have 2 of its classes"));
}

/* Ann has had the only device for an hour, and her next job has waited longer than Bob's first. */
static void who_had_less_lately_goes_first_and_after_a_restart_still(void **state)
{
    for (int half_s = 0; half_s <= 86400; half_s += 86400) {
        struct scene *s = *state;
        uint64_t first, anns, bobs;

        s->cfg.share_half_us = half_s * SECOND;
        scene_restart(s);
        assert_int_equal(scene_register(s, "n1", "a", 1), 200);
        scene_user = "ann";
        first = scene_submit(s, ONE);
        assert_true(starts(s, first));
        scene_report_all(s, first, "running", 0);
        for (int i = 0; i < 360; i++) {
            scene_wait(s, 10);
            (void)scene_report(s, "n1", json_pack("[o]", scene_run_of(scene_entry(s, first), 1, "n1", "running", 0)),
                               NULL);
        }
        anns = scene_submit(s, ONE);
        for (int i = 0; i < 3; i++) {
            scene_wait(s, 10);
            (void)scene_report(s, "n1", json_pack("[o]", scene_run_of(scene_entry(s, first), 1, "n1", "running", 0)),
                               NULL);
        }
        scene_user = "bob";
        bobs = scene_submit(s, ONE);
        scene_report_all(s, first, "exited", 0);
        scene_restart(s);
        assert_int_equal(scene_register(s, "n1", "a", 1), 200);
        scene_turn(s);
        assert_int_equal(scene_entry(s, half_s ? bobs : anns)->job.live, true);
        assert_int_equal(scene_entry(s, half_s ? anns : bobs)->job.live, false);
        assert_float_equal(usage_of(s->core, "default") / 1e6, half_s ? 3630 : 0, 100);
        end(s, half_s ? bobs : anns);
        scene_turn(s);
        end(s, half_s ? anns : bobs);
        scene_user = "ann";
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(projects_lie_within_projects_and_never_in_a_ring, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(the_limit_of_a_project_is_that_of_all_within_it, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_project_has_no_more_of_a_class_than_its_limit_and_all_it_wants_of_others,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(who_had_less_lately_goes_first_and_after_a_restart_still, scene_start,
                                        scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
