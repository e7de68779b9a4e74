/* Logs of all jobs keep within a limit, and one chatty user's take nothing from another's. */
#include "tests/unit/server/control/scene.h"

#include "server/control/timeline.h"
#include "server/store/spool_logs.h"
#include "server/store/spool_parts.h"
#include "server/store/spool_read.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

/* A job that has started, with so many bytes of logs. */
static uint64_t chatty(struct scene *s, const char *user, size_t bytes)
{
    static char text[100000];
    uint64_t job;
    bool is_new = false;

    memset(text, 'x', sizeof(text));
    scene_user = user;
    job = scene_submit(s, ONE);
    scene_user = "ann";
    scene_report_all(s, job, "running", 0);
    assert_int_equal(spool_append(&s->cfg.spool, job, "rank-00000.g1.log", 0, text, bytes, &is_new), bytes);
    assert_int_equal(spool_append(&s->cfg.spool, job, "metrics.g1.jsonl", 0, "{}\n", 3, &is_new), 3);
    catalog_ship(&s->core->jobs.catalog, catalog_find(&s->core->jobs.catalog, job), bytes);
    return job;
}

static uint64_t ended(struct scene *s, const char *user, size_t bytes)
{
    uint64_t job = chatty(s, user, bytes);

    scene_report_all(s, job, "exited", 0);
    return job;
}

/* The bytes of a job's logs; -1: they were removed. */
static int logs_of(struct scene *s, uint64_t job)
{
    return spool_logs_removed(&s->cfg.spool, job) ? -1 : (int)spool_logs_bytes(&s->cfg.spool, job);
}

static void limit(struct scene *s, int64_t bytes)
{
    s->cfg.spool.all_bytes = bytes;
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "a", 8), 200);
}

static void the_oldest_ended_jobs_of_who_has_most_lose_their_logs(void **state)
{
    struct scene *s = *state;
    uint64_t bob, ann[3];

    limit(s, 10000);
    bob = ended(s, "bob", 4000);
    for (int i = 0; i < 3; i++)
        ann[i] = ended(s, "ann", 3000);
    scene_wait(s, 11);
    assert_int_equal(logs_of(s, bob), 4000); /* though it is older, and longer */
    assert_int_equal(logs_of(s, ann[0]), -1);
    assert_int_equal(logs_of(s, ann[1]), 3000); /* no more than must be */
    assert_int_equal(logs_of(s, ann[2]), 3000);
    limit(s, 7000); /* what a server counted is counted by the next one */
    scene_wait(s, 11);
    assert_int_equal(logs_of(s, bob), 4000);
    assert_int_equal(logs_of(s, ann[1]), -1);
    assert_int_equal(logs_of(s, ann[2]), 3000);
}

static void logs_of_jobs_that_run_stay_until_these_end(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    limit(s, 10000);
    job = chatty(s, "ann", 20000);
    scene_wait(s, 25);
    assert_int_equal(logs_of(s, job), 20000);
    scene_report_all(s, job, "exited", 0);
    scene_wait(s, 11);
    assert_int_equal(logs_of(s, job), -1);
}

static void removed_logs_are_told_take_in_no_more_and_leave_the_metrics(void **state)
{
    struct scene *s = *state;
    json_t *answer, *acks = json_array(), *fresh = json_array(), *events, *piece;
    struct http_req *r;
    bool noted = false;
    uint64_t job;
    size_t i;

    limit(s, 10000);
    job = ended(s, "ann", 20000);
    answer = spool_read_logs(&s->cfg.spool, job, -1, 0, 0, 0, 0, NULL);
    assert_true(json_is_false(json_object_get(answer, "removed")));
    json_decref(answer);
    scene_wait(s, 11);
    answer = spool_read_logs(&s->cfg.spool, job, -1, 0, 0, 0, 0, NULL);
    assert_true(json_is_true(json_object_get(answer, "removed")));
    assert_int_equal(json_array_size(json_object_get(answer, "logs")), 0);
    json_decref(answer);
    answer = spool_read_last_metrics(&s->cfg.spool, job);
    assert_non_null(answer);
    json_decref(answer);

    piece = json_pack("{s:s, s:i, s:i, s:i, s:s}", "job", "j1", "generation", 1, "rank", 0, "offset", 20000, "text",
                      "late");
    assert_int_equal(job, 1);
    assert_int_equal(spool_take_piece(&s->cfg.spool, piece, true, acks, fresh), 0);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(acks, 0), "offset")), 20004);
    assert_int_equal(json_array_size(fresh), 0);
    assert_int_equal(logs_of(s, job), -1);
    assert_int_equal(spool_logs_bytes(&s->cfg.spool, job), 0);
    json_decref(piece);
    json_decref(acks);
    json_decref(fresh);

    r = scene_request("j1", NULL, NULL);
    events = json_object_get(scene_call(s, timeline_of_job, r, NULL).body, "events");
    json_array_foreach (events, i, piece) {
        noted |=
            strcmp("logs-removed", json_string_value(json_object_get(json_object_get(piece, "cause"), "code"))
                                       ? json_string_value(json_object_get(json_object_get(piece, "cause"), "code"))
                                       : "") == 0;
    }
    assert_true(noted);
}

static void a_removal_that_was_interrupted_is_finished_by_the_next_server(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    limit(s, 30000);
    job = ended(s, "ann", 20000);
    assert_int_equal(s->cfg.spool.ops->mark(s->cfg.spool.self, job, "logs-removed"), 0); /* and there it ended */
    limit(s, 10000);
    scene_wait(s, 11);
    assert_int_equal(spool_logs_bytes(&s->cfg.spool, job), 0);
}

static void each_of_more_jobs_than_are_looked_at_in_a_tick_is_counted(void **state)
{
    struct scene *s = *state;
    struct catalog *all = &s->core->jobs.catalog;
    bool is_new;

    for (uint64_t job = 1; job <= 9000; job++) {
        assert_int_equal(catalog_add(all, job, "ann", "p", JOB_SUCCEEDED, 1), 0);
        assert_int_equal(spool_make_job(&s->cfg.spool, job, NULL), 0);
        assert_int_equal(spool_append(&s->cfg.spool, job, "rank-00000.g1.log", 0, "x", 1, &is_new), 1);
    }
    s->core->cfg.keep_ended = 10000;
    s->core->cfg.spool.all_bytes = 8999;
    scene_wait(s, 150);
    assert_int_equal(all->logs, 8999);
    assert_int_equal(logs_of(s, 1), -1);
    assert_int_equal(logs_of(s, 2), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_oldest_ended_jobs_of_who_has_most_lose_their_logs),
        TEST(logs_of_jobs_that_run_stay_until_these_end),
        TEST(removed_logs_are_told_take_in_no_more_and_leave_the_metrics),
        TEST(a_removal_that_was_interrupted_is_finished_by_the_next_server),
        TEST(each_of_more_jobs_than_are_looked_at_in_a_tick_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
