/* Devices that are kept as spares: nobody gets them but a run that a failure of its node has ended, at once. */
#include "tests/unit/server/control/scene.h"

#include <errno.h>

#include "server/control/care.h"

#define SPEC(n) "devices: {min: " #n ", max: " #n "}\ncommand: {argv: [x], grace_s: 5}\n"

/* From now on. */
static void keep(struct scene *s, const char *spares)
{
    assert_int_equal(spares_read(spares, &s->core->cfg.spares, NULL), 0);
    s->core->schedule_wanted = true;
    scene_turn(s);
}

/* Nodes n1 to nN of so many devices each. */
static void make_nodes(struct scene *s, int n, int devices)
{
    for (int i = 1; i <= n; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(scene_register(s, name, "a", devices), 200);
    }
}

/* Seconds go by in which all nodes but this one say that they are there. */
static void pass(struct scene *s, int seconds, const char *silent)
{
    for (int i = 0; i < seconds; i++) {
        scene_wait(s, 1);
        for (size_t k = 0; k < s->core->cluster.n_nodes; k++)
            if (!silent || strcmp(s->core->cluster.nodes[k]->name, silent) != 0)
                (void)scene_report(s, s->core->cluster.nodes[k]->name, json_array(), NULL);
    }
}

static int spares(struct scene *s)
{
    int n = 0;

    for (size_t i = 0; i < s->core->cluster.n_nodes; i++)
        n += spares_on(s->core->cluster.nodes[i], 0);
    return n;
}

static bool is_on(struct scene *s, uint64_t job, const char *node)
{
    const struct job *j = &scene_entry(s, job)->job;

    for (size_t i = 0; i < j->n_places; i++)
        if (strcmp(j->places[i].node, node) == 0)
            return true;
    return false;
}

/* A node tells of the job's ranks on it that they ended by this cause. */
static void end_on(struct scene *s, uint64_t job, const char *node, const char *cause, int code)
{
    const struct entry *e = scene_entry(s, job);
    json_t *run = scene_run_of(e, e->job.generation, node, "exited", 0), *rank;
    size_t i;

    json_array_foreach (json_object_get(run, "ranks"), i, rank) {
        (void)json_object_set_new(rank, "exit_code", json_integer(code));
        (void)json_object_set_new(rank, "cause", json_string(cause));
    }
    assert_int_equal(scene_report(s, node, json_pack("[o]", run), NULL).status, 200);
}

static void spares_are_kept_out_of_ordinary_work_and_everyone_is_told(void **state)
{
    struct scene *s = *state;
    uint64_t first, second;
    struct scene_answer a;
    char why[200];

    make_nodes(s, 2, 2);
    keep(s, "a=1,b=3");
    assert_int_equal(spares(s), 1);
    assert_int_equal(scene_try_submit(s, SPEC(4)), 0);
    assert_non_null(strstr(scene_refusal, "of which 1 are kept as spares"));
    first = scene_submit(s, SPEC(3));
    assert_int_equal(scene_entry(s, first)->job.state, JOB_STARTING);
    second = scene_submit(s, SPEC(1));
    pass(s, 61, NULL); /* no full round gives it, either */
    assert_int_equal(scene_entry(s, second)->job.state, JOB_QUEUED);
    explain_wait_text(&scene_entry(s, second)->wait, why, sizeof(why));
    assert_non_null(strstr(why, "1 is kept as spares"));
    assert_int_equal(spares(s), 1);
    a = scene_call(s, nodes_get, scene_request("n2", NULL, NULL), NULL);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(a.body, "slots"), 1), "state")), "spare");
}

