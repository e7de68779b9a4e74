#include "tests/unit/server/control/scene.h"

#include "base/clock.h"
#include "server/control/booking.h"

#define HOUR 3600

/* A time so many seconds from now, as calls have it. */
static const char *in(struct scene *s, int seconds, char ret[CLOCK_RFC3339_MAX])
{
    clock_rfc3339(s->clock.wall_us + seconds * SECOND, ret);
    return ret;
}

static struct scene_answer maintain(struct scene *s, const char *node, int from, int to, int every_s)
{
    char a[CLOCK_RFC3339_MAX], b[CLOCK_RFC3339_MAX];

    return scene_call(s, booking_add_maintenance, scene_request(NULL, NULL, NULL),
                      json_pack("{s:[s], s:s, s:s, s:s, s:o*}", "nodes", node, "from", in(s, from, a), "to",
                                in(s, to, b), "reason", "fans", "every_s", every_s ? json_integer(every_s) : NULL));
}

static struct scene_answer reserve(struct scene *s, int devices, int from, int to, const char *user)
{
    char a[CLOCK_RFC3339_MAX], b[CLOCK_RFC3339_MAX];

    return scene_call(s, booking_add_reservation, scene_request(NULL, NULL, NULL),
                      json_pack("{s:i, s:s, s:s, s:s}", "devices", devices, "from", in(s, from, a), "to", in(s, to, b),
                                "user", user));
}

static uint64_t submit(struct scene *s, int devices, int time_s, const char *reservation)
{
    char spec[256], named[64] = "", limit[64] = "";

    if (reservation)
        (void)snprintf(named, sizeof(named), ", \"reservation\": \"%s\"", reservation);
    if (time_s)
        (void)snprintf(limit, sizeof(limit), ", \"limits\": {\"time_s\": %d}", time_s);
    (void)snprintf(spec, sizeof(spec), "{\"command\": {\"argv\": [\"x\"]}, \"devices\": {\"min\": %d}%s%s}", devices,
                   limit, named);
    return scene_try_submit(s, spec);
}

static bool runs_on(struct scene *s, uint64_t job, const char *node)
{
    const struct job *j = &scene_entry(s, job)->job;

    return j->live && strcmp(j->places[0].node, node) == 0;
}

/* A node's agent tells that all of its runs go on. */
static void tell(struct scene *s, const char *node)
{
    json_t *runs = json_array();

    for (size_t i = 0; i < s->core->jobs.n_order; i++) {
        const struct entry *e = table_at(&s->core->jobs, i);

        if (e && e->job.live && strcmp(e->job.places[0].node, node) == 0)
            (void)json_array_append_new(runs, scene_run_of(e, e->job.generation, node, "running", 0));
    }
    assert_int_equal(scene_report(s, node, runs, NULL).status, 200);
}

static void live_on(struct scene *s, int seconds)
{
    for (int i = 0; i < seconds; i += 20) {
        tell(s, "n1");
        tell(s, "n2");
        scene_wait(s, 20);
    }
}

static void begin(struct scene *s)
{
    assert_int_equal(scene_register(s, "n1", "cpu", 4), 200);
    assert_int_equal(scene_register(s, "n2", "cpu", 4), 200);
}

