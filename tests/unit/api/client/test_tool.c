#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/client/tool.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"

static char *out;
static struct merr err;

/* Run a line of shell with a text. */
static int run(const char *line, const char *in, int timeout_ms)
{
    const char *argv[] = {"/bin/sh", "-c", line, NULL};

    free(out);
    out = NULL;
    err.text[0] = '\0';
    return tool_run(argv, in, timeout_ms, NULL, &out, &err);
}

static void a_program_gets_the_text_and_what_it_prints_comes_back(void **state)
{
    char *large = malloc(500001);

    (void)state;
    assert_int_equal(run("cat; echo done", "{\"a\": 1}\n", 60000), 0);
    assert_string_equal(out, "{\"a\": 1}\ndone\n");
    assert_int_equal(run("true", "nobody reads it", 60000), 0);
    assert_string_equal(out, "");
    assert_non_null(large);
    memset(large, 'x', 500000);
    large[500000] = '\0';
    assert_int_equal(run("cat", large, 60000), 0); /* more than fits a pipe, both ways */
    assert_string_equal(out, large);
    assert_int_equal(run("exit 0", large, 60000), 0);
    free(large);
}

static void one_that_fails_is_told_with_its_words_on_one_line(void **state)
{
    (void)state;
    assert_int_equal(run("echo '{}'; printf 'no partition\\n\\033[31mp\\n' >&2; exit 3", "", 60000), -EIO);
    assert_string_equal(err.text, "'/bin/sh' ended with status 3: no partition  [31mp");
    assert_null(out);
    assert_int_equal(run("kill -SEGV $$", "", 60000), -EIO);
    assert_non_null(strstr(err.text, "signal 11"));
    assert_int_equal(run("yes lament | head -c 9000000 >&2; exit 1", "", 60000), -EIO);
    assert_true(strlen(err.text) < 320);
}

static void one_that_hangs_is_ended_with_all_of_its_processes(void **state)
{
    char file[] = "/tmp/test-tool-XXXXXX", line[200];
    int fd = mkstemp(file), pid = 0;
    int64_t began = clock_mono_us();
    BUF_CLEAR_AUTO struct buf text;

    (void)state;
    assert_true(fd >= 0);
    io_close(&fd);
    (void)snprintf(line, sizeof(line), "trap '' TERM INT; sleep 1000 & echo $! >%s; wait; sleep 1000", file);
    assert_int_equal(run(line, "", 300), -ETIMEDOUT);
    assert_true(clock_mono_us() - began < 60000000);
    buf_init(&text, 100);
    assert_int_equal(io_read_file(file, &text, NULL), 0);
    pid = (int)strtol(buf_text(&text), NULL, 10);
    assert_true(pid > 1);
    for (int i = 0; i < 1000 && kill(pid, 0) == 0; i++) { /* init takes it in a moment, or here nobody does */
        char path[64];
        BUF_CLEAR_AUTO struct buf stat;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        buf_init(&stat, 4096);
        if (io_read_file(path, &stat, NULL) < 0 || strstr(buf_text(&stat), ") Z "))
            break;
        assert_true(i < 999);
    }
    (void)unlink(file);
}

static void one_that_prints_without_end_is_ended_at_the_limit(void **state)
{
    (void)state;
    assert_int_equal(run("yes", "", 60000), -EMSGSIZE);
    assert_int_equal(run("head -c 10485760 /dev/zero", "", 60000), -EMSGSIZE);
    assert_int_equal(run("yes >&2", "", 300), -ETIMEDOUT);
    assert_null(out);
}

static void what_stays_behind_holds_up_nobody(void **state)
{
    int64_t began = clock_mono_us();

    (void)state;
    assert_int_equal(run("sleep 1000 & echo '{}'", "", 600000), 0); /* it holds the pipe */
    assert_string_equal(out, "{}\n");
    assert_true(clock_mono_us() - began < 60000000);
}

static void one_is_told_to_hurry_when_its_caller_ends(void **state)
{
    const char *argv[] = {"/bin/sh", "-c", "sleep 1000", NULL};
    const _Atomic int stop = 1;

    (void)state;
    assert_int_equal(tool_run(argv, "", 600000, &stop, &out, &err), -ETIMEDOUT);
}

static void it_has_the_usual_signals_and_no_descriptor_of_ours(void **state)
{
    sigset_t set, before;
    int fd = dup(STDERR_FILENO);

    (void)state;
    (void)sigfillset(&set);
    (void)sigprocmask(SIG_BLOCK, &set, &before);
    (void)fd; /* what whoever runs this test has left open is not ours */
    assert_int_equal(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC), 0);
    assert_int_equal(
        run("grep -cE '^Sig(Blk:.0{16}|Ign:.*0{7})$' /proc/self/status; ls /proc/self/fd | wc -l", "", 60000), 0);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)close(fd);
    assert_string_equal(out, "2\n4\n");
}

static void a_program_that_others_can_change_is_refused(void **state)
{
    char file[] = "/tmp/test-tool-XXXXXX";
    int fd = mkstemp(file);

    (void)state;
    assert_true(fd >= 0);
    io_close(&fd);
    assert_int_equal(tool_check(file, &err), -EINVAL); /* cannot be run */
    assert_int_equal(chmod(file, 0755), 0);
    assert_int_equal(tool_check(file, &err), 0);
    assert_int_equal(chmod(file, 0775), 0);
    assert_int_equal(tool_check(file, &err), -EPERM);
    assert_int_equal(chmod(file, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(file, 12345, 12345), 0);
        assert_int_equal(tool_check(file, &err), -EPERM);
    }
    assert_int_equal(tool_check("true", &err), -EINVAL);
    assert_int_equal(tool_check("/tmp", &err), -EINVAL);
    assert_int_equal(tool_check("/nowhere", &err), -EINVAL);
    (void)unlink(file);
}

static void one_that_cannot_be_started_is_told_so(void **state)
{
    const char *argv[] = {"/nowhere/at/all", NULL};

    (void)state;
    assert_int_equal(tool_run(argv, "", 1000, NULL, &out, &err), -ENOENT);
}

static int tidy(void **state)
{
    (void)state;
    free(out);
    out = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_program_gets_the_text_and_what_it_prints_comes_back, tidy),
        cmocka_unit_test_teardown(one_that_fails_is_told_with_its_words_on_one_line, tidy),
        cmocka_unit_test_teardown(one_that_hangs_is_ended_with_all_of_its_processes, tidy),
        cmocka_unit_test_teardown(one_that_prints_without_end_is_ended_at_the_limit, tidy),
        cmocka_unit_test_teardown(what_stays_behind_holds_up_nobody, tidy),
        cmocka_unit_test_teardown(one_is_told_to_hurry_when_its_caller_ends, tidy),
        cmocka_unit_test_teardown(it_has_the_usual_signals_and_no_descriptor_of_ours, tidy),
        cmocka_unit_test_teardown(a_program_that_others_can_change_is_refused, tidy),
        cmocka_unit_test_teardown(one_that_cannot_be_started_is_told_so, tidy),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as programs that use it do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
