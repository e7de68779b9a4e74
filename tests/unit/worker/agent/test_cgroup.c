/* Control groups: which files are written in which version, and that all in them is killed. */
#include "worker/agent/cgroup.h"

#include "tests/unit/folder.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"

/* A folder of made-up files stands for a group, since not all controllers are wherever this runs. */
static void touch(const char *folder, const char *file)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", at(folder), file);
    assert_int_equal(io_publish_file(path, "", 0, 0644, NULL), 0);
}

static void has(const char *folder, const char *file, const char *want)
{
    BUF_CLEAR_AUTO struct buf b;
    char path[PATH_MAX];

    buf_init(&b, 4096);
    (void)snprintf(path, sizeof(path), "%s/%s", at(folder), file);
    assert_int_equal(io_read_file(path, &b, NULL), 0);
    assert_string_equal(buf_text(&b), want);
}

static void limits_are_written_for_both_versions(void **state)
{
    static const char *const files[][2] = {{"v2/r", "memory.max"},
                                           {"v2/r", "memory.swap.max"},
                                           {"v2/r", "memory.oom.group"},
                                           {"v2/r", "pids.max"},
                                           {"v2/r", "cpu.max"},
                                           {"memory/r", "memory.limit_in_bytes"},
                                           {"memory/r", "memory.memsw.limit_in_bytes"},
                                           {"pids/r", "pids.max"},
                                           {"cpu/r", "cpu.cfs_quota_us"}};
    static const char *const roots[] = {"v2", "memory", "pids", "cpu"};
    struct cgroup_limits limits = {.memory_bytes = 1 << 20, .pids = 17, .cpus = 1.5};
    char all[CGROUP_LIST_MAX] = "", list[CGROUP_LIST_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        char folder[64];

        (void)snprintf(folder, sizeof(folder), "%s/r", roots[i]);
        assert_int_equal(io_mkdirs(at(folder), 0755, NULL), 0);
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ":" : "", at(roots[i]));
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        touch(files[i][0], files[i][1]);
    assert_int_equal(cgroup_make(cgroup_list(all, "r", list), &limits), 0);
    has("v2/r", "memory.max", "1048576");
    has("v2/r", "memory.swap.max", "0");
    has("v2/r", "memory.oom.group", "1");
    has("v2/r", "pids.max", "17");
    has("v2/r", "cpu.max", "150000 100000");
    has("memory/r", "memory.limit_in_bytes", "1048576");
    has("memory/r", "memory.memsw.limit_in_bytes", "1048576");
    has("pids/r", "pids.max", "17");
    has("cpu/r", "cpu.cfs_quota_us", "150000");
}

static void a_kill_for_want_of_memory_is_told_with_limit_and_peak(void **state)
{
    static const struct {
        const char *files[6]; /* name, text */
        const char *why;      /* NULL: there was none */
    } row[] = {
        {{"memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n", "memory.max", "536870912\n",
          "memory.peak", "536870912\n"},
         "it took 512 MiB of memory where its limit is 512 MiB, and the kernel killed it"},
        {{"memory.events", "oom 1\noom_kill 2\n", "memory.max", "536870912\n"},
         "it took more memory than its limit of 512 MiB, and the kernel killed it"},
        {{"memory.oom_control", "under_oom 0\noom_kill 1\n", "memory.limit_in_bytes", "4194304\n",
          "memory.max_usage_in_bytes", "4194304\n"}, /* version 1 */
         "it took 4 MiB of memory where its limit is 4 MiB, and the kernel killed it"},
        {{"memory.events", "oom 1\noom_kill 1\n", "memory.max", "max\n", "memory.peak", "536870912\n"}, ""},
        {{"memory.oom_control", "oom_kill 1\n", "memory.limit_in_bytes", "9223372036854771712\n"}, ""},
        {{"memory.events", "oom 0\noom_kill 0\n", "memory.max", "536870912\n", "memory.peak", "1048576\n"}, NULL},
        {{"memory.events", "low 0\n", "memory.max", "536870912\n"}, NULL},
        {{NULL}, NULL}, /* no controller for memory */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        char why[200] = "", folder[PATH_MAX], path[PATH_MAX + 64];

        (void)snprintf(folder, sizeof(folder), "%s", at("oom"));
        assert_int_equal(io_mkdirs(folder, 0755, NULL), 0);
        for (size_t k = 0; k < 6 && row[i].files[k]; k += 2) {
            (void)snprintf(path, sizeof(path), "%s/%s", folder, row[i].files[k]);
            assert_int_equal(io_publish_file(path, row[i].files[k + 1], strlen(row[i].files[k + 1]), 0600, NULL), 0);
        }
        assert_int_equal(cgroup_oom(folder, why, sizeof(why)), row[i].why != NULL);
        assert_string_equal(why, row[i].why ? row[i].why : "");
        assert_int_equal(io_remove_tree(folder, NULL), 0);
    }
}

