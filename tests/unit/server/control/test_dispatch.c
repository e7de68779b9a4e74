/* What follows from scheduling rounds: who starts where and when, who leaves, and that no device is given twice. */
#include "tests/unit/server/control/scene.h"

#include <signal.h>

#include "server/control/change.h"

#define SPEC(n) "devices: {min: " #n ", max: " #n "}\ncommand: {argv: [x], grace_s: 5}\n"

static void a_job_starts_in_the_turn_in_which_it_comes_when_its_devices_are_free(void **state)
{
    struct scene *s = *state;
    const struct entry *e;
    uint64_t job, version;

    assert_int_equal(scene_register(s, "n1", "a", 3), 200);
    version = cluster_node(&s->core->cluster, "n1")->version;
    job = scene_submit(s, SPEC(2));
    e = scene_entry(s, job);
    assert_int_equal(e->job.state, JOB_STARTING);
    assert_int_equal(e->job.generation, 1);
    assert_int_equal(e->job.n_places, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(scene_slot(s, "n1", e->job.places[i].slot)->job, job);
    assert_true(cluster_node(&s->core->cluster, "n1")->version > version);
    assert_string_equal(scene_order(s, "n1", job), "run");
}

static void a_job_that_finds_too_few_devices_waits_until_others_end_and_says_so(void **state)
{
    struct scene *s = *state;
    uint64_t first, second;
    char why[200];

    assert_int_equal(scene_register(s, "n1", "a", 3), 200);
    first = scene_submit(s, SPEC(2));
    second = scene_submit(s, SPEC(2));
    assert_int_equal(scene_entry(s, second)->job.state, JOB_QUEUED);
    assert_int_equal(scene_entry(s, second)->wait.need, 2);
    explain_wait_text(&scene_entry(s, second)->wait, why, sizeof(why));
    assert_true(why[0] != '\0');
    scene_report_all(s, first, "running", 0);
    scene_report_all(s, first, "exited", 0);
    scene_turn(s);
    assert_int_equal(scene_entry(s, second)->job.state, JOB_STARTING);
}

static void nothing_starts_on_a_node_that_is_silent_drained_or_ill(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    assert_int_equal(scene_register(s, "n3", "a", 1), 200);
    assert_int_equal(scene_call(s, nodes_drain, scene_request("n1", NULL, NULL), NULL).status, 202);
    (void)scene_report(s, "n2", json_array(),
                       json_pack("{s:[{s:i, s:s}]}", "gpus", "slot", 0, "why", "memory is broken"));
    for (int i = 0; i < 40; i++) {
        scene_wait(s, 1);
        (void)scene_report(s, "n1", json_array(), NULL);
        (void)scene_report(s, "n2", json_array(), json_pack("{s:[{s:i, s:s}]}", "gpus", "slot", 0, "why", "as before"));
    }
    assert_int_equal(cluster_node(&s->core->cluster, "n3")->contact, NODE_UNKNOWN);
    job = scene_submit(s, SPEC(1));
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    assert_int_equal(scene_call(s, nodes_undrain, scene_request("n1", NULL, NULL), NULL).status, 202);
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_STARTING);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n1");
}

static void a_job_that_can_never_run_is_refused_at_submit_with_both_numbers(void **state)
{
    static const struct {
        const char *spec, *says; /* NULL: it is taken */
    } rows[] = {
        {"project: prod\n" SPEC(2), NULL},
        {"project: prod\n" SPEC(3), "takes at least 3 devices, and project 'prod' may have 2: a quota of 2"},
        {"project: prod\ndevices: {min: 1, max: 3}\ncommand: {argv: [x]}\n", NULL},
        {SPEC(4), NULL},
        {SPEC(5), "takes at least 5 devices, and this cluster has 4"},
        {"devices: {classes: [z]}\ncommand: {argv: [x]}\n", "takes at least 1 devices, and this cluster has 0 of its"},
    };
    struct scene *s = *state;

    assert_true(scene_try_submit(s, "devices: {classes: [z]}\ncommand: {argv: [x]}\n")); /* no node is known yet */
    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    assert_int_equal(
        scene_call(s, projects_put, scene_request("prod", NULL, NULL), json_pack("{s:i, s:i}", "quota", 2, "borrow", 0))
            .status,
        200);
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t job = scene_try_submit(s, rows[i].spec);

        assert_int_equal(job != 0, !rows[i].says);
        if (rows[i].says && !strstr(scene_refusal, rows[i].says))
            fail_msg("%s is refused with: %s", rows[i].spec, scene_refusal);
    }
}

