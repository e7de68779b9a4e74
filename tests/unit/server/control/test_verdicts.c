/* The table "Orders and ends" of docs/protocol.md: what becomes of a command's job, by what was wanted of it and by how
 * its program ended. */
#include <signal.h>

#include "tests/unit/server/control/scene.h"

#include "server/control/change.h"
#include "server/control/records.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 0, user: 0}\n"

enum wish { NOTHING, SUSPEND, PREEMPT, MOVE, CANCEL };

/* The job's run ends so, once it was wished for and its program has seen this. */
static void end_run(struct scene *s, uint64_t job, enum wish wish, const struct exit_seen *seen, struct rank_exit e)
{
    static const enum job_cause_kind kind[] = {
        [SUSPEND] = CAUSE_SUSPEND, [PREEMPT] = CAUSE_REQUEUE, [MOVE] = CAUSE_RESCALE, [CANCEL] = CAUSE_CANCEL};
    struct job_cause cause = {.kind = kind[wish], .actor = "test", .text = "wished for"};
    json_t *run, *rank;
    struct merr err;

    if (wish != NOTHING)
        assert_int_equal(change_job(s->core, scene_entry(s, job), &cause, &err), 0);
    exit_judge(&e, seen);
    run = scene_run_of(scene_entry(s, job), 1, "n1", "exited", e.status);
    rank = json_array_get(json_object_get(run, "ranks"), 0);
    (void)json_object_set_new(rank, "signal", json_integer(e.signal));
    (void)json_object_set_new(rank, "cause", json_string(exit_cause_names[e.cause]));
    if (e.why[0])
        (void)json_object_set_new(rank, "why", json_string(e.why));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
}

#define AGAIN JOB_QUEUED /* or it has its devices again by now, without a restart that is counted */

