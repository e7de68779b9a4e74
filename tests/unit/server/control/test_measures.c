/* How nodes did, from the reports of their agents to the series that are asked for. */
#include "tests/unit/server/control/scene.h"

#include "server/control/measures.h"
#include "server/store/node_series.h"
#include "tests/unit/folder.h"

static struct node_series *series;

static int start(void **state)
{
    static int n;
    char folder[16];
    struct scene *s;

    (void)snprintf(folder, sizeof(folder), "series-%d", n++);
    if (node_series_open(at(folder), NODE_SERIES_BYTES, &series, NULL) < 0)
        return -1;
    (void)scene_start(state);
    s = *state;
    scene_halt(s);
    s->cfg.series = series;
    scene_boot(s);
    return 0;
}

static int stop(void **state)
{
    (void)scene_stop(state);
    node_series_close(series);
    return 0;
}

/* A report with what the node did, and how its first GPU does. */
static void tell(struct scene *s, const char *node, int cpu, int use)
{
    json_t *more = json_pack("{s:[i, i, i, i, i, i, i], s:[{s:i, s:i, s:i, s:i, s:i, s:n}]}", "host", cpu, 2048, 8192,
                             150, 10, -1, 5000, "gpus", "slot", 0, "utilization", use, "memory_used_mib", 40960,
                             "memory_mib", 81920, "power_w", 300, "temperature_c");

    assert_int_equal(scene_report(s, node, json_array(), more).status, 200);
}

static const struct http_fields *query(const char *name, int64_t value)
{
    static struct http_fields f;
    static char text[8][32];
    static size_t n;

    if (!name) {
        n = 0;
        f.n = 0;
        return &f;
    }
    (void)snprintf(text[n], sizeof(text[n]), "%lld", (long long)value);
    f.v[f.n].name = name;
    f.v[f.n++].value = text[n++];
    return &f;
}

static struct scene_answer ask(struct scene *s, const char *node, int64_t from, int64_t to, int buckets)
{
    struct http_req *r = scene_request(node, NULL, NULL);

    (void)query(NULL, 0);
    (void)query("from", from);
    (void)query("to", to);
    r->query = *query("buckets", buckets);
    return scene_call(s, node ? measures_node : measures_cluster, r, NULL);
}

static const json_t *host(const struct scene_answer *a, const char *name, const char *what)
{
    const json_t *node = json_array_get(json_object_get(a->body, "nodes"), 0);

    return json_object_get(json_object_get(json_object_get(node, "host"), name), what);
}

static const json_t *device(const struct scene_answer *a, size_t node, size_t i)
{
    return json_array_get(json_object_get(json_array_get(json_object_get(a->body, "nodes"), node), "devices"), i);
}

static double value(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

static void reports_become_series_of_the_node_and_its_devices(void **state)
{
    struct scene *s = *state;
    int64_t begin = 1700000000;
    struct scene_answer a;
    const json_t *run;
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    job = scene_submit(s, "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n");
    for (int i = 0; i < 40; i++) {
        tell(s, "n1", i < 20 ? 20 : 60, i < 20 ? 90 : 30);
        scene_wait(s, 3);
    }
    a = ask(s, "n1", begin, begin + 120, 240);
    assert_int_equal(a.status, 200);
    assert_int_equal(json_integer_value(json_object_get(a.body, "width_s")), 15);
    assert_true(value(host(&a, "cpu_percent", "mean"), 2) == 20);
    assert_true(value(host(&a, "cpu_percent", "mean"), 6) == 60);
    assert_true(value(host(&a, "load", "mean"), 6) == 1.5);
    assert_true(json_is_null(json_array_get(host(&a, "out_kib_s", "mean"), 6))); /* not told */
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(a.body, "nodes"), 0), "devices")),
                     2);
    assert_true(value(json_object_get(device(&a, 0, 0), "use"), 2) == 90);
    assert_true(value(json_object_get(device(&a, 0, 0), "memory"), 2) == 50);
    assert_true(value(json_object_get(device(&a, 0, 0), "power_w"), 2) == 300);
    assert_null(json_object_get(device(&a, 0, 0), "temperature_c"));
    assert_true(value(json_object_get(device(&a, 0, 0), "busy"), 4) == 100);
    assert_null(json_object_get(device(&a, 0, 1), "use")); /* no GPU */
    assert_true(value(json_object_get(device(&a, 0, 1), "busy"), 4) == 0);
    run = json_array_get(json_object_get(device(&a, 0, 0), "runs"), 0);
    assert_int_equal(job_id_parse(json_string_value(json_object_get(run, "job"))), job);
    assert_true(json_integer_value(json_object_get(run, "to")) >= begin + 105);
    a = ask(s, "n1", begin - 3600, begin + 120, 10); /* wider */
    assert_int_equal(json_array_size(host(&a, "cpu_percent", "mean")), 10);
    assert_true(value(host(&a, "cpu_percent", "most"), 9) == 60);
    assert_true(value(host(&a, "cpu_percent", "mean"), 9) < 60);
    a = ask(s, "n1", begin - 20 * 86400, begin + 120, 1000); /* of five minutes */
    assert_true(json_integer_value(json_object_get(a.body, "width_s")) % 300 == 0);
    assert_true(value(host(&a, "memory_mib", "mean"), json_array_size(host(&a, "memory_mib", "mean")) - 1) == 2048);
    scene_restart(s); /* what was kept is told by the next server */
    assert_int_equal(scene_register(s, "n1", "a", 2), 200);
    a = ask(s, "n1", begin, begin + 120, 240);
    assert_true(value(host(&a, "cpu_percent", "mean"), 6) == 60);
}

