#include "tests/unit/test.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "worker/engine/train/run.h"

static const char spec[] =
    "{\"name\": \"t\", \"devices\": {\"min\": 1, \"max\": 8}, \"train\": {"
    "\"model\": {\"family\": \"gpt2\", \"layers\": 4, \"hidden\": 64, \"heads\": 4, \"context\": 32, \"vocab\": 256},"
    "\"data\": {\"path\": \"/corpus\"}, \"batch\": {\"sequences\": 8}, \"steps\": 3},"
    "\"parallel\": {\"virtual_workers\": 4}}";

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s", "/tmp/muster-run-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

/* A good assignment of tp·pp·dp ranks spread over nodes, new. */
static json_t *assignment(int tp, int pp, int dp, int nodes)
{
    json_t *ranks = json_array(), *o;
    int world = tp * pp * dp;

    for (int r = 0; r < world; r++) {
        char node[16];

        (void)snprintf(node, sizeof(node), "n%d", r * nodes / world);
        (void)json_array_append_new(ranks, json_pack("{s:i, s:s, s:i}", "rank", r, "node", node, "slot", 0));
    }
    o = json_pack("{s:s, s:i, s:s, s:s, s:{s:i, s:i, s:i, s:i}, s:i, s:o, s:i, s:o}", "job", "j9", "generation", 3,
                  "dir", "/jobs/j9", "node", "n0", "layout", "tp", tp, "pp", pp, "cp", 1, "dp", dp, "world", world,
                  "ranks", ranks, "threads", 2, "spec", json_loads(spec, 0, NULL));
    assert_non_null(o);
    return o;
}

static int read_it(json_t *doc, int rank, struct run *r, struct merr *err)
{
    char path[128];
    char *text = json_dumps(doc, 0);

    (void)snprintf(path, sizeof(path), "%s/assignment.json", folder);
    assert_int_equal(io_publish_file(path, text, strlen(text), 0644, NULL), 0);
    free(text);
    json_decref(doc);
    return run_read(folder, rank, r, err);
}

static void a_run_has_memory_or_a_reason_why_not_or_neither(void **state)
{
    json_t *doc = assignment(1, 1, 1, 1);
    struct run r;

    (void)state;
    assert_int_equal(read_it(doc, 0, &r, NULL), 0);
    assert_string_equal(r.memory, "");
    assert_string_equal(r.no_memory, "");
    run_clear(&r);
    doc = assignment(1, 1, 1, 1);
    (void)json_object_set_new(doc, "memory", json_string("/dev/shm/x/j9"));
    assert_int_equal(read_it(doc, 0, &r, NULL), 0);
    assert_string_equal(r.memory, "/dev/shm/x/j9");
    assert_int_equal(r.memory_limit, 0);
    run_clear(&r);
    doc = assignment(1, 1, 1, 1);
    (void)json_object_set_new(doc, "memory_limit", json_integer(1 << 20));
    assert_int_equal(read_it(doc, 0, &r, NULL), 0);
    assert_int_equal(r.memory_limit, 1 << 20);
    run_clear(&r);
    doc = assignment(1, 1, 1, 1);
    (void)json_object_set_new(doc, "memory_limit", json_string("1m"));
    assert_int_equal(read_it(doc, 0, &r, NULL), -EINVAL);
    doc = assignment(1, 1, 1, 1);
    (void)json_object_set_new(doc, "no_memory", json_string("full"));
    assert_int_equal(read_it(doc, 0, &r, NULL), 0);
    assert_string_equal(r.no_memory, "full");
    run_clear(&r);
}

static void an_assignment_gives_place_node_and_paths(void **state)
{
    struct run r;
    struct merr err;

    (void)state;
    assert_int_equal(read_it(assignment(2, 2, 2, 2), 5, &r, &err), 0);
    assert_int_equal(r.world, 8);
    assert_int_equal(r.mesh.tp_index, 1);
    assert_int_equal(r.mesh.dp_index, 0);
    assert_int_equal(r.mesh.pp_index, 1);
    assert_int_equal(r.generation, 3);
    assert_int_equal(r.threads, 2);
    assert_string_equal(r.checkpoints, "/jobs/j9/checkpoints");
    for (int i = 0; i < 8; i++)
        assert_int_equal(r.node_of[i], i < 4 ? 0 : 4);
    assert_int_equal(run_check(&r, NULL), 0);
    run_clear(&r);
}

