/* What grows with time is bounded: ended jobs by number and by bytes, and how far events of old runs were taken in. */
#include "tests/unit/server/control/scene.h"

#include "server/control/offsets.h"
#include "server/control/retire.h"
#include "server/store/spool.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 1000}\n"

static void end_one(struct scene *s)
{
    scene_report_all(s, scene_submit(s, ONE), "exited", 0);
}

static void the_oldest_ended_jobs_leave_where_there_are_too_many(void **state)
{
    struct scene *s = *state;

    s->core->cfg.keep_ended = 3;
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    for (int i = 0; i < 5; i++)
        end_one(s);
    retire_jobs(s->core);
    scene_turn(s);
    assert_int_equal(s->core->jobs.catalog.n_ended, 3);
    assert_null(catalog_find(&s->core->jobs.catalog, 1));
    assert_null(catalog_find(&s->core->jobs.catalog, 2));
    assert_non_null(catalog_find(&s->core->jobs.catalog, 3));
    scene_restart(s); /* and they do not come back */
    assert_int_equal(s->core->jobs.catalog.n_ended, 3);
}

static void ended_jobs_leave_where_they_take_too_many_bytes(void **state)
{
    struct scene *s = *state;
    uint64_t bytes;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    for (int i = 0; i < 4; i++)
        end_one(s);
    bytes = s->core->jobs.catalog.ended_bytes;
    assert_true(bytes > 0);
    s->core->cfg.keep_ended_bytes = bytes / 2;
    retire_jobs(s->core);
    scene_turn(s);
    assert_true(s->core->jobs.catalog.ended_bytes <= bytes / 2);
    assert_true(s->core->jobs.catalog.n_ended > 0);
    assert_non_null(catalog_find(&s->core->jobs.catalog, 4));
}

static void a_job_of_many_runs_keeps_offsets_of_the_newest_alone(void **state)
{
    struct scene *s = *state;
    struct entry *e;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, ONE);
    e = scene_entry(s, job);
    for (uint32_t generation = 1; generation <= SPOOL_GENERATIONS + 5; generation++) {
        e->job.generation = generation;
        offsets_put(s->core, e, job, "n1", generation, 100 + generation);
        retire_generation(s->core, e);
    }
    scene_turn(s);
    assert_int_equal(e->n_offsets, SPOOL_GENERATIONS);
    assert_int_equal(offsets_read(s->core, e, job, "n1", SPOOL_GENERATIONS + 5), 105 + SPOOL_GENERATIONS);
    assert_int_equal(offsets_read(s->core, e, job, "n1", 5), -1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_oldest_ended_jobs_leave_where_there_are_too_many),
        TEST(ended_jobs_leave_where_they_take_too_many_bytes),
        TEST(a_job_of_many_runs_keeps_offsets_of_the_newest_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
