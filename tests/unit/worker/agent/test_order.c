/* What a rank is to be, written by its shim and read by itself. */
#include "worker/agent/order.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

static void an_order_is_read_as_it_was_written(void **state)
{
    static char *const argv[] = {"sh", "-c", "", "a b\nc", NULL}, *const envp[] = {"A=1", "B=", NULL};
    struct order o = {.argv = NULL};
    struct merr err;
    char text[256];
    ssize_t n;
    int fd = -1;

    (void)state;
    assert_int_equal(order_write("/some/where", argv, envp, &fd, &err), 0);
    n = pread(fd, text, sizeof(text), 0);
    assert_true(n > 0);
    assert_int_equal(write(fd, "x", 1), -1); /* sealed */
    assert_int_equal(order_read(text, (size_t)n, &o, &err), 0);
    assert_string_equal(o.folder, "/some/where");
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(o.argv[i], argv[i]);
    assert_null(o.argv[4]);
    assert_string_equal(o.envp[0], "A=1");
    assert_string_equal(o.envp[1], "B=");
    assert_null(o.envp[2]);
    order_clear(&o);
    (void)close(fd);
}

static void an_order_that_is_none_is_refused(void **state)
{
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
#define CASE(text) {text, sizeof(text) - 1}
        {"", 0},
        CASE("/\0001\0sh"),
        CASE("/\0"),
        CASE("/\0000\0"),
        CASE("/\0002\0sh\0"),
        CASE("/\0x\0sh\0"),
        CASE("/\0-1\0sh\0"),
        CASE("/\0 1\0sh\0"),
        CASE("/\0001x\0sh\0"),
        CASE("/\00099999999999999999999\0sh\0"),
#undef CASE
    };
    struct merr err;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct order o = {.argv = NULL};
        char text[64];

        memcpy(text, cases[i].text, cases[i].len);
        assert_int_equal(order_read(text, cases[i].len, &o, &err), -EPROTO);
        assert_null(o.argv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_is_read_as_it_was_written),
        cmocka_unit_test(an_order_that_is_none_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
