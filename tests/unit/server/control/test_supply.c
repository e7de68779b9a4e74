#include "tests/unit/server/control/scene.h"

#include <errno.h>

#include "server/cluster/allocations.h"
#include "server/control/enroll.h"
#include "server/control/supply.h"
#include "tests/memory/provider_memory.h"

static struct provider_memory lender;

static int start_with(void **state, const char *queues)
{
    struct scene *s;

    lender = (struct provider_memory){.n = 0};
    if (scene_start(state) != 0)
        return -1;
    s = *state;
    scene_halt(s);
    s->cfg.supply.way = provider_memory_way(&lender);
    s->cfg.supply.queues = queues;
    s->cfg.supply.url = "http://muster:7717";
    scene_boot(s);
    scene_wait(s, 1); /* the first list */
    return 0;
}

static int start(void **state)
{
    return start_with(state, "p:devices=2,most=4,time=1h,idle=1m,account=ml");
}

static int start_fixed(void **state)
{
    return start_with(state,
                      "p:devices=2,most=4,fixed=1,idle=1m,account=@project;big:devices=8,class=h100,most=1,time=8h");
}

static int stop(void **state)
{
    int r = scene_stop(state);

    provider_memory_clear(&lender);
    return r;
}

static uint64_t submit(struct scene *s, int devices, int time_s, const char *class_)
{
    char spec[256], limit[64] = "", of[64] = "";

    if (time_s)
        (void)snprintf(limit, sizeof(limit), ", \"limits\": {\"time_s\": %d}", time_s);
    if (class_)
        (void)snprintf(of, sizeof(of), ", \"classes\": [\"%s\"]", class_);
    (void)snprintf(spec, sizeof(spec),
                   "{\"command\": {\"argv\": [\"x\"]}, \"project\": \"bert\", \"devices\": {\"min\": %d%s}%s}", devices,
                   of, limit);
    if (!scene_try_submit(s, spec))
        fail_msg("%s", scene_refusal);
    return s->core->jobs.next - 1;
}

static void cancel(struct scene *s, uint64_t job)
{
    struct http_req *r;
    char id[24], uri[64];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    (void)snprintf(uri, sizeof(uri), "/v1/jobs/%s/cancel", id);
    r = scene_request(id, NULL, NULL);
    free(r->uri);
    r->uri = strdup(uri);
    assert_int_equal(scene_call(s, jobs_action, r, NULL).status, 202);
}

/* The agents of an allocation's nodes come. */
static void arrive(struct scene *s, const char *first, int nodes, int leaves_s)
{
    for (int i = 0; i < nodes; i++) {
        char node[32];

        (void)snprintf(node, sizeof(node), "%s-%d", first, i);
        assert_int_equal(
            scene_call(s, agents_register, scene_request(NULL, NULL, NULL),
                       json_pack("{s:s, s:s, s:s, s:s, s:[{s:i, s:s, s:s, s:i, s:i}, {s:i, s:s, s:s, s:i, s:i}], s:[], "
                                 "s:I}",
                                 "node", node, "address", "10.0.0.1", "boot_id", "b1", "incarnation", node, "slots",
                                 "slot", 0, "kind", "cpu", "class", "cpu", "threads", 1, "memory_mib", 4096, "slot", 1,
                                 "kind", "cpu", "class", "cpu", "threads", 1, "memory_mib", 4096, "runs",
                                 "leaves_at_us", (json_int_t)(s->clock.wall_us + leaves_s * SECOND)))
                .status,
            200);
    }
}

/* Seconds go by in which the nodes' agents report, each with the job's run if it is there. */
static void live_on(struct scene *s, const char *const *nodes, uint64_t job, int seconds)
{
    for (int k = 0; k < seconds; k++) {
        for (size_t i = 0; nodes[i]; i++) {
            const struct entry *e = job ? table_find(&s->core->jobs, job) : NULL;
            bool there = e && e->job.live && strcmp(e->job.places[0].node, nodes[i]) == 0;

            if (cluster_node(&s->core->cluster, nodes[i]))
                assert_int_equal(
                    scene_report(s, nodes[i],
                                 there ? json_pack("[o]", scene_run_of(e, e->job.generation, nodes[i], "running", 0))
                                       : json_array(),
                                 NULL)
                        .status,
                    200);
        }
        scene_wait(s, 1);
    }
}

static const char *told(struct scene *s, size_t i, const char *key)
{
    struct scene_answer a = scene_call(s, supply_list, scene_request(NULL, NULL, NULL), NULL);
    const char *text =
        json_string_value(json_object_get(json_array_get(json_object_get(a.body, "allocations"), i), key));

    return text ? text : "";
}

