/* test_otlp - the collector as its operator names it */
#include "server/control/otlp.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void the_path_of_traces_is_added_to_the_endpoint(void **state)
{
    struct otlp o;
    struct otlp_way w = {.url = NULL};
    struct merr err = {""};

    (void)state;
    assert_int_equal(otlp_read("http://localhost:4318", NULL, NULL, &o, &w, &err), 0);
    assert_string_equal(w.url, "http://localhost:4318/v1/traces");
    assert_null(w.headers[0]);
    assert_int_equal(otlp_read("https://c.example.org/in//", "", "mine", &o, &w, &err), 0);
    assert_string_equal(w.url, "https://c.example.org/in/v1/traces");
    assert_string_equal(w.service, "mine");
}

static void what_is_no_address_is_refused(void **state)
{
    static const char *const bad[] = {"localhost:4318", "ftp://x", "http://", "http://a b", "http://u:p@x", ""};
    char *longest = calloc(1, 600);
    struct otlp o;
    struct otlp_way w = {.url = NULL};
    struct merr err = {""};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(otlp_read(bad[i], NULL, NULL, &o, &w, &err), -EINVAL);
        assert_non_null(strstr(err.text, "--otlp"));
    }
    memset(longest, 'a', 599);
    memcpy(longest, "http://", 7);
    assert_int_equal(otlp_read(longest, NULL, NULL, &o, &w, &err), -EINVAL);
    free(longest);
}

static void headers_are_read_and_none_of_a_value_is_told(void **state)
{
    static const struct {
        const char *text, *one, *two;
    } good[] = {
        {"api-key=abc", "api-key: abc", NULL},
        {" a=1 , b=x%20y=z ,", "a: 1", "b: x y=z"},
        {"a=", "a: ", NULL},
        {",,", NULL, NULL},
    };
    static const char *const bad[] = {
        "secret", "=secret", "a=secret%0d%0aB: c", "a=secret%2", "a b=secret", "a=1,b=2,c=3,d=secret", "a=secret%zz"};
    char *longest = calloc(1, 2000);
    struct otlp o;
    struct merr err = {""};

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct otlp_way w = {.url = NULL};

        assert_int_equal(otlp_read("http://x", good[i].text, NULL, &o, &w, &err), 0);
        if (good[i].one)
            assert_string_equal(w.headers[0], good[i].one);
        else
            assert_null(w.headers[0]);
        if (good[i].two)
            assert_string_equal(w.headers[1], good[i].two);
        else
            assert_null(w.headers[1]);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct otlp_way w = {.url = NULL};

        assert_int_equal(otlp_read("http://x", bad[i], NULL, &o, &w, &err), -EINVAL);
        assert_null(strstr(err.text, "secret"));
    }
    memset(longest, 'a', 1999);
    longest[3] = '=';
    assert_int_equal(otlp_read("http://x", longest, NULL, &o, &(struct otlp_way){.url = NULL}, &err), -EINVAL);
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_of_traces_is_added_to_the_endpoint),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(headers_are_read_and_none_of_a_value_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
