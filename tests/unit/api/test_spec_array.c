#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "api/spec_array.h"

#define COMMAND(argv, array) "{\"command\":{\"argv\":[" argv "]},\"array\":{" array "}}"

static json_t *document(const char *text)
{
    json_t *doc = json_loads(text, 0, NULL);

    assert_non_null(doc);
    return doc;
}

static struct job_spec *good(const json_t *doc)
{
    struct faults f = {.n = 0};
    struct job_spec *s = NULL;

    if (spec_from_json(doc, &s, &f) < 0)
        fail_msg("%s: %s", f.v[0].pointer, f.v[0].message);
    spec_check_tasks(doc, s, &f);
    if (f.n > 0)
        fail_msg("%s: %s", f.v[0].pointer, f.v[0].message);
    return s;
}

static void indices_are_numbers_and_ranges_that_grow(void **state)
{
    static const struct {
        const char *text;
        size_t tasks; /* 0: refused */
        int first, last;
    } rows[] = {
        {"0", 1, 0, 0},
        {"0-99", 100, 0, 99},
        {"0-99:2,120", 51, 0, 120},
        {"3,7,9-10", 4, 3, 10},
        {"0-9:4", 3, 0, 8},
        {"5-5", 1, 5, 5},
        {"9999999", 1, 9999999, 9999999},
        {"10000000", 0, 0, 0},
        {"", 0, 0, 0},
        {"3-1", 0, 0, 0},
        {"1,1", 0, 0, 0},
        {"5,3", 0, 0, 0},
        {"0-9,9", 0, 0, 0},
        {"1-", 0, 0, 0},
        {"-1", 0, 0, 0},
        {"1,", 0, 0, 0},
        {"0-9:0", 0, 0, 0},
        {"0:2", 0, 0, 0},
        {"a", 0, 0, 0},
        {" 1", 0, 0, 0},
        {"1-2-3", 0, 0, 0},
        {"99999999999999999999", 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct spec_indices all = {.n = 0};
        struct merr err = {""};
        int r = spec_indices_read(rows[i].text, &all, &err);

        if ((r == 0) != (rows[i].tasks > 0) || all.tasks != rows[i].tasks)
            fail_msg("'%s' gives %zu tasks: %s", rows[i].text, all.tasks, err.text);
        if (r < 0)
            continue;
        assert_int_equal(spec_index_at(&all, 0), rows[i].first);
        assert_int_equal(spec_index_at(&all, all.tasks - 1), rows[i].last);
        for (size_t k = 0; k < all.tasks; k++)
            assert_int_equal(spec_position_of(&all, spec_index_at(&all, k)), (ssize_t)k);
        assert_int_equal(spec_position_of(&all, rows[i].last + 1), -1);
        spec_indices_clear(&all);
    }
}

static void every_fault_of_an_array_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *spec, *pointer, *words;
    } rows[] = {
        {COMMAND("\"x\"", ""), "/array", "want index, count or a matrix"},
        {COMMAND("\"x\"", "\"count\":0"), "/array/count", "from 1 to 100000"},
        {COMMAND("\"x\"", "\"count\":100001"), "/array/count", "from 1 to 100000"},
        {COMMAND("\"x\"", "\"count\":3,\"index\":\"0-2\""), "/array/count", "not both"},
        {COMMAND("\"x\"", "\"index\":\"0-100000\""), "/array", "more than the 100000"},
        {COMMAND("\"x\"", "\"index\":\"2-1\""), "/array/index", "that grow"},
        {COMMAND("\"x\"", "\"count\":3,\"max_running\":0"), "/array/max_running", "from 1"},
        {COMMAND("\"x\"", "\"count\":3,\"on_fail\":\"halt\""), "/array/on_fail", "continue, stop"},
        {COMMAND("\"x\"", "\"count\":3,\"fail_limit\":0"), "/array/fail_limit", "from 1"},
        {COMMAND("\"x\"", "\"count\":3,\"step\":2"), "/array/step", "unknown field"},
        {COMMAND("\"x\"", "\"matrix\":[1]"), "/array/matrix", "want an object"},
        {COMMAND("\"x\"", "\"matrix\":{\"lr\":[]}"), "/array/matrix", "at least one"},
        {COMMAND("\"x\"", "\"matrix\":{\"l r\":[1]}"), "/array/matrix", "want a name"},
        {COMMAND("\"x\"", "\"matrix\":{\"lr\":[{}]}"), "/array/matrix", "text, number or boolean"},
        {COMMAND("\"x\"", "\"matrix\":{\"lr\":[1,2]},\"count\":1"), "/array/count", "as many tasks as combinations"},
        {COMMAND("\"x\"", "\"matrix\":{\"lr\":[1,2]},\"index\":\"1-2\""), "/array/index", "is no combination"},
        {COMMAND("\"x\"", "\"count\":2,\"ranges\":{\"lr\":{\"min\":1,\"max\":2}}"), "/array/ranges",
         "a grid has no ranges"},
        {COMMAND("\"x\"", "\"count\":2,\"search\":{\"method\":\"random\"},\"ranges\":{\"lr\":{\"min\":2,\"max\":1}}"),
         "/array/ranges", "min the smaller"},
        {COMMAND("\"x\"", "\"count\":2,\"search\":{\"method\":\"random\"},\"ranges\":{\"lr\":{\"min\":0,\"max\":1,"
                          "\"log\":true}}"),
         "/array/ranges", "min above 0"},
        {COMMAND("\"x\"", "\"count\":2,\"search\":{\"method\":\"best\"}"), "/array/search/method",
         "grid, random, asha"},
        {COMMAND("\"x\"", "\"count\":2,\"search\":{\"method\":\"asha\"}"), "/array/search/first_steps", "is needed"},
        {COMMAND("\"x\"", "\"count\":5000,\"search\":{\"method\":\"asha\",\"first_steps\":1}"), "/array",
         "more than the 4096"},
        {COMMAND("\"x\"", "\"count\":2,\"search\":{\"method\":\"asha\",\"first_steps\":1,\"reduction\":1}"),
         "/array/search/reduction", "from 2"},
        {COMMAND("\"${{param.lr}}\"", "\"count\":2"), "/command/argv/0", "there is no 'param.lr'"},
        {"{\"command\":{\"argv\":[\"x\"],\"workdir\":\"/${{index}}\"},\"array\":{\"count\":2}}", "/command/workdir",
         "nothing is filled in here"},
        {"{\"name\":\"a b\",\"command\":{\"argv\":[\"x\"]},\"array\":{\"count\":2}}", "/name", "letters"},
        {"{\"train\":{\"model\":\"gpt2-tiny\",\"data\":{\"path\":\"/x\"},\"optimizer\":{\"lr\":\"${{param.lr}}\"}},"
         "\"array\":{\"matrix\":{\"lr\":[0.1,-1]}}}",
         "/train/optimizer/lr", "(of task 1)"},
        {"{\"train\":{\"model\":\"gpt2-tiny\",\"data\":{\"path\":\"${{param.d}}\"}},"
         "\"array\":{\"matrix\":{\"d\":[\"/a\",\"b\"]}}}",
         "/train/data/path", "needs an absolute path"},
        {"{\"command\":{\"argv\":[\"x\"]},\"array\":7}", "/array", "want an object"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_auto_t *doc = document(rows[i].spec);
        struct faults f = {.n = 0};
        struct job_spec *s = NULL;
        bool found = false;

        if (spec_from_json(doc, &s, &f) == 0)
            spec_check_tasks(doc, s, &f);
        for (size_t k = 0; k < f.n; k++)
            found = found || (strcmp(f.v[k].pointer, rows[i].pointer) == 0 && strstr(f.v[k].message, rows[i].words));
        if (!found)
            fail_msg("%s: %zu faults, %s %s", rows[i].spec, f.n, f.n ? f.v[0].pointer : "", f.n ? f.v[0].message : "");
        faults_clear(&f);
        spec_free(s);
    }
}