static void what_is_wrong_with_a_maintenance_is_said_and_nothing_is_kept(void **state)
{
    static const struct {
        const char *body, *code;
    } bad[] = {
        {"{}", "booking-invalid"},
        {"{\"nodes\": [\"n1\"], \"to\": \"soon\"}", "booking-invalid"},
        {"{\"nodes\": [\"n1\"], \"to\": \"2001-01-01T00:00:00Z\"}", "booking-invalid"},
        {"{\"nodes\": [\"n1\"], \"to\": \"2099-01-01T00:00:00Z\"}", "booking-invalid"},
        {"{\"nodes\": [], \"to\": \"2023-11-14T23:13:20Z\"}", "booking-invalid"},
        {"{\"nodes\": [\"n9\"], \"to\": \"2023-11-14T23:13:20Z\"}", "unknown-node"},
        {"{\"nodes\": [7], \"to\": \"2023-11-14T23:13:20Z\"}", "unknown-node"},
        {"{\"nodes\": [\"n1\"], \"to\": \"2023-11-14T23:13:20Z\", \"every_s\": 60}", "booking-invalid"},
        {"{\"nodes\": [\"n1\"], \"to\": \"2023-11-14T23:13:20Z\", \"why\": \"\"}", "unknown-field"},
        {"{\"nodes\": [\"n1\"], \"to\": \"2023-11-14T23:13:20Z\", \"reason\": 1}", "booking-invalid"},
    };
    struct scene *s = *state;

    begin(s);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct scene_answer a =
            scene_call(s, booking_add_maintenance, scene_request(NULL, NULL, NULL), json_loads(bad[i].body, 0, NULL));

        char *text = json_dumps(a.body, 0);

        if (a.status != 422 || !strstr(text, bad[i].code))
            fail_msg("%s: %d %s", bad[i].body, a.status, text);
        free(text);
    }
    assert_int_equal(s->core->bookings.n, 0);
}

static void nothing_whose_time_limit_runs_into_a_maintenance_starts_there(void **state)
{
    struct scene *s = *state;
    uint64_t long_one, short_one, late;

    begin(s);
    assert_int_equal(maintain(s, "n1", HOUR, 2 * HOUR, 0).status, 201);
    long_one = submit(s, 4, 10 * HOUR, NULL);
    short_one = submit(s, 4, HOUR / 2, NULL);
    late = submit(s, 4, 2 * HOUR, NULL);
    scene_turn(s);
    assert_true(runs_on(s, long_one, "n2"));
    assert_true(runs_on(s, short_one, "n1"));
    assert_false(scene_entry(s, late)->job.live);
    scene_report_all(s, short_one, "exited", 0);
    live_on(s, 20);
    assert_int_equal(scene_entry(s, late)->wait.code, EXPLAIN_CLOSING);
}

static void whoever_has_no_limit_is_told_to_save_before_and_the_node_is_left_alone_until_it_is_over(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    begin(s);
    assert_int_equal(maintain(s, "n1", HOUR, 2 * HOUR, 0).status, 201);
    assert_int_equal(maintain(s, "n2", 0, 3 * HOUR, 0).status, 201);
    job = submit(s, 4, 0, NULL);
    scene_turn(s);
    assert_true(runs_on(s, job, "n1")); /* there is no other way */
    scene_report_all(s, job, "running", 0);
    live_on(s, HOUR - 400);
    assert_string_equal(scene_order(s, "n1", job), "run");
    live_on(s, 120); /* five minutes before it */
    assert_string_equal(scene_order(s, "n1", job), "drain");
    scene_report_all(s, job, "exited", 143);
    live_on(s, 20);
    assert_false(scene_entry(s, job)->job.live);
    scene_restart(s);
    begin(s);
    live_on(s, HOUR);
    assert_false(scene_entry(s, job)->job.live);
    live_on(s, HOUR - 200);
    assert_true(runs_on(s, job, "n1"));
    assert_int_equal(s->core->bookings.n, 1); /* one is over */
}

static void whoever_has_not_left_when_it_begins_is_stopped(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    begin(s);
    assert_int_equal(maintain(s, "n2", 0, 3 * HOUR, 0).status, 201);
    assert_int_equal(maintain(s, "n1", HOUR, 2 * HOUR, 0).status, 201);
    job = submit(s, 4, 0, NULL);
    scene_turn(s);
    live_on(s, HOUR + 20); /* its agent tells that it runs, whatever it is told */
    assert_string_equal(scene_order(s, "n1", job), "stop");
}