static void jobs_that_wait_have_nodes_asked_for_and_start_on_them(void **state)
{
    struct scene *s = *state;
    uint64_t job = submit(s, 3, 0, NULL);

    scene_wait(s, 2);
    assert_int_equal(lender.n, 1);
    assert_int_equal(lender.v[0].count, 2); /* three devices, two a node */
    assert_string_equal(lender.v[0].account, "ml");
    assert_int_equal(json_array_size(lender.v[0].nodes), 2);
    assert_non_null(json_string_value(json_object_get(json_array_get(lender.v[0].nodes, 1), "code")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(lender.v[0].nodes, 1), "node")), "a1-1");
    assert_string_equal(told(s, 0, "state"), "waiting");
    scene_wait(s, 100);
    assert_int_equal(lender.requests, 1); /* however long it waits */
    provider_memory_grant(&lender);
    arrive(s, "a1", 2, 3600);
    scene_wait(s, 1);
    assert_true(scene_entry(s, job)->job.live);
    scene_wait(s, 1);
    assert_string_equal(told(s, 0, "state"), "running");
}

static void no_more_nodes_than_the_most_are_held_however_many_jobs_wait(void **state)
{
    struct scene *s = *state;
    int nodes = 0;

    for (int i = 0; i < 20; i++)
        (void)submit(s, 2, 0, NULL);
    scene_wait(s, 30);
    for (size_t i = 0; i < lender.n; i++)
        nodes += lender.v[i].count;
    assert_int_equal(nodes, 4);
    (void)submit(s, 9, 0, NULL); /* one that the most cannot hold */
    scene_wait(s, 30);
    assert_int_equal(lender.requests, 4);
}

static void a_queue_is_asked_by_the_class_and_time_of_a_job(void **state)
{
    struct scene *s = *state;

    scene_wait(s, 2);
    assert_int_equal(lender.n, 1); /* what is always held */
    assert_string_equal(lender.v[0].account, "");
    (void)submit(s, 2, 4 * 3600, "cpu"); /* for longer than p's nodes are there */
    scene_wait(s, 5);
    assert_int_equal(lender.n, 1);
    (void)submit(s, 8, 4 * 3600, "h100");
    scene_wait(s, 5);
    assert_int_equal(lender.n, 2);
    assert_string_equal(lender.v[1].queue, "big");
    (void)submit(s, 4, 600, "cpu");
    scene_wait(s, 5);
    assert_int_equal(lender.n, 3);
    assert_string_equal(lender.v[2].queue, "p");
    assert_int_equal(lender.v[2].count, 1); /* the fixed one takes the rest */
    assert_string_equal(lender.v[2].account, "bert");
}

static void idle_nodes_are_handed_back_after_their_time_but_for_what_is_fixed(void **state)
{
    static const char *const all[] = {"a1-0", "a2-0", NULL}, *const last[] = {"a1-0", NULL};
    struct scene *s = *state;
    uint64_t job;

    scene_wait(s, 2);
    provider_memory_grant(&lender);
    arrive(s, "a1", 1, 3600);
    job = submit(s, 4, 0, "cpu");
    live_on(s, last, 0, 3);
    assert_int_equal(lender.n, 2);
    provider_memory_grant(&lender);
    arrive(s, "a2", 1, 3600);
    scene_wait(s, 1);
    assert_true(scene_entry(s, job)->job.live);
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
    assert_null(table_find(&s->core->jobs, job));
    live_on(s, all, 0, 50);
    assert_int_equal(lender.releases, 0);
    live_on(s, all, 0, 15);
    assert_int_equal(lender.releases, 1);
    assert_int_equal(lender.n, 1);
    assert_string_equal(lender.v[0].name + strlen("muster-12345678-"), "a1");
    live_on(s, last, 0, 60);
    assert_null(cluster_node(&s->core->cluster, "a2-0"));
    assert_non_null(cluster_node(&s->core->cluster, "a1-0"));
    assert_int_equal(lender.n, 1);
}

static void nothing_is_placed_on_nodes_from_the_moment_they_are_handed_back(void **state)
{
    static const char *const nodes[] = {"a1-0", NULL};
    struct scene *s = *state;
    uint64_t job = submit(s, 2, 0, NULL), later;

    scene_wait(s, 2);
    provider_memory_grant(&lender);
    arrive(s, "a1", 1, 3600);
    scene_wait(s, 1);
    scene_report_all(s, job, "running", 0);
    scene_report_all(s, job, "exited", 0);
    lender.keep = 100; /* the provider takes its time */
    live_on(s, nodes, 0, 65);
    assert_string_equal(told(s, 0, "state"), "released");
    later = submit(s, 2, 0, NULL);
    live_on(s, nodes, 0, 5);
    assert_false(scene_entry(s, later)->job.live);
    assert_int_equal(lender.requests, 2);
    live_on(s, nodes, 0, 130);
    assert_in_range(lender.releases, 3, 4); /* once a minute, until it is done */
}