static void a_job_leaves_a_drained_node_by_its_deadline_or_is_stopped(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, SPEC(1));
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_call(s, nodes_drain, scene_request("n1", NULL, NULL), NULL).status, 202);
    s->core->dispatch.next_full_us = 0; /* a full round moves what runs */
    scene_turn(s);
    assert_int_equal(scene_entry(s, job)->job.intent, JOB_REQUEUE);
    assert_string_equal(scene_order(s, "n1", job), "drain");
    for (int i = 0; i < 115; i++) {
        scene_wait(s, 1);
        scene_report_all(s, job, "running", 0);
    }
    assert_string_equal(scene_order(s, "n1", job), "drain");
    for (int i = 0; i < 10; i++) {
        scene_wait(s, 1);
        scene_report_all(s, job, "running", 0);
    }
    assert_string_equal(scene_order(s, "n1", job), "stop");
    scene_report_all(s, job, "exited", 76);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    assert_string_equal(scene_order(s, "n1", job), "");
}

static void when_a_node_is_lost_its_runs_are_over_and_start_elsewhere(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, SPEC(1) "retry: {max: 1}\n");
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    for (int i = 0; i < 110; i++) {
        scene_wait(s, 1);
        (void)scene_report(s, "n2", json_array(), NULL);
    }
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING); /* it goes on while its node is only unknown */
    for (int i = 0; i < 30; i++) {
        scene_wait(s, 1);
        (void)scene_report(s, "n2", json_array(), NULL);
    }
    assert_int_equal(cluster_node(&s->core->cluster, "n1")->contact, NODE_LOST);
    assert_int_equal(scene_slot(s, "n1", 0)->job, 0);
    for (int i = 0; i < 60 && scene_entry(s, job)->job.generation == 1; i++) {
        scene_wait(s, 1);
        (void)scene_report(s, "n2", json_array(), NULL);
    }
    assert_int_equal(scene_entry(s, job)->job.generation, 2);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n2");
    assert_int_equal(scene_entry(s, job)->job.restarts_node, 1);
}

/* One of two nodes of a run goes silent: s seconds later the other one's rank gives up, or does not (-1). Returns after
 * how many tenths of a second the run has started anew, at most 20 s. */
static int tenths_until_restart(struct scene *s, uint64_t job, int gives_up_after_s)
{
    for (int t = 0; t < 200; t++) {
        struct entry *e = scene_entry(s, job);

        if (e->job.generation == 2)
            return t;
        if (t % 10 == 0) {
            bool over = gives_up_after_s >= 0 && t >= 10 * gives_up_after_s;
            json_t *run = scene_run_of(e, 1, "n1", over ? "exited" : "running", over ? EXIT_ABORTED : 0);

            assert_int_equal(scene_report(s, "n1", json_pack("[o]", run), NULL).status, 200);
            assert_int_equal(scene_report(s, "n3", json_array(), NULL).status, 200);
        }
        fake_clock_pass(&s->clock, SECOND / 10);
        assert_true(turn_take(s->core, NULL));
    }
    return 200;
}

static uint64_t train_on_two_of_three(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    job = scene_submit(s, "devices: {min: 2, max: 2}\ntrain: {model: gpt2-tiny, data: {path: /c}}\n");
    scene_report_all(s, job, "running", 0);
    assert_int_equal(scene_register(s, "n3", "a", 1), 200);
    return job;
}

static void a_node_is_lost_to_a_run_when_another_rank_has_lost_it_and_it_is_silent_for_seconds(void **state)
{
    struct scene *s = *state;
    uint64_t job = train_on_two_of_three(s);
    const struct entry *e = scene_entry(s, job);
    struct scene_answer a;
    char id[24];
    int tenths = tenths_until_restart(s, job, 0);

    assert_in_range(tenths, 20, 32);
    assert_int_equal(e->job.restarts_node, 1);
    for (size_t i = 0; i < e->job.n_places; i++)
        assert_string_not_equal(e->job.places[i].node, "n2");
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    a = scene_call(s, jobs_get, scene_request(id, NULL, NULL), NULL);
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(a.body, "outcome"), "message")),
                           "rank 1 on n2: its node is lost"));
    a = scene_call(s, nodes_list, scene_request(NULL, NULL, NULL), NULL);
    assert_string_equal(
        json_string_value(json_object_get(
            json_array_get(json_object_get(json_array_get(json_object_get(a.body, "nodes"), 1), "slots"), 0), "state")),
        "unknown");
}