static void a_maintenance_that_comes_again_is_there_the_next_time(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    begin(s);
    assert_int_equal(maintain(s, "n1", 0, HOUR, 2 * HOUR).status, 201);
    assert_int_equal(maintain(s, "n2", 0, 20 * HOUR, 0).status, 201);
    job = submit(s, 4, HOUR / 2, NULL);
    live_on(s, 60);
    assert_false(scene_entry(s, job)->job.live);
    live_on(s, HOUR);
    assert_true(runs_on(s, job, "n1"));
    scene_report_all(s, job, "exited", 0);
    live_on(s, 40 * 60);
    job = submit(s, 4, HOUR / 2, NULL); /* twenty minutes before it */
    live_on(s, 20);
    assert_false(scene_entry(s, job)->job.live);
}

static void what_is_deleted_keeps_nobody_off(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    begin(s);
    assert_int_equal(maintain(s, "n1", HOUR, 2 * HOUR, 0).status, 201);
    assert_int_equal(maintain(s, "n2", HOUR, 2 * HOUR, 0).status, 201);
    job = submit(s, 4, 2 * HOUR, NULL);
    scene_turn(s);
    assert_false(scene_entry(s, job)->job.live);
    assert_int_equal(scene_call(s, booking_drop_reservation, scene_request("r1", NULL, NULL), NULL).status, 404);
    assert_int_equal(scene_call(s, booking_drop_maintenance, scene_request("m9", NULL, NULL), NULL).status, 404);
    assert_int_equal(scene_call(s, booking_drop_maintenance, scene_request("m1", NULL, NULL), NULL).status, 200);
    scene_turn(s);
    assert_true(runs_on(s, job, "n1"));
    scene_restart(s);
    assert_int_equal(s->core->bookings.n, 1);
}

static void a_reservation_keeps_its_devices_for_the_jobs_that_name_it(void **state)
{
    struct scene *s = *state;
    uint64_t before, other, its;

    begin(s);
    assert_int_equal(reserve(s, 4, HOUR, 2 * HOUR, "ann").status, 201);
    its = submit(s, 4, HOUR / 2, "r1");
    before = submit(s, 4, 50 * 60, NULL);
    other = submit(s, 8, HOUR / 2, NULL);
    scene_turn(s);
    assert_int_equal(scene_entry(s, its)->wait.code, EXPLAIN_RESERVATION);
    assert_true(scene_entry(s, before)->job.live);
    scene_report_all(s, before, "running", 0);
    live_on(s, HOUR / 2 + 200);
    scene_report_all(s, before, "exited", 0);
    scene_wait(s, 1);
    assert_false(scene_entry(s, other)->job.live); /* it would run into the reservation */
    live_on(s, HOUR / 2 - 160);
    assert_true(scene_entry(s, its)->job.live);
    assert_false(scene_entry(s, other)->job.live);
    before = submit(s, 4, HOUR, NULL); /* what is in no reservation is for all */
    scene_turn(s);
    assert_true(scene_entry(s, before)->job.live);
    assert_string_not_equal(scene_entry(s, before)->job.places[0].node, scene_entry(s, its)->job.places[0].node);
    scene_restart(s);
    begin(s);
    scene_turn(s);
    assert_true(scene_entry(s, its)->job.live);
    scene_report_all(s, its, "exited", 0);
    scene_report_all(s, before, "exited", 0);
    live_on(s, 60);
    assert_false(scene_entry(s, other)->job.live);
    live_on(s, HOUR);
    assert_true(scene_entry(s, other)->job.live); /* it is over */
}

