/* Records of the store that cannot be read: the rest works, they are told by name and kept, read again or dropped. */
#include "tests/unit/server/control/scene.h"

#include "server/control/listing.h"
#include "server/control/quarantine.h"
#include "server/control/salvage.h"
#include "server/store/history.h"
#include "server/store/store_priv.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"
#define JOB "muster:job:2"

static void commit(struct scene *s)
{
    _Atomic int stop = 0;

    assert_int_equal(store_commit(s->store, &stop, NULL), 0);
}

/* A field of a record in the store; NULL: it goes. */
static void damage(struct scene *s, const char *key, const char *field, const char *text)
{
    if (text)
        store_add(s->store, "HSET", key, field, text, NULL);
    else
        store_add(s->store, "HDEL", key, field, NULL);
    commit(s);
}

static char *stored(struct scene *s, const char *key, const char *field)
{
    redisReply *reply = store_read(s->store, NULL, "HGET %s %s", key, field);
    char *text = reply && reply->str ? strdup(reply->str) : NULL;

    freeReplyObject(reply);
    return text;
}

static struct scene_answer get(struct scene *s, scene_fn *fn, const char *param)
{
    return scene_call(s, fn, scene_request(param, NULL, NULL), NULL);
}

/* What a list of jobs says: their numbers, and after a bar those in quarantine. */
static const char *listed(struct scene *s)
{
    static char text[256];
    size_t at = 0;
    struct scene_answer a = get(s, listing_jobs, NULL);
    json_t *one;
    size_t i;

    text[0] = '\0';
    json_array_foreach (json_object_get(a.body, "jobs"), i, one)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ", json_string_value(json_object_get(one, "id")));
    json_array_foreach (json_object_get(json_object_get(a.body, "quarantine"), "jobs"), i, one)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "|%s", json_string_value(one));
    return text;
}

static const char *const field_of_damage[] = {"rec", "rec", "rec", "rec", "rec", "rec", "rec", "v", "spec", "spec"};
static const char *const text_of_damage[] = {
    "",
    "{\"id\": 2",
    "{}",
    "{\"id\":9,\"kind\":\"command\",\"state\":\"queued\",\"intent\":\"go-on\",\"min\":1,\"max\":1,\"version\":1}",
    "{\"id\":2,\"kind\":\"command\",\"state\":\"queued\",\"intent\":\"go-on\",\"min\":1,\"max\":1,\"version\":7}",
    "{\"id\":2,\"kind\":\"command\",\"state\":\"queued\",\"intent\":\"go-on\",\"min\":0,\"max\":1,\"version\":1}",
    "{\"id\":2,\"kind\":\"command\",\"state\":\"running\",\"intent\":\"go-on\",\"min\":1,\"max\":1,\"version\":1,"
    "\"live\":true,\"generation\":1}",
    "nonsense",
    NULL,
    "{\"command\"",
};

static void one_unreadable_job_is_told_by_name_and_keeps_no_other_from_running(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < 3; i++)
        scene_submit(s, ONE);
    for (size_t d = 0; d < COUNT(field_of_damage); d++) {
        char *before = stored(s, JOB, field_of_damage[d]), *kept;

        damage(s, JOB, field_of_damage[d], text_of_damage[d]);
        scene_restart(s);
        scene_turn(s);
        assert_string_equal(listed(s), "j3 j1 |j2");
        assert_int_equal(quarantine_count(s->core), 1);
        assert_int_equal(get(s, jobs_get, "j1").status, 200);
        assert_int_equal(get(s, jobs_get, "j2").status, 409);
        assert_int_equal(get(s, timeline_of_job, "j2").status, 409);
        scene_restart(s); /* the next start knows it, too */
        assert_string_equal(listed(s), "j3 j1 |j2");
        kept = stored(s, JOB, field_of_damage[d]);
        assert_true(kept ? !strcmp(kept, text_of_damage[d]) : !text_of_damage[d]);
        free(kept);
        assert_int_equal(get(s, salvage_retry, "job:j2").status, 409); /* still damaged */
        damage(s, JOB, field_of_damage[d], before);
        assert_int_equal(get(s, salvage_retry, "job:j2").status, 200);
        assert_string_equal(listed(s), "j3 j2 j1 ");
        assert_int_equal(get(s, jobs_get, "j2").status, 200);
        scene_restart(s);
        assert_string_equal(listed(s), "j3 j2 j1 ");
        free(before);
    }
}