static void silence_alone_is_no_failure_and_explain_names_the_node(void **state)
{
    struct scene *s = *state;
    uint64_t job = train_on_two_of_three(s);
    struct scene_answer a;
    json_t *runs, *causes;
    char id[24];

    assert_int_equal(tenths_until_restart(s, job, -1), 200);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    a = scene_call(s, jobs_explain, scene_request(id, NULL, NULL), NULL);
    causes = json_object_get(a.body, "causes");
    assert_string_equal(json_string_value(json_object_get(json_array_get(causes, json_array_size(causes) - 1), "code")),
                        "node-silent");
    assert_non_null(strstr(json_string_value(json_object_get(a.body, "summary")), "nothing was heard of node 'n2'"));
    runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n2", "running", 0)); /* it is back */
    assert_int_equal(scene_report(s, "n2", runs, NULL).status, 200);
    assert_int_equal(scene_entry(s, job)->job.generation, 1);
    a = scene_call(s, jobs_explain, scene_request(id, NULL, NULL), NULL);
    assert_null(strstr(json_string_value(json_object_get(a.body, "summary")), "n2'"));
}

static void a_rank_that_gives_up_costs_no_node_that_is_heard_of(void **state)
{
    struct scene *s = *state;
    uint64_t job = train_on_two_of_three(s);
    json_t *runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "exited", EXIT_ABORTED));

    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    for (int t = 0; t < 10; t++) {
        scene_wait(s, 1);
        runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n2", "running", 0));
        assert_int_equal(scene_report(s, "n2", runs, NULL).status, 200);
    }
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    assert_int_equal(cluster_node(&s->core->cluster, "n2")->contact, NODE_READY);
}

static void slots_of_a_lost_node_are_not_shown_free(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    scene_wait(s, 130);
    a = scene_call(s, nodes_list, scene_request(NULL, NULL, NULL), NULL);
    a.body = json_array_get(json_object_get(a.body, "nodes"), 0);
    assert_string_equal(json_string_value(json_object_get(a.body, "state")), "lost");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(a.body, "slots"), 0), "state")), "lost");
}

/* A round looks at the first of the waiting jobs alone: the next comes at once, without anything else happening. */
static void more_jobs_than_a_round_looks_at_start_round_after_round_without_a_rest(void **state)
{
    struct scene *s = *state;
    int turns = 0;
    char node[8];

    for (int i = 0; i < 6; i++) {
        (void)snprintf(node, sizeof(node), "n%d", i);
        assert_int_equal(scene_register(s, node, "a", 250), 200);
    }
    s->core->turn.next_round_us = INT64_MAX; /* rounds are held up until all are there */
    for (int i = 0; i < 1300; i++)
        (void)scene_submit(s, SPEC(1));
    s->core->turn.next_round_us = 0;
    for (; s->core->jobs.by_state[JOB_STARTING] < 1300 && turns < 10; turns++) {
        assert_true(s->core->schedule_wanted);
        assert_true(turn_due_us(s->core) <= s->clock.mono_us);
        assert_true(turn_take(s->core, NULL));
    }
    assert_in_range(turns, 1, 3);
    scene_turn(s);
    assert_false(s->core->schedule_wanted);
}

static void runs_have_ports_of_their_own_and_give_them_back(void **state)
{
    struct scene *s = *state;
    uint64_t jobs[6];

    assert_int_equal(scene_register(s, "n1", "a", 6), 200);
    for (size_t i = 0; i < COUNT(jobs); i++) {
        jobs[i] = scene_submit(s, SPEC(1));
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(scene_entry(s, jobs[i])->job.master_port, scene_entry(s, jobs[k])->job.master_port);
    }
    scene_restart(s);
    for (size_t i = 0; i < COUNT(jobs); i++)
        assert_int_equal(s->core->dispatch.ports[scene_entry(s, jobs[i])->job.master_port - 29500], 1);
    assert_int_equal(scene_register(s, "n1", "a", 6), 200);
    scene_report_all(s, jobs[0], "exited", 0);
    for (size_t i = 0, taken = 0; i < STATE_PORTS; i++) {
        taken += s->core->dispatch.ports[i];
        assert_true(i + 1 < STATE_PORTS || taken == COUNT(jobs) - 1);
    }
}

