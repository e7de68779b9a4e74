/* Where the ranks of a run spend their steps: what agents report, as GET /v1/jobs/{id}/ranks tells it. */
#include "tests/unit/server/control/scene.h"

#define TRAIN                                                                                                          \
    "devices: {min: 4, max: 4}\nparallel: {tp: 1, pp: 2, virtual_workers: 2}\n"                                        \
    "train:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: 256}\n"                      \
    "  data: {path: /c}\n  batch: {sequences: 8, micro: 2}\n"

static uint64_t begin(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    assert_int_equal(scene_register(s, "n2", "a", 2), 200);
    job = scene_submit(s, TRAIN);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_entry(s, job)->job.n_places, 4);
    return job;
}

/* Each rank of the node tells of ten steps from this one on: rank r computes r + 1 ms, and in the first of them all
 * wait 50 ms for a checkpoint. */
static void report(struct scene *s, uint64_t job, const char *node, int from)
{
    json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, node, "running", 0), *rank;
    size_t i;

    json_array_foreach (json_object_get(run, "ranks"), i, rank) {
        json_t *all = json_array();

        for (int k = 0; k < 10; k++) {
            const int v[REPORT_STEP_NUMBERS] = {
                [REPORT_STEP] = from + k,
                [REPORT_STEP_SPAN] = 1,
                [REPORT_STEP_COUNT] = k > 0,
                [REPORT_STEP_FLAGS] = k > 0 ? 0 : 4,
                [REPORT_STEP_WALL] = k > 0 ? 10000 : 0,
                [REPORT_STEP_BUSY] = k > 0 ? 1000 * (1 + (int)json_integer_value(json_object_get(rank, "rank"))) : 0,
                [REPORT_STEP_DP] = k > 0 ? 2000 : 0,
                [REPORT_STEP_SAVE] = k > 0 ? 0 : 50000,
                [REPORT_STEP_KIB] = k > 0 ? 64 : 0};

            for (int n = 0; n < REPORT_STEP_NUMBERS; n++)
                (void)json_array_append_new(all, json_integer(v[n]));
        }
        (void)json_object_set_new(rank, "steps", all);
    }
    assert_int_equal(scene_report(s, node, json_pack("[o]", run), NULL).status, 200);
}

/* The query's values, NULL: not given. */
static struct scene_answer ask(struct scene *s, uint64_t job, const char *name, const char *value)
{
    struct http_req *r;
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    r = scene_request(id, NULL, NULL);
    if (name)
        r->query = (struct http_fields){.v = {{name, value}}, .n = 1};
    return scene_call(s, jobs_ranks, r, NULL);
}

static double of(const json_t *o, const char *name)
{
    const json_t *parts = json_object_get(o, "parts");

    return json_number_value(json_object_get(json_object_get(o, name) ? o : parts, name));
}

static void ranks_stages_and_series_say_what_steps_were_spent_on(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);
    struct scene_answer a = ask(s, job, NULL, NULL);
    const json_t *rank, *stage;

    assert_int_equal(a.status, 200); /* before any rank has told */
    assert_int_equal(json_array_size(json_object_get(a.body, "ranks")), 4);
    assert_true(json_is_null(
        json_object_get(json_object_get(json_array_get(json_object_get(a.body, "ranks"), 0), "parts"), "step_ms")));
    assert_int_equal(json_array_size(json_object_get(json_object_get(a.body, "series"), "step")), 0);
    report(s, job, "n1", 100);
    report(s, job, "n2", 100);
    a = ask(s, job, NULL, NULL);
    rank = json_array_get(json_object_get(a.body, "ranks"), 3);
    assert_string_equal(json_string_value(json_object_get(rank, "node")), "n2");
    assert_true(of(rank, "stage") == 1);
    assert_true(of(rank, "compute_ms") == 4 && of(rank, "dp_ms") == 2 && of(rank, "step_ms") == 10);
    assert_true(of(rank, "rest_ms") == 4 && of(rank, "sent_kib") == 64);
    assert_in_range((int)(10 * of(rank, "save_ms")), 25, 35); /* 50 ms in ten steps, of which the first weighs least */
    stage = json_array_get(json_object_get(a.body, "stages"), 1);
    assert_true(of(stage, "ranks") == 2 && of(stage, "compute_ms") == 3.5);
    assert_int_equal(json_array_size(json_object_get(json_object_get(a.body, "series"), "step")), 10);
    a = ask(s, job, "rank", "2");
    assert_true(
        json_number_value(json_array_get(json_object_get(json_object_get(a.body, "series"), "compute_ms"), 5)) == 3);
    assert_true(json_is_null(json_array_get(json_object_get(json_object_get(a.body, "series"), "compute_ms"), 0)));
    a = ask(s, job, "stage", "0");
    assert_true(
        json_number_value(json_array_get(json_object_get(json_object_get(a.body, "series"), "compute_ms"), 5)) == 1.5);
}

static void what_is_not_there_is_refused_and_the_next_run_begins_anew(void **state)
{
    struct scene *s = *state;
    uint64_t job = begin(s);

    report(s, job, "n1", 0);
    assert_int_equal(ask(s, job, "rank", "4").status, 422);
    assert_int_equal(ask(s, job, "stage", "2").status, 422);
    assert_int_equal(ask(s, 999, NULL, NULL).status, 404);
    assert_non_null(scene_entry(s, job)->run.parts);
    scene_report_all(s, job, "exited", 1);
    assert_null(scene_entry(s, job)->run.parts);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_stages_and_series_say_what_steps_were_spent_on),
        TEST(what_is_not_there_is_refused_and_the_next_run_begins_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