static void what_was_wanted_of_a_job_decides_what_the_end_of_its_command_means(void **state)
{
    static const struct {
        enum wish wish;
        struct exit_seen seen;
        int status, signal;
        enum job_state next;
        const char *class_, *text; /* of the outcome and of the reason; NULL: not looked at */
    } row[] = {
        /* it ends by itself */
        {NOTHING, {0}, 0, 0, JOB_SUCCEEDED, "done", "every rank is done"},
        {NOTHING, {0}, 3, 0, JOB_FAILED, "user", "rank 0 on n1: ended with exit code 3; no restart is left"},
        {NOTHING, {0}, 139, SIGSEGV, JOB_FAILED, "user", "rank 0 on n1: ended by signal 11 (Segmentation fault); no"},
        {NOTHING, {0}, 139, 0, JOB_FAILED, "user", "rank 0 on n1: ended by signal 11 (Segmentation fault); no"},
        {NOTHING, {0}, 137, SIGKILL, JOB_FAILED, "system", "rank 0 on n1: ended by signal 9 (Killed); no"},
        {NOTHING, {0}, 137, 0, JOB_FAILED, "system", "rank 0 on n1: ended by signal 9 (Killed); no"},
        {NOTHING, {.out_of_memory = true}, 137, SIGKILL, JOB_FAILED, "user", "rank 0 on n1: took more memory than it"},
        {SUSPEND, {0}, 0, 0, JOB_SUCCEEDED, "done", NULL}, /* before the order was there */
        {PREEMPT, {.finished = true}, 0, 0, JOB_SUCCEEDED, "done", NULL},
        /* it was told to end */
        {SUSPEND, {.asked = true}, 0, 0, JOB_SUSPENDED, NULL, "suspended; its devices are free"},
        {SUSPEND, {.asked = true}, 3, 0, JOB_SUSPENDED, NULL, NULL},
        {SUSPEND, {.asked = true}, 143, SIGTERM, JOB_SUSPENDED, NULL, NULL},
        {SUSPEND, {.asked = true, .killed = true}, 137, SIGKILL, JOB_SUSPENDED, NULL, NULL},
        {PREEMPT, {.asked = true}, 0, 0, AGAIN, NULL, NULL},
        {PREEMPT, {.asked = true}, 1, 0, AGAIN, NULL, NULL},
        {PREEMPT, {.asked = true}, 143, SIGTERM, AGAIN, NULL, NULL},
        {PREEMPT, {.asked = true, .killed = true}, 137, SIGKILL, AGAIN, NULL, NULL},
        {MOVE, {.asked = true}, 0, 0, AGAIN, NULL, NULL},
        {MOVE, {.asked = true}, 139, SIGSEGV, AGAIN, NULL, NULL},
        {CANCEL, {.asked = true}, 0, 0, JOB_CANCELLED, "cancelled", NULL},
        {CANCEL, {.asked = true, .killed = true}, 137, SIGKILL, JOB_CANCELLED, "cancelled", NULL},
        /* it was told to end and says that all is done */
        {SUSPEND, {.asked = true, .finished = true}, 0, 0, JOB_SUCCEEDED, "done", "every rank is done"},
        {SUSPEND, {.asked = true, .finished = true}, 143, SIGTERM, JOB_SUCCEEDED, "done", NULL},
        {SUSPEND, {.asked = true, .finished = true}, 3, 0, JOB_SUSPENDED, NULL, NULL},
        {SUSPEND, {.asked = true, .finished = true, .killed = true}, 137, SIGKILL, JOB_SUSPENDED, NULL, NULL},
        {PREEMPT, {.asked = true, .finished = true}, 0, 0, JOB_SUCCEEDED, "done", NULL},
        {MOVE, {.asked = true, .finished = true}, 0, 0, JOB_SUCCEEDED, "done", NULL},
        {CANCEL, {.asked = true, .finished = true}, 0, 0, JOB_CANCELLED, "cancelled", NULL},
        /* it speaks the file interface of docs/programs.md */
        {SUSPEND, {.asked = true, .said = EXIT_SAID_STOPPED}, 1, 0, JOB_SUSPENDED, NULL, NULL},
        {PREEMPT, {.asked = true, .said = EXIT_SAID_STOPPED}, 76, 0, AGAIN, NULL, NULL},
        {MOVE, {.asked = true, .said = EXIT_SAID_STOPPED}, 143, SIGTERM, AGAIN, NULL, NULL},
        {CANCEL, {.asked = true, .said = EXIT_SAID_STOPPED}, 76, 0, JOB_CANCELLED, "cancelled", NULL},
        {SUSPEND, {.asked = true, .said = EXIT_SAID_DONE}, 0, 0, JOB_SUCCEEDED, "done", NULL},
        {NOTHING, {.said = EXIT_SAID_HEARD}, 65, 0, JOB_FAILED, "user", NULL},
        {NOTHING, {.said = EXIT_SAID_HEARD}, 70, 0, JOB_FAILED, "system", NULL},
        {NOTHING, {.said = EXIT_SAID_HEARD}, 74, 0, JOB_FAILED, "node", NULL},
        {NOTHING, {.said = EXIT_SAID_HEARD}, 75, 0, JOB_FAILED, "system", NULL},
        {NOTHING, {.said = EXIT_SAID_STOPPED}, 76, 0, JOB_FAILED, "user", "rank 0 on n1: it stopped itself"},
        {NOTHING,
         {.said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_NODE, .said_why = "disk on fire"},
         1,
         0,
         JOB_FAILED,
         "node",
         "rank 0 on n1: disk on fire"},
        /* somebody else than the server told it, or Muster killed it: the reason stands in the headline */
        {NOTHING, {.asked = true}, 0, 0, AGAIN, NULL, NULL},
        {NOTHING, {.asked = true}, 3, 0, JOB_FAILED, "system", "rank 0 on n1: it was told to end, and ended with exit"},
        {NOTHING, {.killed = true}, 137, SIGKILL, JOB_FAILED, "system", "rank 0 on n1: it did not end when it was"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rank_exit e = {.status = row[i].status, .signal = row[i].signal};
        const struct entry *live;
        const char *class_;
        struct scene *s;
        struct job j;
        uint64_t job;

        assert_int_equal(scene_start((void **)&s), 0);
        assert_int_equal(scene_register(s, "n1", "a", 1), 200);
        job = scene_submit(s, ONE);
        scene_report_all(s, job, "running", 0);
        end_run(s, job, row[i].wish, &row[i].seen, e);
        live = table_find(&s->core->jobs, job);
        if (!live)
            assert_int_equal(records_read_job(s->core, job, &j, NULL, NULL), 0);
        else
            j = live->job;
        if (row[i].next == AGAIN ? !live || j.restarts_user + j.restarts_system + j.restarts_node > 0
                                 : j.state != row[i].next)
            fail_msg("row %zu: %s, %s", i, job_state_name(j.state), j.reason_text);
        class_ = json_string_value(json_object_get(j.outcome, "class"));
        if (row[i].class_ && (!class_ || strcmp(class_, row[i].class_) != 0))
            fail_msg("row %zu: %s", i, class_);
        if (row[i].text && strncmp(j.reason_text, row[i].text, strlen(row[i].text)) != 0)
            fail_msg("row %zu: %s", i, j.reason_text);
        if (!live)
            job_clear(&j);
        assert_int_equal(scene_stop((void **)&s), 0);
    }
}

/* Rank 0 was killed since rank 1 had failed: that is the cause, also where both are reported at once. */
static void a_rank_that_was_ended_for_another_is_not_the_cause(void **state)
{
    struct scene *s = *state;
    struct rank_exit killed = {.status = 137, .signal = SIGKILL};
    uint64_t job;
    json_t *run, *rank;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\nretry: {user: 1}\n");
    scene_report_all(s, job, "running", 0);
    exit_judge(&killed, &(struct exit_seen){.asked = true, .killed = true});
    run = scene_run_of(scene_entry(s, job), 1, "n1", "exited", 3);
    rank = json_array_get(json_object_get(run, "ranks"), 0);
    (void)json_object_set_new(rank, "exit_code", json_integer(killed.status));
    (void)json_object_set_new(rank, "signal", json_integer(killed.signal));
    (void)json_object_set_new(rank, "cause", json_string(exit_cause_names[killed.cause]));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    assert_string_equal(json_string_value(json_object_get(scene_entry(s, job)->job.outcome, "message")),
                        "rank 1 on n1: ended with exit code 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_wanted_of_a_job_decides_what_the_end_of_its_command_means),
        cmocka_unit_test_setup_teardown(a_rank_that_was_ended_for_another_is_not_the_cause, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
