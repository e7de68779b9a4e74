/* How long a process had no processor, by what the kernel counts: here by files made up for it. */
#include "worker/agent/starve.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "tests/unit/test.h"

#define SECOND INT64_C(1000000)

static char top[] = "/tmp/muster-starve-XXXXXX";

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

static int64_t stopped_us;

/* Folders on the way to it are made. */
static void put(const char *file, const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", top, file);
    for (char *at = strchr(path + sizeof(top), '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    f = fopen(path, "w");
    assert_non_null(f);
    va_start(args, format);
    (void)vfprintf(f, format, args);
    va_end(args);
    assert_int_equal(fclose(f), 0);
}

static struct steps_lack look(struct starve_seen *seen, pid_t pid, int64_t now_us)
{
    char proc[PATH_MAX], cgroup[PATH_MAX];

    (void)snprintf(proc, sizeof(proc), "%s/proc", top);
    (void)snprintf(cgroup, sizeof(cgroup), "%s/cgroup", top);
    return starve_look(seen, proc, cgroup, pid, stopped_us, now_us);
}

static void near(double is, double should)
{
    assert_true(is > should - 1e-6 && is < should + 1e-6);
}

/* Version 2, version 1, and a limit of a group above. */
static void the_time_in_queues_and_at_the_limits_of_groups_is_told_as_shares(void **state)
{
    static const struct {
        const char *groups, *file, *line;
        int64_t unit;
    } of[] = {
        {"0::/muster/j1\n", "cgroup/muster/j1/cpu.stat", "throttled_usec", 1},
        {"0::/muster/j1/deep\n", "cgroup/muster/cpu.stat", "throttled_usec", 1},
        {"9:name=systemd:/\n3:cpu,cpuacct:/m/j1\n0::/\n", "cgroup/cpu,cpuacct/m/j1/cpu.stat", "throttled_time", 1000}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct starve_seen seen = {0};
        struct steps_lack lack;

        put("proc/77/cgroup", "%s", of[i].groups);
        put("proc/77/schedstat", "5000000000 %lld 99\n", 4000000000LL);
        put(of[i].file, "nr_periods 5\nnr_throttled 3\n%s %lld\n", of[i].line, (long long)(100 * of[i].unit));
        lack = look(&seen, 77, 50 * SECOND);
        near(lack.starved + lack.throttled, 0); /* the first time says nothing */
        put("proc/77/schedstat", "6000000000 %lld 99\n", 5200000000LL);
        put(of[i].file, "nr_periods 5\nnr_throttled 3\n%s %lld\n", of[i].line,
            (long long)((100 + SECOND) * of[i].unit));
        lack = look(&seen, 77, 52 * SECOND);
        near(lack.starved, 0.6);
        near(lack.throttled, 0.5);
        put(of[i].file, "nr_periods 5\n");
    }
}

static void what_the_kernel_does_not_tell_counts_as_nothing(void **state)
{
    struct starve_seen seen = {0};

    (void)state;
    put("proc/78/schedstat", "damaged\n");
    put("proc/78/cgroup", "::\n:\n\n7:cpu\n0::%05000d\n", 0);
    for (int i = 1; i < 4; i++)
        near(look(&seen, 78, i * SECOND).starved, 0);
    put("proc/78/schedstat", "1 %lld 1\n", 9000000000LL); /* more than the time since */
    near(look(&seen, 78, 5 * SECOND).starved, 1);
    put("proc/78/schedstat", "1 1 1\n"); /* and back */
    near(look(&seen, 78, 6 * SECOND).starved, 0);
    near(look(&seen, 79, 7 * SECOND).starved, 0); /* another process */
    near(look(&seen, 0, 8 * SECOND).starved, 0);
    assert_int_equal(starve_throttled_us("/nowhere", ""), 0);
}

static void what_the_hypervisor_took_is_told_in_percent(void **state)
{
    struct starve_steal seen = {0};
    char proc[PATH_MAX];

    (void)state;
    (void)snprintf(proc, sizeof(proc), "%s/proc", top);
    put("proc/stat", "cpu  100 0 100 100 0 0 0 50 0 0\ncpu0 1 1\n");
    assert_int_equal(starve_steal(&seen, proc), -1); /* since when? */
    put("proc/stat", "cpu  150 0 100 100 0 0 0 100 0 0\n");
    assert_int_equal(starve_steal(&seen, proc), 50);
    put("proc/stat", "nothing\n");
    assert_int_equal(starve_steal(&seen, proc), -1);
    assert_int_equal(starve_steal(&seen, "/nowhere"), -1);
}

static void time_in_which_it_is_stopped_counts_too(void **state)
{
    struct starve_seen seen = {0};

    (void)state;
    put("proc/80/schedstat", "1 1 1\n");
    (void)look(&seen, 80, SECOND);
    stopped_us = SECOND / 4;
    near(look(&seen, 80, 2 * SECOND).starved, 0.25);
    stopped_us = 0;
}

/* Two real processes on one processor. */
static void a_process_beside_another_on_one_processor_is_starved(void **state)
{
    struct starve_seen seen = {0};
    cpu_set_t one;
    pid_t child[2];
    time_t end = time(NULL) + 60;

    (void)state;
    if (access("/proc/self/schedstat", R_OK) < 0)
        skip();
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0 && sched_setaffinity(0, sizeof(one), &one) == 0)
            for (;;)
                ;
        assert_true(child[i] > 0);
    }
    while (seen.waited_us < 50000 && time(NULL) < end)
        (void)starve_look(&seen, "/proc", "/sys/fs/cgroup", child[0], 0, SECOND);
    for (int i = 0; i < 2; i++) {
        (void)kill(child[i], SIGKILL);
        assert_int_equal(waitpid(child[i], NULL, 0), child[i]);
    }
    assert_true(seen.waited_us >= 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_in_queues_and_at_the_limits_of_groups_is_told_as_shares),
        cmocka_unit_test(what_the_kernel_does_not_tell_counts_as_nothing),
        cmocka_unit_test(what_the_hypervisor_took_is_told_in_percent),
        cmocka_unit_test(time_in_which_it_is_stopped_counts_too),
        cmocka_unit_test(a_process_beside_another_on_one_processor_is_starved),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
