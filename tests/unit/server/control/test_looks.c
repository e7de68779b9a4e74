/* What is kept of runs that stood still or failed, and how a live run is looked at. */
#include "tests/unit/server/control/scene.h"

#include "api/protocol/incident.h"
#include "server/control/agent_rights.h"
#include "server/control/incidents.h"
#include "server/control/looks.h"

#define TWO "devices: {min: 2, max: 2}\ncommand: {argv: [x]}\nretry: {max: 9, user: 9}\n"

/* A job of two ranks, each on a node of its own. */
static uint64_t begin(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    job = scene_submit(s, TWO);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    return job;
}

static const char *id_of(uint64_t job)
{
    static char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    return id;
}

/* The evidence that a node's assignment asks for; 0: none. */
static json_int_t asked(struct scene *s, const char *node)
{
    struct http_req *r = scene_request(node, NULL, NULL);
    struct scene_answer a;

    r->query = (struct http_fields){.v = {{"incarnation", node}}, .n = 1};
    a = scene_call(s, polls_assignments, r, NULL);
    return json_integer_value(json_object_get(json_array_get(json_object_get(a.body, "assignments"), 0), "evidence"));
}

/* A node tells of its rank that it waits for the other in a call of both, or that it computes. */
static json_t *evidence(uint64_t job, uint32_t generation, const char *node, json_int_t number, bool waits)
{
    char proof[PROTOCOL_PROOF_MAX];
    int rank = strcmp(node, "n2") == 0;
    json_t *told =
        json_pack("{s:i, s:i, s:s, s:i, s:s, s:I, s:i, s:[{s:s, s:i, s:i, s:i, s:i}]}", "rank", rank, "slot", 0,
                  "state", "running", "step", 90, "phase", waits ? "reduce" : "forward", "idle_us", (json_int_t)9000000,
                  "gap_us", 2000, "groups", "name", "dp", "key", 7, "entered", waits ? 41 : 40, "left", 40, "size", 2);

    if (waits)
        (void)json_object_update_new(
            told, json_pack("{s:s, s:i, s:i, s:i}", "op", "all_reduce", "op_key", 7, "op_call", 41, "op_peer", -1));
    agent_prove("key", job, generation, node, proof);
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:i, s:[{s:o, s:s, s:[{s:i, s:s}]}]}", "incarnation", node, "job",
                     id_of(job), "generation", (json_int_t)generation, "number", number, "proof", proof, "took_ms", 3,
                     "ranks", "told", told, "log", "step 90\n", "processes", "pid", 4711, "name", "train");
}

static int tell(struct scene *s, const char *node, json_t *body)
{
    return scene_call(s, looks_take, scene_request(node, NULL, NULL), body).status;
}

/* Begin a look; its request, of which the test has a reference. */
static struct http_req *look(struct scene *s, uint64_t job)
{
    struct http_req *r = scene_request(id_of(job), NULL, NULL);

    atomic_store(&r->refs, 3); /* the scene drops one */
    (void)scene_call(s, jobs_diagnosis, r, NULL);
    return r;
}

static struct scene_answer get(struct scene *s, uint64_t job, const char *incident)
{
    return scene_call(s, jobs_incidents, scene_request(id_of(job), incident, NULL), NULL);
}

static void a_live_run_says_what_each_rank_does_once_all_nodes_have_told(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct http_req *r, *second;
    json_int_t number;
    struct incident in;
    json_t *doc;

    assert_int_equal(asked(s, "n1"), 0);
    r = look(s, job);
    second = look(s, job);
    assert_int_equal(r->status, 0);
    number = asked(s, "n1");
    assert_true(number > 0 && number == asked(s, "n2"));
    assert_int_equal(tell(s, "n1", evidence(job, 1, "n1", number, true)), 200);
    assert_int_equal(tell(s, "n1", evidence(job, 1, "n1", number, true)), 200); /* twice */
    assert_int_equal(r->status, 0);
    assert_int_equal(tell(s, "n2", evidence(job, 1, "n2", number, false)), 200);
    assert_int_equal(r->status, 200);
    assert_int_equal(second->status, 200);
    doc = json_loads(r->out, 0, NULL);
    assert_int_equal(incident_read(doc, &in, NULL), 0);
    assert_int_equal(in.n_ranks, 2);
    assert_string_equal(in.verdict.class_, "not-entered");
    assert_int_equal(in.verdict.roots[0], 1);
    assert_string_equal(in.verdict.text, "rank 1 on n2 has not entered all-reduce 41 of 'dp' at step 90 that 1 other "
                                         "waits in; it has been in the forward pass for 9.0 s");
    assert_int_equal(json_array_size(in.parts), 2);
    assert_null(json_object_get(json_array_get(in.parts, 0), "proof"));
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING); /* who looks changes nothing */
    incident_clear(&in);
    json_decref(doc);
    assert_int_equal(get(s, job, NULL).status, 200);
    http_req_unref(r);
    r = look(s, job); /* all nodes of the run would be asked again */
    assert_int_equal(r->status, 429);
    http_req_unref(r);
    scene_wait(s, 1);
    r = look(s, job);
    assert_int_equal(r->status, 0);
    scene_wait(s, 5);
    assert_int_equal(r->status, 200);
    http_req_unref(r);
    http_req_unref(second);
}

