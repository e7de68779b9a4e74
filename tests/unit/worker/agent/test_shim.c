/* What a shim reads of the machine. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "worker/agent/shim.h"

static void put(const char *folder, const char *name, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (text)
        assert_int_equal(io_publish_file(path, text, strlen(text), 0600, NULL), 0);
}

static void a_kill_for_want_of_memory_is_told_with_limit_and_peak(void **state)
{
    static const struct {
        const char *events, *max, *peak;
        const char *why; /* NULL: there was none */
    } row[] = {
        {"low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n", "536870912\n", "536870912\n",
         "it took 512 MiB of memory where its limit is 512 MiB, and the kernel killed it"},
        {"oom 1\noom_kill 2\n", "536870912\n", NULL,
         "it took more memory than its limit of 512 MiB, and the kernel killed it"},
        {"oom 1\noom_kill 1\n", "max\n", "536870912\n", ""}, /* the limit is that of a group above */
        {"oom 0\noom_kill 0\n", "536870912\n", "1048576\n", NULL},
        {"low 0\n", "536870912\n", "1048576\n", NULL},
        {NULL, NULL, NULL, NULL}, /* no controller for memory */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        char folder[] = "/tmp/muster-shim-XXXXXX", why[EXIT_WHY_MAX] = "";

        assert_non_null(mkdtemp(folder));
        put(folder, "memory.events", row[i].events);
        put(folder, "memory.max", row[i].max);
        put(folder, "memory.peak", row[i].peak);
        assert_int_equal(shim_cgroup_oom(folder, why, sizeof(why)), row[i].why != NULL);
        assert_string_equal(why, row[i].why ? row[i].why : "");
        assert_int_equal(io_remove_tree(folder, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_for_want_of_memory_is_told_with_limit_and_peak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