/* In real groups, where this may make some: of one version alone, or of all that there are. */
static void kill_in(const char *roots)
{
    char list[CGROUP_LIST_MAX];
    struct cgroup_limits none = {.pids = 0};
    int status = 0, r = -EBUSY;
    pid_t child;

    (void)cgroup_list(roots, "muster-test-cgroup", list);
    assert_int_equal(cgroup_make(list, &none), 0);
    child = fork();
    if (child == 0) {
        if (cgroup_enter(list, 0) < 0)
            _exit(1);
        if (fork() == 0) {
            (void)setsid(); /* out of every group but this */
            if (fork() == 0)
                pause();
            pause();
        }
        pause();
    }
    while (cgroup_end(list) == -EBUSY)
        ;
    while (waitpid(child, &status, WNOHANG) == 0)
        ;
    assert_true(WIFSIGNALED(status) || WIFEXITED(status));
    for (int i = 0; i < 1000 && r != 0; i++)
        r = cgroup_end(list);
    assert_int_equal(r, 0);
}

static void all_in_a_group_is_killed_in_either_version(void **state)
{
    BUF_CLEAR_AUTO struct buf self;
    char roots[CGROUP_LIST_MAX];

    (void)state;
    buf_init(&self, 65536);
    assert_int_equal(io_read_file("/proc/self/cgroup", &self, NULL), 0);
    cgroup_find("/sys/fs/cgroup", buf_text(&self), false, roots);
    if (!*roots) {
        print_message("no control group can be made here\n");
        skip();
    }
    kill_in(roots);
    if (strncmp(roots, "/sys/fs/cgroup/freezer", 22) == 0 || strstr(roots, ":/sys/fs/cgroup/freezer")) {
        char *end = strstr(roots, ":/sys/fs/cgroup/unified"); /* version 1 by itself */

        if (end)
            *end = '\0';
        kill_in(roots);
    }
}

/* Processes that leave their session and take no signal, in a group: each holds `held` and writes a byte to it. */
static pid_t begin_in(const char *list, int held)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    if (cgroup_enter(list, 0) < 0 || fork() < 0 || setsid() < 0 || fork() < 0)
        _exit(1);
    if (write(held, "x", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

/* Limits are tried where this machine gives their controllers to version 2: most often they are of version 1, or of
 * groups above. */
static void in_a_real_hierarchy_of_version_2_nothing_leaves_its_group_or_outlives_it(void **state)
{
    struct cgroup_limits limits = {.pids = 17};
    char mnt[PATH_MAX], roots[CGROUP_LIST_MAX], list[CGROUP_LIST_MAX], name[64], path[PATH_MAX + 64], c;
    int64_t deadline_us = clock_mono_us() + INT64_C(20000000);
    int held[2], status;
    struct buf b;
    pid_t child;

    (void)state;
    (void)snprintf(mnt, sizeof(mnt), "%s", at("mnt"));
    assert_int_equal(io_mkdirs(mnt, 0755, NULL), 0);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", mnt, "cgroup2", 0, NULL) < 0) {
        print_message("control groups of version 2 cannot be mounted here\n");
        skip();
    }
    cgroup_find(mnt, "0::/\n", false, roots);
    assert_string_not_equal(roots, "");
    (void)snprintf(name, sizeof(name), "muster-test-%d", (int)getpid());
    (void)cgroup_list(roots, name, list);
    assert_int_equal(cgroup_make(list, &limits), 0);
    buf_init(&b, 4096);
    (void)snprintf(path, sizeof(path), "%s/pids.max", list);
    if (access(path, F_OK) == 0) {
        assert_int_equal(io_read_file(path, &b, NULL), 0);
        assert_string_equal(buf_text(&b), "17\n");
    }
    buf_clear(&b);
    assert_int_equal(pipe(held), 0);
    child = begin_in(list, held[1]);
    assert_true(child > 0);
    (void)close(held[1]);
    for (int i = 0; i < 4; i++) /* forks double */
        assert_int_equal(read(held[0], &c, 1), 1);
    while (cgroup_end(list) < 0 && clock_mono_us() < deadline_us)
        (void)poll(NULL, 0, 1);
    assert_int_equal(access(list, F_OK), -1);
    assert_int_equal(read(held[0], &c, 1), 0); /* all of them are gone */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    (void)close(held[0]);
    assert_int_equal(umount2(mnt, MNT_DETACH), 0);
}

static void a_list_that_is_too_long_is_none(void **state)
{
    char roots[CGROUP_LIST_MAX], list[CGROUP_LIST_MAX];

    (void)state;
    memset(roots, 'a', sizeof(roots));
    roots[sizeof(roots) - 1] = '\0';
    assert_string_equal(cgroup_list(roots, "name", list), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_written_for_both_versions),
        cmocka_unit_test(a_kill_for_want_of_memory_is_told_with_limit_and_peak),
        cmocka_unit_test(all_in_a_group_is_killed_in_either_version),
        cmocka_unit_test(in_a_real_hierarchy_of_version_2_nothing_leaves_its_group_or_outlives_it),
        cmocka_unit_test(a_list_that_is_too_long_is_none),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