/* The run's only rank comes to a step and ends like this. */
static void fail_with(struct scene *s, uint64_t job, int step, int code, int signal)
{
    struct entry *e = scene_entry(s, job);
    char node[JOB_NODE_MAX];
    json_t *run, *rank;

    scene_report_all(s, job, "running", 0);
    memcpy(node, e->job.places[0].node, sizeof(node));
    run = scene_run_of(e, e->job.generation, node, "exited", code);
    rank = json_array_get(json_object_get(run, "ranks"), 0);
    (void)json_object_set_new(rank, "step", json_integer(step));
    (void)json_object_set_new(rank, "signal", json_integer(signal));
    assert_int_equal(scene_report(s, node, json_pack("[o]", run), NULL).status, 200);
}

static void fail_on(struct scene *s, uint64_t job)
{
    fail_with(s, job, (int)scene_entry(s, job)->job.generation, EXIT_NODE, 0);
}

/* The node of the job's next run, once it has begun. */
static const char *next_node(struct scene *s, uint64_t job, uint32_t generation)
{
    for (int i = 0; i < 90 && scene_entry(s, job)->job.generation < generation; i++) {
        for (size_t k = 0; k < s->core->cluster.n_nodes; k++)
            if (s->core->cluster.nodes[k]->contact != NODE_LOST)
                (void)scene_report(s, s->core->cluster.nodes[k]->name, json_array(), NULL);
        scene_wait(s, 1);
    }
    assert_int_equal(scene_entry(s, job)->job.generation, generation);
    return scene_entry(s, job)->job.places[0].node;
}

static void after_a_failure_another_node_is_taken_where_one_fits(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, "train: {model: gpt2-tiny, data: {path: /c}}\nretry: {max: 10}\n");
    fail_on(s, job);
    assert_string_equal(next_node(s, job, 2), "n1"); /* there is no other */
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    for (uint32_t generation = 3; generation < 7; generation++) {
        fail_on(s, job);
        assert_string_equal(next_node(s, job, generation), generation % 2 ? "n2" : "n1");
    }
}

static void a_rank_that_was_killed_says_nothing_of_its_node(void **state)
{
    struct scene *s = *state;
    const char *action;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, "train: {model: gpt2-tiny, data: {path: /c}}\nretry: {max: 10}\n");
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    fail_with(s, job, 1, 137, SIGKILL);
    action = json_string_value(json_object_get(scene_entry(s, job)->job.outcome, "action"));
    assert_string_equal(action, "in-place");
    assert_string_equal(next_node(s, job, 2), "n1");
}

/* Row 53 of the fault catalogue. */
static void a_job_that_ends_alike_at_one_step_fails_as_its_owners(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    const json_t *outcome;
    uint64_t job;
    char id[24];

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, "train: {model: gpt2-tiny, data: {path: /c}}\nretry: {max: 9, user: 9}\n");
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    fail_with(s, job, 5, EXIT_USER, 0);
    (void)next_node(s, job, 2);
    fail_with(s, job, 6, EXIT_USER, 0);
    scene_restart(s); /* what has failed before outlives the server */
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    (void)next_node(s, job, 3);
    fail_with(s, job, 6, EXIT_USER, 0);
    a = scene_call(s, jobs_get, scene_request(id, NULL, NULL), NULL);
    outcome = json_object_get(a.body, "outcome");
    assert_string_equal(json_string_value(json_object_get(a.body, "state")), "failed");
    assert_string_equal(json_string_value(json_object_get(outcome, "class")), "user");
    assert_string_equal(json_string_value(json_object_get(outcome, "action")), "fail-user");
    assert_non_null(
        strstr(json_string_value(json_object_get(outcome, "message")), "two attempts ended in the same way"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(a.body, "restarts"), "user")), 2);
}