static void a_matrix_has_the_order_of_nested_loops(void **state)
{
    json_auto_t *doc =
        document(COMMAND("\"x\"", "\"matrix\":{\"lr\":[0.1,0.2],\"seed\":[7,8,9],\"opt\":[\"a\",\"b\"]}"));
    struct job_spec *s = good(doc);
    size_t at = 0;

    (void)state;
    assert_int_equal(s->array.tasks, 12);
    for (int lr = 1; lr <= 2; lr++)
        for (int seed = 7; seed <= 9; seed++)
            for (int opt = 'a'; opt <= 'b'; opt++, at++) {
                json_auto_t *params = spec_task_params(s, (int)at, at);

                assert_true(json_number_value(json_object_get(params, "lr")) == lr / 10.0);
                assert_int_equal(json_integer_value(json_object_get(params, "seed")), seed);
                assert_int_equal(*json_string_value(json_object_get(params, "opt")), opt);
            }
    spec_free(s);
}

static void indices_choose_combinations_of_a_matrix(void **state)
{
    json_auto_t *doc = document(COMMAND("\"${{param.lr}}\"", "\"matrix\":{\"lr\":[5,6,7]},\"index\":\"0,2\""));
    struct job_spec *s = good(doc), *task;
    struct faults f = {.n = 0};

    (void)state;
    assert_int_equal(s->array.tasks, 2);
    assert_int_equal(spec_task(doc, s, 1, "j17", &task, NULL, &f), 0);
    assert_string_equal(task->command.argv[0], "7");
    spec_free(task);
    spec_free(s);
}

