/* Control groups that become the agent's, in folders that look like those of the kernel. */
#include "worker/helper/helper.h"

#include "tests/unit/folder.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct helper_user agent;

/* A group of the kernel's. */
static void make_group(const char *name)
{
    char path[PATH_MAX];

    assert_int_equal(io_mkdirs(at(name), 0755, NULL), 0);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s/%s", top, name, i ? "cgroup.subtree_control" : "cgroup.procs");
        assert_int_equal(io_write_file(path, "", 0, 0644, NULL), 0);
    }
}

/* Whose the group below that one is; -1: there is none. */
static long owner_below(const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s/" HELPER_GROUPS, top, name);
    return stat(path, &st) == 0 ? (long)st.st_uid : -1;
}

static int start(void **state)
{
    agent = (struct helper_user){.uid = geteuid() ? geteuid() : 1234567, .gid = geteuid() ? getegid() : 1234567};
    return make_top(state);
}

static void each_hierarchy_with_a_limit_gets_a_group_and_others_none(void **state)
{
    (void)state;
    make_group("memory/box");
    make_group("pids/box");
    make_group("cpu,cpuacct/box");
    make_group("name=systemd/box");
    make_group("devices/box");
    delegate_groups(&agent, top,
                    "12:pids:/box\n5:memory:/box\n4:cpu,cpuacct:/box\n3:devices:/box\n1:name=systemd:/box\nrubbish\n");
    assert_int_equal(owner_below("memory/box"), agent.uid);
    assert_int_equal(owner_below("pids/box"), agent.uid);
    assert_int_equal(owner_below("cpu,cpuacct/box"), agent.uid);
    assert_int_equal(owner_below("name=systemd/box"), -1);
    assert_int_equal(owner_below("devices/box"), -1);
}

static void the_group_of_a_unit_is_passed_over_for_the_one_around_it(void **state)
{
    (void)state;
    make_group("slice");
    make_group("slice/muster.service");
    delegate_groups(&agent, top, "0::/slice/muster.service\n");
    assert_int_equal(owner_below("slice"), agent.uid);
    assert_int_equal(owner_below("slice/muster.service"), -1);
}

static void beside_version_1_the_groups_of_version_2_lie_in_unified(void **state)
{
    (void)state;
    make_group("unified/mixed");
    delegate_groups(&agent, top, "0::/mixed");
    assert_int_equal(owner_below("unified/mixed"), agent.uid);
}

static void a_group_that_is_there_already_is_taken_again_and_gets_its_controllers(void **state)
{
    char text[64] = "";
    FILE *f;

    (void)state;
    make_group("again");
    make_group("again/" HELPER_GROUPS);
    delegate_groups(&agent, top, "0::/again");
    assert_int_equal(owner_below("again"), agent.uid);
    f = fopen(at("again/" HELPER_GROUPS "/cgroup.subtree_control"), "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    (void)fclose(f);
    assert_non_null(strstr(text, "+memory"));
    assert_non_null(strstr(text, "+pids"));
}

static void a_group_that_is_not_there_costs_nothing(void **state)
{
    (void)state;
    delegate_groups(&agent, top, "0::/nowhere\n7:memory:/nowhere\n");
    delegate_groups(&agent, top, "");
    assert_int_equal(access(at("nowhere"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_hierarchy_with_a_limit_gets_a_group_and_others_none),
        cmocka_unit_test(the_group_of_a_unit_is_passed_over_for_the_one_around_it),
        cmocka_unit_test(beside_version_1_the_groups_of_version_2_lie_in_unified),
        cmocka_unit_test(a_group_that_is_there_already_is_taken_again_and_gets_its_controllers),
        cmocka_unit_test(a_group_that_is_not_there_costs_nothing),
    };

    return cmocka_run_group_tests(tests, start, remove_top);
}
