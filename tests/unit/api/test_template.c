#include "tests/unit/test.h"

#include <string.h>

#include "api/template.h"

static json_t *names(void)
{
    return json_pack("{s:i, s:f, s:s, s:b, s:f, s:[]}", "index", 3, "param.lr", 0.001, "param.opt", "sgd", "param.tie",
                     1, "param.big", 1e20, "param.list");
}

static void places_are_filled_in_by_the_table_of_names(void **state)
{
    static const struct {
        const char *text, *json;
    } rows[] = {
        {"plain", "\"plain\""},
        {"${{index}}", "3"},
        {"${{ index }}", "3"},
        {"${{param.lr}}", "0.001"},
        {"${{param.tie}}", "true"},
        {"run-${{index}}", "\"run-3\""},
        {"${{index}}${{index}}", "\"33\""},
        {"--lr=${{param.lr}} --opt ${{param.opt}}.", "\"--lr=0.001 --opt sgd.\""},
        {"$${{index}}", "\"$3\""},
        {"$HOME {} ${x} }}", "\"$HOME {} ${x} }}\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_auto_t *table = names();
        struct merr err = {""};
        json_auto_t *got = template_fill(rows[i].text, table, &err);
        json_auto_t *want = json_loads(rows[i].json, JSON_DECODE_ANY, NULL);

        if (!json_equal(got, want))
            fail_msg("%s: %s", rows[i].text, err.text);
    }
}

static void what_cannot_be_filled_in_is_named(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"${{param.rl}}", "did you mean 'param.lr'?"}, {"${{index", "is no place to be filled in"},
        {"${{}}", "is no place to be filled in"},      {"x${{param.list}}", "is no text, number or boolean"},
        {"${{somewhere else}}", "there is no"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_auto_t *table = names();
        struct merr err = {""};

        assert_null(template_fill(rows[i].text, table, &err));
        if (!strstr(err.text, rows[i].words))
            fail_msg("%s: %s", rows[i].text, err.text);
    }
}

static void a_text_grows_to_a_limit_and_no_further(void **state)
{
    enum { PLACES = 300 };
    json_auto_t *table = json_object();
    char *value = test_calloc(4096, 1), *text = test_calloc(PLACES, 8);
    struct merr err = {""};

    (void)state;
    memset(value, 'x', 4000);
    assert_int_equal(json_object_set_new(table, "a", json_string(value)), 0);
    for (int i = 0; i < PLACES; i++)
        memcpy(text + 6 * i, "${{a}}", 7);
    assert_null(template_fill(text, table, &err));
    assert_non_null(strstr(err.text, "more than 1048576 bytes"));
    test_free(value);
    test_free(text);
}

static void numbers_are_printed_as_short_as_they_are_read_back(void **state)
{
    static const struct {
        double x;
        const char *text;
    } rows[] = {{0.1, "0.1"}, {1e-5, "1e-05"}, {0.30000000000000004, "0.30000000000000004"}, {6e-4, "0.0006"}};

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_auto_t *v = json_real(rows[i].x);
        char text[32];

        assert_true(template_print(v, text, sizeof(text)));
        assert_string_equal(text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_filled_in_by_the_table_of_names),
        cmocka_unit_test(what_cannot_be_filled_in_is_named),
        cmocka_unit_test(a_text_grows_to_a_limit_and_no_further),
        cmocka_unit_test(numbers_are_printed_as_short_as_they_are_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
