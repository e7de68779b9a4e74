/* What jobs used, by user, project, class and time: entered as runs end, told to who may know it. */
#include <errno.h>

#include "tests/unit/server/control/scene.h"

#include "server/control/energy.h"
#include "server/control/ledger.h"
#include "server/cluster/powers.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x], grace_s: 5}\nretry: {max: 0, user: 0}\n"

/* A report of a user's with this role. */
static struct scene_answer ask(struct scene *s, const char *user, int role, struct http_fields query)
{
    struct http_req *r = scene_request(NULL, NULL, NULL);

    r->identity.role = role;
    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    r->query = query;
    return scene_call(s, ledger_report, r, NULL);
}

#define ALL ((struct http_fields){.n = 0})

static double total(struct scene_answer a, const char *what)
{
    double sum = 0;
    json_t *row;
    size_t i;

    assert_int_equal(a.status, 200);
    json_array_foreach (json_object_get(a.body, "usage"), i, row)
        sum += json_number_value(json_object_get(row, what));
    return sum;
}

static double by_end(struct scene_answer a, const char *what, const char *end)
{
    double sum = 0;
    json_t *row;
    size_t i;

    json_array_foreach (json_object_get(a.body, "usage"), i, row)
        sum += json_number_value(json_object_get(json_object_get(row, what), end));
    return sum;
}

/* It runs so long, its node heard of all the while, with GPUs that draw so much; -1: that is not told. */
static void run_for(struct scene *s, uint64_t job, int seconds, int watts)
{
    struct entry *e = scene_entry(s, job);

    assert_true(e->job.live);
    scene_report_all(s, job, "running", 0);
    for (int i = 0; i < seconds; i += 10) {
        json_t *gpus = json_array();

        for (size_t p = 0; p < e->job.n_places && watts >= 0; p++)
            (void)json_array_append_new(gpus, json_pack("{s:i, s:i}", "slot", e->job.places[p].slot, "power_w", watts));
        scene_wait(s, 10);
        (void)scene_report(s, "n1", json_pack("[o]", scene_run_of(e, e->job.generation, "n1", "running", 0)),
                           watts >= 0 ? json_pack("{s:o}", "gpus", gpus) : (json_decref(gpus), NULL));
    }
}

static uint64_t start(struct scene *s, const char *user, const char *spec)
{
    uint64_t job;

    scene_user = user;
    job = scene_submit(s, spec);
    scene_user = "ann";
    scene_turn(s);
    return job;
}

static void device_hours_are_counted_by_user_and_how_runs_ended_and_survive_a_restart(void **state)
{
    struct scene *s = *state;
    uint64_t good, bad, waits;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    good = start(s, "ann", "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\n");
    waits = start(s, "bob", ONE);
    run_for(s, good, 7200, -1);
    assert_float_equal(total(ask(s, "root", ROLE_ADMIN, ALL), "device_hours"), 4, 0.01); /* while it runs */
    assert_float_equal(by_end(ask(s, "root", ROLE_ADMIN, ALL), "device_hours_by_end", "running"), 4, 0.01);
    scene_report_all(s, good, "exited", 0);
    scene_turn(s);
    bad = waits;
    assert_true(scene_entry(s, bad)->job.live);
    run_for(s, bad, 1800, -1);
    scene_report_all(s, bad, "exited", 3);
    scene_turn(s);
    for (int restarted = 0; restarted < 2; restarted++) {
        struct scene_answer a = ask(s, "root", ROLE_ADMIN, ALL);

        assert_float_equal(total(a, "device_hours"), 4.5, 0.02);
        assert_float_equal(by_end(a, "device_hours_by_end", "succeeded"), 4, 0.02);
        assert_float_equal(by_end(a, "device_hours_by_end", "failed_user"), 0.5, 0.02);
        assert_float_equal(by_end(a, "jobs_by_end", "succeeded"), 1, 0);
        assert_float_equal(by_end(a, "jobs_by_end", "failed_user"), 1, 0);
        assert_float_equal(total(a, "wait_hours"), 2, 0.02);
        scene_restart(s);
    }
}

static void a_report_shows_a_user_their_own_jobs_and_a_manager_those_of_the_project(void **state)
{
    struct scene *s = *state;
    struct http_req *r;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_call(s, projects_put, scene_request("lab", NULL, NULL), json_object()).status, 200);
    r = scene_request("lab", "eve", NULL);
    assert_int_equal(scene_call(s, projects_put_member, r, json_pack("{s:s}", "role", "manager")).status, 200);
    assert_int_equal(
        scene_call(s, projects_put_member, scene_request("lab", "ann", NULL), json_pack("{s:s}", "role", "member"))
            .status,
        200);
    job = start(s, "ann", "project: lab\n" ONE);
    run_for(s, job, 3600, -1);
    scene_report_all(s, job, "exited", 0);
    scene_turn(s);
    assert_float_equal(total(ask(s, "ann", ROLE_USER, ALL), "device_hours"), 1, 0.01);
    assert_float_equal(total(ask(s, "eve", ROLE_USER, ALL), "device_hours"), 1, 0.01);
    assert_float_equal(total(ask(s, "bob", ROLE_USER, ALL), "device_hours"), 0, 0);
    assert_float_equal(total(ask(s, "root", ROLE_ADMIN, ALL), "device_hours"), 1, 0.01);
}

