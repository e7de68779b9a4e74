/* test_webhook - who hears of what, how often a receiver is asked, what outlives the server, and every limit */
#include "tests/unit/server/control/scene.h"

#include "server/control/events.h"
#include "server/control/sealing.h"
#include "server/control/webhook.h"
#include "server/control/webhook_calls.h"
#include "server/control/webhook_send.h"
#include "server/control/webhook_text.h"

#define JOB "{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"command\": {\"argv\": [\"x\"]}}"
#define SENT_MAX 512

static const struct sealing_key key = {"0123456789abcdef"};

static struct { /* what was handed to the network */
    uint64_t id[SENT_MAX];
    char url[SENT_MAX][64], message[SENT_MAX][64];
    char body[2048], signature[96], stamp[64]; /* of the newest */
    size_t n;
    bool full;
} sent;

static bool send_it(void *self, const struct post_message *m)
{
    size_t i = sent.n < SENT_MAX ? sent.n : 0;

    (void)self;
    if (sent.full)
        return false;
    sent.n = i + 1;
    sent.id[i] = m->id;
    (void)snprintf(sent.url[i], sizeof(sent.url[i]), "%s", m->url);
    (void)snprintf(sent.message[i], sizeof(sent.message[i]), "%s", m->headers[1] ? m->headers[1] : "");
    (void)snprintf(sent.stamp, sizeof(sent.stamp), "%s", m->headers[2] ? m->headers[2] : "");
    (void)snprintf(sent.signature, sizeof(sent.signature), "%s", m->headers[3] ? m->headers[3] : "");
    (void)snprintf(sent.body, sizeof(sent.body), "%.*s", (int)m->len, m->body);
    return true;
}

static int start(void **state)
{
    int r = scene_start(state);
    struct scene *s = *state;

    memset(&sent, 0, sizeof(sent));
    s->cfg.secret_key = &key;
    s->cfg.way = (struct post_way){
        .send = send_it, .relay = "smtp://localhost:25", .from = "muster@here", .domains = "example.org"};
    scene_restart(s);
    return r;
}

static struct http_req *by(const char *user, enum http_role role, const char *name)
{
    struct http_req *r = scene_request(name, NULL, NULL);

    (void)snprintf(r->identity.user, sizeof(r->identity.user), "%s", user);
    r->identity.role = role;
    return r;
}

/* Make one; on NULL: what it hears of by itself. The status. */
static int add(struct scene *s, const char *user, enum http_role role, const char *name, const char *url, json_t *more)
{
    json_t *body = json_pack("{s:s, s:s}", "name", name, "url", url);

    (void)json_object_update(body, more);
    json_decref(more);
    return scene_call(s, webhook_calls_add, by(user, role, NULL), body).status;
}

static int make(struct scene *s, const char *user, const char *name, json_t *more)
{
    char url[64];

    (void)snprintf(url, sizeof(url), "https://%s.example/%s", user, name);
    return add(s, user, ROLE_USER, name, url, more);
}

/* The network tells what came of a message; a turn hears it. */
static void answer(struct scene *s, uint64_t id, int status)
{
    webhook_send_done(s->core, id, status, 3, status ? "" : "nobody is there");
    fake_clock_pass(&s->clock, 1000);
    assert_true(turn_take(s->core, queue_take(&s->core->turn.queue, 16, 0)));
}

static void answer_newest(struct scene *s, int status)
{
    answer(s, sent.id[sent.n - 1], status);
}

static json_t *of(struct scene *s, const char *user, const char *name)
{
    return scene_call(s, webhook_calls_get, by(user, ROLE_USER, name), NULL).body;
}

static json_t *newest(struct scene *s, const char *user, const char *name)
{
    struct scene_answer a = scene_call(s, webhook_calls_deliveries, by(user, ROLE_USER, name), NULL);

    assert_int_equal(a.status, 200);
    return json_array_get(json_object_get(a.body, "deliveries"), 0);
}

static const char *state_of(struct scene *s, const char *user, const char *name)
{
    return json_string_value(json_object_get(newest(s, user, name), "state"));
}

/* A job of ann that runs and ends with this code. */
static uint64_t run_job(struct scene *s, const char *spec, int code)
{
    uint64_t job = scene_submit(s, spec);

    scene_wait(s, 1);
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", code);
    scene_turn(s);
    return job;
}