static void a_job_that_the_store_lists_and_does_not_have_is_in_quarantine(void **state)
{
    struct scene *s = *state;

    scene_submit(s, ONE);
    scene_submit(s, ONE);
    store_add(s->store, "DEL", JOB, NULL);
    commit(s);
    scene_restart(s);
    assert_string_equal(listed(s), "j1 |j2");
    assert_int_equal(scene_submit(s, ONE), 3); /* its number is not given again */
}

static void a_job_of_the_queue_runs_when_its_record_was_read_again(void **state)
{
    struct scene *s = *state;
    char *before;

    scene_submit(s, ONE);
    scene_submit(s, ONE);
    before = stored(s, JOB, "rec");
    damage(s, JOB, "rec", "x");
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    scene_wait(s, 2);
    assert_string_equal(scene_order(s, "n1", 1), "run");
    assert_string_equal(scene_order(s, "n1", 2), "");
    damage(s, JOB, "rec", before);
    assert_int_equal(get(s, salvage_retry, "job:j2").status, 200);
    scene_wait(s, 2);
    assert_string_equal(scene_order(s, "n1", 2), "run");
    free(before);
}

static void the_run_of_a_job_goes_on_when_its_record_was_read_again(void **state)
{
    struct scene *s = *state;
    char *before;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    scene_submit(s, ONE);
    scene_submit(s, ONE);
    scene_wait(s, 2);
    scene_report_all(s, 2, "running", 0);
    before = stored(s, JOB, "rec");
    damage(s, JOB, "rec", "x");
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    assert_string_equal(scene_order(s, "n1", 1), "run");
    assert_string_equal(scene_order(s, "n1", 2), "");
    damage(s, JOB, "rec", before);
    assert_int_equal(get(s, salvage_retry, "job:j2").status, 200);
    assert_string_equal(scene_order(s, "n1", 2), "run");
    assert_int_equal(scene_entry(s, 2)->job.generation, 1);
    free(before);
}

static void an_ended_job_that_cannot_be_read_leaves_the_list_and_is_told(void **state)
{
    struct scene *s = *state;

    for (int i = 0; i < 3; i++)
        scene_submit(s, ONE);
    for (int i = 1; i <= 3; i++) {
        char id[8];
        struct http_req *r;

        (void)snprintf(id, sizeof(id), "j%d", i);
        r = scene_request(id, NULL, NULL);
        free(r->uri);
        r->uri = strdup("/v1/jobs/x/cancel");
        assert_int_equal(scene_call(s, jobs_action, r, NULL).status, 202);
    }
    damage(s, JOB, "rec", "x");
    assert_string_equal(listed(s), "j3 j1 |j2");
    damage(s, "muster:aside", "job:j2", "as it was");
    assert_string_equal(listed(s), "j3 j1 |j2");
    {
        char *note = stored(s, "muster:aside", "job:j2");

        assert_string_equal(note, "as it was"); /* it is set aside once, however often it is met */
        free(note);
    }
    assert_int_equal(get(s, salvage_drop, "job:j2").status, 200);
    assert_string_equal(listed(s), "j3 j1 ");
    assert_int_equal(get(s, jobs_get, "j2").status, 404);
    assert_int_equal(get(s, salvage_drop, "job:j2").status, 404);
    scene_restart(s);
    assert_string_equal(listed(s), "j3 j1 ");
}