static void a_source_node_has_a_rank_after_the_world_and_a_node_without_ranks(void **state)
{
    static const struct {
        const char *source_nodes;
        int rank, want;
    } t[] = {
        {"[{\"rank\": 2, \"node\": \"a\"}, {\"rank\": 3, \"node\": \"b\"}]", 0, 0},
        {"[{\"rank\": 2, \"node\": \"a\"}, {\"rank\": 3, \"node\": \"b\"}]", 3, 0},
        {"[{\"rank\": 2, \"node\": \"a\"}]", 3, -EINVAL},
        {"[]", 2, -EINVAL},
        {"[{\"rank\": 3, \"node\": \"a\"}]", 0, -EINVAL},
        {"[{\"rank\": 2}]", 0, -EINVAL},
        {"[{\"rank\": 2, \"node\": \"n1\"}]", 2, -EINVAL}, /* trains */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        json_t *doc = assignment(1, 1, 2, 2);
        struct run r;

        (void)json_object_set_new(doc, "givers", json_loads(t[i].source_nodes, 0, NULL));
        assert_int_equal(read_it(doc, t[i].rank, &r, NULL), t[i].want);
        if (t[i].want != 0)
            continue;
        assert_int_equal(r.world, 2);
        assert_int_equal(r.source_nodes, 2);
        assert_int_equal(r.rank, t[i].rank);
        run_clear(&r);
    }
}

