/* Ranks that are slow: what the server makes of the steps that agents report. */
#include "tests/unit/server/control/scene.h"

#include <math.h>

#include "api/protocol/cause.h"
#include "server/control/view.h"

#define RANKS 4
#define TRAIN                                                                                                          \
    "devices: {min: 4, max: 4}\nparallel: {tp: %d, pp: %d, virtual_workers: 4}\n"                                      \
    "train:\n  model: {family: gpt2, layers: 4, hidden: 64, heads: 4, context: 32, vocab: 256}\n"                      \
    "  data: {path: /c}\n  batch: {sequences: 8, micro: 2}\n"

struct steps {
    int victim;    /* -1: none */
    int slower;    /* percent */
    bool withheld; /* the slowing was without a processor */
    int flags;     /* of all steps */
    int pressure;  /* that nodes tell, and 1 */
    int link;      /* percent that all calls of dp take more */
};

static size_t written[2]; /* bytes of events, on each node */

static uint64_t begin(struct scene *s, int tp, int pp)
{
    char spec[512];
    uint64_t job;

    memset(written, 0, sizeof(written));
    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    assert_int_equal(scene_register(s, "n2", "a", 2), 200);
    (void)snprintf(spec, sizeof(spec), TRAIN, tp, pp);
    job = scene_submit(s, spec);
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    assert_int_equal(scene_entry(s, job)->job.n_places, RANKS);
    return job;
}

static json_t *steps_of(const struct steps *of, int rank, int from, int n)
{
    json_t *all = json_array();

    for (int i = from; i < from + n; i++) {
        int busy = 100000 + (i * 7919 + rank * 104729) % 1000, more = rank == of->victim ? busy * of->slower / 100 : 0;
        int late = of->victim >= 0 && rank != of->victim ? 100000 * of->slower / 100 : 0;
        int call = 5000 * (100 + of->link) / 100 + late;
        const int v[REPORT_STEP_NUMBERS] = {[REPORT_STEP] = i,
                                            [REPORT_STEP_SPAN] = 1,
                                            [REPORT_STEP_COUNT] = of->flags == 0,
                                            [REPORT_STEP_FLAGS] = of->flags,
                                            [REPORT_STEP_WALL] = 120000,
                                            [REPORT_STEP_BUSY] = busy + more,
                                            [REPORT_STEP_DP] = call,
                                            [REPORT_STEP_CPU] = busy + (of->withheld ? 0 : more),
                                            [REPORT_STEP_WORK] = 4096};

        for (int k = 0; k < REPORT_STEP_NUMBERS; k++)
            (void)json_array_append_new(all, json_integer(v[k]));
    }
    return all;
}

/* Both nodes report so many steps more. */
static void report(struct scene *s, uint64_t job, const struct steps *of, int from, int n)
{
    static const char *const node[] = {"n1", "n2"};

    for (int at = from; at < from + n; at += 20)
        for (int k = 0; k < 2; k++) {
            json_t *run = scene_run_of(scene_entry(s, job), scene_entry(s, job)->job.generation, node[k], "running", 0);
            json_t *rank;
            size_t i;

            json_array_foreach (json_object_get(run, "ranks"), i, rank)
                (void)json_object_set_new(rank, "steps",
                                          steps_of(of, (int)json_integer_value(json_object_get(rank, "rank")), at, 20));
            assert_int_equal(
                scene_report(s, node[k], json_pack("[o]", run), json_pack("{s:i}", "pressure", of->pressure - 1))
                    .status,
                200);
        }
}

/* What the job's view says of its slow ranks, and explain with it; NULL: nothing. Borrowed until the next call. */
static const char *slow_text(struct scene *s, uint64_t job)
{
    static char text[512];
    const struct entry *e = scene_entry(s, job);
    json_t *view = view_job(s->core, &e->job, e, NULL), *why = view_explain(s->core, &e->job, e);
    json_t *slow = json_object_get(view, "slow"), *causes = json_object_get(why, "causes");
    json_t *last = json_array_get(causes, json_array_size(causes) - 1);
    bool any = json_array_size(slow) > 0;

    text[0] = '\0';
    assert_int_equal(any, strcmp(json_string_value(json_object_get(last, "code")), "slow-rank") == 0);
    if (any) {
        (void)snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(json_array_get(slow, 0), "text")));
        assert_string_equal(json_string_value(json_object_get(last, "text")), text);
    }
    json_decref(view);
    json_decref(why);
    return any ? text : NULL;
}

