/* A step whose numbers went bad is done again elsewhere: the verdict tells the data or the model from a device. */
#include "tests/unit/server/control/scene.h"

#define TRAIN                                                                                                          \
    "devices: {min: 1, max: 1}\nparallel: {tp: 1, pp: 1, exact: %s}\n"                                                 \
    "train:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: 256}\n"                      \
    "  data: {path: /c}\n  batch: {sequences: 8, micro: 2}\n"
#define BAD 40

/* A job runs on n1, and n2 has a device like its own where elsewhere is said. */
static uint64_t begin(struct scene *s, const char *exact, const char *elsewhere)
{
    char spec[512];
    uint64_t job;

    (void)snprintf(spec, sizeof(spec), TRAIN, exact);
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, spec);
    scene_report_all(s, job, "running", 0);
    if (elsewhere)
        assert_int_equal(scene_register(s, "n2", elsewhere, 1), 200);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n1");
    return job;
}

static void tell(struct scene *s, uint64_t job, const char *state, int step, const char *cause)
{
    const struct entry *e = scene_entry(s, job);
    json_t *run = scene_run_of(e, e->job.generation, e->job.places[0].node, state, cause ? 65 : 0);
    json_t *rank = json_array_get(json_object_get(run, "ranks"), 0);

    (void)json_object_set_new(rank, "step", json_integer(step));
    if (cause)
        (void)json_object_set_new(rank, "cause", json_string(cause));
    assert_int_equal(scene_report(s, e->job.places[0].node, json_pack("[o]", run), NULL).status, 200);
}

/* Its numbers go bad after step BAD, and its next run begins. */
static void go_bad(struct scene *s, uint64_t job)
{
    tell(s, job, "running", BAD, NULL);
    tell(s, job, "exited", BAD, "numbers");
    for (int i = 0; i < 15; i++) {
        scene_wait(s, 1);
        for (size_t k = 0; k < s->core->cluster.n_nodes; k++)
            (void)scene_report(s, s->core->cluster.nodes[k]->name, json_array(), NULL);
    }
}

/* Steps of the run that is, as its metrics tell them. */
static void pass(struct scene *s, uint64_t job, int from, int to)
{
    const struct entry *e = scene_entry(s, job);
    static size_t offset;
    char text[4096] = "", id[24];
    size_t n = 0;
    json_t *piece;

    if (from == BAD - 1)
        offset = 0;
    for (int i = from; i <= to; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "{\"v\":1,\"step\":%d,\"loss\":2.0,\"step_ms\":10}\n", i);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    piece = json_pack("{s:[{s:s, s:I, s:I, s:s}]}", "metrics", "job", id, "generation", (json_int_t)e->job.generation,
                      "offset", (json_int_t)offset, "text", text);
    offset += n;
    assert_int_equal(
        scene_report(s, e->job.places[0].node,
                     json_pack("[o]", scene_run_of(e, e->job.generation, e->job.places[0].node, "running", 0)), piece)
            .status,
        200);
}

/* The verdicts that were told of the job; the last one's words go to ret. */
static int told(struct scene *s, uint64_t job, char *ret, size_t size)
{
    char id[24];
    struct scene_answer a;
    json_t *event;
    size_t i;
    int n = 0;

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    a = scene_call(s, timeline_of_job, scene_request(id, NULL, NULL), NULL);
    assert_int_equal(a.status, 200);
    json_array_foreach (json_object_get(a.body, "events"), i, event) {
        const json_t *cause = json_object_get(event, "cause");

        if (strcmp(json_string_value(json_object_get(cause, "code")), "replayed") != 0)
            continue;
        (void)snprintf(ret, size, "%s", json_string_value(json_object_get(cause, "text")));
        n++;
    }
    return n;
}

static int blamed(struct scene *s, const char *node)
{
    const struct health *h = &cluster_node(&s->core->cluster, node)->health;
    int milli = 0;

    for (size_t i = 0; i < h->n_incidents; i++)
        milli += h->incident[i].milli;
    return milli;
}

static void a_step_that_is_well_on_another_node_is_the_device_of_the_first(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s, "strict", "a");
    char text[500] = "";

    go_bad(s, job);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n2");
    assert_int_equal(blamed(s, "n1"), 0); /* no blame without this evidence */
    pass(s, job, BAD - 1, BAD);
    assert_int_equal(told(s, job, text, sizeof(text)), 0);
    pass(s, job, BAD + 1, BAD + 5);
    assert_int_equal(told(s, job, text, sizeof(text)), 1);
    assert_non_null(strstr(text, "step 40, whose numbers were bad on n1, is well without it: rank 0 is on n2 now"));
    assert_non_null(strstr(text, "n1 alone gave them: it is a device"));
    assert_int_equal(blamed(s, "n1"), 600);
    assert_int_equal(blamed(s, "n2"), 0);
}

static void a_step_that_is_bad_on_another_node_too_is_the_data_or_the_model(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s, "strict", "a");
    const json_t *outcome;
    struct scene_answer a;

    go_bad(s, job);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n2");
    go_bad(s, job);
    a = scene_call(s, jobs_get, scene_request("j1", NULL, NULL), NULL);
    outcome = json_object_get(a.body, "outcome");
    assert_string_equal(json_string_value(json_object_get(outcome, "class")), "user");
    assert_non_null(strstr(json_string_value(json_object_get(outcome, "message")),
                           "step 40 gives the same on another node: it is the data or the model"));
    assert_int_equal(blamed(s, "n1") + blamed(s, "n2"), 0);
}

static void what_relaxed_sums_cannot_tell_for_sure_is_told_and_charges_nobody(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s, "relaxed", "a");
    char text[500] = "";

    go_bad(s, job);
    pass(s, job, BAD - 1, BAD + 1);
    assert_int_equal(told(s, job, text, sizeof(text)), 1);
    assert_non_null(strstr(text, "as far as parallel.exact relaxed can tell"));
    assert_int_equal(blamed(s, "n1"), 0);
}

static void a_step_that_is_well_on_the_same_node_the_second_time_is_told_and_charges_nobody(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s, "strict", NULL);
    char text[500] = "";

    go_bad(s, job);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n1");
    pass(s, job, BAD - 1, BAD + 1);
    assert_int_equal(told(s, job, text, sizeof(text)), 1);
    assert_non_null(strstr(text, "is well there the second time"));
    assert_int_equal(blamed(s, "n1"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_step_that_is_well_on_another_node_is_the_device_of_the_first),
        TEST(a_step_that_is_bad_on_another_node_too_is_the_data_or_the_model),
        TEST(what_relaxed_sums_cannot_tell_for_sure_is_told_and_charges_nobody),
        TEST(a_step_that_is_well_on_the_same_node_the_second_time_is_told_and_charges_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