static void jobs_of_a_reservation_wait_for_each_other_and_not_for_others(void **state)
{
    struct scene *s = *state;
    uint64_t first, second, others[8];

    begin(s);
    for (int i = 0; i < 8; i++)
        others[i] = submit(s, 4, 0, NULL);
    scene_turn(s);
    assert_true(scene_entry(s, others[0])->job.live);
    assert_int_equal(reserve(s, 4, 0, 2 * HOUR, "ann").status, 201); /* at once: who is there has to leave */
    first = submit(s, 3, 0, "r1");
    second = submit(s, 3, 0, "r1");
    scene_turn(s);
    for (int i = 0; i < 8; i++)
        if (scene_entry(s, others[i])->job.live && scene_entry(s, others[i])->job.intent != JOB_GO_ON)
            scene_report_all(s, others[i], "exited", 0);
    live_on(s, 20);
    assert_true(scene_entry(s, first)->job.live);
    assert_int_equal(scene_entry(s, second)->wait.code, EXPLAIN_INSUFFICIENT);
    scene_report_all(s, first, "exited", 0);
    scene_wait(s, 1);
    assert_true(scene_entry(s, second)->job.live);
}

static void what_cannot_be_reserved_is_said_with_numbers(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    begin(s);
    a = reserve(s, 9, HOUR, 2 * HOUR, "ann");
    assert_int_equal(a.status, 409);
    assert_non_null(strstr(json_string_value(json_object_get(a.body, "detail")), "9 devices were asked for, and 8"));
    assert_int_equal(maintain(s, "n1", 90 * 60, 2 * HOUR, 0).status, 201);
    assert_int_equal(reserve(s, 5, HOUR, 2 * HOUR, "ann").status, 409);
    assert_int_equal(reserve(s, 5, HOUR / 2, HOUR, "ann").status, 201);
    assert_int_equal(reserve(s, 4, HOUR / 2, HOUR, "bob").status, 409);
    assert_int_equal(reserve(s, 3, HOUR / 2, HOUR, "bob").status, 201);
}

static void a_reservation_of_others_or_none_at_all_is_refused_when_a_job_is_submitted(void **state)
{
    struct scene *s = *state;

    begin(s);
    assert_int_equal(reserve(s, 4, HOUR, 2 * HOUR, "bob").status, 201);
    assert_int_equal(submit(s, 1, 0, "r1"), 0);
    assert_non_null(strstr(scene_refusal, "is for other jobs: of user bob"));
    assert_int_equal(submit(s, 1, 0, "r2"), 0);
    assert_non_null(strstr(scene_refusal, "there is no reservation 'r2'"));
    assert_int_equal(submit(s, 1, 0, "m1"), 0);
    scene_user = "bob";
    assert_int_equal(submit(s, 5, 0, "r1"), 0);
    assert_non_null(strstr(scene_refusal, "takes at least 5 devices, and reservation 'r1' has 4"));
    assert_int_not_equal(submit(s, 4, 0, "r1"), 0);
    scene_user = "ann";
}

static void records_that_cannot_be_read_are_dropped(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"id\": 1}",
        "{\"id\": 1, \"from_us\": 5, \"to_us\": 4, \"parts\": [[\"n1\", -1]]}",
        "{\"id\": 1, \"from_us\": 5, \"to_us\": 9, \"every_us\": 1, \"parts\": [[\"n1\", -1]]}",
        "{\"id\": 0, \"from_us\": 5, \"to_us\": 9, \"parts\": [[\"n1\", -1]]}",
        "{\"id\": 1, \"from_us\": 5, \"to_us\": 9, \"parts\": [[1, -1]]}",
    };
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        store_put(s->store, STORE_BOOKINGS, "m1", bad[i]);
        scene_turn(s);
        scene_restart(s);
        assert_int_equal(s->core->bookings.n, 0);
    }
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)

static struct scene_answer end_node(struct scene *s, const char *node, int at)
{
    char text[CLOCK_RFC3339_MAX];

    return scene_call(s, booking_end_node, scene_request(node, NULL, NULL), json_pack("{s:s}", "at", in(s, at, text)));
}