static void a_node_a_project_and_a_token_that_cannot_be_read_are_set_aside_with_their_text(void **state)
{
    static const char *const table[] = {"muster:nodes", "muster:projects", "muster:tokens"};
    static const char *const id[] = {"node:n2", "project:prod", "token:abc"};
    static const char *const text[] = {"{\"slots\": 7}", "{\"quota\": \"all\"}", "{\"user\": 1}"};
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    for (size_t i = 0; i < COUNT(id); i++)
        damage(s, table[i], strchr(id[i], ':') + 1, text[i]);
    scene_restart(s);
    assert_int_equal(quarantine_count(s->core), 3);
    assert_int_equal(s->core->cluster.n_nodes, 1);
    assert_int_equal(json_array_size(json_object_get(get(s, salvage_list, NULL).body, "records")), 3);
    scene_restart(s);
    for (size_t i = 0; i < COUNT(id); i++) {
        char *kept = stored(s, "muster:aside:texts", id[i]);

        assert_null(stored(s, table[i], strchr(id[i], ':') + 1));
        assert_non_null(kept);
        assert_string_equal(kept, text[i]);
        free(kept);
        assert_int_equal(get(s, salvage_retry, id[i]).status, 409);
    }
    damage(s, "muster:aside:texts", "node:n2", "{\"slots\": [], \"drain\": true}"); /* an admin repairs two */
    damage(s, "muster:aside:texts", "project:prod", "{\"quota\": 3}");
    assert_int_equal(get(s, salvage_retry, "node:n2").status, 200);
    assert_int_equal(get(s, salvage_retry, "project:prod").status, 200);
    assert_int_equal(get(s, salvage_drop, "token:abc").status, 200);
    scene_restart(s);
    assert_int_equal(quarantine_count(s->core), 0);
    assert_true(cluster_node(&s->core->cluster, "n2")->drain);
    assert_int_equal(project_find(&s->core->cluster.projects, "prod")->quota, 3);
}

static void a_record_whose_place_was_taken_meanwhile_is_not_read_over_the_new_one(void **state)
{
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    damage(s, "muster:nodes", "n1", "x");
    scene_restart(s);
    assert_int_equal(s->core->cluster.n_nodes, 0);
    assert_int_equal(scene_register(s, "n1", "cpu", 2), 200);
    damage(s, "muster:aside:texts", "node:n1", "{\"slots\": []}");
    assert_int_equal(get(s, salvage_retry, "node:n1").status, 409);
    assert_int_equal(cluster_node(&s->core->cluster, "n1")->n_slots, 2);
    assert_int_equal(quarantine_count(s->core), 1);
}

static void an_event_that_cannot_be_read_is_told_in_its_place(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    scene_submit(s, ONE);
    for (int i = 0; i < 3; i++) {
        store_add(s->store, "RPUSH", "muster:job:1:notes",
                  i == 0   ? "nonsense"
                  : i == 1 ? "{\"id\":\"50\",\"type\":\"note\"}"
                           : "{}",
                  NULL);
        commit(s);
    }
    history_add_all(s->store, 60, "{\"job\":\"j1\"}", "ann");
    commit(s);
    a = get(s, timeline_of_job, "j1");
    assert_int_equal(a.status, 200);
    assert_int_equal(json_array_size(json_object_get(a.body, "events")), 4);
    a = get(s, timeline_of_all, NULL);
    assert_int_equal(a.status, 200);
    a.body = json_array_get(json_object_get(a.body, "events"), 1);
    assert_string_equal(json_string_value(json_object_get(a.body, "type")), "unreadable");
    assert_string_equal(json_string_value(json_object_get(a.body, "id")), "60");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
#define IN_A_SCENE(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)
        IN_A_SCENE(one_unreadable_job_is_told_by_name_and_keeps_no_other_from_running),
        IN_A_SCENE(a_job_that_the_store_lists_and_does_not_have_is_in_quarantine),
        IN_A_SCENE(a_job_of_the_queue_runs_when_its_record_was_read_again),
        IN_A_SCENE(the_run_of_a_job_goes_on_when_its_record_was_read_again),
        IN_A_SCENE(an_ended_job_that_cannot_be_read_leaves_the_list_and_is_told),
        IN_A_SCENE(a_node_a_project_and_a_token_that_cannot_be_read_are_set_aside_with_their_text),
        IN_A_SCENE(a_record_whose_place_was_taken_meanwhile_is_not_read_over_the_new_one),
        IN_A_SCENE(an_event_that_cannot_be_read_is_told_in_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
