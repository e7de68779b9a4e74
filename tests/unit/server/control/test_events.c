/* Events: their ids, when followers get them and which, and what is kept of them. */
#include "server/control/events.h"
#include "tests/unit/server/control/scene.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

struct reader { /* a client that follows: the request that became its stream */
    struct http_req *req;
    size_t read; /* bytes that it has read */
};

/* Begin to follow with a call: a job's events, all, or its output (rank as the query says). who NULL: an admin. */
static struct reader follow(struct scene *s, scene_fn *fn, const char *job, const char *who)
{
    static const char accept[] = "Accept\0text/event-stream";
    struct reader f = {.req = scene_request(job, NULL, NULL)};
    struct call *call = call_new(f.req, scene_run);

    buf_init(&f.req->header_text, 256);
    (void)buf_add(&f.req->header_text, accept, sizeof(accept));
    f.req->n_headers = 1;
    if (who) {
        f.req->identity.role = ROLE_USER;
        (void)snprintf(f.req->identity.user, sizeof(f.req->identity.user), "%s", who);
    }
    call->job = job ? job_id_parse(job) : 0;
    scene_runs = fn;
    fake_clock_pass(&s->clock, SECOND / 100);
    assert_true(turn_take(s->core, call));
    f.read = f.req->stream.queue.len;
    return f;
}

/* What has come since it was read last; good until something else comes. */
static const char *fresh(struct reader *f)
{
    const char *text = f->req->stream.queue.len > f->read ? f->req->stream.queue.data + f->read : "";

    f->read = f->req->stream.queue.len;
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

static void note(struct scene *s, uint64_t job, const char *code)
{
    events_note(s->core, job, "ann", "note", 1, "scheduler", code, "words", NULL);
}

static void ids_grow_and_no_server_gives_one_again(void **state)
{
    struct scene *s = *state;
    uint64_t before = events_next(s->core);

    (void)scene_submit(s, ONE);
    assert_int_equal(events_next(s->core), before + 1);
    scene_restart(s);
    assert_int_equal(events_next(s->core), before + 1);
    (void)scene_submit(s, ONE);
    assert_int_equal(events_next(s->core), before + 2);
}

static void followers_hear_of_nothing_before_it_is_durable(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, ONE);
    struct reader f = follow(s, timeline_of_job, "j1", NULL);

    note(s, job, "first");
    assert_string_equal(fresh(&f), "");
    scene_turn(s);
    assert_int_equal(count(f.req->stream.queue.data, "\"first\""), 1);
    http_req_unref(f.req);
}

static enum store_fault die(void *arg, enum store_moment at)
{
    if (at != STORE_AT_COMMIT)
        return STORE_FINE;
    atomic_store(&((struct scene *)arg)->core->turn.stop, 1);
    return STORE_LOST;
}

static void what_is_not_durable_is_never_told(void **state)
{
    struct scene *s = *state;
    uint64_t job = scene_submit(s, ONE);
    struct reader f = follow(s, timeline_of_job, "j1", NULL);
    struct store_memory_hooks hooks = {.fault = die, .arg = s};

    note(s, job, "lost");
    store_memory_set_hooks(s->memory, &hooks);
    assert_false(turn_take(s->core, NULL));
    assert_string_equal(fresh(&f), "");
    store_memory_set_hooks(s->memory, &(struct store_memory_hooks){.fault = NULL});
    http_req_unref(f.req);
}

static void followers_get_what_they_asked_for_and_may_see(void **state)
{
    struct scene *s = *state;
    uint64_t first = scene_submit(s, ONE), second = scene_submit(s, ONE);
    struct reader of_first = follow(s, timeline_of_job, "j1", NULL), all = follow(s, timeline_of_all, NULL, NULL);
    struct reader owner = follow(s, timeline_of_all, NULL, "ann"), other = follow(s, timeline_of_all, NULL, "bob");

    note(s, first, "one");
    note(s, second, "two");
    scene_turn(s);
    assert_int_equal(count(fresh(&of_first), "event: note"), 1);
    assert_int_equal(count(fresh(&all), "event: note"), 2);
    assert_int_equal(count(fresh(&owner), "event: note"), 2);
    assert_int_equal(count(fresh(&other), "event: note"), 0);
    http_req_unref(of_first.req);
    http_req_unref(all.req);
    http_req_unref(owner.req);
    http_req_unref(other.req);
}

static void one_who_may_not_see_a_job_cannot_follow_it(void **state)
{
    struct scene *s = *state;
    struct reader f;

    (void)scene_submit(s, ONE);
    f = follow(s, timeline_of_job, "j1", "bob");
    assert_int_equal(f.req->status, 404);
    assert_int_equal(events_followers(s->core), 0);
    http_req_unref(f.req);
}