static void a_job_that_ended_while_it_waited_leaves_no_request_behind(void **state)
{
    struct scene *s = *state;
    uint64_t job = submit(s, 2, 0, NULL);

    scene_wait(s, 2);
    assert_int_equal(lender.n, 1);
    cancel(s, job);
    scene_wait(s, 70);
    assert_int_equal(lender.n, 0);
    assert_string_equal(told(s, 0, "id"), "");
}

static void a_request_that_fails_is_tried_again_ever_later(void **state)
{
    struct scene *s = *state;

    lender.refuse = 1000;
    (void)submit(s, 2, 0, NULL);
    scene_wait(s, 60);
    assert_in_range(lender.requests, 3, 5); /* after 5, 10, 20 s */
    lender.refuse = 0;
    scene_wait(s, 60);
    assert_int_equal(lender.n, 1);
}

static void a_request_that_fails_though_it_was_carried_out_leaves_no_orphan(void **state)
{
    struct scene *s = *state;

    lender.lose_answers = 1;
    (void)submit(s, 2, 0, NULL);
    scene_wait(s, 30);
    assert_int_equal(lender.requests, 2);
    assert_int_equal(lender.n, 1);
    assert_string_equal(lender.v[0].name + strlen("muster-12345678-"), "a2");
}

/* The server dies after it stored that it asks, and before it asks; or after the provider took it, before it knew. */
static void a_server_that_died_between_storing_and_asking_finds_out_from_the_list(void **state)
{
    struct scene *s = *state;

    (void)submit(s, 2, 0, NULL);
    scene_wait(s, 2);
    assert_int_equal(lender.n, 1);
    scene_restart(s); /* it had asked */
    scene_wait(s, 5);
    assert_int_equal(lender.requests, 1);
    assert_string_equal(told(s, 0, "state"), "waiting");
    provider_memory_clear(&lender); /* now it had not */
    scene_restart(s);
    scene_wait(s, 10);
    assert_int_equal(lender.requests, 2);
    assert_int_equal(lender.n, 1);
    assert_string_equal(lender.v[0].name + strlen("muster-12345678-"), "a2"); /* no number is given twice */
    assert_string_equal(told(s, 0, "id"), "a2");
}

static void an_allocation_that_nobody_knows_is_handed_back_and_others_are_left_alone(void **state)
{
    struct scene *s = *state;
    char ours[64];

    (void)submit(s, 2, 0, NULL);
    scene_wait(s, 2);
    (void)snprintf(ours, sizeof(ours), "%.16sa99", lender.v[0].name);
    lender.v[lender.n] = lender.v[0];
    lender.v[lender.n].nodes = json_array();
    (void)snprintf(lender.v[lender.n++].name, 64, "%s", ours);
    lender.v[lender.n].nodes = json_array();
    (void)snprintf(lender.v[lender.n++].name, 64, "muster-00000000-a1");
    lender.v[lender.n].nodes = json_array();
    (void)snprintf(lender.v[lender.n++].name, 64, "%.16sa1x", ours);
    scene_wait(s, 10);
    assert_int_equal(lender.n, 3);
    for (size_t i = 0; i < lender.n; i++)
        assert_string_not_equal(lender.v[i].name, ours);
}

static void what_is_listed_twice_is_one(void **state)
{
    struct scene *s = *state;

    lender.twice = true;
    (void)submit(s, 2, 0, NULL);
    scene_wait(s, 20);
    assert_int_equal(lender.requests, 1);
    assert_int_equal(lender.n, 1);
    assert_string_equal(told(s, 1, "id"), "");
}

static void an_empty_list_ends_no_run_of_nodes_that_are_heard_of(void **state)
{
    static const char *const nodes[] = {"a1-0", NULL};
    struct scene *s = *state;
    uint64_t job = submit(s, 2, 0, NULL);

    scene_wait(s, 2);
    provider_memory_grant(&lender);
    arrive(s, "a1", 1, 3600);
    scene_wait(s, 1);
    assert_true(scene_entry(s, job)->job.live);
    live_on(s, nodes, job, 3);
    provider_memory_clear(&lender); /* its list is wrong, or the agents are about to end */
    live_on(s, nodes, job, 60);
    assert_true(scene_entry(s, job)->job.live);
    scene_wait(s, 8); /* now they are silent */
    assert_null(cluster_node(&s->core->cluster, "a1-0"));
    assert_int_not_equal(scene_entry(s, job)->job.state, JOB_RUNNING);
}

