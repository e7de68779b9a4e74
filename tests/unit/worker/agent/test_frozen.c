/* Whether a control group of a process is frozen, by files made up for it. */
#include "worker/agent/frozen.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "tests/unit/test.h"

static char top[] = "/tmp/muster-frozen-XXXXXX";

static int make_top(void **state)
{
    (void)state;
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    return io_remove_tree(top, NULL);
}

static void put(const char *folder, const char *file, const char *text)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", top, folder);
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", top, folder, file);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, NULL), 0);
}

static bool is_frozen(pid_t pid)
{
    char proc[PATH_MAX], cgroup[PATH_MAX];

    (void)snprintf(proc, sizeof(proc), "%s/proc", top);
    (void)snprintf(cgroup, sizeof(cgroup), "%s/cgroup", top);
    return frozen_is(proc, cgroup, pid);
}

static void the_groups_of_a_process_tell_whether_they_are_frozen(void **state)
{
    static const struct {
        const char *groups, *folder, *file, *text;
        bool is;
    } row[] = {
        {"0::/a/b\n", "cgroup/a/b", "cgroup.events", "populated 1\nfrozen 1\n", true},
        {"0::/a/b\n", "cgroup/a/b", "cgroup.events", "populated 1\nfrozen 0\n", false},
        {"3:cpu:/x\n4:freezer:/c\n1:name=systemd:/\n0::/d\n", "cgroup/freezer/c", "freezer.state", "FROZEN\n", true},
        {"4:freezer:/c\n0::/d\n", "cgroup/freezer/c", "freezer.state", "FREEZING\n", false},
        {"4:freezer:/c\n0::/d\n", "cgroup/freezer/c", "freezer.state", "THAWED\n", false},
        {"4:freezer:/e", "cgroup/freezer/e", "freezer.state", "FROZEN\n", true},           /* no line's end */
        {"3:cpu:/f:freezer:/g\n", "cgroup/freezer/g", "freezer.state", "FROZEN\n", false}, /* a group of that name */
        {"", "cgroup", "none", "", false},
        {"0\n::\nfreezer\n", "cgroup", "none", "", false},
        {"0::/unified/h\n", "cgroup/unified", "none", "", false},
        {"0::/h\n", "cgroup/unified/h", "cgroup.events", "frozen 1\n", true}, /* beside those of version 1 */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        put("proc/12", "cgroup", row[i].groups);
        put(row[i].folder, row[i].file, row[i].text);
        assert_int_equal(is_frozen(12), row[i].is);
    }
}

static void a_process_that_there_is_not_is_not_frozen(void **state)
{
    (void)state;
    assert_false(is_frozen(13));
    assert_false(is_frozen(0));
    assert_false(is_frozen(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_groups_of_a_process_tell_whether_they_are_frozen),
        cmocka_unit_test(a_process_that_there_is_not_is_not_frozen),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