static void a_follower_that_is_too_slow_is_let_go_and_the_others_stay(void **state)
{
    static char words[4096];
    struct scene *s = *state;
    uint64_t job = scene_submit(s, ONE);
    struct reader slow = follow(s, timeline_of_job, "j1", NULL), quick = follow(s, timeline_of_job, "j1", NULL);

    memset(words, 'x', sizeof(words) - 1);
    for (int i = 0; i < 300; i++) {
        events_note(s->core, job, "ann", "note", 1, "scheduler", "long", words, NULL);
        scene_turn(s);
        buf_clear(&quick.req->stream.queue); /* that one reads */
    }
    assert_int_equal(events_followers(s->core), 1);
    assert_true(slow.req->stream.ended);
    assert_int_equal(count(slow.req->stream.queue.data, "event: lagging"), 1);
    assert_false(quick.req->stream.ended);
    http_req_unref(slow.req);
    http_req_unref(quick.req);
}

static void a_client_that_has_left_is_no_follower_for_long(void **state)
{
    struct scene *s = *state;
    struct reader f;

    (void)scene_submit(s, ONE);
    f = follow(s, timeline_of_job, "j1", NULL);
    assert_int_equal(events_followers(s->core), 1);
    f.req->gone = true;
    scene_wait(s, 1);
    assert_int_equal(events_followers(s->core), 0);
    http_req_unref(f.req);
}

static void the_end_of_a_job_ends_its_followers_alone(void **state)
{
    struct scene *s = *state;
    struct reader of_job, all;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, ONE);
    of_job = follow(s, timeline_of_job, "j1", NULL);
    all = follow(s, timeline_of_all, NULL, NULL);
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
    assert_int_equal(count(of_job.req->stream.queue.data, "event: end"), 1);
    assert_true(of_job.req->stream.ended);
    assert_false(all.req->stream.ended);
    assert_int_equal(events_followers(s->core), 1);
    http_req_unref(of_job.req);
    http_req_unref(all.req);
}

static void a_revoked_token_ends_the_streams_that_it_opened(void **state)
{
    struct scene *s = *state;
    struct reader f;

    (void)scene_submit(s, ONE);
    f = follow(s, timeline_of_job, "j1", NULL);
    events_drop_token(s->core, "t2");
    scene_wait(s, 1);
    assert_int_equal(events_followers(s->core), 1);
    events_drop_token(s->core, "t1");
    scene_wait(s, 1);
    assert_int_equal(events_followers(s->core), 0);
    http_req_unref(f.req);
}

/* Applied one after the other to the job as it was submitted, what the store has of its events gives its state. */
static void what_is_kept_of_a_job_gives_its_state(void **state)
{
    struct scene *s = *state;
    const char *spec = "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\nretry: {max: 3, user: 1}\n";
    struct job_spec *read = NULL;
    struct faults faults = {.n = 0};
    struct job replayed;
    const struct job *job;
    json_t *events, *event;
    uint64_t last = 0;
    size_t i;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_submit(s, spec), 1);
    scene_report_all(s, 1, "running", 0);
    note(s, 1, "between");
    scene_report_all(s, 1, "exited", 1);
    scene_turn(s);
    assert_int_equal(spec_from_text(spec, strlen(spec), &read, &faults), 0);
    job = &scene_entry(s, 1)->job;
    job_init(&replayed, 1, read, "ann", job->submitted_us);
    spec_free(read);
    events = json_incref(
        json_object_get(scene_call(s, timeline_of_job, scene_request("j1", NULL, NULL), NULL).body, "events"));
    json_array_foreach (events, i, event) {
        uint64_t id = strtoull(json_string_value(json_object_get(event, "id")), NULL, 10);

        assert_true(id > last);
        last = id;
        if (strcmp(json_string_value(json_object_get(event, "type")), "state") == 0)
            assert_int_equal(job_apply(&replayed, event), 0);
    }
    assert_true(json_array_size(events) >= 5);
    assert_int_equal(replayed.state, job->state);
    assert_int_equal(replayed.version, job->version);
    assert_int_equal(replayed.generation, job->generation);
    assert_int_equal(replayed.restarts_user, 1);
    job_clear(&replayed);
    json_decref(events);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ids_grow_and_no_server_gives_one_again),
        TEST(followers_hear_of_nothing_before_it_is_durable),
        TEST(what_is_not_durable_is_never_told),
        TEST(followers_get_what_they_asked_for_and_may_see),
        TEST(one_who_may_not_see_a_job_cannot_follow_it),
        TEST(a_follower_that_is_too_slow_is_let_go_and_the_others_stay),
        TEST(a_client_that_has_left_is_no_follower_for_long),
        TEST(the_end_of_a_job_ends_its_followers_alone),
        TEST(a_revoked_token_ends_the_streams_that_it_opened),
        TEST(what_is_kept_of_a_job_gives_its_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
