#include "tests/unit/test.h"

#include <string.h>

#include "api/spec.h"
#include "api/spec_after.h"

static json_t *doc_of(const char *after, const char *rest)
{
    json_t *doc = json_loads(rest, 0, NULL);

    assert_non_null(doc);
    (void)json_object_set_new(doc, "after", json_loads(after, 0, NULL));
    return doc;
}

static void a_list_of_jobs_is_read_or_its_faults_are_told(void **state)
{
    static const struct {
        const char *list;
        const char *fault; /* where; NULL: none */
    } row[] = {{"[{\"job\": \"j1\"}, {\"job\": \"j20\", \"when\": \"started\"}]", NULL},
               {"[]", NULL},
               {"{}", "/after"},
               {"[\"j1\"]", "/after/0"},
               {"[{\"job\": \"j1\"}, {\"job\": \"x\"}]", "/after/1"},
               {"[{\"job\": \"j0\"}]", "/after/0"},
               {"[{\"job\": \"j1\", \"when\": \"soon\"}]", "/after/0"},
               {"[{\"job\": \"j1\", \"when\": null}]", "/after/0"},
               {"[{\"job\": \"j1\", \"if\": \"ok\"}]", "/after/0"},
               {"[{\"when\": \"ok\"}]", "/after/0"}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        json_t *doc = doc_of(row[i].list, "{\"command\": {\"argv\": [\"true\"]}}"), *back;
        struct faults f = {.n = 0};
        struct job_spec *spec = NULL;

        if ((spec_from_json(doc, &spec, &f) == 0) != !row[i].fault)
            fail_msg("row %zu: %s", i, f.n ? f.v[0].message : "no fault");
        if (row[i].fault)
            assert_string_equal(f.v[0].pointer, row[i].fault);
        if (i == 0) {
            back = spec_to_json(spec);
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(json_object_get(back, "after"), 0), "when")), "ok");
            json_decref(back);
        }
        faults_clear(&f);
        spec_free(spec);
        json_decref(doc);
    }
}

static void the_folders_of_those_before_are_filled_in(void **state)
{
    json_t *doc = doc_of("[{\"job\": \"j4\"}, {\"job\": \"j7\"}]",
                         "{\"command\": {\"argv\": [\"cat\", \"${{after.1.dir}}/out\"], \"env\": {\"A\": "
                         "\"${{after.0.dir}}\", \"B\": \"${{index}}\"}}, \"train\": {\"init\": {\"from\": {\"job\": "
                         "\"j4\"}}}}");
    json_t *want = json_loads("{\"command\": {\"argv\": [\"cat\", \"/jobs/j7/out\"], \"env\": {\"A\": \"/jobs/j4\", "
                              "\"B\": \"${{index}}\"}}, \"train\": {\"init\": {\"from\": \"/jobs/j4/checkpoints\"}}}",
                              0, NULL);
    struct faults f = {.n = 0};

    (void)state;
    spec_after_fill(doc, "/jobs", &f);
    assert_int_equal(f.n, 0);
    (void)json_object_del(doc, "after");
    if (!json_equal(doc, want))
        fail_msg("%s", json_dumps(doc, 0));
    json_decref(doc);
    doc = doc_of("[]", "{\"command\": {\"argv\": [\"${{after.0.dir}}\"]}}");
    spec_after_fill(doc, "/jobs", &f);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.v[0].pointer, "/command/argv/0");
    faults_clear(&f);
    json_decref(doc);
    json_decref(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_jobs_is_read_or_its_faults_are_told),
        cmocka_unit_test(the_folders_of_those_before_are_filled_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
