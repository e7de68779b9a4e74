/* What an agent sees of its node's health, a person's program, and the active test. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/agent/checkup.h"
#include "worker/agent/trial.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/muster-checks-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

static const char *write_text(const char *name, const char *text, mode_t mode)
{
    static char path[256];
    struct merr err;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    for (char *p = path + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        assert_int_equal(io_mkdirs(path, 0700, &err), 0);
        *p = '/';
    }
    assert_int_equal(io_write_file(path, text, strlen(text), mode, &err), 0);
    return path;
}

static struct checks_cfg well(void)
{
    return (struct checks_cfg){.state = folder, .rdma = folder, .net = folder, .device = ""};
}

static struct checks_found look(const struct checks_cfg *cfg, int64_t skew_us)
{
    struct checks_found found = {.level = CHECKS_WELL};

    checks_look(cfg, skew_us, &found);
    return found;
}

static void a_node_that_is_well_has_nothing_to_say(void **state)
{
    struct checks_cfg cfg = well();
    struct checks_found found;

    (void)state;
    cfg.memory = folder;
    cfg.device = "eth0";
    found = look(&cfg, 4900000);
    assert_int_equal(found.level, CHECKS_WELL);
    assert_string_equal(found.reason, "");
}

static void a_state_folder_that_cannot_be_written_or_is_full_gets_no_work(void **state)
{
    struct checks_cfg cfg = well();
    struct checks_found found;

    (void)state;
    cfg.state = "/proc/nowhere";
    found = look(&cfg, 0);
    assert_int_equal(found.level, CHECKS_NO_WORK);
    assert_non_null(strstr(found.reason, "its state folder cannot be written"));
    cfg = well();
    cfg.free_least = UINT64_MAX;
    found = look(&cfg, 0);
    assert_int_equal(found.level, CHECKS_NO_WORK);
    assert_non_null(strstr(found.reason, "the disk of its state folder has"));
}

static void a_wrong_clock_is_told_and_keeps_no_work_off(void **state)
{
    struct checks_cfg cfg = well();
    struct checks_found found = look(&cfg, 5100000);

    (void)state;
    assert_int_equal(found.level, CHECKS_WELL);
    assert_string_equal(found.reason, "its clock is 5 s ahead of the server's");
    found = look(&cfg, INT64_C(-3600000000));
    assert_string_equal(found.reason, "its clock is 3600 s behind the server's");
}

static void a_network_device_or_port_that_is_down_gets_no_work(void **state)
{
    struct checks_cfg cfg = well();
    struct checks_found found;

    (void)state;
    cfg.device = "eth0";
    (void)write_text("eth0/operstate", "down\n", 0600);
    found = look(&cfg, 0);
    assert_int_equal(found.level, CHECKS_NO_WORK);
    assert_string_equal(found.reason, "its network device eth0 is down");
    (void)write_text("eth0/operstate", "unknown\n", 0600);
    assert_int_equal(look(&cfg, 0).level, CHECKS_WELL);
    cfg.nic = (struct nic){.family = PLAN_NIC_INFINIBAND, .gbit_s = 200};
    found = look(&cfg, 0); /* no port is there any more */
    assert_int_equal(found.level, CHECKS_NO_WORK);
    assert_string_equal(found.reason, "the RDMA port that linked it to others is down");
}

static void the_worst_finding_counts_and_all_are_told(void **state)
{
    struct checks_found all = {.level = CHECKS_WELL};
    char longer[2 * CHECKS_REASON_MAX];

    (void)state;
    checks_add(&all, CHECKS_WELL, "a");
    checks_add(&all, CHECKS_DRAIN, "b");
    checks_add(&all, CHECKS_NO_WORK, "c");
    assert_int_equal(all.level, CHECKS_DRAIN);
    assert_string_equal(all.reason, "b; a; c");
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    checks_add(&all, CHECKS_DRAIN, longer);
    assert_int_equal(strlen(all.reason), CHECKS_REASON_MAX - 1);
}

static int run(const char *script, int timeout_ms, struct checks_found *ret)
{
    char path[256];

    *ret = (struct checks_found){.level = CHECKS_WELL};
    (void)snprintf(path, sizeof(path), "%s", write_text("program", script, 0700));
    return checks_run_program(path, &(struct checks_wait){.timeout_ms = timeout_ms}, ret);
}

static void a_program_says_by_its_status_what_becomes_of_the_node(void **state)
{
    struct checks_found found;

    (void)state;
    assert_int_equal(run("#!/bin/sh\necho all is well\n", 10000, &found), 0);
    assert_int_equal(found.level, CHECKS_WELL);
    assert_string_equal(found.reason, "");
    assert_int_equal(run("#!/bin/sh\necho the fan; echo stands >&2; exit 1\n", 10000, &found), 0);
    assert_int_equal(found.level, CHECKS_NO_WORK);
    assert_string_equal(found.reason, "the fan stands");
    assert_int_equal(run("#!/bin/sh\nprintf '\\377\\033[31m'; exit 2\n", 10000, &found), 0);
    assert_int_equal(found.level, CHECKS_DRAIN);
    assert_string_equal(found.reason, "? [31m");
    assert_int_equal(run("#!/bin/sh\nexit 2\n", 10000, &found), 0);
    assert_string_equal(found.reason, "its health program says so");
    assert_int_equal(run("#!/bin/sh\nyes | head -c 5000000; exit 1\n", 10000, &found), 0);
    assert_true(strlen(found.reason) <= 1024);
}