static void a_job_never_runs_on_nodes_that_it_excludes(void **state)
{
    static const char spec[] = "devices: {min: 1, max: 1, exclude: [n1, gone]}\ncommand: {argv: [x]}\n";
    struct scene *s = *state;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    assert_int_equal(scene_try_submit(s, spec), 0);
    assert_non_null(strstr(scene_refusal, "this cluster has 0 of its classes on the nodes that it does not exclude"));
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    job = scene_submit(s, spec);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n2");
    job = scene_submit(s, spec);
    scene_wait(s, 2);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_QUEUED);
    scene_restart(s);
    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    assert_int_equal(scene_register(s, "n2", "a", 2), 200);
    scene_wait(s, 2);
    assert_string_equal(scene_entry(s, job)->job.places[0].node, "n2");
}

static void a_job_after_which_nodes_are_lost_is_not_started_without_end(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    uint64_t job;
    char id[24], node[8];
    size_t lost = 0;

    for (int i = 0; i < 6; i++) {
        (void)snprintf(node, sizeof(node), "n%d", i);
        assert_int_equal(scene_register(s, node, "a", 1), 200);
    }
    job = scene_submit(s, "command: {argv: [x]}\nretry: {max: 100}\n");
    scene_report_all(s, job, "running", 0);
    for (int t = 0; t < 1200 && table_find(&s->core->jobs, job); t++) { /* its node is never heard of again */
        for (size_t k = 0; k < s->core->cluster.n_nodes; k++) {
            const struct node *n = s->core->cluster.nodes[k];

            if (n->slots[0].job == 0 && n->contact == NODE_READY)
                (void)scene_report(s, n->name, json_array(), NULL);
        }
        scene_wait(s, 1);
    }
    assert_null(table_find(&s->core->jobs, job));
    for (size_t k = 0; k < s->core->cluster.n_nodes; k++)
        lost += s->core->cluster.nodes[k]->contact == NODE_LOST;
    assert_int_equal(lost, ACT_SOON_LOST_MAX);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    a = scene_call(s, jobs_get, scene_request(id, NULL, NULL), NULL);
    assert_string_equal(json_string_value(json_object_get(a.body, "state")), "failed");
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(a.body, "outcome"), "message")),
                           "3 runs of this job in a row lost a node within 10 minutes of their start"));
}

static void the_next_server_finds_runs_on_their_devices(void **state)
{
    struct scene *s = *state;
    uint64_t job, waiting;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, SPEC(2));
    scene_report_all(s, job, "running", 0);
    waiting = scene_submit(s, SPEC(1));
    scene_restart(s);
    scene_turn(s);
    assert_int_equal(scene_slot(s, "n1", 0)->job, job);
    assert_int_equal(scene_slot(s, "n1", 1)->job, job);
    assert_int_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
    assert_int_equal(scene_entry(s, waiting)->job.state, JOB_QUEUED);
    assert_int_equal(scene_submit(s, SPEC(1)), waiting + 1);
}

/* --- whatever happens -------------------------------------------------------------------------------- */

#define NODES 5
#define SLOTS 3

/* Each slot is of one job, and each place of a live job is its slot. */
static void check_devices(struct scene *s, unsigned seed, int step)
{
    struct core *c = s->core;
    size_t held = 0, places = 0;

    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; k < c->cluster.nodes[i]->n_slots; k++) {
            const struct slot *slot = &c->cluster.nodes[i]->slots[k];
            const struct entry *e = slot->job ? table_find(&c->jobs, slot->job) : NULL;

            held += slot->job != 0;
            if (slot->job && (!e || !e->job.live))
                fail_msg("seed %u, step %d: a slot is held by a job without a run", seed, step);
            if (e && (strcmp(e->job.places[slot->rank].node, c->cluster.nodes[i]->name) != 0 ||
                      e->job.places[slot->rank].slot != slot->slot))
                fail_msg("seed %u, step %d: a slot is held that is not its job's", seed, step);
        }
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        for (size_t k = 0; e && e->job.live && k < e->job.n_places; k++)
            places += e->run.ranks[k].phase != RANK_EXITED;
    }
    if (held < places)
        fail_msg("seed %u, step %d: %zu ranks live on %zu slots", seed, step, places, held);
}

static uint64_t some_live(struct scene *s, unsigned *seed)
{
    size_t n = s->core->jobs.n_order, at = n > 0 ? (size_t)rand_r(seed) % n : 0;

    for (size_t i = 0; i < n; i++) {
        const struct entry *e = table_at(&s->core->jobs, (at + i) % n);

        if (e && e->job.live)
            return e->job.id;
    }
    return 0;
}

