/* Turns: what fits into one, when the next is due, what happens when one cannot be stored, and clocks that are set. */
#include "tests/unit/server/control/scene.h"

#include "server/control/events.h"
#include "server/store/job_store.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

static void the_next_turn_is_due_for_the_tick_or_for_a_round_that_is_wanted(void **state)
{
    struct scene *s = *state;

    scene_wait(s, 1);
    assert_false(s->core->schedule_wanted);
    assert_true(turn_due_us(s->core) > s->clock.mono_us);
    assert_true(turn_due_us(s->core) <= s->clock.mono_us + SECOND / 4);
    s->core->schedule_wanted = true;
    assert_true(turn_due_us(s->core) <= s->clock.mono_us);
    scene_turn(s);
    assert_false(s->core->schedule_wanted);
}

/* A submit of about 200 KB. */
static struct call *large_submit(struct http_req **ret_req)
{
    static char spec[300000];
    struct faults faults = {.n = 0};
    size_t n = (size_t)snprintf(spec, sizeof(spec), "{\"command\": {\"argv\": [\"x\"");
    struct call *call;
    json_t *full;

    for (int i = 0; i < 2; i++) {
        n += (size_t)snprintf(spec + n, sizeof(spec) - n, ", \"");
        memset(spec + n, 'y', 100000);
        n += 100000;
        spec[n++] = '"';
    }
    n += (size_t)snprintf(spec + n, sizeof(spec) - n, "]}}");
    *ret_req = scene_request(NULL, NULL, NULL);
    call = call_new(*ret_req, scene_run);
    if (spec_from_text(spec, n, &call->spec, &faults) < 0)
        fail_msg("%s: %s", faults.v[0].pointer, faults.v[0].message);
    full = spec_to_json(call->spec);
    call->text = json_dumps(full, JSON_COMPACT);
    json_decref(full);
    return call;
}

static void a_turn_that_is_full_leaves_calls_for_the_next_in_their_order(void **state)
{
    struct scene *s = *state;
    struct http_req *req[30];
    struct call *list = NULL, **end = &list;
    size_t taken = 0;

    for (size_t i = 0; i < COUNT(req); i++) {
        *end = large_submit(&req[i]);
        end = &(*end)->next;
    }
    scene_runs = jobs_submit;
    assert_true(turn_take(s->core, list));
    while (taken < COUNT(req) && req[taken]->status == 201)
        taken++;
    assert_in_range(taken, 20, 22); /* of 4 MiB together */
    for (size_t i = taken; i < COUNT(req); i++)
        assert_int_equal(req[i]->status, 0);
    assert_true(turn_take(s->core, s->core->turn.later));
    assert_null(s->core->turn.later);
    assert_int_equal(s->core->jobs.n, COUNT(req));
    for (size_t i = 0; i < COUNT(req); i++) {
        json_t *answer = json_loads(req[i]->out, 0, NULL);

        assert_int_equal(req[i]->status, 201);
        assert_int_equal(job_id_parse(json_string_value(json_object_get(answer, "id"))), i + 1);
        json_decref(answer);
        http_req_unref(req[i]);
    }
}

static enum store_fault end_at_commit(void *arg, enum store_moment at)
{
    if (at == STORE_AT_COMMIT)
        atomic_store(&((struct scene *)arg)->core->turn.stop, 1);
    return at == STORE_AT_COMMIT ? STORE_LOST : STORE_FINE;
}

static void who_asked_in_a_turn_that_is_not_durable_is_told_to_ask_again(void **state)
{
    struct scene *s = *state;
    struct store_memory_hooks hooks = {.fault = end_at_commit, .arg = s};
    struct http_req *req;
    struct call *call = large_submit(&req);

    store_memory_set_hooks(s->memory, &hooks);
    scene_runs = jobs_submit;
    assert_false(turn_take(s->core, call));
    assert_int_equal(req->status, 503);
    http_req_unref(req);
    store_memory_set_hooks(s->memory, &(struct store_memory_hooks){.fault = NULL});
    scene_restart(s);
    assert_int_equal(s->core->jobs.n, 0);
    assert_int_equal(scene_submit(s, ONE), 1);
}