static void series_of_all_devices_come_by_pages_of_nodes(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;
    struct http_req *r;

    for (int i = 0; i < 3; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(scene_register(s, name, "a", 1), 200);
    }
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 3; k++)
            tell(s, k == 0 ? "n0" : k == 1 ? "n1" : "n2", 10, 10 * k);
        scene_wait(s, 5);
    }
    a = ask(s, NULL, 1700000000, 1700000060, 60);
    assert_int_equal(json_array_size(json_object_get(a.body, "nodes")), 3);
    assert_true(value(json_object_get(device(&a, 2, 0), "use"), 2) == 20);
    assert_null(json_object_get(device(&a, 2, 0), "power_w")); /* the node's page has it */
    assert_true(json_is_null(json_object_get(a.body, "next_cursor")));
    r = scene_request(NULL, NULL, NULL);
    (void)query(NULL, 0);
    r->query = *query("limit", 2);
    a = scene_call(s, measures_cluster, r, NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "nodes")), 2);
    assert_string_equal(json_string_value(json_object_get(a.body, "next_cursor")), "n1");
    r = scene_request(NULL, NULL, NULL);
    r->query = (struct http_fields){.v = {{"cursor", "n1"}}, .n = 1};
    a = scene_call(s, measures_cluster, r, NULL);
    assert_int_equal(json_array_size(json_object_get(a.body, "nodes")), 1);
}

static void what_cannot_be_told_is_refused(void **state)
{
    static const struct {
        const char *node;
        int64_t from, to;
        int status;
    } edge[] = {
        {"n1", 100, 200, 200},
        {"n2", 100, 200, 404},
        {"n1", 200, 200, 422},
        {"n1", 300, 200, 422},
        {"n1", 0, 31 * 86400, 422},
        {"n1", 0, INT64_MAX, 422},
        {NULL, 300, 200, 422},
        {"n1", 0, 30 * 86400, 200},
        {"n1", INT64_MAX - 1000, INT64_MAX, 200},
        {"n1", INT64_MAX - 10, INT64_MAX, 422},
        {"n1", 1, 2, 200},
    };
    struct scene *s = *state;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    for (size_t i = 0; i < COUNT(edge); i++) {
        struct scene_answer a = ask(s, edge[i].node, edge[i].from, edge[i].to, 1000);

        if (a.status != edge[i].status)
            fail_msg("%zu: %d", i, a.status);
    }
}

static void a_clock_that_is_set_leaves_a_gap_and_no_more(void **state)
{
    struct scene *s = *state;
    struct scene_answer a;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    for (int i = 0; i < 20; i++) {
        tell(s, "n1", 50, 10);
        scene_wait(s, 3);
        if (i == 10)
            s->clock.wall_us -= 3600 * SECOND;
    }
    a = ask(s, "n1", 1700000010 - 3600, 1700000010, 240);
    assert_true(value(host(&a, "cpu_percent", "mean"), 2) == 50); /* of after it was set back by an hour */
    a = ask(s, "n1", 1700000010, 1700000070, 240);
    assert_true(value(host(&a, "cpu_percent", "mean"), 1) == 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reports_become_series_of_the_node_and_its_devices, start, stop),
        cmocka_unit_test_setup_teardown(series_of_all_devices_come_by_pages_of_nodes, start, stop),
        cmocka_unit_test_setup_teardown(what_cannot_be_told_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_clock_that_is_set_leaves_a_gap_and_no_more, start, stop),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