static void a_slow_rank_is_told_in_the_jobs_view_and_explanation_until_it_is_well(void **state)
{
    const struct steps clean = {.victim = -1}, slow = {.victim = 3, .slower = 50};
    struct scene *s = *state;
    uint64_t job = begin(s, 1, 1);

    report(s, job, &clean, 0, 80);
    assert_null(slow_text(s, job));
    report(s, job, &slow, 80, 20);
    assert_string_equal(slow_text(s, job),
                        "rank 3 on n2 (device 1): computes 1.50 times as long for each token as others that do the "
                        "same; the others of 'dp' wait 50.0 ms for it in each step. Not confirmed by a test of the "
                        "device");
    assert_int_equal(scene_entry(s, job)->run.slow_told, 1);
    assert_false(scene_slot(s, "n2", 1)->slow.slow); /* nobody has tested it */
    assert_int_equal(scene_entry(s, job)->job.generation, 1);
    report(s, job, &slow, 100, 100);
    assert_int_equal(scene_entry(s, job)->run.slow_told, 1); /* once */
    report(s, job, &clean, 200, 60);
    assert_null(slow_text(s, job));
    assert_int_equal(scene_entry(s, job)->run.slow_told, 2);
}

/* A rank tells how long a product and a copy took on its device. */
static void tell_test(struct scene *s, uint64_t job, int rank, int number, double product_us, double copy_us)
{
    const struct entry *e = scene_entry(s, job);
    size_t *at = &written[strcmp(e->job.places[rank].node, "n2") == 0];
    char line[200], id[24];

    (void)snprintf(line, sizeof(line),
                   "{\"type\":\"device-test\",\"rank\":%d,\"number\":%d,\"product_us\":%f,\"copy_us\":%f}\n", rank,
                   number, product_us, copy_us);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    assert_int_equal(
        scene_report(s, e->job.places[rank].node,
                     json_pack("[o]", scene_run_of(e, e->job.generation, e->job.places[rank].node, "running", 0)),
                     json_pack("{s:[{s:s, s:i, s:I, s:s}]}", "events", "job", id, "generation", (int)e->job.generation,
                               "offset", (json_int_t)*at, "text", line))
            .status,
        200);
    *at += strlen(line);
}

/* Milli-incidents that the node is charged with. */
static int charged(struct scene *s, const char *node)
{
    return (int)(1000 * health_score(&cluster_node(&s->core->cluster, node)->health, s->clock.wall_us) + 0.5);
}

#define SLOW_WORDS                                                                                                     \
    "rank 3 on n2 (device 1): computes 1.50 times as long for each token as others that do the same; the others of "   \
    "'dp' wait 50.0 ms for it in each step. "

static void a_device_that_a_test_confirms_to_be_slow_is_left_and_its_node_charged(void **state)
{
    const struct steps clean = {.victim = -1}, slow = {.victim = 3, .slower = 50};
    struct scene *s = *state;
    uint64_t job = begin(s, 1, 1);
    const struct entry_test *t = &scene_entry(s, job)->run.test;

    report(s, job, &clean, 0, 80);
    assert_int_equal(t->number, 0); /* nobody is tested without a reason */
    report(s, job, &slow, 80, 20);
    assert_true(t->asked && t->number == 1 && t->rank[0] == 3);
    assert_int_equal(t->rank[1], 0); /* on another node */
    tell_test(s, job, 0, 1, 26800, 500);
    tell_test(s, job, 1, 1, 99999, 500); /* nobody asked it */
    tell_test(s, job, 3, 2, 26800, 500); /* another test */
    tell_test(s, job, 3, 1, -1, 500);
    assert_string_equal(slow_text(s, job), SLOW_WORDS "Not confirmed by a test of the device");
    assert_int_equal(charged(s, "n2"), 0);
    tell_test(s, job, 3, 1, 41200, 500);
    assert_string_equal(slow_text(s, job), SLOW_WORDS
                        "Confirmed by a test of the device: a product takes it 41.200 ms, and rank 0 on n1 26.800 ms");
    assert_true(scene_slot(s, "n2", 1)->slow.slow);
    assert_true(fabs(scene_slot(s, "n2", 1)->slow.ratio - 41.2 / 26.8) < 1e-6);
    assert_int_equal(charged(s, "n2"), 600);
    assert_int_equal(charged(s, "n1"), 0);
    tell_test(s, job, 3, 1, 90000, 500); /* it comes once more */
    assert_int_equal(charged(s, "n2"), 600);
    report(s, job, &clean, 100, 60);
    assert_null(slow_text(s, job));
}