/* --- what is sent -------------------------------------------------------------------------------------- */

static void a_signature_is_that_of_standard_webhooks(void **state)
{
    char signature[WEBHOOK_SIGNATURE_MAX];

    (void)state;
    assert_true(webhook_sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                             "{\"test\": 2432232314}", signature));
    assert_string_equal(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_false(webhook_sign("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a", 1, "", signature));
    assert_false(webhook_sign("whsec_", "a", 1, "", signature));
    assert_false(webhook_sign("whsec_AAAA", "a", 1, "", signature));
    assert_false(webhook_sign("whsec_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", "a", 1, "", signature));
}

static void the_end_of_a_job_is_told_once_signed_and_with_an_id(void **state)
{
    struct scene *s = *state;
    char id[64], want[96], signature[WEBHOOK_SIGNATURE_MAX], *secret;
    struct scene_answer a;
    json_t *body;
    long long at;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    a = scene_call(s, webhook_calls_add, by("ann", ROLE_USER, NULL),
                   json_pack("{s:s, s:s}", "name", "w", "url", "https://hooks.example/secret/path?key=1"));
    assert_int_equal(a.status, 201);
    secret = strdup(json_string_value(json_object_get(a.body, "secret")));
    assert_string_equal(json_string_value(json_object_get(a.body, "url")), "https://hooks.example/...");
    assert_null(json_object_get(of(s, "ann", "w"), "secret"));
    run_job(s, JOB, 0);
    assert_int_equal(sent.n, 1);
    assert_string_equal(sent.url[0], "https://hooks.example/secret/path?key=1");
    assert_int_equal(sscanf(sent.message[0], "webhook-id: %63s", id), 1);
    assert_int_equal(sscanf(sent.stamp, "webhook-timestamp: %lld", &at), 1);
    assert_true(webhook_sign(secret, id, at, sent.body, signature));
    (void)snprintf(want, sizeof(want), "webhook-signature: %s", signature);
    assert_string_equal(sent.signature, want);
    body = json_loads(sent.body, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(body, "type")), "job.succeeded");
    assert_string_equal(json_string_value(json_object_get(json_object_get(body, "data"), "job")), "j1");
    json_decref(body);
    answer_newest(s, 204);
    assert_string_equal(state_of(s, "ann", "w"), "delivered");
    scene_wait(s, 10);
    assert_int_equal(sent.n, 1);
    free(secret);
}

static void text_of_others_calls_nobody_and_adds_no_header(void **state)
{
    struct webhook_news n = {.kind = webhook_kind("job.failed"),
                             .at = "2026-01-01T00:00:00Z",
                             .job = "j1",
                             .name = "a",
                             .user = "ann",
                             .code = "x",
                             .text = "<!channel> & <http://evil|click>\r\nBcc: all@example.org\x1b[2J"};
    char *slack = webhook_text(WEBHOOK_SLACK, &n), *mail = webhook_text(WEBHOOK_MAIL, &n);
    char *whole = webhook_mail("a@b", "c@d", "id", 0, mail);

    (void)state;
    assert_null(strchr(slack, '<'));
    assert_non_null(strstr(slack, "&lt;!channel&gt; &amp; "));
    assert_null(strstr(slack, "\\u001b"));
    assert_null(strstr(whole, "\r\nBcc:"));
    assert_null(strchr(whole, '\x1b'));
    assert_non_null(strstr(whole, "Message-ID: <id@muster>\r\n"));
    assert_non_null(strstr(whole, "Date: Thu, 01 Jan 1970 00:00:00 +0000\r\n"));
    free(slack);
    free(mail);
    free(whole);
}

static void what_is_told_is_cut_between_whole_characters(void **state)
{
    char text[2000];
    struct webhook_news n = {.kind = webhook_kind("job.failed"), .at = "t", .text = text};
    json_t *o;
    char *body;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, "ä", 3);
    text[0] = 'x';
    memmove(text + 1, text + 2, sizeof(text) - 2);
    body = webhook_text(WEBHOOK_JSON, &n);
    assert_non_null(body);
    o = json_loads(body, 0, NULL);
    assert_int_equal(json_string_length(json_object_get(json_object_get(o, "data"), "text")), 499);
    json_decref(o);
    free(body);
}

