/* A spec and a number of devices as an assignment for one node without a server. */
#include "tests/unit/folder.h"

#include <errno.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "worker/agent/solo_plan.h"

static struct job_spec *spec_of(const char *text)
{
    struct faults f = {.n = 0};
    struct merr err = {.text = ""};
    struct job_spec *spec = NULL;

    assert_int_equal(io_publish_file(at("job.json"), text, strlen(text), 0600, NULL), 0);
    if (solo_plan_read(at("job.json"), &spec, &f, &err) < 0)
        fail_msg("%s: %s %s", err.text, f.n ? f.v[0].pointer : "", f.n ? f.v[0].message : "");
    return spec;
}

static struct assignment assigned_by(const struct job_spec *spec, int devices, const struct plan_profile *profile,
                                     uint64_t generation)
{
    struct assignment a = {.world = 0};
    struct merr err = {.text = ""};
    json_t *doc = NULL;
    int world = 0;

    if (solo_plan_assign(spec, devices, 2, profile, generation, "/jobs/one", &doc, &world, &err) < 0 ||
        assignment_read(doc, &a, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(doc);
    assert_int_equal(world, a.world);
    return a;
}

static struct assignment assigned(const struct job_spec *spec, int devices, uint64_t generation)
{
    return assigned_by(spec, devices, NULL, generation);
}

static void a_command_has_a_rank_on_each_device_of_this_machine(void **state)
{
    struct job_spec *spec = spec_of("{\"name\": \"a\", \"devices\": {\"min\": 3, \"max\": 3}, \"command\": "
                                    "{\"argv\": [\"true\"], \"grace_s\": 7}}");
    struct assignment a = assigned(spec, 3, 4);

    (void)state;
    assert_int_equal(a.world, 3);
    assert_int_equal(a.n_ranks, 3);
    assert_int_equal(a.generation, 4);
    assert_int_equal(a.grace_s, 7);
    assert_string_equal(a.job, RUN_JOB);
    assert_string_equal(a.dir, "/jobs/one");
    assert_true(a.master_port > 0 && a.master_port < 65536);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a.ranks[i].rank, i);
        assert_int_equal(a.ranks[i].slot, i);
        assert_string_equal(a.ranks[i].node, RUN_NODE);
        assert_string_equal(a.ranks[i].address, "127.0.0.1");
    }
    assignment_clear(&a);
    spec_free(spec);
}

#define TRAIN(min, parallel)                                                                                           \
    "{\"name\": \"t\", \"devices\": {\"min\": " min ", \"max\": 8}, \"parallel\": " parallel                           \
    ", \"train\": {\"model\": "                                                                                        \
    "{\"family\": \"gpt2\", \"layers\": 4, \"hidden\": 16, \"heads\": 2, \"context\": 16, \"vocab\": 256}, "           \
    "\"data\": {\"path\": \"/text\"}, \"steps\": 1, \"batch\": {\"sequences\": 8, \"micro\": 1}}}"

static void a_layout_that_the_spec_gives_is_filled_with_replicas(void **state)
{
    struct job_spec *spec = spec_of(TRAIN("2", "{\"tp\": 2, \"pp\": 1}"));
    struct assignment a = assigned(spec, 8, 1);

    (void)state;
    assert_int_equal(a.layout.tp, 2);
    assert_int_equal(a.layout.tp * a.layout.pp * a.layout.cp * a.layout.dp, a.world);
    assert_int_equal(a.world, 8);
    assert_int_equal(a.grace_s, ASSIGNMENT_GRACE_S);
    assignment_clear(&a);
    spec_free(spec);
}

static void what_the_spec_leaves_to_the_planner_is_settled_in_it(void **state)
{
    struct job_spec *spec = spec_of(TRAIN("1", "{\"tp\": \"auto\", \"pp\": \"auto\"}"));
    struct assignment a = assigned(spec, 4, 1);
    const json_t *parallel = json_object_get(a.spec, "parallel");

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(parallel, "tp")), a.layout.tp);
    assert_int_equal(json_integer_value(json_object_get(parallel, "pp")), a.layout.pp);
    assert_true(a.world > 0 && a.world <= 4);
    assignment_clear(&a);
    spec_free(spec);
}

static int profile_in(const char *text, struct plan_profile *p, struct merr *err)
{
    assert_int_equal(io_publish_file(at("profile.json"), text, strlen(text), 0600, NULL), 0);
    return solo_plan_profile(at("profile.json"), 2, p, err);
}