static void a_look_is_answered_with_what_came_in_time(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct http_req *r = look(s, job);
    json_t *doc;

    assert_int_equal(tell(s, "n2", evidence(job, 1, "n2", asked(s, "n2"), false)), 200);
    assert_int_equal(r->status, 0);
    scene_wait(s, 5);
    assert_int_equal(r->status, 200);
    doc = json_loads(r->out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(doc, "ranks")), 2);
    assert_int_equal(json_array_size(json_object_get(doc, "parts")), 1);
    json_decref(doc);
    http_req_unref(r);
}

static void a_look_at_a_run_that_ends_meanwhile_is_refused(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct http_req *r = look(s, job);

    scene_report_all(s, job, "exited", 0);
    scene_wait(s, 5);
    assert_int_equal(r->status, 409);
    http_req_unref(r);
    r = look(s, job);
    assert_int_equal(r->status, 409);
    http_req_unref(r);
}

static void a_server_that_stops_refuses_those_that_wait(void **state)
{
    struct scene *s = *state;
    struct http_req *r = look(s, begin(s));

    scene_restart(s);
    assert_int_equal(r->status, 503);
    http_req_unref(r);
}

static void a_rank_that_fails_leaves_an_incident_and_its_nodes_are_asked(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct scene_answer a;
    struct incident in;
    json_int_t number;

    assert_int_equal(tell(s, "n1", evidence(job, 1, "n1", 0, true)), 200); /* the node tells before its report comes */
    assert_int_equal(json_array_size(json_object_get(get(s, job, NULL).body, "incidents")), 0);
    assert_int_equal(
        scene_report(s, "n1", json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "exited", 3)), NULL).status,
        200);
    number = asked(s, "n2");
    assert_true(number > 0);
    assert_int_equal(tell(s, "n2", evidence(job, 1, "n2", number, true)), 200);
    a = get(s, job, NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "incidents")), 1);
    a = get(s, job, "1-1");
    assert_int_equal(a.status, 200);
    assert_int_equal(incident_read(a.body, &in, NULL), 0);
    assert_int_equal(in.kind, INCIDENT_FAILURE);
    assert_string_equal(in.verdict.text, "rank 0 on n1: ended with exit code 3");
    assert_int_equal(json_array_size(in.parts), 2);
    incident_clear(&in);
}

static void what_is_no_incident_of_the_job_is_not_found(void **state)
{
    static const char *const names[] = {"1-1", "0-1", "1-0", "1", "-1-1", "1-1x", "../1-1", "99999999999-1", ""};
    struct scene *s = *state;
    uint64_t job = begin(s);

    for (size_t i = 0; i < COUNT(names); i++)
        assert_int_equal(get(s, job, names[i]).status, 404);
}

static void evidence_of_a_run_that_a_node_was_not_given_is_refused(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    json_t *body = evidence(job, 1, "n1", 0, true);

    assert_int_equal(tell(s, "n2", json_incref(body)), 404); /* another agent's */
    (void)json_object_set_new(body, "incarnation", json_string("n2"));
    assert_int_equal(tell(s, "n2", json_incref(body)), 403);
    (void)json_object_set_new(body, "ranks", json_integer(7));
    assert_int_equal(tell(s, "n2", body), 422);
    assert_int_equal(tell(s, "n9", json_object()), 404);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_live_run_says_what_each_rank_does_once_all_nodes_have_told),
        TEST(a_look_is_answered_with_what_came_in_time),
        TEST(a_look_at_a_run_that_ends_meanwhile_is_refused),
        TEST(a_server_that_stops_refuses_those_that_wait),
        TEST(a_rank_that_fails_leaves_an_incident_and_its_nodes_are_asked),
        TEST(what_is_no_incident_of_the_job_is_not_found),
        TEST(evidence_of_a_run_that_a_node_was_not_given_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
