/* Jobs share a node's memory up to a limit. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "tests/unit/folder.h"
#include "worker/snapshot/memory_quota.h"

#define MIB (UINT64_C(1) << 20)

static char root[64];

/* A root of each test's own. */
static int setup(void **state)
{
    static int n;
    char name[16];

    (void)state;
    (void)snprintf(name, sizeof(name), "%d", n++);
    (void)snprintf(root, sizeof(root), "%s", at(name));
    return 0;
}

static const char *of(const char *job)
{
    static char path[2][128];
    static int turn;

    turn = !turn;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", root, job);
    assert_int_equal(io_mkdirs(path[turn], 0700, NULL), 0);
    return path[turn];
}

static void put(const char *job, const char *folder, const char *name, size_t bytes)
{
    static char zeros[4 << 20];
    char path[200];

    (void)snprintf(path, sizeof(path), "%s/%s", of(job), folder);
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", of(job), folder, name);
    memset(zeros, 1, sizeof(zeros));
    assert_int_equal(io_publish_file(path, zeros, bytes, 0600, NULL), 0);
}

static void jobs_are_let_in_until_the_limit_is_reserved(void **state)
{
    struct merr err = {""};

    (void)state;
    assert_int_equal(memory_quota_reserve(of("j1"), 6 * MIB, 2 * MIB, 10 * MIB, &err), 0);
    assert_int_equal(memory_quota_reserve(of("j2"), 5 * MIB, 1 * MIB, 10 * MIB, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "want 5 MiB"));
    assert_non_null(strstr(err.text, "leaves 4"));
    assert_int_equal(memory_quota_reserve(of("j2"), 4 * MIB, 1 * MIB, 10 * MIB, &err), 0);
    assert_int_equal(memory_quota_reserve(of("j1"), 6 * MIB, 2 * MIB, 10 * MIB, &err),
                     0); /* again: its own does not count */
    assert_int_equal(memory_quota_reserve(of("j1"), 7 * MIB, 2 * MIB, 10 * MIB, &err), -ENOSPC);
    assert_int_equal(memory_quota_reserve(of("j2"), 8 * MIB, 2 * MIB, 10 * MIB, &err), 0); /* j1 gave its own back */
}

static void a_job_counts_with_what_it_has_where_that_is_more(void **state)
{
    struct merr err = {""};

    (void)state;
    put("j1", "step-00000010", "rank-00000.mck", 3 * MIB);
    put("j1", "keep", "arena-t0-p0-d0", 4 * MIB); /* of the ranks themselves */
    assert_int_equal(memory_quota_reserve(of("j2"), 8 * MIB, 1 * MIB, 10 * MIB, &err), -ENOSPC);
    assert_int_equal(memory_quota_reserve(of("j2"), 6 * MIB, 1 * MIB, 10 * MIB, &err), 0);
    assert_int_equal(memory_quota_reserve(of("j1"), 3 * MIB, 2 * MIB, 10 * MIB, &err),
                     -ENOSPC); /* one more than it has */
    assert_int_equal(memory_quota_reserve(of("j1"), 3 * MIB, 1 * MIB / 2, 10 * MIB, &err), 0);
}

static void a_file_of_two_names_counts_once(void **state)
{
    struct merr err = {""};
    char from[200], to[200];

    (void)state;
    put("j1", "step-00000010", "rank-00000.mck", 3 * MIB);
    (void)snprintf(from, sizeof(from), "%s/step-00000010/rank-00000.mck", of("j1"));
    (void)snprintf(to, sizeof(to), "%s/view.mck", of("j1"));
    assert_int_equal(link(from, to), 0);
    assert_int_equal(memory_quota_reserve(of("j2"), 6 * MIB, 1 * MIB, 10 * MIB, &err), 0);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(jobs_are_let_in_until_the_limit_is_reserved),
        T(a_job_counts_with_what_it_has_where_that_is_more),
        T(a_file_of_two_names_counts_once),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