/* --- who hears of what ---------------------------------------------------------------------------------- */

static void a_user_hears_of_their_own_jobs_and_an_admin_of_the_cluster(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(make(s, "ann", "w", json_pack("{s:[s]}", "on", "job.started")), 201);
    assert_int_equal(make(s, "bob", "w", json_pack("{s:[s]}", "on", "job.started")), 201);
    assert_int_equal(make(s, "ann", "p", json_pack("{s:[s], s:s}", "on", "job.started", "project", "other")), 201);
    assert_int_equal(make(s, "bob", "all", json_pack("{s:s}", "scope", "cluster")), 403);
    assert_int_equal(add(s, "ops", ROLE_ADMIN, "all", "https://ops.example/",
                         json_pack("{s:s, s:[s,s]}", "scope", "cluster", "on", "job.started", "node.lost")),
                     201);
    run_job(s, JOB, 0);
    assert_int_equal(sent.n, 2);
    assert_string_equal(sent.url[0][8] == 'a' ? sent.url[0] : sent.url[1], "https://ann.example/w");
    assert_string_equal(sent.url[0][8] == 'o' ? sent.url[0] : sent.url[1], "https://ops.example/");
    scene_wait(s, 200); /* the node falls silent */
    assert_string_equal(sent.url[sent.n - 1], "https://ops.example/");
    assert_non_null(strstr(sent.body, "node.lost"));
}

static void a_job_names_the_webhook_that_is_to_hear_of_it(void **state)
{
    static const char with[] = "{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"command\": {\"argv\": "
                               "[\"x\"]}, \"notify\": {\"webhook\": \"w\", \"on\": [\"started\"]}}";
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_try_submit(s, with), 0);
    assert_non_null(strstr(scene_refusal, "/notify/webhook"));
    assert_int_equal(make(s, "bob", "w", json_pack("{s:[]}", "on")), 201);
    assert_int_equal(scene_try_submit(s, with), 0); /* that is bob's */
    assert_int_equal(make(s, "ann", "w", json_pack("{s:[]}", "on")), 201);
    run_job(s, JOB, 0);
    assert_int_equal(sent.n, 0);
    run_job(s, with, 0);
    assert_int_equal(sent.n, 1);
    assert_string_equal(sent.url[0], "https://ann.example/w");
    assert_non_null(strstr(sent.body, "job.started"));
}

static void webhooks_of_others_are_not_there_but_for_an_admin(void **state)
{
    struct scene *s = *state;
    char id[WEBHOOK_ID_MAX];

    assert_int_equal(make(s, "ann", "w", NULL), 201);
    (void)snprintf(id, sizeof(id), "%s", json_string_value(json_object_get(of(s, "ann", "w"), "id")));
    assert_int_equal(scene_call(s, webhook_calls_get, by("bob", ROLE_USER, "w"), NULL).status, 404);
    assert_int_equal(scene_call(s, webhook_calls_get, by("bob", ROLE_USER, id), NULL).status, 404);
    assert_int_equal(scene_call(s, webhook_calls_drop, by("bob", ROLE_USER, id), NULL).status, 404);
    assert_int_equal(scene_call(s, webhook_calls_test, by("bob", ROLE_USER, id), NULL).status, 404);
    assert_int_equal(json_array_size(json_object_get(
                         scene_call(s, webhook_calls_list, by("bob", ROLE_USER, NULL), NULL).body, "webhooks")),
                     0);
    assert_int_equal(scene_call(s, webhook_calls_drop, by("ops", ROLE_ADMIN, id), NULL).status, 200);
    assert_int_equal(scene_call(s, webhook_calls_get, by("ann", ROLE_USER, "w"), NULL).status, 404);
    scene_restart(s);
    assert_int_equal(scene_call(s, webhook_calls_get, by("ann", ROLE_USER, "w"), NULL).status, 404);
}

