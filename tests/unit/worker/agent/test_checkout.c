/* A checkout that does not end is ended, and git is told to ask nobody and to use no other protocol. */
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/agent/checkout.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

/* Stand in for git; what it is given goes to the file `seen`. */
static void be_git(const char *script)
{
    char text[1024];

    (void)snprintf(text, sizeof(text),
                   "#!/bin/sh\necho \"$GIT_ALLOW_PROTOCOL $GIT_TERMINAL_PROMPT $*\" >> '%s/seen'\n%s\n", top, script);
    assert_int_equal(io_write_file(at("git"), text, strlen(text), 0755, NULL), 0);
    (void)snprintf(text, sizeof(text), "%s:/usr/bin:/bin", top);
    (void)setenv("PATH", text, 1);
}

static void a_git_that_stands_still_is_ended(void **state)
{
    int64_t began_us = clock_mono_us();
    struct merr err = {""};

    (void)state;
    be_git("exec tail -f /dev/null");
    assert_int_equal(checkout_commit("/srv/a", COMMIT, top, clock_mono_us() + 200000, &err), -ETIMEDOUT);
    assert_true(clock_mono_us() - began_us < 30000000);
    assert_non_null(strstr(err.text, "not done in time"));
}

static void git_is_given_no_way_to_ask_or_to_run_anything(void **state)
{
    struct merr err;
    struct buf b;

    (void)state;
    be_git("case \"$*\" in *depth=1*) exit 1;; esac"); /* which some servers refuse */
    assert_int_equal(checkout_commit("https://example.org/a", COMMIT, top, clock_mono_us() + 60000000, &err), 0);
    buf_init(&b, 8192);
    assert_int_equal(io_read_file(at("seen"), &b, NULL), 0);
    assert_non_null(strstr(buf_text(&b), "https:ssh:file 0 -C"));
    assert_non_null(strstr(buf_text(&b), "core.hooksPath=/dev/null"));
    assert_non_null(strstr(buf_text(&b), "-- https://example.org/a +refs/*"));
    assert_non_null(strstr(buf_text(&b), "checkout -q --detach " COMMIT));
    buf_clear(&b);
}

static void what_is_no_place_or_no_commit_never_comes_to_git(void **state)
{
    struct merr err;

    (void)state;
    be_git("exit 1");
    assert_int_equal(io_remove_tree(at("seen"), NULL), 0);
    assert_int_equal(checkout_commit("ext::sh", COMMIT, top, INT64_MAX, &err), -EINVAL);
    assert_int_equal(checkout_commit("/srv/a", "--all", top, INT64_MAX, &err), -EINVAL);
    assert_int_not_equal(access(at("seen"), F_OK), 0);
    (void)setenv("PATH", "/nowhere", 1);
    assert_int_equal(checkout_commit("/srv/a", COMMIT, top, INT64_MAX, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_git_that_stands_still_is_ended),
        cmocka_unit_test(git_is_given_no_way_to_ask_or_to_run_anything),
        cmocka_unit_test(what_is_no_place_or_no_commit_never_comes_to_git),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
