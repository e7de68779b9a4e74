/* A command is asked to save while it runs: whoever answers speaks for the job, and who does not is told of. */
#include "server/control/saves.h"
#include "tests/unit/server/control/scene.h"

#define SPEC "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\n"

/* Two ranks, of which rank 1 has answered the order seq. */
static json_t *run_of(struct scene *s, uint64_t job, const char *state, int64_t seq, int step, const char *did)
{
    json_t *run = scene_run_of(scene_entry(s, job), 1, "n1", state, 0);
    json_t *rank = json_array_get(json_object_get(run, "ranks"), 1);

    if (seq > 0)
        (void)json_object_update_new(
            rank, json_pack("{s:I, s:i, s:s}", "ack", (json_int_t)seq, "ack_step", step, "ack_did", did));
    return run;
}

static void report(struct scene *s, uint64_t job, const char *state, int64_t seq, int step, const char *did)
{
    json_t *runs = json_pack("[o]", run_of(s, job, state, seq, step, did));

    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
}

static int ask(struct scene *s)
{
    struct http_req *r = scene_request("j1", NULL, NULL);

    free(r->uri);
    r->uri = strdup("/v1/jobs/j1/checkpoint");
    return scene_call(s, jobs_action, r, NULL).status;
}

/* How often the job's history has these words. */
static int told(struct scene *s, const char *words)
{
    struct scene_answer a = scene_call(s, timeline_of_job, scene_request("j1", NULL, NULL), NULL);
    char *text = json_dumps(a.body, JSON_COMPACT);
    int n = 0;

    assert_int_equal(a.status, 200);
    for (const char *p = text; (p = strstr(p, words)); p++)
        n++;
    free(text);
    return n;
}

static uint64_t begin(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, SPEC);
    assert_int_equal(ask(s), 409); /* it does not run yet */
    report(s, job, "running", 0, 0, NULL);
    assert_string_equal(scene_order(s, "n1", job), "run");
    return job;
}

/* With the next server, the run going on. */
static void register_with(struct scene *s, uint64_t job)
{
    json_t *slots = json_pack("[{s:i, s:s, s:s, s:i, s:i}, {s:i, s:s, s:s, s:i, s:i}]", "slot", 0, "kind", "cpu",
                              "class", "a", "threads", 1, "memory_mib", 4096, "slot", 1, "kind", "cpu", "class", "a",
                              "threads", 1, "memory_mib", 4096);

    assert_int_equal(
        scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                   json_pack("{s:s, s:s, s:s, s:s, s:o, s:[o]}", "node", "n1", "address", "10.0.0.1", "boot_id", "b1",
                             "incarnation", "n1", "slots", slots, "runs", run_of(s, job, "running", 2, 50, "saved")))
            .status,
        200);
}

static void a_command_is_ordered_to_save_until_a_rank_answers_and_the_step_is_told(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    assert_int_equal(ask(s), 202);
    assert_int_equal(ask(s), 202); /* twice is once */
    assert_string_equal(scene_order(s, "n1", job), "save");
    report(s, job, "running", 1, 40, "saved");
    assert_string_equal(scene_order(s, "n1", job), "run");
    report(s, job, "running", 1, 40, "saved"); /* agents tell it again with each report */
    assert_int_equal(told(s, "rank 1 has saved at step 40"), 1);
}

static void an_answer_to_an_order_before_is_none(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    assert_int_equal(ask(s), 202);
    report(s, job, "running", 1, 40, "saved");
    assert_int_equal(ask(s), 202);
    report(s, job, "running", 1, 40, "saved");
    assert_string_equal(scene_order(s, "n1", job), "save");
    report(s, job, "running", 2, 50, "saved");
    assert_string_equal(scene_order(s, "n1", job), "run");
    scene_restart(s); /* the next server has heard of no answer */
    register_with(s, job);
    assert_int_equal(ask(s), 202);
    report(s, job, "running", 2, 50, "saved");
    assert_string_equal(scene_order(s, "n1", job), "save");
    report(s, job, "running", 3, -1, "saved");
    assert_int_equal(told(s, "has saved"), 3);
    assert_int_equal(told(s, "rank 1 has saved\""), 1);
}

static void a_refusal_is_told_and_ends_the_order(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    assert_int_equal(ask(s), 202);
    report(s, job, "running", 1, 7, "stopping"); /* is no answer to this */
    assert_string_equal(scene_order(s, "n1", job), "save");
    report(s, job, "running", 2, 7, "refused");
    assert_string_equal(scene_order(s, "n1", job), "run");
    assert_int_equal(told(s, "rank 1 refused to save at step 7"), 1);
}

static void of_a_program_that_does_not_answer_the_job_is_told_after_two_minutes(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    assert_int_equal(ask(s), 202);
    for (int i = 0; i < SAVES_ANSWER_S / 5; i++) {
        assert_string_equal(scene_order(s, "n1", job), "save");
        assert_int_equal(told(s, "has not answered"), 0);
        scene_wait(s, 5);
        report(s, job, "running", 0, 0, NULL);
    }
    assert_int_equal(told(s, "has not answered the order to save"), 1);
    assert_string_equal(scene_order(s, "n1", job), "run");
    report(s, job, "running", 1, 9, "saved"); /* too late: nobody waits for it */
    assert_int_equal(told(s, "has saved"), 0);
}

static void an_order_to_end_takes_the_place_of_one_to_save(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct http_req *r = scene_request("j1", NULL, NULL);

    assert_int_equal(ask(s), 202);
    free(r->uri);
    r->uri = strdup("/v1/jobs/j1/suspend");
    assert_int_equal(scene_call(s, jobs_action, r, NULL).status, 202);
    assert_string_equal(scene_order(s, "n1", job), "drain");
    assert_int_equal(ask(s), 409);
    scene_wait(s, 5);
    report(s, job, "running", 0, 0, NULL);
    assert_false(scene_entry(s, job)->run.save);
    assert_int_equal(told(s, "has not answered"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_command_is_ordered_to_save_until_a_rank_answers_and_the_step_is_told),
        TEST(an_answer_to_an_order_before_is_none),
        TEST(a_refusal_is_told_and_ends_the_order),
        TEST(of_a_program_that_does_not_answer_the_job_is_told_after_two_minutes),
        TEST(an_order_to_end_takes_the_place_of_one_to_save),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