static void what_can_be_no_webhook_is_refused(void **state)
{
    struct scene *s = *state;
    static const char *const urls[] = {"",
                                       "http://a.example/",
                                       "ftp://a.example/",
                                       "file:///etc/passwd",
                                       "https://user:word@a.example/",
                                       "https://a.example/ b",
                                       "https://a.example/\r\nX: y",
                                       "https://",
                                       "mailto:a@example.org"};

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
        if (add(s, "ann", ROLE_USER, "w", urls[i], NULL) != 422)
            fail_msg("'%s' was taken", urls[i]);
    assert_int_equal(make(s, "ann", "../w", NULL), 422);
    assert_int_equal(make(s, "ann", "w", json_pack("{s:[s]}", "on", "job.paused")), 422);
    assert_int_equal(make(s, "ann", "w", json_pack("{s:[i]}", "on", 1)), 422);
    assert_int_equal(make(s, "ann", "w", json_pack("{s:s}", "format", "xml")), 422);
    assert_int_equal(make(s, "ann", "w", json_pack("{s:s}", "secret", "short")), 422);
    assert_int_equal(make(s, "ann", "w", json_pack("{s:i}", "more", 1)), 422);
    assert_int_equal(make(s, "ann", "w", NULL), 201);
    assert_int_equal(make(s, "ann", "w", NULL), 409);
    s->core->cfg.secret_key = NULL;
    assert_int_equal(make(s, "ann", "x", NULL), 422);
}

static void mail_goes_to_the_domains_that_are_allowed_and_through_the_relay(void **state)
{
    static const char *const bad[] = {"mailto:a@other.org",     "mailto:a@b@example.org", "mailto:<a@example.org>",
                                      "mailto:a@example.org\n", "mailto:@example.org",    "mailto:a@sub.example.org",
                                      "https://example.org/",   "mailto:-x@example.org"};
    struct scene *s = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (add(s, "ann", ROLE_USER, "m", bad[i], json_pack("{s:s}", "format", "email")) != 422)
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(add(s, "ann", ROLE_USER, "m", "mailto:a.b+c@example.org", json_pack("{s:s}", "format", "email")),
                     201);
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "m"), NULL).status, 202);
    assert_string_equal(sent.url[0], "smtp://localhost:25");
    assert_non_null(strstr(sent.body, "To: a.b+c@example.org\r\n"));
    s->core->cfg.way.relay = NULL;
    assert_int_equal(add(s, "ann", ROLE_USER, "n", "mailto:a@example.org", json_pack("{s:s}", "format", "email")), 422);
}

/* --- trying again --------------------------------------------------------------------------------------- */

static void a_receiver_that_fails_is_asked_eight_times_at_growing_intervals_and_no_more(void **state)
{
    static const int after_s[] = {5, 30, 120, 600, 3600, 10800, 21600};
    struct scene *s = *state;
    char id[64];

    assert_int_equal(make(s, "ann", "w", NULL), 201);
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "w"), NULL).status, 202);
    assert_int_equal(sent.n, 1);
    (void)snprintf(id, sizeof(id), "%s", sent.message[0]);
    for (size_t i = 0; i < 7; i++) {
        answer_newest(s, i % 2 ? 500 : 0);
        scene_wait(s, after_s[i] - 1);
        assert_int_equal(sent.n, i + 1);
        scene_wait(s, 2);
        assert_int_equal(sent.n, i + 2);
        assert_string_equal(sent.message[i + 1], id); /* by which a receiver tells doubles */
    }
    answer_newest(s, 302); /* a redirect is no success, and is not followed */
    assert_string_equal(state_of(s, "ann", "w"), "failed");
    assert_int_equal(json_integer_value(json_object_get(newest(s, "ann", "w"), "tries")), WEBHOOK_TRIES);
    assert_non_null(strstr(json_string_value(json_object_get(newest(s, "ann", "w"), "why")), "302"));
    scene_wait(s, 100000);
    assert_int_equal(sent.n, 8);
}

