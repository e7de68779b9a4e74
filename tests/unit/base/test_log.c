#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/word.h"

/* What log_write prints while standard error goes into a pipe. */
static void capture(void (*say)(void), char *out, size_t size)
{
    int fd[2], old = dup(STDERR_FILENO);
    ssize_t n;

    assert_true(old >= 0);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_not_equal(dup2(fd[1], STDERR_FILENO), -1);
    say();
    assert_int_not_equal(dup2(old, STDERR_FILENO), -1);
    (void)close(fd[1]);
    n = io_read_full(fd[0], out, size - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    (void)close(fd[0]);
    (void)close(old);
}

static void say_two_levels(void)
{
    log_init("musterd", LOG_LEVEL_INFO);
    log_debug("unseen");
    log_warn("node %s is %d s late", "n1", 3);
}

static void say_too_much(void)
{
    char big[9000];

    memset(big, 'b', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    log_info("%s", big);
}

static void a_line_carries_time_level_program_and_text(void **state)
{
    char out[8192];

    (void)state;
    capture(say_two_levels, out, sizeof(out));
    assert_null(strstr(out, "unseen"));
    assert_non_null(strstr(out, "Z warn  musterd: node n1 is 3 s late\n"));
}

static void a_long_line_is_cut_but_ends(void **state)
{
    char out[16384];

    (void)state;
    capture(say_too_much, out, sizeof(out));
    assert_true(strlen(out) <= 4096);
    assert_int_equal(out[strlen(out) - 1], '\n');
}

static void levels_have_names(void **state)
{
    (void)state;
    assert_int_equal(word_index("warn", log_level_names), LOG_LEVEL_WARN);
    assert_int_equal(word_index("loud", log_level_names), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_carries_time_level_program_and_text),
        cmocka_unit_test(a_long_line_is_cut_but_ends),
        cmocka_unit_test(levels_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