static void a_rank_whose_device_is_as_fast_as_others_alone_is_not_blamed(void **state)
{
    const struct steps clean = {.victim = -1}, slow = {.victim = 3, .slower = 50};
    struct scene *s = *state;
    uint64_t job = begin(s, 1, 1);

    report(s, job, &clean, 0, 80);
    report(s, job, &slow, 80, 20);
    tell_test(s, job, 3, 1, 27000, 510);
    tell_test(s, job, 0, 1, 26800, 500);
    assert_string_equal(
        slow_text(s, job),
        SLOW_WORDS "Not confirmed by a test of the device: a product takes it 27.000 ms, and rank 0 on n1 26.800 ms");
    assert_false(scene_slot(s, "n2", 1)->slow.slow);
    assert_int_equal(charged(s, "n2"), 0);
    report(s, job, &clean, 100, 60);
    report(s, job, &slow, 160, 60); /* again: memory that is slow slows it, too */
    tell_test(s, job, 3, 2, 27000, 800);
    tell_test(s, job, 0, 2, 26800, 500);
    assert_non_null(
        strstr(slow_text(s, job), "Confirmed by a test of the device: a copy takes it 0.800 ms, and rank 0"));
    assert_int_equal(charged(s, "n2"), 600);
}

static void a_host_that_withholds_its_processor_and_a_slow_link_have_words_of_their_own(void **state)
{
    static const struct {
        struct steps of;
        const char *says;
    } row[] = {
        {{.victim = 0, .slower = 50, .withheld = true, .pressure = 98},
         "rank 0 on n1 (device 0): computes 1.50 times as long for each token as it should, and had no processor "
         "in 33 % of that time: its host is busy, or limits it (something there had to wait for a processor in 97 % "
         "of the last ten seconds); the others of 'dp' wait 50.0 ms for it in each step"},
        {{.victim = -1, .link = 200},
         "a link in the group 'dp' of rank 0 on n1: calls of 'dp' take 3.00 times as long as they did, and "
         "nobody is late in them"}};
    const struct steps clean = {.victim = -1};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        void *one;
        uint64_t job;

        assert_int_equal(scene_start(&one), 0);
        job = begin(one, 1, 1);
        report(one, job, &clean, 0, 80);
        report(one, job, &row[i].of, 80, 20);
        assert_string_equal(slow_text(one, job), row[i].says);
        report(one, job, &clean, 100, 60);
        assert_null(slow_text(one, job));
        assert_int_equal(scene_stop(&one), 0);
    }
}

/* One leader's line for each pair of the run's two nodes: the first rank of the one tells of that of the other. */
static void measure(struct scene *s, uint64_t job, int bytes_per_s)
{
    const struct entry *e = scene_entry(s, job);
    char line[160], id[24];
    int other = 0;

    while (strcmp(e->job.places[other].node, e->job.places[0].node) == 0)
        other++;
    (void)snprintf(line, sizeof(line), "{\"type\":\"links\",\"rank\":0,\"to\":[{\"rank\":%d,\"bytes_per_s\":%d}]}\n",
                   other, bytes_per_s);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    assert_int_equal(
        scene_report(s, e->job.places[0].node,
                     json_pack("[o]", scene_run_of(e, e->job.generation, e->job.places[0].node, "running", 0)),
                     json_pack("{s:[{s:s, s:i, s:I, s:s}]}", "events", "job", id, "generation", (int)e->job.generation,
                               "offset", (json_int_t)0, "text", line))
            .status,
        200);
}