static void nothing_runs_on_a_node_beyond_its_planned_end(void **state)
{
    struct scene *s = *state;
    uint64_t fits, stays;

    assert_int_equal(scene_register(s, "n1", "cpu", 1), 200);
    assert_int_equal(scene_register(s, "n2", "cpu", 2), 200);
    assert_int_equal(end_node(s, "n1", HOUR).status, 201);
    (void)submit(s, 2, 0, NULL); /* all of n2 */
    stays = submit(s, 1, 2 * HOUR, NULL);
    scene_turn(s);
    assert_int_equal(scene_entry(s, stays)->wait.code, EXPLAIN_CLOSING);
    fits = submit(s, 1, HOUR / 2, NULL);
    scene_turn(s);
    assert_true(runs_on(s, fits, "n1"));
    assert_false(scene_entry(s, stays)->job.live);
}

static void a_job_leaves_a_node_before_its_end_and_the_name_is_free_again_after_it(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "cpu", 1), 200);
    job = submit(s, 1, 0, NULL);
    scene_turn(s);
    assert_true(runs_on(s, job, "n1"));
    assert_int_equal(end_node(s, "n1", 2 * HOUR).status, 201);
    assert_int_equal(end_node(s, "n1", HOUR).status, 201); /* instead of the one before */
    assert_int_equal(s->core->bookings.n, 1);
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "cpu", 1), 200);
    for (int i = 0; i < HOUR - 400; i += 20) {
        tell(s, "n1");
        scene_wait(s, 20);
    }
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_GO_ON);
    for (int i = 0; i < 200; i += 20) {
        tell(s, "n1");
        scene_wait(s, 20);
    }
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_REQUEUE);
    scene_report_all(s, job, "exited", 1);
    for (int i = 0; i < 400; i += 20) {
        tell(s, "n1");
        scene_wait(s, 20);
    }
    assert_false(scene_entry(s, job)->job.live);
    assert_true(scene_slot(s, "n1", 0)->calendar.shut);
    scene_wait(s, 600); /* it is lost, and another one comes by its name */
    assert_int_equal(s->core->bookings.n, 0);
    assert_int_equal(scene_register(s, "n1", "cpu", 1), 200);
    scene_turn(s);
    assert_true(runs_on(s, job, "n1"));
}

static void the_end_of_a_node_that_is_not_there_or_at_no_time_is_refused(void **state)
{
    struct scene *s = *state;

    assert_int_equal(end_node(s, "n9", HOUR).status, 404);
    assert_int_equal(scene_register(s, "n1", "cpu", 1), 200);
    assert_int_equal(end_node(s, "n1", 400 * 24 * HOUR).status, 422);
    assert_int_equal(
        scene_call(s, booking_end_node, scene_request("n1", NULL, NULL), json_pack("{s:s}", "at", "soon")).status, 422);
    assert_int_equal(scene_call(s, booking_end_node, scene_request("n1", NULL, NULL), json_object()).status, 422);
    assert_int_equal(s->core->bookings.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(what_is_wrong_with_a_maintenance_is_said_and_nothing_is_kept),
        ROW(nothing_whose_time_limit_runs_into_a_maintenance_starts_there),
        ROW(whoever_has_no_limit_is_told_to_save_before_and_the_node_is_left_alone_until_it_is_over),
        ROW(whoever_has_not_left_when_it_begins_is_stopped),
        ROW(a_maintenance_that_comes_again_is_there_the_next_time),
        ROW(what_is_deleted_keeps_nobody_off),
        ROW(a_reservation_keeps_its_devices_for_the_jobs_that_name_it),
        ROW(jobs_of_a_reservation_wait_for_each_other_and_not_for_others),
        ROW(what_cannot_be_reserved_is_said_with_numbers),
        ROW(a_reservation_of_others_or_none_at_all_is_refused_when_a_job_is_submitted),
        ROW(nothing_runs_on_a_node_beyond_its_planned_end),
        ROW(a_job_leaves_a_node_before_its_end_and_the_name_is_free_again_after_it),
        ROW(the_end_of_a_node_that_is_not_there_or_at_no_time_is_refused),
        ROW(records_that_cannot_be_read_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