/* The same devices but for how long they take over sums: tp halves the arithmetic, and pays where those are fast. */
static void the_profile_of_the_machine_decides_the_layout(void **state)
{
#define PROFILE(us)                                                                                                    \
    "{\"version\":1,\"threads\":2,\"products\":[[64,64,64,0.00001]],\"all_reduce\":[[2,1024," us "],[2,65536," us "]]" \
    "}"
    struct job_spec *spec = spec_of(TRAIN("1", "{\"tp\": \"auto\", \"virtual_workers\": 1}"));
    struct plan_profile *p = calloc(1, sizeof(*p));
    struct assignment a;

    (void)state;
    assert_int_equal(profile_in(PROFILE("1"), p, NULL), 0);
    a = assigned_by(spec, 2, p, 1);
    assert_int_equal(a.layout.tp, 2);
    assignment_clear(&a);
    assert_int_equal(profile_in(PROFILE("1000000"), p, NULL), 0);
    a = assigned_by(spec, 2, p, 1);
    assert_int_equal(a.layout.tp, 1);
    assignment_clear(&a);
    free(p);
    spec_free(spec);
}

static void a_profile_of_other_ranks_or_none_is_refused(void **state)
{
    struct plan_profile *p = calloc(1, sizeof(*p));
    struct merr err = {""};

    (void)state;
    assert_int_equal(profile_in("{\"version\":1,\"threads\":4}", p, &err), -ERANGE);
    assert_non_null(strstr(err.text, "of ranks of 4 threads, and these have 2"));
    assert_int_equal(profile_in("what", p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "muster profile run"));
    assert_int_equal(solo_plan_profile(at("nowhere.json"), 2, p, &err), -ENOENT);
    free(p);
}

static void too_few_devices_for_one_replica_are_refused(void **state)
{
    struct job_spec *spec = spec_of(TRAIN("4", "{\"tp\": 2, \"pp\": 2}"));
    struct merr err = {.text = ""};
    json_t *doc = NULL;
    int world = -1;

    (void)state;
    assert_int_equal(solo_plan_assign(spec, 2, 1, NULL, 1, "/jobs/one", &doc, &world, &err), -ENOSPC);
    assert_null(doc);
    assert_int_equal(world, -1);
    assert_string_not_equal(err.text, "");
    spec_free(spec);
}

static void faults_of_a_spec_are_listed_and_a_missing_file_is_named(void **state)
{
    const char *bad = "{\"name\": \"a\", \"devices\": {\"min\": 0}, \"command\": {\"argv\": []}}";
    struct faults f = {.n = 0};
    struct merr err = {.text = ""};
    struct job_spec *spec = NULL;

    (void)state;
    assert_int_equal(io_publish_file(at("bad.json"), bad, strlen(bad), 0600, NULL), 0);
    assert_int_equal(solo_plan_read(at("bad.json"), &spec, &f, &err), -EINVAL);
    assert_int_equal(f.n, 2);
    assert_non_null(strstr(err.text, "bad.json' is no usable spec"));
    faults_clear(&f);
    assert_int_equal(solo_plan_read(at("none.json"), &spec, &f, &err), -ENOENT);
    assert_non_null(strstr(err.text, "none.json"));
    assert_int_equal(f.n, 0);
    assert_null(spec);
}

static void each_kind_of_failure_has_retries_of_its_own_and_waits_grow(void **state)
{
    static const struct {
        enum exit_cause fault;
        int wait_s; /* 0: no more */
    } table[] = {
        {EXIT_CAUSE_NODE, 1},     {EXIT_CAUSE_USER, 2},  {EXIT_CAUSE_USER, 0},     {EXIT_CAUSE_INTERNAL, 4},
        {EXIT_CAUSE_NUMBERS, 8},  {EXIT_CAUSE_NODE, 16}, {EXIT_CAUSE_ABORTED, 30}, {EXIT_CAUSE_NODE, 30},
        {EXIT_CAUSE_INTERNAL, 0}, {EXIT_CAUSE_USER, 0},
    };
    struct job_spec *spec = spec_of("{\"name\": \"a\", \"devices\": {\"min\": 1, \"max\": 1}, \"retry\": "
                                    "{\"max\": 6, \"user\": 1}, \"command\": {\"argv\": [\"true\"]}}");
    struct solo_retries r = {.user = 0};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        int64_t wait_us = 0;

        if (solo_plan_retry(&r, spec, table[i].fault, &wait_us) != (table[i].wait_s > 0) ||
            wait_us != table[i].wait_s * INT64_C(1000000))
            fail_msg("row %zu: %lld us", i, (long long)wait_us);
    }
    spec_free(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_has_a_rank_on_each_device_of_this_machine),
        cmocka_unit_test(a_layout_that_the_spec_gives_is_filled_with_replicas),
        cmocka_unit_test(what_the_spec_leaves_to_the_planner_is_settled_in_it),
        cmocka_unit_test(the_profile_of_the_machine_decides_the_layout),
        cmocka_unit_test(a_profile_of_other_ranks_or_none_is_refused),
        cmocka_unit_test(too_few_devices_for_one_replica_are_refused),
        cmocka_unit_test(each_kind_of_failure_has_retries_of_its_own_and_waits_grow),
        cmocka_unit_test(faults_of_a_spec_are_listed_and_a_missing_file_is_named),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
