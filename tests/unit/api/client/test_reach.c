/* test_reach - which addresses the server calls for others, and which never */
#include "api/client/reach.h"
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

union any {
    struct sockaddr a;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union any of(const char *text)
{
    union any u;

    memset(&u, 0, sizeof(u));
    if (inet_pton(AF_INET, text, &u.v4.sin_addr) == 1) {
        u.v4.sin_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &u.v6.sin6_addr), 1);
        u.v6.sin6_family = AF_INET6;
    }
    return u;
}

static bool allows(const struct reach *r, const char *text)
{
    union any u = of(text);

    return reach_allows(r, &u.a);
}

static void addresses_that_are_not_of_the_public_internet_are_refused(void **state)
{
    static const char *const refused[] = {
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.19.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001::1",
        "2001:db8::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
        "::ffff:169.254.169.254",
    };
    static const char *const allowed[] = {
        "1.1.1.1",    "8.8.8.8",    "9.255.255.255", "11.0.0.0",     "100.63.255.255",     "100.128.0.0",
        "126.0.0.1",  "128.0.0.1",  "169.253.0.1",   "172.15.0.1",   "172.32.0.1",         "192.167.255.255",
        "198.17.0.1", "198.20.0.1", "223.255.255.1", "2606:4700::1", "2a00:1450:4001::8a", "::ffff:8.8.8.8",
    };
    struct reach r = {.n = 0};

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (allows(&r, refused[i]))
            fail_msg("%s would be called", refused[i]);
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        if (!allows(&r, allowed[i]))
            fail_msg("%s would not be called", allowed[i]);
}

static void addresses_of_another_family_are_refused(void **state)
{
    struct reach r = {.n = 0};
    struct sockaddr a = {.sa_family = AF_UNIX};

    (void)state;
    assert_false(reach_allows(&r, &a));
}

static void an_operator_allows_networks_by_name_and_no_others(void **state)
{
    struct merr err;
    struct reach r;

    (void)state;
    assert_int_equal(reach_read("10.1.0.0/16,192.168.3.7,fd00:1::/32,127.0.0.0/9", &r, &err), 0);
    assert_int_equal(r.n, 4);
    assert_true(allows(&r, "10.1.255.1"));
    assert_true(allows(&r, "::ffff:10.1.255.1"));
    assert_false(allows(&r, "10.2.0.1"));
    assert_true(allows(&r, "192.168.3.7"));
    assert_false(allows(&r, "192.168.3.6"));
    assert_true(allows(&r, "fd00:1:ffff::1"));
    assert_false(allows(&r, "fd00:2::1"));
    assert_true(allows(&r, "127.127.0.1"));
    assert_false(allows(&r, "127.128.0.1"));
    assert_true(allows(&r, "8.8.8.8"));
    assert_int_equal(reach_read(NULL, &r, &err), 0);
    assert_int_equal(r.n, 0);
}

static void what_is_no_network_is_refused_by_name(void **state)
{
    static const char *const bad[] = {"10.0.0.0/33", "10.0.0/8",    "fd00::/129", "10.0.0.0/",   "10.0.0.0/8x",
                                      "localhost",   "10.0.0.0/-1", ",",          "10.0.0.0/8,,"};
    char many[REACH_NETS_MAX * 8 + 16] = "1.1.1.1";
    struct reach r = {.n = 7};
    struct merr err;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (reach_read(bad[i], &r, &err) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(r.n, 7);
    for (int i = 0; i < REACH_NETS_MAX; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), ",1.1.1.1");
    assert_int_equal(reach_read(many, &r, &err), -EINVAL);
    assert_non_null(strstr(err.text, "32 networks"));
}

static void the_loopback_is_known_in_each_form(void **state)
{
    static const char *const loopback[] = {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"};
    union any other = of("10.0.0.1");
    char text[REACH_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++) {
        union any u = of(loopback[i]);

        assert_true(reach_is_loopback(&u.a));
    }
    assert_false(reach_is_loopback(&other.a));
    reach_print(&other.a, text);
    assert_string_equal(text, "10.0.0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_that_are_not_of_the_public_internet_are_refused),
        cmocka_unit_test(addresses_of_another_family_are_refused),
        cmocka_unit_test(an_operator_allows_networks_by_name_and_no_others),
        cmocka_unit_test(what_is_no_network_is_refused_by_name),
        cmocka_unit_test(the_loopback_is_known_in_each_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
