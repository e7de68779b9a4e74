#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "worker/agent/quota.h"

/* A number of a group's file, or the second one of it. */
static long number_of(const char *dir, const char *name, int which)
{
    long v[2] = {-1, -1};
    char path[PATH_MAX + 64];
    struct buf b;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    buf_init(&b, 4096);
    if (io_read_file(path, &b, NULL) == 0)
        (void)sscanf(buf_text(&b), "%ld %ld", &v[0], &v[1]);
    buf_clear(&b);
    return v[which];
}

/* Where groups may not be made there are words about what is missing instead. */
static void a_group_gets_its_share_or_it_is_said_why_not(void **state)
{
    static const double shares[] = {QUOTA_LEAST, 0.3, 1, 7.5, QUOTA_MOST};
    char root[PATH_MAX], dir[PATH_MAX + 32];
    struct merr err = {""};
    int r = quota_find(root, &err);

    (void)state;
    if (r != 0) {
        assert_int_equal(r, -ENOTSUP);
        assert_non_null(strstr(err.text, "cpu controller"));
        return;
    }
    (void)snprintf(dir, sizeof(dir), "%s/muster-test-%d", root, (int)getpid());
    for (size_t i = 0; i < COUNT(shares); i++) {
        long run, period;
        bool second;

        if (quota_make(dir, shares[i], &err) != 0)
            fail_msg("%s", err.text);
        second = number_of(dir, "cpu.max", 0) > 0;
        run = second ? number_of(dir, "cpu.max", 0) : number_of(dir, "cpu.cfs_quota_us", 0);
        period = second ? number_of(dir, "cpu.max", 1) : number_of(dir, "cpu.cfs_period_us", 0);
        if ((double)run < shares[i] * (double)period - 1 || (double)run > shares[i] * (double)period + 1)
            fail_msg("a share of %g is %ld us in %ld", shares[i], run, period);
    }
    quota_remove(dir);
    assert_int_equal(access(dir, F_OK), -1);
    quota_remove(dir);
}

static void a_group_that_cannot_be_made_is_named(void **state)
{
    struct merr err = {""};

    (void)state;
    assert_true(quota_make("/proc/no/such/group", 0.5, &err) < 0);
    assert_non_null(strstr(err.text, "'/proc/no/such/group'"));
    assert_true(quota_join("/proc/no/such/group") < 0);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 64];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Files of version 2 in a plain folder, for machines that have version 1: what is written, and where. */
static void a_group_of_version_2_is_threaded_before_it_gets_its_share(void **state)
{
    char dir[] = "/tmp/test-quota-XXXXXX", path[PATH_MAX];
    struct merr err = {""};
    struct buf b;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_false(quota_threaded(dir));
    put(dir, "cgroup.controllers", "cpu\n");
    put(dir, "cgroup.type", "");
    put(dir, "cpu.max", "");
    assert_true(quota_threaded(dir));
    assert_int_equal(quota_make(dir, 0.5, &err), 0);
    assert_int_equal(number_of(dir, "cpu.max", 1), 2 * number_of(dir, "cpu.max", 0));
    (void)snprintf(path, sizeof(path), "%s/cgroup.type", dir);
    buf_init(&b, 4096);
    assert_int_equal(io_read_file(path, &b, NULL), 0);
    assert_string_equal(buf_text(&b), "threaded");
    buf_clear(&b);

    assert_int_equal(unlink(path), 0); /* no share without it: no process could enter */
    put(dir, "cpu.max", "");
    assert_int_equal(quota_make(dir, 0.5, &err), -ENOENT);
    assert_non_null(strstr(err.text, "threaded"));
    assert_int_equal(number_of(dir, "cpu.max", 0), -1);
    assert_int_equal(io_remove_tree(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_gets_its_share_or_it_is_said_why_not),
        cmocka_unit_test(a_group_that_cannot_be_made_is_named),
        cmocka_unit_test(a_group_of_version_2_is_threaded_before_it_gets_its_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