static void a_receiver_that_is_gone_or_dead_for_three_days_is_switched_off(void **state)
{
    struct scene *s = *state;

    assert_int_equal(make(s, "ann", "gone", NULL), 201);
    assert_int_equal(make(s, "ann", "dead", NULL), 201);
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "gone"), NULL).status, 202);
    answer_newest(s, 410);
    assert_true(json_is_false(json_object_get(of(s, "ann", "gone"), "enabled")));
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "gone"), NULL).status, 409);
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "dead"), NULL).status, 202);
    answer_newest(s, 500);
    scene_restart(s);
    fake_clock_pass(&s->clock, (WEBHOOK_DEAD_S + 1) * SECOND);
    scene_turn(s);
    assert_true(json_is_true(json_object_get(of(s, "ann", "dead"), "enabled")));
    answer_newest(s, 500);
    assert_true(json_is_false(json_object_get(of(s, "ann", "dead"), "enabled")));
    assert_int_equal(
        scene_call(s, webhook_calls_patch, by("ann", ROLE_USER, "dead"), json_pack("{s:b}", "enabled", 1)).status, 200);
    scene_wait(s, 40);
    answer_newest(s, 200);
    assert_string_equal(state_of(s, "ann", "dead"), "delivered");
}

static void what_dies_with_the_server_is_sent_by_the_next_one_with_the_same_id(void **state)
{
    struct scene *s = *state;
    char id[64];

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(make(s, "ann", "w", NULL), 201);
    run_job(s, JOB, 1);
    assert_int_equal(sent.n, 1);
    (void)snprintf(id, sizeof(id), "%s", sent.message[0]);
    scene_restart(s); /* while it is on its way */
    scene_turn(s);
    assert_int_equal(sent.n, 2);
    assert_string_equal(sent.message[1], id);
    answer_newest(s, 200);
    scene_restart(s);
    scene_wait(s, 10);
    assert_int_equal(sent.n, 2);
    assert_string_equal(state_of(s, "ann", "w"), "delivered");
}

static void nothing_is_lost_while_the_sender_takes_nothing(void **state)
{
    struct scene *s = *state;

    assert_int_equal(make(s, "ann", "w", NULL), 201);
    sent.full = true;
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "w"), NULL).status, 202);
    scene_wait(s, 5);
    sent.full = false;
    scene_wait(s, 2);
    assert_int_equal(sent.n, 1);
}

static void one_that_is_deleted_while_it_is_on_its_way_is_heard_of_no_more(void **state)
{
    struct scene *s = *state;

    assert_int_equal(make(s, "ann", "w", NULL), 201);
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "w"), NULL).status, 202);
    assert_int_equal(scene_call(s, webhook_calls_drop, by("ann", ROLE_USER, "w"), NULL).status, 200);
    assert_int_equal(make(s, "ann", "w", NULL), 201);
    answer_newest(s, 500);
    answer_newest(s, 500); /* twice */
    answer(s, 99, 200);
    assert_int_equal(json_integer_value(json_object_get(of(s, "ann", "w"), "waiting")), 0);
    scene_wait(s, 60);
    assert_int_equal(sent.n, 1);
}

/* --- limits --------------------------------------------------------------------------------------------- */

#define STORM 20000

static void storm(struct core *c, struct call *call)
{
    for (int i = 0; i < STORM; i++)
        events_note(c, 0, "", "node", 0, "server", "lost", "n1", json_pack("{s:s}", "node", "n1"));
    call_answer_new(call, 200, json_object());
}

static void a_storm_of_events_fills_what_there_is_room_for_and_the_rest_is_counted(void **state)
{
    struct scene *s = *state;
    json_t *h;

    assert_int_equal(add(s, "ops", ROLE_ADMIN, "w", "https://ops.example/",
                         json_pack("{s:s, s:[s]}", "scope", "cluster", "on", "node.lost")),
                     201);
    assert_int_equal(scene_call(s, storm, scene_request(NULL, NULL, NULL), NULL).status, 200);
    assert_int_equal(sent.n, WEBHOOK_AT_ONCE);
    for (int i = 0; i < 2; i++) {
        h = of(s, "ops", "w");
        assert_int_equal(json_integer_value(json_object_get(h, "waiting")), WEBHOOK_WAITING);
        assert_int_equal(json_integer_value(json_object_get(h, "dropped")), STORM - WEBHOOK_WAITING);
        scene_restart(s);
    }
    sent.n = 0;
    scene_turn(s);
    for (size_t i = 0; i < sent.n && i < WEBHOOK_WAITING; i++)
        answer(s, sent.id[i], 200);
    h = of(s, "ops", "w");
    assert_int_equal(json_integer_value(json_object_get(h, "waiting")), 0);
    assert_int_equal(json_array_size(json_object_get(
                         scene_call(s, webhook_calls_deliveries, by("ops", ROLE_ADMIN, "w"), NULL).body, "deliveries")),
                     WEBHOOK_KEPT);
}

