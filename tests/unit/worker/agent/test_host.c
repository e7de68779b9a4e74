/* What a machine as a whole does, from files made up for it. */
#include "worker/agent/host.h"

#include <string.h>
#include <sys/stat.h>

#include "tests/unit/folder.h"

#define SECOND INT64_C(1000000)

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void what_the_kernel_counts_is_told_by_the_time_between_two_looks(void **state)
{
    static const char net[] =
        "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 9999 1 0 0 0 0 0 0 9999 1 0 0 0 0 0 0\n"
        "  eth0: %d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0\n  ib0: 1024 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n";
    struct host_seen seen = {0};
    int v[REPORT_HOST_NUMBERS];
    char text[600];

    (void)state;
    (void)mkdir(at("net"), 0700);
    (void)mkdir(at("pressure"), 0700);
    put("stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
    put("meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   2097152 kB\n");
    put("loadavg", "1.50 0.1 0.1 1/100 5\n");
    (void)snprintf(text, sizeof(text), net, 1000000, 2000000);
    put("net/dev", text);
    put("pressure/cpu", "some avg10=12.70 avg60=0.00 avg300=0.00 total=1\n");
    host_look(&seen, top, top, SECOND, v);
    assert_int_equal(v[REPORT_HOST_CPU], -1); /* nothing to compare with */
    assert_int_equal(v[REPORT_HOST_IN], -1);
    assert_int_equal(v[REPORT_HOST_MEMORY], 6144);
    assert_int_equal(v[REPORT_HOST_MEMORY_ALL], 8192);
    assert_int_equal(v[REPORT_HOST_LOAD], 150);
    assert_true(v[REPORT_HOST_DISK] >= 0);
    assert_int_equal(host_pressure(top), 12);
    put("stat", "cpu  150 0 125 720 105 0 0 0 0 0\n");
    (void)snprintf(text, sizeof(text), net, 1000000 + 4 * 1024, 2000000 + 8 * 1024);
    put("net/dev", text);
    host_look(&seen, top, top, 3 * SECOND, v);
    assert_int_equal(v[REPORT_HOST_CPU], 75); /* 75 of 100 */
    assert_int_equal(v[REPORT_HOST_IN], 2);   /* KiB/s, without lo */
    assert_int_equal(v[REPORT_HOST_OUT], 4);
    put("stat", "cpu  0 0 0 1 0 0 0 0 0 0\n"); /* counters that go back are not known */
    (void)snprintf(text, sizeof(text), net, 0, 0);
    put("net/dev", text);
    host_look(&seen, top, "/nowhere", 4 * SECOND, v);
    assert_int_equal(v[REPORT_HOST_CPU], -1);
    assert_int_equal(v[REPORT_HOST_IN], -1);
    assert_int_equal(v[REPORT_HOST_DISK], -1);
}

static void what_cannot_be_read_is_not_known(void **state)
{
    static const char *const junk[] = {"", "cpu", "MemTotal: x", ":::\n", "cpu 1 2 3\neth0:\n"};
    struct host_seen seen = {0};
    int v[REPORT_HOST_NUMBERS];

    (void)state;
    for (size_t i = 0; i < COUNT(junk); i++) {
        put("stat", junk[i]);
        put("meminfo", junk[i]);
        put("net/dev", junk[i]);
        put("loadavg", junk[i]);
        put("pressure/cpu", junk[i]);
        host_look(&seen, top, "/nowhere", (int64_t)(i + 1) * SECOND, v);
        for (int k = 0; k < REPORT_HOST_NUMBERS; k++)
            assert_int_equal(v[k], -1);
        assert_int_equal(host_pressure(top), -1);
    }
    host_look(&seen, "/nowhere", "/nowhere", 9 * SECOND, v);
    assert_int_equal(v[REPORT_HOST_LOAD], -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_counts_is_told_by_the_time_between_two_looks),
        cmocka_unit_test(what_cannot_be_read_is_not_known),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