static void a_provider_that_does_not_answer_changes_nothing(void **state)
{
    static const char *const nodes[] = {"a1-0", NULL};
    struct scene *s = *state;
    uint64_t job = submit(s, 2, 0, NULL);
    struct scene_answer a;

    scene_wait(s, 2);
    provider_memory_grant(&lender);
    arrive(s, "a1", 1, 3600);
    scene_wait(s, 1);
    lender.silent = true;
    live_on(s, nodes, job, 60);
    assert_true(scene_entry(s, job)->job.live);
    a = scene_call(s, supply_list, scene_request(NULL, NULL, NULL), NULL);
    assert_string_equal(json_string_value(json_object_get(a.body, "trouble")), "the controller does not answer");
    scene_restart(s); /* and a server that does not know what there is asks for nothing */
    (void)submit(s, 8, 0, NULL);
    scene_wait(s, 20);
    assert_int_equal(lender.requests, 1);
    lender.silent = false;
}

static void nodes_whose_agents_never_come_are_handed_back_and_asked_for_anew(void **state)
{
    struct scene *s = *state;

    (void)submit(s, 2, 0, NULL);
    scene_wait(s, 2);
    provider_memory_grant(&lender);
    scene_wait(s, 330);
    assert_true(lender.releases >= 1);
    assert_int_equal(lender.n, 1);
    assert_string_equal(lender.v[0].name + strlen("muster-12345678-"), "a2");
}

static void codes_and_tokens_of_an_allocation_end_with_it(void **state)
{
    struct scene *s = *state;
    uint64_t job = submit(s, 2, 0, NULL);
    char code[64], token[64];
    const json_t *node;

    scene_wait(s, 2);
    node = json_array_get(lender.v[0].nodes, 0);
    (void)snprintf(code, sizeof(code), "%s", json_string_value(json_object_get(node, "code")));
    (void)snprintf(token, sizeof(token), "mst_%048d", 7);
    cancel(s, job);
    scene_wait(s, 80);
    assert_int_equal(lender.n, 0);
    assert_int_equal(scene_call(s, enroll_join, scene_request(NULL, NULL, NULL),
                                json_pack("{s:s, s:s}", "code", code, "token", token))
                         .status,
                     401);
}

static void queues_are_read_or_refused_in_words(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {{"", "names no queue"},
                 {"p:devices=0", "devices=0"},
                 {"p:devices", "devices"},
                 {"p;p", "twice"},
                 {"p q", "no name"},
                 {"p:time=9", "time=9"},
                 {"p:color=red", "color=red"},
                 {"p:fixed=4,most=2", "more than"},
                 {"p:account=a b", "account=a b"},
                 {"p:most=99999999999", "most"}};
    static struct allocations all;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        all.n_queues = 0;
        assert_int_equal(allocations_read_queues(wrong[i].text, &all, &err), -EINVAL);
        assert_non_null(strstr(err.text, wrong[i].says));
    }
    all.n_queues = 0;
    assert_int_equal(allocations_read_queues("p:options=--gres=gpu:2 --qos=x,idle=5m;q", &all, &err), 0);
    assert_string_equal(all.queues[0].options, "--gres=gpu:2 --qos=x");
    assert_int_equal(all.queues[0].idle_s, 300);
    assert_string_equal(all.queues[1].name, "q");
}

#define ROW(name, begin) cmocka_unit_test_setup_teardown(name, begin, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(jobs_that_wait_have_nodes_asked_for_and_start_on_them, start),
        ROW(no_more_nodes_than_the_most_are_held_however_many_jobs_wait, start),
        ROW(a_queue_is_asked_by_the_class_and_time_of_a_job, start_fixed),
        ROW(idle_nodes_are_handed_back_after_their_time_but_for_what_is_fixed, start_fixed),
        ROW(nothing_is_placed_on_nodes_from_the_moment_they_are_handed_back, start),
        ROW(a_job_that_ended_while_it_waited_leaves_no_request_behind, start),
        ROW(a_request_that_fails_is_tried_again_ever_later, start),
        ROW(a_request_that_fails_though_it_was_carried_out_leaves_no_orphan, start),
        ROW(a_server_that_died_between_storing_and_asking_finds_out_from_the_list, start),
        ROW(an_allocation_that_nobody_knows_is_handed_back_and_others_are_left_alone, start),
        ROW(what_is_listed_twice_is_one, start),
        ROW(an_empty_list_ends_no_run_of_nodes_that_are_heard_of, start),
        ROW(a_provider_that_does_not_answer_changes_nothing, start),
        ROW(nodes_whose_agents_never_come_are_handed_back_and_asked_for_anew, start),
        ROW(codes_and_tokens_of_an_allocation_end_with_it, start),
        cmocka_unit_test(queues_are_read_or_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