/* Else the next server would find the folder of a job in an empty store, and take it for a loss. */
static void no_folder_of_a_job_is_made_before_something_is_durable(void **state)
{
    struct scene *s = *state;
    struct store_memory_hooks hooks = {.fault = end_at_commit, .arg = s};
    uint64_t newest, job = scene_submit(s, ONE);
    struct call *call;
    struct http_req *req;

    for (int durable = 0; durable < 2; durable++) {
        scene_restart(s);
        req = scene_request(NULL, NULL, NULL);
        call = call_new(req, scene_run);
        call->body = json_pack("{s:s, s:s, s:s, s:[{s:i, s:s, s:s}], s:[]}", "node", "n1", "boot_id", "b1",
                               "incarnation", "n1", "slots", "slot", 0, "kind", "cpu", "class", "a", "runs");
        scene_runs = agents_register;
        if (!durable)
            store_memory_set_hooks(s->memory, &hooks);
        assert_int_equal(turn_take(s->core, call), durable);
        store_memory_set_hooks(s->memory, &(struct store_memory_hooks){.fault = NULL});
        http_req_unref(req);
        assert_int_equal(spool_newest_job(&s->cfg.spool, &newest, NULL), 0);
        assert_int_equal(newest, durable ? job : 0);
    }
}

static void when_the_wall_clock_is_set_waits_go_on_as_if_it_had_not_been(void **state)
{
    struct scene *s = *state;
    const int64_t by_us = -86400 * SECOND;
    int64_t submitted_us, mono_us;
    struct entry *e;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, ONE);
    e = scene_entry(s, job);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_call(s, nodes_drain, scene_request("n1", NULL, NULL), NULL).status, 202);
    s->core->dispatch.next_full_us = 0;
    scene_turn(s);
    submitted_us = e->job.submitted_us;
    mono_us = e->run.drain_deadline_us;
    assert_true(mono_us > 0);
    s->clock.wall_us += by_us;
    scene_turn(s);
    assert_int_equal(e->run.drain_deadline_us, mono_us);
    assert_int_equal(e->job.drain_by_us - s->clock.wall_us, mono_us - s->clock.mono_us);
    assert_true(e->job.waiting_us <= s->clock.wall_us);
    assert_int_equal(e->job.submitted_us, submitted_us); /* that was when it was */
    scene_restart(s);
    e = scene_entry(s, job);
    assert_int_equal(e->run.drain_deadline_us, mono_us);
}

static void jobs_that_ended_long_ago_are_forgotten_the_oldest_first(void **state)
{
    struct scene *s = *state;
    struct job_ids left = {0};
    uint64_t n = 0;

    s->core->cfg.keep_ended = 2;
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    for (uint64_t job = 1; job <= 5; job++) {
        assert_int_equal(scene_submit(s, ONE), job);
        scene_report_all(s, job, "running", 0);
        scene_report_all(s, job, "exited", 0);
    }
    scene_wait(s, 1);
    assert_int_equal(job_store_ended_count(s->store, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_int_equal(job_store_ended_oldest(s->store, 5, &left, NULL), 0);
    assert_int_equal(left.v[0], 4);
    job_ids_clear(&left);
    assert_int_equal(s->core->jobs.ended[0], 5); /* they are counted all the same */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_next_turn_is_due_for_the_tick_or_for_a_round_that_is_wanted),
        TEST(a_turn_that_is_full_leaves_calls_for_the_next_in_their_order),
        TEST(who_asked_in_a_turn_that_is_not_durable_is_told_to_ask_again),
        TEST(no_folder_of_a_job_is_made_before_something_is_durable),
        TEST(when_the_wall_clock_is_set_waits_go_on_as_if_it_had_not_been),
        TEST(jobs_that_ended_long_ago_are_forgotten_the_oldest_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
