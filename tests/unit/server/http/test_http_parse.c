/* test_http_parse - the pure parts of reading a request */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "server/http/http_parse.h"

static void decoding_takes_escapes_and_refuses_broken_ones(void **state)
{
    static const struct {
        const char *in, *out; /* out NULL: refused */
        bool plus;
    } t[] = {
        {"", "", false},        {"abc", "abc", false}, {"a%20b", "a b", false},       {"a+b", "a+b", false},
        {"a+b", "a b", true},   {"%2F", "/", false},   {"%2f%2F", "//", false},       {"%", NULL, false},
        {"%4", NULL, false},    {"%zz", NULL, false},  {"%4g", NULL, false},          {"a%00b", NULL, false},
        {"a%0ab", NULL, false}, {"%7f", NULL, false},  {"%C3%A9", "\xc3\xa9", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        char text[64];
        int rc;

        strncpy(text, t[i].in, sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        rc = http_decode(text, t[i].plus);
        if (t[i].out) {
            assert_int_equal(rc, 0);
            assert_string_equal(text, t[i].out);
        } else {
            assert_int_equal(rc, -EINVAL);
        }
    }
}

static void a_path_matches_its_pattern_and_gives_its_parameters(void **state)
{
    static const struct {
        const char *pattern, *path, *first, *second;
        bool match;
    } t[] = {
        {"/", "/", NULL, NULL, true},
        {"/", "/v1", NULL, NULL, false},
        {"/v1/jobs", "/v1/jobs", NULL, NULL, true},
        {"/v1/jobs", "/v1/jobs/", NULL, NULL, false},
        {"/v1/jobs", "/v1//jobs", NULL, NULL, false},
        {"/v1/jobs/{id}", "/v1/jobs/j1", "j1", NULL, true},
        {"/v1/jobs/{id}", "/v1/jobs/", NULL, NULL, false},
        {"/v1/jobs/{id}", "/v1/jobs/a%2Fb", "a/b", NULL, true},
        {"/v1/jobs/{id}", "/v1/jobs/j1/events", NULL, NULL, false},
        {"/v1/{a}/x/{b}", "/v1/one/x/two", "one", "two", true},
        {"/v1/{a}/x/{b}", "/v1/one/y/two", NULL, NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        const char *params[4] = {NULL};
        struct http_path path;
        char text[64];

        strncpy(text, t[i].path, sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        assert_int_equal(http_path_split(text, &path), 0);
        assert_int_equal(http_path_match(t[i].pattern, &path, params, 4), t[i].match);
        if (t[i].match && t[i].first)
            assert_string_equal(params[0], t[i].first);
        if (t[i].match && t[i].second)
            assert_string_equal(params[1], t[i].second);
    }
}

static void a_path_that_is_no_path_is_refused(void **state)
{
    char relative[] = "v1", broken[] = "/v1/%zz", deep[] = "/a/a/a/a/a/a/a/a/a/a/a/a/a/a";
    struct http_path path;

    (void)state;
    assert_int_equal(http_path_split(relative, &path), -EINVAL);
    assert_int_equal(http_path_split(broken, &path), -EINVAL);
    assert_int_equal(http_path_split(deep, &path), -E2BIG);
}

static void a_query_is_split_at_its_signs_before_decoding(void **state)
{
    char text[] = "a=1&b=x%26y%3Dz&&c&d=a+b=c", broken[] = "a=%", many[256] = "";
    struct http_fields f;

    (void)state;
    assert_int_equal(http_query_split(text, &f), 0);
    assert_int_equal(f.n, 4);
    assert_string_equal(f.v[1].name, "b");
    assert_string_equal(f.v[1].value, "x&y=z");
    assert_string_equal(f.v[2].value, "");
    assert_string_equal(f.v[3].value, "a b=c");
    assert_int_equal(http_query_split(broken, &f), -EINVAL);
    for (size_t i = 0; i < HTTP_QUERY_MAX + 1; i++)
        memcpy(many + 2 * i, "a&", 3);
    assert_int_equal(http_query_split(many, &f), -E2BIG);
}

static size_t distance(const char *pattern, const char *path)
{
    struct http_path split;
    char text[512];

    strncpy(text, path, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(http_path_split(text, &split), 0);
    return http_path_distance(pattern, &split);
}

static void distance_counts_slips_and_not_parameters(void **state)
{
    char longest[300];

    (void)state;
    assert_int_equal(distance("/v1/jobs", "/v1/jobs"), 0);
    assert_int_equal(distance("/v1/jobs", "/v1/jbos"), 2);
    assert_int_equal(distance("/v1/jobs", "/v1/job"), 1);
    assert_int_equal(distance("/v1/jobs/{id}", "/v1/jobs/whatever"), 0);
    assert_int_equal(distance("/v1/jobs/{id}", "/v1/jobs"), 2);
    assert_int_equal(distance("/v1/jobs", "/jobs"), 4 + 4);
    memset(longest, 'a', sizeof(longest));
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    assert_true(distance("/v1/jobs", longest) == SIZE_MAX);
}

static void small_headers_are_read_exactly(void **state)
{
    (void)state;
    assert_string_equal(http_bearer("Bearer abc"), "abc");
    assert_string_equal(http_bearer("bearer   abc"), "abc");
    assert_null(http_bearer("Bearer "));
    assert_null(http_bearer("Basic abc"));
    assert_null(http_bearer(NULL));

    assert_true(http_request_id_ok("a-B_9.:"));
    assert_false(http_request_id_ok(""));
    assert_false(http_request_id_ok("a b"));
    assert_false(http_request_id_ok("0123456789012345678901234567890123456789012345678901234567890123x"));

    assert_true(http_accepts("text/event-stream", "text/event-stream"));
    assert_true(http_accepts("text/html, text/event-stream;q=0.9", "text/event-stream"));
    assert_false(http_accepts("text/event-streams", "text/event-stream"));
    assert_false(http_accepts("*/*", "text/event-stream"));
    assert_false(http_accepts(NULL, "text/event-stream"));

    assert_true(http_etag_match("\"x\"", "\"x\""));
    assert_true(http_etag_match("\"a\", W/\"x\"", "\"x\""));
    assert_true(http_etag_match("*", "\"x\""));
    assert_false(http_etag_match("\"xy\"", "\"x\""));
    assert_false(http_etag_match(NULL, "\"x\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_takes_escapes_and_refuses_broken_ones),
        cmocka_unit_test(a_path_matches_its_pattern_and_gives_its_parameters),
        cmocka_unit_test(a_path_that_is_no_path_is_refused),
        cmocka_unit_test(a_query_is_split_at_its_signs_before_decoding),
        cmocka_unit_test(distance_counts_slips_and_not_parameters),
        cmocka_unit_test(small_headers_are_read_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
