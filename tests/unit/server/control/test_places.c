/* test_places - folders of runs on a disk that stands still: what is decided goes on */
#include "tests/unit/server/control/scene.h"

#include <semaphore.h>

#include "server/control/change.h"
#include "server/control/places.h"

#define COMMAND "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

static struct spool real;
static struct spool_ops slow_ops;
static sem_t began, go_on;

static int make_slowly(void *self, uint64_t job, struct merr *err)
{
    (void)sem_post(&began);
    while (sem_wait(&go_on) < 0)
        ;
    return real.ops->make(self, job, err);
}

static int start(void **state)
{
    struct scene *s;

    assert_int_equal(scene_start(state), 0);
    s = *state;
    assert_int_equal(sem_init(&began, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    real = s->core->cfg.spool;
    slow_ops = *real.ops;
    slow_ops.make = make_slowly;
    s->core->cfg.spool.ops = &slow_ops;
    places_free(s->core->places);
    assert_int_equal(places_start(s->core, true, &s->core->places, NULL), 0);
    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    return 0;
}

/* The turn that the thread asks for once it is done. */
static void take_wake(struct scene *s)
{
    struct call *list = queue_take(&s->core->turn.queue, SIZE_MAX, clock_mono_us() + 20 * SECOND);

    assert_non_null(list);
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, list));
}

static void a_disk_that_stands_still_holds_up_the_start_of_runs_and_nothing_else(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, COMMAND), other;

    scene_turn(s);
    scene_wait(s, 1);
    assert_int_equal(sem_wait(&began), 0);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_string_equal(scene_order(s, "n1", job), ""); /* its node is not told yet, and turns went on */
    other = scene_submit(s, COMMAND);
    scene_wait(s, 5);
    assert_int_equal(scene_entry(s, other)->job.state, JOB_STARTING);
    assert_string_equal(scene_order(s, "n1", other), "");
    assert_int_equal(sem_post(&go_on), 0);
    assert_int_equal(sem_post(&go_on), 0);
    take_wake(s);
    if (!*scene_order(s, "n1", other))
        take_wake(s);
    assert_string_equal(scene_order(s, "n1", job), "run");
    assert_string_equal(scene_order(s, "n1", other), "run");
}

static void a_folder_that_is_made_in_time_is_told_of_in_the_same_turn(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    for (int i = 0; i < 100; i++)
        assert_int_equal(sem_post(&go_on), 0);
    job = scene_submit(s, COMMAND);
    scene_wait(s, 1);
    if (scene_entry(s, job)->run.folders != ENTRY_FOLDERS_MADE) /* this machine is busy */
        take_wake(s);
    assert_string_equal(scene_order(s, "n1", job), "run");
}

static int stop(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < 100; i++)
        (void)sem_post(&go_on);
    places_free(s->core->places);
    s->core->places = NULL;
    return scene_stop(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_disk_that_stands_still_holds_up_the_start_of_runs_and_nothing_else, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_folder_that_is_made_in_time_is_told_of_in_the_same_turn, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