static void do_something(struct scene *s, unsigned *seed)
{
    static const char *const specs[] = {SPEC(1), SPEC(2), SPEC(4), SPEC(7) "priority: 90\n",
                                        "devices: {min: 1, max: 6}\ncommand: {argv: [x]}\nretry: {max: 2, user: 2}\n"};
    static const int codes[] = {0, 0, 1, 76};
    char node[8], id[24];
    uint64_t job = some_live(s, seed);
    const struct entry *e = job ? scene_entry(s, job) : NULL;

    (void)snprintf(node, sizeof(node), "n%d", rand_r(seed) % NODES);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    switch (rand_r(seed) % 8) {
    case 0:
    case 1:
        (void)scene_try_submit(s, specs[(size_t)rand_r(seed) % COUNT(specs)]);
        break;
    case 2:
        if (e)
            scene_report_all(s, job, "running", 0);
        break;
    case 3:
    case 4:
        if (e)
            scene_report_all(s, job, "exited", codes[(size_t)rand_r(seed) % COUNT(codes)]);
        break;
    case 5:
        (void)scene_call(s, rand_r(seed) % 2 ? nodes_drain : nodes_undrain, scene_request(node, NULL, NULL), NULL);
        break;
    case 6:
        if (e) /* twice, and of a generation before */
            (void)scene_report(
                s, e->job.places[0].node,
                json_pack("[o]", scene_run_of(e, e->job.generation - 1, e->job.places[0].node, "exited", 0)), NULL);
        break;
    default:
        s->core->dispatch.next_full_us = 0;
        scene_wait(s, 1 + rand_r(seed) % 20);
        for (int i = 0; i < NODES; i++) {
            (void)snprintf(node, sizeof(node), "n%d", i);
            if (rand_r(seed) % 8 > 0) /* now and then one is silent for long enough to be lost */
                (void)scene_report(s, node, json_array(), NULL);
        }
    }
}

static void no_device_is_given_twice(void **state)
{
    struct scene *s = *state;

    for (unsigned first = 1; first <= 8; first++) {
        unsigned seed = first;

        for (int i = 0; i < NODES; i++) {
            char node[8];

            (void)snprintf(node, sizeof(node), "n%d", i);
            (void)scene_register(s, node, i % 2 ? "a" : "b", SLOTS);
        }
        for (int step = 0; step < 150; step++) {
            do_something(s, &seed);
            check_devices(s, first, step);
        }
        scene_restart(s);
        check_devices(s, first, -1);
    }
}

/* Seed 1 of the simulator: a cancelled run's devices were given to its project once more before they were free. */
static void a_project_gets_no_devices_for_those_that_its_runs_still_have(void **state)
{
    struct scene *s = *state;
    uint64_t first, second;
    struct merr err;

    assert_int_equal(scene_register(s, "n1", "a", 4), 200);
    assert_true(scene_call(s, projects_put, scene_request("tight", NULL, NULL),
                           json_pack("{s:i, s:i}", "quota", 2, "borrow", 0))
                    .status < 300);
    first = scene_submit(s, "project: tight\n" SPEC(2));
    scene_report_all(s, first, "running", 0);
    assert_int_equal(change_job(s->core, scene_entry(s, first),
                                &(struct job_cause){.kind = CAUSE_CANCEL, .actor = "user:ann", .text = "enough"}, &err),
                     0);
    second = scene_submit(s, "project: tight\n" SPEC(2));
    scene_turn(s);
    assert_int_equal(scene_entry(s, second)->job.state, JOB_QUEUED);
    scene_report_all(s, first, "exited", 143);
    scene_turn(s);
    assert_int_equal(scene_entry(s, second)->job.state, JOB_STARTING);
}

/* Seed 49: of two runs that had a slot one after the other, a server that was started anew took the wrong one for its
 * owner, gave the slot away under the other, and waited for ever for a rank that was over. */