static void a_broken_assignment_is_refused_by_what_is_wrong(void **state)
{
    static const struct {
        const char *path, *value, *say;
    } t[] = {
        {"job", "null", "'job'"},
        {"dir", "\"\"", "'dir'"},
        {"node", "7", "'node'"},
        {"generation", "0", "'generation'"},
        {"threads", "-1", "'threads'"},
        {"layout", "{\"tp\": 0}", "'tp'"},
        {"layout", "{\"tp\": 1, \"pp\": 1, \"cp\": 2, \"dp\": 2}", "world is 2"},
        {"layout", "{\"tp\": 1024, \"pp\": 1024, \"cp\": 1, \"dp\": 1024}", "more than"},
        {"world", "3", "world is 3"},
        {"ranks", "[]", "lists 0 ranks"},
        {"ranks", "[{\"rank\": 0, \"node\": \"a\"}, {\"rank\": 0, \"node\": \"a\"}]", "entry 1"},
        {"ranks", "[{\"rank\": 0, \"node\": \"a\"}, {\"rank\": 1}]", "entry 1"},
        {"spec", "{}", "spec"},
        {"spec", "7", "spec"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        json_t *doc = assignment(1, 1, 2, 1);
        struct run r = {.world = 77};
        struct merr err = {""};
        int code;

        assert_int_equal(json_object_set_new(doc, t[i].path, json_loads(t[i].value, JSON_DECODE_ANY, NULL)), 0);
        code = read_it(doc, 0, &r, &err);
        assert_true(code == -EINVAL || code == -ENOTSUP);
        if (!strstr(err.text, t[i].say))
            fail_msg("%s %s: %s", t[i].path, t[i].value, err.text);
        assert_int_equal(r.world, 77);
    }
}

static void an_assignment_of_a_later_protocol_is_refused_with_what_to_do(void **state)
{
    json_t *doc = assignment(1, 1, 1, 1);
    struct run r;
    struct merr err = {""};

    (void)state;
    assert_int_equal(json_object_set_new(doc, "protocol", json_integer(3)), 0);
    assert_int_equal(read_it(doc, 0, &r, &err), -EPROTO);
    assert_non_null(strstr(err.text, "speaks version 3 of the protocol"));
    assert_non_null(strstr(err.text, "install the same release"));
}

static void a_rank_outside_the_world_is_refused(void **state)
{
    static const int ranks[] = {-1, 2, 1000000};
    struct run r;

    (void)state;
    for (size_t i = 0; i < COUNT(ranks); i++)
        assert_int_equal(read_it(assignment(1, 1, 2, 1), ranks[i], &r, NULL), -EINVAL);
}

/* Fields that do not go together are refused where the spec is read, so before a rank does anything. */
static void what_is_not_built_is_said_by_field(void **state)
{
    static const struct {
        const char *fields[3][3]; /* section, field, value */
        const char *say;
    } t[] = {
        {{{"parallel", "recompute", "\"full\""}, {"parallel", "schedule", "\"zb-h1\""}}, "recompute"},
        {{{"compress", "dp", "\"sdp4bit\""}, {"parallel", "zero", "0"}}, "compress/dp"},
        {{{"sequence", "policy", "\"pack\""}}, "sequence/policy"},
        {{{"memory", "policy", "\"sqrt\""}, {"parallel", "recompute", "\"full\""}}, "memory/policy"},
        {{{"memory", "policy", "\"mimose\""}}, "memory/activation_budget_mib"},
        {{{"parallel", "exact", "\"strict\""}, {"compress", "tp", "\"auto\""}}, "exact"},
        {{{"parallel", "exact", "\"strict\""}, {"parallel", "cp", "2"}, {"devices", "min", "2"}}, "exact"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        json_t *doc = assignment(1, 1, 1, 1), *s = json_object_get(doc, "spec");
        struct merr err = {""};
        struct run r;

        for (size_t k = 0; k < 3 && t[i].fields[k][0]; k++) {
            if (!json_object_get(s, t[i].fields[k][0]))
                (void)json_object_set_new(s, t[i].fields[k][0], json_object());
            (void)json_object_set_new(json_object_get(s, t[i].fields[k][0]), t[i].fields[k][1],
                                      json_loads(t[i].fields[k][2], JSON_DECODE_ANY, NULL));
        }
        assert_int_equal(read_it(doc, 0, &r, &err), -EINVAL);
        if (!strstr(err.text, t[i].say))
            fail_msg("'%s' does not say '%s'", err.text, t[i].say);
    }
}

static void a_layout_that_is_not_the_specs_is_refused(void **state)
{
    static const struct {
        int cp, workers, chunks;
        const char *say;
    } t[] = {
        {2, 4, 1, "cp 1, its spec 2"},
        {1, 1, 1, "dp 2 is more than the 1 virtual workers"},
        {1, 4, SPEC_AUTO, "\"auto\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct merr err = {""};
        struct run r;

        assert_int_equal(read_it(assignment(1, 1, 2, 1), 0, &r, &err), 0);
        assert_int_equal(run_check(&r, &err), 0);
        r.spec->parallel.cp = t[i].cp;
        r.spec->parallel.virtual_workers = t[i].workers;
        r.spec->parallel.chunks = t[i].chunks;
        assert_int_equal(run_check(&r, &err), -EINVAL);
        if (!strstr(err.text, t[i].say))
            fail_msg("'%s' does not say '%s'", err.text, t[i].say);
        run_clear(&r);
    }
}

static void micro_batches_do_not_depend_on_the_layout(void **state)
{
    static const struct {
        int b, v, length, micro, want;
    } t[] = {
        {8, 4, 32, 0, 2},   {8, 4, 32, 1, 1},  {64, 1, 128, 0, 16}, {64, 1, 4096, 0, 1},
        {12, 2, 512, 0, 3}, {8, 4, 32, 3, -1}, {8, 3, 32, 0, -1},   {7, 1, 1024, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct job_spec s = {.kind = JOB_TRAIN};
        int micro = -1;

        s.train.batch.sequences = t[i].b;
        s.train.batch.micro = t[i].micro;
        s.train.batch.length = t[i].length;
        s.parallel.virtual_workers = t[i].v;
        assert_int_equal(run_micro(&s, &micro, NULL), t[i].want > 0 ? 0 : -EINVAL);
        assert_int_equal(micro, t[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_has_memory_or_a_reason_why_not_or_neither),
        cmocka_unit_test(a_source_node_has_a_rank_after_the_world_and_a_node_without_ranks),
        cmocka_unit_test(an_assignment_gives_place_node_and_paths),
        cmocka_unit_test(a_broken_assignment_is_refused_by_what_is_wrong),
        cmocka_unit_test(an_assignment_of_a_later_protocol_is_refused_with_what_to_do),
        cmocka_unit_test(a_rank_outside_the_world_is_refused),
        cmocka_unit_test(what_is_not_built_is_said_by_field),
        cmocka_unit_test(a_layout_that_is_not_the_specs_is_refused),
        cmocka_unit_test(micro_batches_do_not_depend_on_the_layout),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
