#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/merr.h"

static void setting_returns_the_code_and_keeps_errno(void **state)
{
    struct merr err;

    (void)state;
    errno = EPERM;
    assert_int_equal(merr_set(&err, -EINVAL, "want %d", 7), -EINVAL);
    assert_string_equal(err.text, "want 7");
    assert_int_equal(errno, EPERM);
    assert_int_equal(merr_set(NULL, -EIO, "nobody listens"), -EIO);
}

static void the_system_reason_and_a_prefix_join_with_colons(void **state)
{
    struct merr err;

    (void)state;
    assert_int_equal(merr_errno(&err, -ENOENT, "cannot open '%s'", "x"), -ENOENT);
    assert_string_equal(err.text, "cannot open 'x': No such file or directory");
    assert_int_equal(merr_prefix(&err, -ENOENT, "job %s", "j1"), -ENOENT);
    assert_string_equal(err.text, "job j1: cannot open 'x': No such file or directory");
}

static void long_words_are_cut_and_terminated(void **state)
{
    struct merr err;
    char big[2 * MERR_TEXT_MAX];

    (void)state;
    memset(big, 'a', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    (void)merr_set(&err, -1, "%s", big);
    assert_int_equal(strlen(err.text), MERR_TEXT_MAX - 1);
    (void)merr_errno(&err, -EIO, "%s", big);
    (void)merr_prefix(&err, -EIO, "%s", big);
    assert_int_equal(strlen(err.text), MERR_TEXT_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_returns_the_code_and_keeps_errno),
        cmocka_unit_test(the_system_reason_and_a_prefix_join_with_colons),
        cmocka_unit_test(long_words_are_cut_and_terminated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