/* Another server goes on, and hears from both nodes, whose ranks run or (NULL) have not been begun. */
static void take_over(struct scene *s, uint64_t job, const char *runs)
{
    static const char *const node[] = {"n1", "n2"};

    scene_restart(s);
    for (int k = 0; k < 2; k++) {
        const struct entry *e = scene_entry(s, job);
        json_t *all = json_array(), *slots = json_array();

        if (runs)
            (void)json_array_append_new(all, scene_run_of(e, e->job.generation, node[k], runs, 0));
        for (int i = 0; i < 2; i++)
            (void)json_array_append_new(slots, json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", i, "kind", "cpu", "class",
                                                         "a", "threads", 1, "memory_mib", 4096));
        assert_int_equal(scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                                    json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "node", node[k], "address", "10.0.0.1",
                                              "boot_id", "b1", "incarnation", node[k], "slots", slots, "runs", all))
                             .status,
                         200);
    }
}

/* restarts: another server takes over after each thing that the next one depends on. */
static void leave_slow_links(struct scene *s, bool restarts)
{
    const struct steps clean = {.victim = -1}, link = {.victim = -1, .link = 2000};
    uint64_t job = begin(s, 1, 1);
    struct entry *e = scene_entry(s, job);
    int64_t now_us = s->clock.wall_us;

    assert_true(e->run.measure_links);
    measure(s, job, 1000000000);
    report(s, job, &clean, 0, 80);
    report(s, job, &link, 80, 20);
    assert_non_null(slow_text(s, job));
    assert_int_equal(e->job.intent, JOB_GO_ON); /* it has not lost much yet */
    assert_int_equal(health_incidents(&cluster_node(&s->core->cluster, "n1")->health, now_us), 0);
    for (int step = 100; step < 300 && e->job.intent == JOB_GO_ON; step += 20) {
        fake_clock_pass(&s->clock, 20 * SECOND);
        report(s, job, &link, step, 20);
    }
    assert_int_equal(e->job.intent, JOB_REQUEUE);
    assert_int_equal(e->job.past.link_moves.n, 1);
    assert_int_equal(e->job.past.moves.n, 0); /* which is of devices */
    assert_true(e->job.link_suspect);
    if (restarts)
        take_over(s, job, "running");
    scene_report_all(s, job, "exited", EXIT_DRAINED);
    scene_wait(s, 5);
    if (restarts) /* its nodes may not have heard of the new run yet */
        take_over(s, job, NULL);
    scene_report_all(s, job, "running", 0);
    e = scene_entry(s, job);
    assert_int_equal(e->job.generation, 2);
    assert_true(e->run.measure_links); /* although the pair was measured a short while ago */
    measure(s, job, 300000000);
    if (restarts)
        take_over(s, job, "running");
    assert_false(scene_entry(s, job)->job.link_suspect);
    for (int i = 0; i < 2; i++)
        assert_int_equal(health_incidents(&cluster_node(&s->core->cluster, i ? "n2" : "n1")->health, s->clock.wall_us),
                         1);
}

static void a_run_leaves_slow_links_for_a_measurement_and_only_that_is_held_against_nodes(void **state)
{
    leave_slow_links(*state, false);
}

static void links_that_are_suspected_are_measured_by_whichever_server_is_there_then(void **state)
{
    leave_slow_links(*state, true);
}

static void steps_that_evaluate_and_what_no_rank_could_tell_say_nothing(void **state)
{
    const struct steps clean = {.victim = -1}, eval = {.victim = 3, .slower = 90, .flags = 2};
    struct scene *s = *state;
    uint64_t job = begin(s, 2, 2);
    json_t *run;

    report(s, job, &clean, 0, 80);
    report(s, job, &eval, 80, 100);
    assert_null(slow_text(s, job));
    run = scene_run_of(scene_entry(s, job), 1, "n1", "running", 0);
    (void)json_object_set_new(json_array_get(json_object_get(run, "ranks"), 0), "steps", json_pack("[i,i,i]", 1, 2, 3));
    assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
    assert_null(slow_text(s, job));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slow_rank_is_told_in_the_jobs_view_and_explanation_until_it_is_well),
        TEST(a_device_that_a_test_confirms_to_be_slow_is_left_and_its_node_charged),
        TEST(a_rank_whose_device_is_as_fast_as_others_alone_is_not_blamed),
        cmocka_unit_test(a_host_that_withholds_its_processor_and_a_slow_link_have_words_of_their_own),
        TEST(a_run_leaves_slow_links_for_a_measurement_and_only_that_is_held_against_nodes),
        TEST(links_that_are_suspected_are_measured_by_whichever_server_is_there_then),
        TEST(steps_that_evaluate_and_what_no_rank_could_tell_say_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