static void a_slot_that_was_given_on_is_the_later_runs_after_a_restart(void **state)
{
    struct scene *s = *state;
    uint64_t early, late;
    struct merr err;
    json_t *runs;

    late = scene_submit(s, SPEC(1));
    assert_int_equal(
        change_job(s->core, scene_entry(s, late), &(struct job_cause){.kind = CAUSE_SUSPEND, .actor = "x"}, &err), 0);
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    early = scene_submit(s, SPEC(2));
    scene_report_all(s, early, "running", 0);
    runs = json_pack("[o]", scene_run_of(scene_entry(s, early), 1, "n1", "exited", 0));
    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    assert_int_equal(
        change_job(s->core, scene_entry(s, late), &(struct job_cause){.kind = CAUSE_RESUME, .actor = "x"}, &err), 0);
    scene_turn(s);
    assert_int_equal(scene_slot(s, "n1", 0)->job, late);

    scene_restart(s);
    assert_int_equal(scene_slot(s, "n1", 0)->job, late);
    assert_int_equal(scene_slot(s, "n2", 0)->job, early);

    /* The machine of n1 has lost all: its agent lists no run. What is left of the early one is over with n2's rank. */
    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    runs = json_pack("[o]", scene_run_of(scene_entry(s, early), 1, "n2", "exited", 0));
    assert_int_equal(scene_report(s, "n2", runs, NULL).status, 200);
    assert_false(scene_entry(s, early)->job.live && scene_entry(s, early)->job.generation == 1);
}

/* Seed 665: a node was lost with a rank on it, and came back with the rank alive. */
static void a_slot_is_given_to_nobody_while_a_rank_that_was_taken_for_lost_is_on_it(void **state)
{
    struct scene *s = *state;
    uint64_t job, next;
    json_t *runs;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    assert_int_equal(scene_register(s, "n2", "a", 1), 200);
    job = scene_submit(s, SPEC(2));
    scene_report_all(s, job, "running", 0);
    for (int i = 0; i < 130; i++) {
        runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n2", "running", 0));
        assert_int_equal(scene_report(s, "n2", runs, NULL).status, 200);
        scene_wait(s, 1);
    }
    assert_int_equal(cluster_node(&s->core->cluster, "n1")->contact, NODE_LOST);
    runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "running", 0));
    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    next = scene_submit(s, SPEC(1));
    scene_turn(s);
    assert_int_equal(scene_entry(s, next)->job.state, JOB_QUEUED);
    runs = json_pack("[o]", scene_run_of(scene_entry(s, job), 1, "n1", "exited", 143));
    assert_int_equal(scene_report(s, "n1", runs, NULL).status, 200);
    scene_turn(s);
    assert_int_equal(scene_entry(s, next)->job.state, JOB_STARTING);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_project_gets_no_devices_for_those_that_its_runs_still_have),
        TEST(a_slot_that_was_given_on_is_the_later_runs_after_a_restart),
        TEST(a_slot_is_given_to_nobody_while_a_rank_that_was_taken_for_lost_is_on_it),
        TEST(a_job_starts_in_the_turn_in_which_it_comes_when_its_devices_are_free),
        TEST(a_job_that_finds_too_few_devices_waits_until_others_end_and_says_so),
        TEST(nothing_starts_on_a_node_that_is_silent_drained_or_ill),
        TEST(a_job_that_can_never_run_is_refused_at_submit_with_both_numbers),
        TEST(a_job_leaves_a_drained_node_by_its_deadline_or_is_stopped),
        TEST(when_a_node_is_lost_its_runs_are_over_and_start_elsewhere),
        TEST(a_node_is_lost_to_a_run_when_another_rank_has_lost_it_and_it_is_silent_for_seconds),
        TEST(silence_alone_is_no_failure_and_explain_names_the_node),
        TEST(a_rank_that_gives_up_costs_no_node_that_is_heard_of),
        TEST(slots_of_a_lost_node_are_not_shown_free),
        TEST(more_jobs_than_a_round_looks_at_start_round_after_round_without_a_rest),
        TEST(runs_have_ports_of_their_own_and_give_them_back),
        TEST(after_a_failure_another_node_is_taken_where_one_fits),
        TEST(a_rank_that_was_killed_says_nothing_of_its_node),
        TEST(a_job_that_ends_alike_at_one_step_fails_as_its_owners),
        TEST(a_job_never_runs_on_nodes_that_it_excludes),
        TEST(a_job_after_which_nodes_are_lost_is_not_started_without_end),
        TEST(the_next_server_finds_runs_on_their_devices),
        TEST(no_device_is_given_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