static void a_program_that_says_nothing_leaves_the_node_as_it_is(void **state)
{
    static const struct {
        const char *script;
        int timeout_ms, code;
    } row[] = {{"#!/bin/sh\nexit 3\n", 10000, -EIO},
               {"#!/bin/sh\nkill -9 $$\n", 10000, -EIO},
               {"#!/bin/sh\nexec tail -f /dev/null\n", 200, -ETIMEDOUT},
               {"#!/bin/sh\nyes\n", 200, -ETIMEDOUT},
               {"#!/bin/sh\nexec >/dev/null 2>&1; exec tail -f /dev/null\n", 200, -ETIMEDOUT},
               {"#!/bin/sh\ntail -f /dev/null & exit 0\n", 200, -ETIMEDOUT}};
    struct checks_found found = {.level = CHECKS_WELL};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        assert_int_equal(run(row[i].script, row[i].timeout_ms, &found), row[i].code);
        assert_int_equal(found.level, CHECKS_WELL);
    }
    assert_true(checks_run_program("/nowhere", &(struct checks_wait){.timeout_ms = 1000}, &found) < 0);
}

/* Nothing of a program outlives its time, also what it has started itself. */
static void what_a_program_leaves_behind_is_killed(void **state)
{
    char script[300], path[256];
    struct checks_found found;
    struct buf pid;
    int64_t deadline_us = clock_mono_us() + 10000000;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/pid", folder);
    (void)snprintf(script, sizeof(script), "#!/bin/sh\ntail -f /dev/null & echo $! > %s\nwait\n", path);
    assert_int_equal(run(script, 500, &found), -ETIMEDOUT);
    buf_init(&pid, 64);
    assert_int_equal(io_read_file(path, &pid, NULL), 0);
    while (kill((pid_t)strtol(buf_text(&pid), NULL, 10), 0) == 0 && clock_mono_us() < deadline_us) {
        char stat[64];
        struct buf b;
        bool gone;

        (void)snprintf(stat, sizeof(stat), "/proc/%ld/stat", strtol(buf_text(&pid), NULL, 10));
        buf_init(&b, 4096);
        gone = io_read_file(stat, &b, NULL) < 0 || strstr(buf_text(&b), ") Z ");
        buf_clear(&b);
        if (gone)
            break;
    }
    assert_true(clock_mono_us() < deadline_us);
    buf_clear(&pid);
}

static void a_trial_measures_and_names_what_fails(void **state)
{
    static const char *const rate[] = {"memory_gb_s", "gemm_gflop_s", "disk_mb_s", "loopback_gb_s"};
    json_t *o = trial_run(folder);

    (void)state;
    assert_true(json_is_true(json_object_get(o, "passed")));
    for (size_t i = 0; i < sizeof(rate) / sizeof(rate[0]); i++)
        assert_true(json_number_value(json_object_get(o, rate[i])) > 0);
    json_decref(o);
    o = trial_run("/proc/nowhere");
    assert_false(json_is_true(json_object_get(o, "passed")));
    assert_non_null(strstr(json_string_value(json_object_get(o, "why")), "cannot write to '/proc/nowhere'"));
    json_decref(o);
}

/* Wait until get() gives something. */
static json_t *wait_for(struct checkup *c, json_t *(*get)(struct checkup *))
{
    int64_t deadline_us = clock_mono_us() + 30000000;
    json_t *o;

    while (!(o = get(c)) && clock_mono_us() < deadline_us)
        ;
    assert_non_null(o);
    return o;
}

static void a_thread_looks_after_the_node_and_tests_it_once(void **state)
{
    char program[256], self[256];
    struct checkup_cfg cfg = {.look = well(), .program = program, .every_s = 1, .self = self};
    struct checkup *c;
    struct merr err;
    json_t *o;

    (void)state;
    (void)snprintf(program, sizeof(program), "%s", write_text("sick", "#!/bin/sh\necho too hot; exit 1\n", 0700));
    (void)snprintf(self, sizeof(self), "%s",
                   write_text("agent", "#!/bin/sh\necho '{\"passed\": true, \"memory_gb_s\": 3}'\n", 0700));
    assert_int_equal(checkup_new(&cfg, &c, &err), 0);
    o = wait_for(c, checkup_health);
    assert_string_equal(json_string_value(json_object_get(o, "level")), "no-work");
    assert_string_equal(json_string_value(json_object_get(o, "reason")), "too hot");
    json_decref(o);
    assert_null(checkup_result(c));
    checkup_test(c, 77);
    checkup_test(c, 77); /* the server says so until it has heard */
    o = wait_for(c, checkup_result);
    assert_int_equal(json_integer_value(json_object_get(o, "id")), 77);
    assert_true(json_is_true(json_object_get(o, "passed")));
    json_decref(o);
    checkup_free(c);
    (void)write_text("agent", "#!/bin/sh\necho broken; exit 0\n", 0700);
    (void)write_text("sick", "#!/bin/sh\nexec tail -f /dev/null\n", 0700);
    assert_int_equal(checkup_new(&cfg, &c, &err), 0);
    checkup_free(c); /* does not wait for a program that hangs */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_is_well_has_nothing_to_say),
        cmocka_unit_test(a_state_folder_that_cannot_be_written_or_is_full_gets_no_work),
        cmocka_unit_test(a_wrong_clock_is_told_and_keeps_no_work_off),
        cmocka_unit_test(a_network_device_or_port_that_is_down_gets_no_work),
        cmocka_unit_test(the_worst_finding_counts_and_all_are_told),
        cmocka_unit_test(a_program_says_by_its_status_what_becomes_of_the_node),
        cmocka_unit_test(a_program_that_says_nothing_leaves_the_node_as_it_is),
        cmocka_unit_test(what_a_program_leaves_behind_is_killed),
        cmocka_unit_test(a_trial_measures_and_names_what_fails),
        cmocka_unit_test(a_thread_looks_after_the_node_and_tests_it_once),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
