/* Addresses of Sentinels: what they name, and what is refused. Asking real ones: tests/fault/test_sentinel.py. */
#include "server/store/sentinel.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

static void an_address_names_sentinels_and_the_group_that_they_watch(void **state)
{
    static const struct {
        const char *url;
        int status;
        size_t n;
        const char *last;
        int port;
    } row[] = {
        {"sentinel://a/m", 0, 1, "a", 26379},
        {"sentinel://a:1,b.example:65535/main", 0, 2, "b.example", 65535},
        {"sentinel://1,2,3,4,5,6,7,8/m", 0, 8, "8", 26379},
        {"sentinel://1,2,3,4,5,6,7,8,9/m", -EINVAL, 0, "", 0},
        {"sentinel://a", -EINVAL, 0, "", 0},
        {"sentinel://a/", -EINVAL, 0, "", 0},
        {"sentinel:///m", -EINVAL, 0, "", 0},
        {"sentinel://a:0/m", -EINVAL, 0, "", 0},
        {"sentinel://a:65536/m", -EINVAL, 0, "", 0},
        {"sentinel://a:1x/m", -EINVAL, 0, "", 0},
        {"sentinel://a:/m", -EINVAL, 0, "", 0},
        {"sentinel://,b/m", -EINVAL, 0, "", 0},
        {"sentinel://a/m/n", -EINVAL, 0, "", 0},
        {"redis://a", -ENOENT, 0, "", 0},
        {"", -ENOENT, 0, "", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct sentinel s = {.n = 77};

        assert_int_equal(sentinel_parse(row[i].url, &s, NULL), row[i].status);
        if (row[i].status < 0) {
            assert_int_equal(s.n, 77);
            continue;
        }
        assert_int_equal(s.n, row[i].n);
        assert_string_equal(s.v[s.n - 1].host, row[i].last);
        assert_int_equal(s.v[s.n - 1].port, row[i].port);
        assert_string_equal(s.name, strrchr(row[i].url, '/') + 1);
    }
}

static void where_no_sentinel_answers_no_master_is_known(void **state)
{
    struct sentinel s;
    char host[SENTINEL_HOST_MAX] = "as it was";
    int port = 5;

    (void)state;
    assert_int_equal(sentinel_parse("sentinel://127.0.0.1:9,127.0.0.1:9/m", &s, NULL), 0);
    assert_int_equal(sentinel_find(&s, host, &port), -ENOENT);
    assert_string_equal(host, "as it was");
    assert_int_equal(port, 5);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_names_sentinels_and_the_group_that_they_watch),
        cmocka_unit_test(where_no_sentinel_answers_no_master_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