static void a_run_whose_node_fails_goes_on_at_once_on_a_spare_and_nobody_goes_before_it(void **state)
{
    struct scene *s = *state;
    uint64_t gang, other;

    make_nodes(s, 3, 1);
    keep(s, "a=1");
    assert_int_equal(spares_on(cluster_node(&s->core->cluster, "n3"), 0), 1);
    gang = scene_submit(s, SPEC(2));
    other = scene_submit(s, SPEC(2) "priority: 90\n");
    scene_report_all(s, gang, "running", 0);
    end_on(s, gang, "n2", "node", 74);
    assert_int_equal(scene_entry(s, gang)->job.state, JOB_RECOVERING);
    assert_int_equal(scene_entry(s, gang)->n_target, 2);
    pass(s, 61, NULL); /* a full round changes nothing of what it is to get */
    assert_int_equal(scene_entry(s, gang)->n_target, 2);
    end_on(s, gang, "n1", "aborted", 75);
    assert_int_equal(scene_entry(s, gang)->job.state, JOB_STARTING);
    assert_true(is_on(s, gang, "n1") && is_on(s, gang, "n3"));
    assert_int_equal(scene_entry(s, other)->job.state, JOB_QUEUED);
    assert_int_equal(scene_entry(s, gang)->n_target, 0);
    pass(s, 500, NULL);
    assert_int_equal(spares(s), 0); /* one that has just failed is none */
    pass(s, 160, NULL);
    assert_int_equal(spares_on(cluster_node(&s->core->cluster, "n2"), 0), 1);
}

static void a_spare_is_refilled_by_the_first_device_that_comes_free(void **state)
{
    struct scene *s = *state;
    uint64_t first, waits;

    make_nodes(s, 1, 2);
    first = scene_submit(s, SPEC(1));
    (void)scene_submit(s, SPEC(1));
    waits = scene_submit(s, SPEC(1));
    keep(s, "a=1");
    assert_int_equal(spares(s), 0);
    scene_report_all(s, first, "running", 0);
    scene_report_all(s, first, "exited", 0);
    pass(s, 61, NULL);
    assert_int_equal(spares(s), 1);
    assert_int_equal(scene_entry(s, waits)->job.state, JOB_QUEUED);
}

static void of_two_runs_that_fail_at_once_one_gets_the_spare(void **state)
{
    struct scene *s = *state;
    uint64_t a, b;
    const char *node;

    make_nodes(s, 5, 1);
    keep(s, "a=1");
    a = scene_submit(s, SPEC(2));
    b = scene_submit(s, SPEC(2));
    scene_report_all(s, a, "running", 0);
    scene_report_all(s, b, "running", 0);
    end_on(s, a, scene_entry(s, a)->job.places[1].node, "node", 74);
    end_on(s, b, scene_entry(s, b)->job.places[1].node, "node", 74);
    assert_int_equal(scene_entry(s, a)->n_target, 2);
    assert_int_equal(scene_entry(s, b)->n_target, 0);
    node = scene_entry(s, a)->job.places[0].node;
    end_on(s, a, node, "aborted", 75);
    assert_int_equal(scene_entry(s, a)->job.state, JOB_STARTING);
    assert_true(is_on(s, a, "n5"));
    end_on(s, b, scene_entry(s, b)->job.places[0].node, "aborted", 75);
    assert_false(is_on(s, b, "n5"));
}

static void a_program_that_fails_by_itself_takes_no_spare(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    make_nodes(s, 2, 1);
    keep(s, "a=1");
    job = scene_submit(s, SPEC(1) "retry: {max: 3, user: 3}\n");
    scene_report_all(s, job, "running", 0);
    end_on(s, job, "n1", "user", 1);
    pass(s, 20, NULL);
    assert_false(is_on(s, job, "n2"));
    assert_int_equal(spares_on(cluster_node(&s->core->cluster, "n2"), 0), 1);
}

static void devices_of_a_run_whose_node_went_silent_stay_its_own_until_that_is_known(void **state)
{
    struct scene *s = *state;
    uint64_t gang, other;

    make_nodes(s, 3, 1);
    keep(s, "a=1");
    gang = scene_submit(s, SPEC(2));
    scene_report_all(s, gang, "running", 0);
    other = scene_submit(s, SPEC(1));
    pass(s, 2, "n2");
    end_on(s, gang, "n1", "aborted", 75);
    assert_int_equal(scene_slot(s, "n1", 0)->job, gang);
    pass(s, 3, "n2");
    assert_int_equal(scene_entry(s, gang)->job.state, JOB_STARTING);
    assert_true(is_on(s, gang, "n1") && is_on(s, gang, "n3"));
    assert_int_equal(scene_entry(s, other)->job.state, JOB_QUEUED);
}