static void a_report_adds_up_by_what_is_asked_and_refuses_what_is_none(void **state)
{
    static const struct {
        const char *by;
        size_t rows; /* 0: refused */
    } row[] = {{"user", 1}, {"hour", 3}, {"day", 2}, {"user,class", 1}, {"", 0}, {"user,user", 0}, {"node", 0}};
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = start(s, "ann", ONE);
    run_for(s, job, 2 * 3600 + 60, -1); /* 1,700,000,000 s is 13 minutes past an hour */
    scene_report_all(s, job, "exited", 0);
    scene_turn(s);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct scene_answer a =
            ask(s, "root", ROLE_ADMIN, (struct http_fields){.v = {{"by", (char *)row[i].by}}, .n = 1});

        if (a.status != (row[i].rows ? 200 : 422) ||
            (row[i].rows && json_array_size(json_object_get(a.body, "usage")) != row[i].rows))
            fail_msg("by '%s': %d, %zu rows", row[i].by, a.status, json_array_size(json_object_get(a.body, "usage")));
    }
    assert_int_equal(
        ask(s, "root", ROLE_ADMIN, (struct http_fields){.v = {{"from", (char *)"yesterday"}}, .n = 1}).status, 422);
}

static void energy_is_measured_where_it_is_told_and_else_by_the_power_of_the_class(void **state)
{
    static const struct {
        int watts, class_w;
        double kwh;
        const char *basis;
    } row[] = {{300, 0, 0.3, "measured"}, {-1, 500, 0.5, "class-power"}, {-1, 0, 0, NULL}};
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        double before;
        json_t *energy;
        uint64_t job;

        s->cfg.powers = (struct powers){.n = 0};
        if (row[i].class_w > 0) {
            s->cfg.powers.n = 1;
            (void)snprintf(s->cfg.powers.of[0].class_, SPEC_NAME_MAX, "a");
            s->cfg.powers.of[0].watts = row[i].class_w;
        }
        scene_restart(s);
        assert_int_equal(scene_register(s, "n1", "a", 1), 200);
        before = total(ask(s, "root", ROLE_ADMIN, ALL), "energy_kwh");
        job = start(s, "ann", ONE);
        run_for(s, job, 3600, row[i].watts);
        energy = json_object();
        energy_view(s->core, &scene_entry(s, job)->job, energy);
        assert_float_equal(json_number_value(json_object_get(json_object_get(energy, "energy"), "kwh")), row[i].kwh,
                           0.01);
        if (row[i].basis)
            assert_string_equal(json_string_value(json_object_get(json_object_get(energy, "energy"), "basis")),
                                row[i].basis);
        else
            assert_null(json_object_get(energy, "energy"));
        json_decref(energy);
        scene_report_all(s, job, "exited", 0);
        scene_turn(s);
        assert_float_equal(total(ask(s, "root", ROLE_ADMIN, ALL), "energy_kwh") - before, row[i].kwh, 0.01);
    }
}

static void no_more_jobs_are_started_than_the_power_cap_lets_draw(void **state)
{
    struct scene *s = *state;
    uint64_t jobs[3];

    s->cfg.sched.power_w = 1100;
    s->cfg.powers = (struct powers){.of = {{"a", 500}}, .n = 1};
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    for (int i = 0; i < 3; i++)
        jobs[i] = start(s, "ann", ONE);
    assert_true(scene_entry(s, jobs[0])->job.live && scene_entry(s, jobs[1])->job.live);
    assert_false(scene_entry(s, jobs[2])->job.live);
    assert_int_equal(scene_entry(s, jobs[2])->wait.code, EXPLAIN_POWER);
    scene_report_all(s, jobs[0], "running", 0);
    scene_report_all(s, jobs[0], "exited", 0);
    scene_turn(s);
    assert_true(scene_entry(s, jobs[2])->job.live);
}

static void powers_of_classes_are_read_or_refused(void **state)
{
    static const char *const bad[] = {"h100", "h100=", "=5", "h100=0", "h100=100001", "h100=7x", "h100=700;cpu=5"};
    struct powers p;
    struct merr err;

    (void)state;
    assert_int_equal(powers_read("h100=700,cpu=15", &p, &err), 0);
    assert_int_equal(powers_of(&p, "h100"), 700);
    assert_int_equal(powers_of(&p, "cpu"), 15);
    assert_int_equal(powers_of(&p, "a100"), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (powers_read(bad[i], &p, &err) != -EINVAL)
            fail_msg("'%s' is taken", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(device_hours_are_counted_by_user_and_how_runs_ended_and_survive_a_restart,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_report_shows_a_user_their_own_jobs_and_a_manager_those_of_the_project,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_report_adds_up_by_what_is_asked_and_refuses_what_is_none, scene_start,
                                        scene_stop),
        cmocka_unit_test_setup_teardown(energy_is_measured_where_it_is_told_and_else_by_the_power_of_the_class,
                                        scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(no_more_jobs_are_started_than_the_power_cap_lets_draw, scene_start, scene_stop),
        cmocka_unit_test(powers_of_classes_are_read_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
