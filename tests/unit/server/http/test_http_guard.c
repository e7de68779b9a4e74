/* How often an address, or the holder of a token, may come. */
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "server/http/http_guard.h"

#define SECOND INT64_C(1000000)

static const struct bucket_rule three = {.per_s = 1, .burst = 3};

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage s = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    void *to = s.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)(void *)&s)->sin6_addr
                                       : (void *)&((struct sockaddr_in *)(void *)&s)->sin_addr;

    assert_int_equal(inet_pton(s.ss_family, text, to), 1);
    return s;
}

static struct http_rate come(struct http_guard *g, const char *address, int64_t now_us)
{
    struct sockaddr_storage s = address_of(address);

    return http_guard_address(g, (const struct sockaddr *)&s, now_us);
}

static void beyond_the_burst_one_is_told_how_long_to_wait(void **state)
{
    struct http_guard *g = http_guard_new(&three);
    struct http_rate rate;

    (void)state;
    for (int i = 0; i < 3; i++) {
        rate = come(g, "10.0.0.1", SECOND);
        assert_true(rate.wait_s == 0 && rate.limit == 3 && rate.left == 2 - i && rate.reset_s == i + 1);
    }
    rate = come(g, "10.0.0.1", SECOND);
    assert_in_range(rate.wait_s, 1, 2);
    assert_int_equal(come(g, "10.0.0.2", SECOND).wait_s, 0); /* whom the first one does not hold up */
    assert_int_equal(come(g, "10.0.0.1", SECOND + rate.wait_s * SECOND).wait_s, 0); /* and it was told long enough */
    for (int i = 0; i < 3; i++)
        rate = come(g, "10.0.0.1", 0);
    assert_int_not_equal(rate.wait_s, 0); /* a clock that goes back fills nothing in */
    http_guard_free(g);
    http_guard_free(NULL);
}

static void addresses_of_one_customer_are_one(void **state)
{
    static const struct {
        const char *first, *second;
        bool same;
    } table[] = {
        {"10.0.0.1", "::ffff:10.0.0.1", true}, /* the same over IPv6 */
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"10.0.0.1", "10.0.1.0", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct http_guard *g = http_guard_new(&three);

        for (int k = 0; k < 3; k++)
            (void)come(g, table[i].first, SECOND);
        if ((come(g, table[i].second, SECOND).wait_s > 0) != table[i].same)
            fail_msg("row %zu", i);
        http_guard_free(g);
    }
}

static void no_address_counts_as_one(void **state)
{
    struct http_guard *g = http_guard_new(&three);

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(http_guard_address(g, NULL, SECOND).wait_s, 0);
    assert_int_not_equal(http_guard_address(g, NULL, SECOND).wait_s, 0);
    http_guard_free(g);
}

static void names_and_amounts_have_buckets_of_their_own(void **state)
{
    struct http_guard *g = http_guard_new(&three);

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(http_guard_name(g, "t1", SECOND).wait_s, 0);
    assert_int_not_equal(http_guard_name(g, "t1", SECOND).wait_s, 0);
    assert_int_equal(http_guard_name(g, "", SECOND).wait_s, 0);
    assert_int_equal(http_guard_amount(g, "t2", 9, SECOND).wait_s, 0); /* more than there is: once, and then long */
    assert_in_range(http_guard_amount(g, "t2", 1, SECOND).wait_s, 7, 8);
    http_guard_free(g);
}

/* Whoever guesses from ever more names finds no memory to fill, and is forgotten by turns. */
static void a_flood_of_names_takes_no_memory(void **state)
{
    struct http_guard *g = http_guard_new(&three);
    char name[32];

    (void)state;
    for (int i = 0; i < 100000; i++) {
        (void)snprintf(name, sizeof(name), "name %d", i);
        assert_int_equal(http_guard_name(g, name, SECOND + i).wait_s, 0);
    }
    http_guard_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beyond_the_burst_one_is_told_how_long_to_wait),
        cmocka_unit_test(addresses_of_one_customer_are_one),
        cmocka_unit_test(no_address_counts_as_one),
        cmocka_unit_test(names_and_amounts_have_buckets_of_their_own),
        cmocka_unit_test(a_flood_of_names_takes_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