static void a_receiver_that_never_answers_holds_up_nobody_else(void **state)
{
    struct scene *s = *state;
    char name[16];

    for (int i = 0; i < 10; i++) { /* of ann, each with ten deliveries that nobody answers */
        (void)snprintf(name, sizeof(name), "w%d", i);
        assert_int_equal(make(s, "ann", name, NULL), 201);
        for (int k = 0; k < 10; k++)
            assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, name), NULL).status, 202);
    }
    assert_int_equal(sent.n, WEBHOOK_USER_AT_ONCE);
    assert_int_equal(make(s, "bob", "w", NULL), 201);
    assert_int_equal(scene_call(s, webhook_calls_test, by("bob", ROLE_USER, "w"), NULL).status, 202);
    assert_string_equal(sent.url[sent.n - 1], "https://bob.example/w");
    answer(s, sent.id[0], 200); /* room for one more of ann's */
    assert_int_equal(sent.n, WEBHOOK_USER_AT_ONCE + 2);
    assert_int_equal(strncmp(sent.url[sent.n - 1], "https://ann.example/", 20), 0);
}

static void a_user_has_so_many_webhooks_and_deliveries_and_others_have_room_still(void **state)
{
    struct scene *s = *state;
    char name[16];
    int taken = 0;

    for (int i = 0; i < WEBHOOK_USER_MAX; i++) {
        (void)snprintf(name, sizeof(name), "w%d", i);
        assert_int_equal(make(s, "ann", name, NULL), 201);
    }
    assert_int_equal(make(s, "ann", "more", NULL), 409);
    assert_int_equal(make(s, "bob", "more", NULL), 201);
    for (int i = 0; i < WEBHOOK_USER_WAITING + 10; i++) {
        (void)snprintf(name, sizeof(name), "w%d", i % WEBHOOK_USER_MAX);
        taken += scene_call(s, webhook_calls_test, by("ann", ROLE_USER, name), NULL).status == 202;
    }
    assert_int_equal(taken, WEBHOOK_USER_WAITING);
    assert_int_equal(scene_call(s, webhook_calls_test, by("bob", ROLE_USER, "more"), NULL).status, 202);
}

static void a_clock_that_is_put_back_does_not_hold_deliveries_back(void **state)
{
    struct scene *s = *state;

    assert_int_equal(make(s, "ann", "w", NULL), 201);
    assert_int_equal(scene_call(s, webhook_calls_test, by("ann", ROLE_USER, "w"), NULL).status, 202);
    answer_newest(s, 500);
    s->clock.wall_us -= 86400 * SECOND;
    scene_wait(s, 2);
    assert_int_equal(sent.n, 2);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, scene_stop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_that_of_standard_webhooks),
        cmocka_unit_test(text_of_others_calls_nobody_and_adds_no_header),
        cmocka_unit_test(what_is_told_is_cut_between_whole_characters),
        TEST(the_end_of_a_job_is_told_once_signed_and_with_an_id),
        TEST(a_user_hears_of_their_own_jobs_and_an_admin_of_the_cluster),
        TEST(a_job_names_the_webhook_that_is_to_hear_of_it),
        TEST(webhooks_of_others_are_not_there_but_for_an_admin),
        TEST(what_can_be_no_webhook_is_refused),
        TEST(mail_goes_to_the_domains_that_are_allowed_and_through_the_relay),
        TEST(a_receiver_that_fails_is_asked_eight_times_at_growing_intervals_and_no_more),
        TEST(a_receiver_that_is_gone_or_dead_for_three_days_is_switched_off),
        TEST(what_dies_with_the_server_is_sent_by_the_next_one_with_the_same_id),
        TEST(nothing_is_lost_while_the_sender_takes_nothing),
        TEST(one_that_is_deleted_while_it_is_on_its_way_is_heard_of_no_more),
        TEST(a_storm_of_events_fills_what_there_is_room_for_and_the_rest_is_counted),
        TEST(a_receiver_that_never_answers_holds_up_nobody_else),
        TEST(a_user_has_so_many_webhooks_and_deliveries_and_others_have_room_still),
        TEST(a_clock_that_is_put_back_does_not_hold_deliveries_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