static void a_random_search_draws_each_task_by_its_index_alone(void **state)
{
    json_auto_t *doc = document(
        COMMAND("\"x\"",
                "\"count\":1000,\"search\":{\"method\":\"random\",\"seed\":5},\"matrix\":{\"opt\":[\"a\",\"b\",\"c\"]},"
                "\"ranges\":{\"lr\":{\"min\":1e-5,\"max\":0.1,\"log\":true},\"layers\":{\"min\":2,\"max\":4,"
                "\"whole\":true}}"));
    struct job_spec *s = good(doc);
    int of[3] = {0}, layers[3] = {0}, low = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        json_auto_t *params = spec_task_params(s, i, (size_t)i), *again = spec_task_params(s, i, 0);
        double lr = json_number_value(json_object_get(params, "lr"));

        assert_true(json_equal(params, again));
        assert_true(lr >= 1e-5 && lr <= 0.1);
        low += lr < 1e-3; /* the middle of the logarithms */
        of[*json_string_value(json_object_get(params, "opt")) - 'a']++;
        layers[json_integer_value(json_object_get(params, "layers")) - 2]++;
    }
    assert_in_range(low, 430, 570);
    for (int k = 0; k < 3; k++) {
        assert_in_range(of[k], 270, 400);
        assert_in_range(layers[k], 270, 400);
    }
    spec_free(s);
}

static const char *variable(const struct job_spec *s, const char *name)
{
    for (char **e = s->command.env; *e; e++)
        if (strncmp(*e, name, strlen(name)) == 0 && (*e)[strlen(name)] == '=')
            return *e + strlen(name) + 1;
    fail_msg("no %s", name);
    return NULL;
}

static void a_task_of_a_command_has_its_values_in_arguments_and_environment(void **state)
{
    json_auto_t *doc = document("{\"name\":\"t-${{index}}\",\"command\":{\"argv\":[\"run\",\"--lr=${{param.lr}}\"],"
                                "\"env\":{\"OUT\":\"/out/${{index}}\"}},\"array\":{\"index\":\"4-5\",\"search\":"
                                "{\"method\":\"random\"},\"matrix\":{\"lr\":[0.5]}}}");
    struct job_spec *s = good(doc), *task;
    struct faults f = {.n = 0};
    json_t *params;

    (void)state;
    assert_string_equal(s->name, "t-4"); /* of the array: its first task's */
    assert_int_equal(spec_task(doc, s, 1, "j17", &task, &params, &f), 0);
    assert_string_equal(task->name, "t-5");
    assert_int_equal(task->array.tasks, 0);
    assert_string_equal(task->command.argv[1], "--lr=0.5");
    assert_string_equal(variable(task, "OUT"), "/out/5");
    assert_string_equal(variable(task, "MUSTER_ARRAY_JOB"), "j17");
    assert_string_equal(variable(task, "MUSTER_ARRAY_INDEX"), "5");
    assert_string_equal(variable(task, "MUSTER_ARRAY_COUNT"), "2");
    assert_string_equal(variable(task, "MUSTER_PARAM_LR"), "0.5");
    assert_true(json_number_value(json_object_get(params, "lr")) == 0.5);
    json_decref(params);
    spec_free(task);
    spec_free(s);
}

static void a_task_of_training_has_its_values_as_numbers(void **state)
{
    json_auto_t *doc = document("{\"train\":{\"model\":\"gpt2-tiny\",\"data\":{\"path\":\"/d/${{index}}.txt\"},"
                                "\"init\":{\"seed\":\"${{param.seed}}\"},\"optimizer\":{\"lr\":\"${{param.lr}}\"}},"
                                "\"array\":{\"matrix\":{\"lr\":[0.1,0.2],\"seed\":[7,8]}}}");
    struct job_spec *s = good(doc), *task;
    struct faults f = {.n = 0};

    (void)state;
    assert_int_equal(spec_task(doc, s, 3, "j17", &task, NULL, &f), 0);
    assert_true(task->train.optimizer.lr == 0.2);
    assert_int_equal(task->train.init.seed, 8);
    assert_string_equal(task->train.data.path, "/d/3.txt");
    spec_free(task);
    spec_free(s);
}

static void without_an_array_nothing_is_filled_in(void **state)
{
    json_auto_t *doc = document("{\"command\":{\"argv\":[\"${{index}}\"]}}");
    struct job_spec *s = good(doc);
    json_auto_t *again = spec_to_json(s);

    (void)state;
    assert_string_equal(s->command.argv[0], "${{index}}");
    assert_int_equal(s->array.tasks, 0);
    assert_null(json_object_get(again, "array"));
    spec_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_are_numbers_and_ranges_that_grow),
        cmocka_unit_test(every_fault_of_an_array_is_refused_with_its_place),
        cmocka_unit_test(a_matrix_has_the_order_of_nested_loops),
        cmocka_unit_test(indices_choose_combinations_of_a_matrix),
        cmocka_unit_test(a_random_search_draws_each_task_by_its_index_alone),
        cmocka_unit_test(a_task_of_a_command_has_its_values_in_arguments_and_environment),
        cmocka_unit_test(a_task_of_training_has_its_values_as_numbers),
        cmocka_unit_test(without_an_array_nothing_is_filled_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
