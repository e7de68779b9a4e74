/* The parameters of a route: which pass, and what is said of those that do not. */
#include "server/http/query.h"
#include "tests/unit/test.h"

#include <string.h>

static void a_parameter_is_known_given_once_and_a_number_in_its_range(void **state)
{
    static const struct query_parameter known[] = {QUERY_NUMBER("limit", 1, 1000), QUERY_TEXT("state"), {.name = NULL}};
    static const struct {
        const char *query, *says; /* NULL: it passes */
    } rows[] = {
        {"", NULL},
        {"limit=1&state=running", NULL},
        {"limit=1000", NULL},
        {"state=", NULL},
        {"limit=0", "'limit' is a whole number from 1 to 1000, not '0'"},
        {"limit=1001", "not '1001'"},
        {"limit=", "not ''"},
        {"limit", "not ''"},
        {"limit=%2B5", "not '+5'"},
        {"limit=%205", "not ' 5'"},
        {"limit=5x", "not '5x'"},
        {"limit=-1", "not '-1'"},
        {"limit=99999999999999999999", "not '9999"},
        {"limt=5", "'limt' is no parameter of this; it takes limit, state"},
        {"LIMIT=5", "it takes limit, state"},
        {"limit=5&limit=5", "'limit' is given twice"},
        {"=5", "'' is no parameter"},
    };
    char why[256];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[64];
        struct http_fields given = {.n = 0};

        memcpy(text, rows[i].query, strlen(rows[i].query) + 1);
        assert_int_equal(http_query_split(text, &given), 0);
        assert_int_equal(query_ok(known, &given, why, sizeof(why)), !rows[i].says);
        if (rows[i].says && !strstr(why, rows[i].says))
            fail_msg("'%s' is refused with: %s", rows[i].query, why);
    }
}

static void a_route_without_parameters_takes_none_and_long_lists_are_cut(void **state)
{
    static const struct query_parameter known[] = {
        QUERY_TEXT("a-rather-long-name"), QUERY_TEXT("another-long-name"), {.name = NULL}};
    const struct http_fields given = {.v = {{"x", "1"}}, .n = 1}, none = {.n = 0};
    char why[64], small[40];

    (void)state;
    assert_true(query_ok(NULL, &none, why, sizeof(why)));
    assert_false(query_ok(NULL, &given, why, sizeof(why)));
    assert_string_equal(why, "'x' is no parameter of this; it takes none");
    assert_false(query_ok(known, &given, small, sizeof(small)));
    assert_int_equal(strlen(small), sizeof(small) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parameter_is_known_given_once_and_a_number_in_its_range),
        cmocka_unit_test(a_route_without_parameters_takes_none_and_long_lists_are_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