static void a_run_on_a_node_that_is_taken_out_as_failing_saves_its_state_and_goes_on_on_a_spare(void **state)
{
    struct scene *s = *state;
    uint64_t job, other;

    make_nodes(s, 3, 1);
    keep(s, "a=1");
    job = scene_submit(s, SPEC(2));
    scene_report_all(s, job, "running", 0);
    other = scene_submit(s, SPEC(1) "priority: 90\n");
    assert_true(is_on(s, job, "n1") && is_on(s, job, "n2"));
    care_accuse(s->core, cluster_node(&s->core->cluster, "n2"), 1000, "Xid 79: fallen off the bus");
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RESCALING);
    assert_string_equal(scene_order(s, "n1", job), "drain");
    end_on(s, job, "n1", "drained", 77);
    end_on(s, job, "n2", "drained", 77);
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_true(is_on(s, job, "n1") && is_on(s, job, "n3"));
    assert_int_equal(scene_entry(s, other)->job.state, JOB_QUEUED);
}

/* The devices of a node on which a started program is to wait, as the answer to its report says. */
static size_t warm(struct scene *s, const char *node, int ret[2])
{
    struct scene_answer a = scene_report(s, node, json_array(), NULL);
    const json_t *list = json_object_get(a.body, "warm");

    for (size_t i = 0; i < json_array_size(list) && i < 2; i++)
        ret[i] = (int)json_integer_value(json_array_get(list, i));
    return json_array_size(list);
}

static void started_programs_wait_on_spares_and_beside_ranks_of_training_and_nowhere_else(void **state)
{
    struct scene *s = *state;
    int slot[2];

    make_nodes(s, 2, 2);
    (void)scene_submit(s, "devices: {min: 1, max: 1}\n"
                          "train:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: 256}\n"
                          "  data: {path: /c}\n  batch: {sequences: 8, micro: 2}\n");
    (void)scene_submit(s, SPEC(1));
    assert_int_equal(scene_slot(s, "n1", 0)->job, 1);
    assert_int_equal(scene_slot(s, "n1", 1)->job, 2);
    keep(s, "a=1");
    assert_int_equal(spares_on(cluster_node(&s->core->cluster, "n2"), 0), 1);
    assert_int_equal(warm(s, "n1", slot) + warm(s, "n2", slot), 0);
    keep(s, "a=1:warm");
    assert_int_equal(warm(s, "n1", slot), 1);
    assert_int_equal(slot[0], 0);
    assert_int_equal(warm(s, "n2", slot), 1);
    assert_int_equal(slot[0], 1);
}

static void spares_that_cannot_be_read_are_refused_with_words(void **state)
{
    static const char *const bad[] = {"a",       "=1",     "a=",      "a=x",        "a=-1",
                                      "a=1;b=2", "a=5000", "a=1:hot", "a=1:warmer", "a=:warm"};
    struct spares ret = {.n = 7};
    struct merr err;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(spares_read(bad[i], &ret, &err), -EINVAL);
        assert_non_null(strstr(err.text, "CLASS=N"));
        assert_int_equal(ret.n, 7);
    }
    assert_int_equal(spares_read(NULL, &ret, &err), 0);
    assert_int_equal(ret.n, 0);
    assert_int_equal(spares_read("h100=8,cpu=1", &ret, &err), 0);
    assert_int_equal(spares_of(&ret, "cpu"), 1);
    assert_int_equal(spares_of(&ret, "h100"), 8);
    assert_int_equal(spares_of(&ret, "h"), 0);
    assert_false(spares_warm(&ret, "h100"));
    assert_int_equal(spares_read("h100=8:warm,cpu=1", &ret, &err), 0);
    assert_int_equal(spares_of(&ret, "h100"), 8);
    assert_true(spares_warm(&ret, "h100"));
    assert_false(spares_warm(&ret, "cpu"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(spares_are_kept_out_of_ordinary_work_and_everyone_is_told),
        TEST(a_run_whose_node_fails_goes_on_at_once_on_a_spare_and_nobody_goes_before_it),
        TEST(a_spare_is_refilled_by_the_first_device_that_comes_free),
        TEST(of_two_runs_that_fail_at_once_one_gets_the_spare),
        TEST(a_program_that_fails_by_itself_takes_no_spare),
        TEST(devices_of_a_run_whose_node_went_silent_stay_its_own_until_that_is_known),
        TEST(started_programs_wait_on_spares_and_beside_ranks_of_training_and_nowhere_else),
        TEST(a_run_on_a_node_that_is_taken_out_as_failing_saves_its_state_and_goes_on_on_a_spare),
        cmocka_unit_test(spares_that_cannot_be_read_are_refused_with_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
