#include "tests/unit/test.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/unit/worker/fake_gpus.h"
#include "worker/agent/gpus.h"

#define XID(number, code) ", \"xid\": {\"number\": " #number ", \"gpu\": 1, \"code\": " #code "}}"
#define TWO "{\"gpus\": [" H100("GPU-a") "}, " H100("GPU-b") "}]"

static struct gpus *watched(const char *gpus)
{
    struct gpus *g = NULL;
    struct merr err = {""};

    fake_gpus(gpus);
    if (gpus_open(&g, &err) < 0 || gpus_watch(g, &err) < 0)
        fail_msg("%s", err.text);
    return g;
}

/* What ails GPU i once anything does, within 5 s. */
static void wait_ill(struct gpus *g, int i, char why[GPUS_WHY_MAX])
{
    int64_t deadline_us = clock_mono_us() + 5000000;
    struct nvml_sample s;

    do {
        (void)poll(NULL, 0, 5);
        gpus_sample(g, i, &s, why);
    } while (!*why && clock_mono_us() < deadline_us);
}

static void those_alone_are_kept_that_a_list_names(void **state)
{
    static const struct {
        const char *list, *kept;
    } rows[] = {{"0,2", "GPU-aaaa GPU-cccc "},
                {"GPU-bbbb", "GPU-bbbb "},
                {"2", "GPU-cccc "},
                {"", ""},
                {"GPU-c,0", "GPU-aaaa GPU-cccc "}};
    static const char *const wrong[] = {"3", "GPU-dddd", "0,x", "NoDevFiles", "-1", "0,,1"};
    struct merr err;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char kept[64] = "";
        struct gpus *g = NULL;

        fake_gpus("{\"gpus\": [" H100("GPU-aaaa") "}, " H100("GPU-bbbb") "}, " H100("GPU-cccc") "}]}");
        assert_int_equal(gpus_open(&g, &err), 0);
        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            assert_int_equal(gpus_keep(g, wrong[k], &err), -EINVAL);
            assert_int_equal(gpus_count(g), 3);
        }
        assert_int_equal(gpus_keep(g, rows[i].list, &err), 0);
        for (int k = 0; k < gpus_count(g); k++)
            (void)snprintf(kept + strlen(kept), sizeof(kept) - strlen(kept), "%s ", gpus_at(g, k)->uuid);
        assert_string_equal(kept, rows[i].kept);
        gpus_close(g);
    }
}

static void the_first_sample_is_there_at_once(void **state)
{
    struct gpus *g = watched(TWO "}");
    struct nvml_sample s;
    char why[GPUS_WHY_MAX];

    (void)state;
    assert_int_equal(gpus_count(g), 2);
    gpus_sample(g, 1, &s, why);
    assert_int_equal(s.memory_used_mib, 7);
    assert_string_equal(why, "");
    gpus_close(g);
    assert_int_equal(gpus_count(NULL), 0);
}

static void an_error_of_the_gpu_makes_it_ill_for_good(void **state)
{
    struct gpus *g = watched(TWO "}");
    struct nvml_sample s;
    char why[GPUS_WHY_MAX];

    (void)state;
    fake_gpus(TWO XID(1, 79));
    wait_ill(g, 1, why);
    assert_string_equal(why, "Xid 79: fallen off the bus");
    fake_gpus(TWO XID(2, 48));
    wait_ill(g, 1, why);
    assert_string_equal(why, "Xid 79: fallen off the bus");
    gpus_sample(g, 0, &s, why);
    assert_string_equal(why, "");
    gpus_close(g);
}

static void an_error_of_a_program_leaves_the_gpu_well(void **state)
{
    struct gpus *g = watched(TWO "}");
    struct nvml_sample s;
    char why[GPUS_WHY_MAX];

    (void)state;
    fake_gpus(TWO XID(1, 31));
    fake_gpus("{\"gpus\": [" H100("GPU-a") ", \"lost\": true}, " H100("GPU-b") "}]" XID(1, 31));
    wait_ill(g, 0, why); /* sampled after the Xid was told */
    assert_string_equal(why, "the driver has lost it");
    gpus_sample(g, 1, &s, why);
    assert_string_equal(why, "");
    gpus_close(g);
}

static void say(const char *path, const char *line)
{
    FILE *f = fopen(path, "ae");

    assert_non_null(f);
    assert_true(fprintf(f, "%s\n", line) > 0);
    assert_int_equal(fclose(f), 0);
}

/* What was found last of GPU i, of this code, within 5 s. */
static struct gpus_finding wait_found(struct gpus *g, int i, unsigned int code)
{
    int64_t deadline_us = clock_mono_us() + 5000000, age_us;
    struct gpus_finding found;

    while ((!gpus_found(g, i, &found, &age_us) || found.code != code) && clock_mono_us() < deadline_us)
        (void)poll(NULL, 0, 5);
    assert_int_equal(found.code, code);
    return found;
}

/* Row 50 of the fault catalogue: lines in a file that stands for the kernel's log. */
static void the_kernels_log_tells_of_errors_from_now_on(void **state)
{
    char path[] = "/tmp/muster-kmsg-XXXXXX", why[GPUS_WHY_MAX];
    int fd = mkstemp(path);
    struct gpus_finding found;
    struct nvml_sample s;
    struct gpus *g = NULL;
    struct merr err;
    int64_t age_us;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    say(path, "NVRM: Xid (PCI:0000:02:00): 79, from before");
    fake_gpus(TWO "}");
    assert_int_equal(gpus_open(&g, &err), 0);
    gpus_kernel_log(g, path);
    assert_int_equal(gpus_watch(g, &err), 0);
    say(path, "usb 1-1: new device");
    say(path, "NVRM: Xid (PCI:0000:01:00): 31, pid=12, name=python, MMU fault");
    found = wait_found(g, 0, 31);
    assert_int_equal(found.level, XID_WATCH);
    say(path, "NVRM: Xid (PCI:0000:01:00): 48, double bit"); /* graver, though a moment later */
    found = wait_found(g, 0, 48);
    assert_int_equal(found.level, XID_STOP);
    gpus_sample(g, 0, &s, why);
    assert_string_equal(why, "Xid 48: double-bit ECC error");
    say(path, "NVRM: Xid (PCI:0000:01:00): 45, clean-up"); /* follows of it and is no cause */
    say(path, "NVRM: Xid (PCI:0000:02:00): 74, NVLink");
    found = wait_found(g, 1, 74);
    assert_int_equal(found.level, XID_WATCH);
    assert_int_equal(found.blame, 700);
    assert_true(gpus_found(g, 0, &found, &age_us));
    assert_int_equal(found.code, 48);
    gpus_sample(g, 1, &s, why);
    assert_string_equal(why, ""); /* the first failure of a link, and nothing of before */
    gpus_close(g);
    assert_int_equal(unlink(path), 0);
}

static void links_and_memory_that_fail_slowly_are_found(void **state)
{
    struct nvml_sample s = {.ecc_corrected = 0, .nvlinks = 2, .nvlink_errors = 100};
    struct gpus *g = NULL;
    struct gpus_finding found;
    char why[GPUS_WHY_MAX];
    int64_t hour_us = INT64_C(3600000000), t = hour_us, age_us;
    struct nvml_sample last;
    struct merr err;

    (void)state;
    fake_gpus(TWO "}");
    assert_int_equal(gpus_open(&g, &err), 0);
    gpus_judge(g, 0, &s, t);
    s.nvlink_errors += 14; /* few enough within a minute */
    gpus_judge(g, 0, &s, t + 1000000);
    assert_false(gpus_found(g, 0, &found, &age_us));
    s.nvlink_errors++;
    gpus_judge(g, 0, &s, t + 2000000);
    assert_true(gpus_found(g, 0, &found, &age_us));
    assert_string_equal(found.what, "its NVLinks counted 15 errors within a minute");
    assert_int_equal(found.level, XID_WATCH);
    for (int hour = 1; hour <= 3; hour++) {
        gpus_sample(g, 1, &last, why);
        s.ecc_corrected += 101;
        gpus_judge(g, 1, &s, t + hour * hour_us);
        s.ecc_corrected += hour == 3 ? 101 : 0;
    }
    assert_false(gpus_found(g, 1, &found, &age_us)); /* the first of them began the count */
    gpus_judge(g, 1, &s, t + 4 * hour_us);
    assert_true(gpus_found(g, 1, &found, &age_us));
    assert_string_equal(found.what, "more than 100 corrected ECC errors an hour, for 3 hours");
    assert_int_equal(found.blame, 200);
    s.nvlinks = 1;
    gpus_judge(g, 0, &s, t + 3000000);
    gpus_sample(g, 0, &last, why);
    assert_string_equal(why, "1 of its 2 NVLinks are up");
    s.nvlinks = 2;
    s.remap_pending = true;
    s.remap_failed = false;
    gpus_judge(g, 1, &s, t + 4 * hour_us + 1);
    gpus_sample(g, 1, &last, why);
    assert_string_equal(why, ""); /* until its next reset it works */
    s.remap_failed = true;
    gpus_judge(g, 1, &s, t + 4 * hour_us + 2);
    gpus_sample(g, 1, &last, why);
    assert_string_equal(why, "a bad row of its memory cannot be replaced");
    gpus_close(g);
}

static void fewer_lanes_are_told_once_and_a_fabric_that_is_not_up_takes_no_work_until_it_is(void **state)
{
    struct gpus *g = watched("{\"gpus\": [" H100("GPU-a") ", \"lanes\": 8, \"lanes_most\": 16}, " H100(
        "GPU-b") ", \"lanes\": 16, \"lanes_most\": 16, \"fabric\": 1}]}");
    struct gpus_finding found;
    struct nvml_sample s;
    char why[GPUS_WHY_MAX];
    int64_t age_us;

    (void)state;
    assert_true(gpus_found(g, 0, &found, &age_us));
    assert_string_equal(found.what, "8 of its 16 PCIe lanes are in use");
    assert_int_equal(found.level, XID_WATCH);
    gpus_sample(g, 0, &s, why);
    assert_string_equal(why, ""); /* it works */
    assert_false(gpus_found(g, 1, &found, &age_us));
    gpus_sample(g, 1, &s, why);
    assert_non_null(strstr(why, "its NVSwitch fabric is not up"));
    fake_gpus("{\"gpus\": [" H100("GPU-a") "}, " H100("GPU-b") ", \"fabric\": 3}]}");
    for (int64_t until = clock_mono_us() + 5000000; *why && clock_mono_us() < until;) {
        gpus_hurry(g);
        (void)poll(NULL, 0, 10);
        gpus_sample(g, 1, &s, why);
    }
    assert_string_equal(why, "");
    gpus_close(g);
}

static void the_driver_is_asked_for_links_rows_and_corrected_errors(void **state)
{
    struct gpus *g = watched("{\"gpus\": [" H100(
        "GPU-a") ", \"nvlinks\": 1, \"nvlink_errors\": 3, "
                 "\"ecc_corrected\": 7, \"remap_failed\": 0, \"remap_pending\": 2}, " H100("GPU-b") "}]}");
    struct nvml_sample s;
    char why[GPUS_WHY_MAX];

    (void)state;
    gpus_sample(g, 0, &s, why);
    assert_int_equal(s.nvlinks, 1);
    assert_int_equal(s.nvlink_errors, 4 * 3);
    assert_int_equal(s.ecc_corrected, 7);
    assert_true(s.remap_pending);
    gpus_sample(g, 1, &s, why);
    assert_int_equal(s.nvlinks, -1);
    assert_int_equal(s.nvlink_errors, -1);
    assert_int_equal(s.ecc_corrected, -1);
    assert_false(s.remap_pending);
    gpus_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_alone_are_kept_that_a_list_names),
        cmocka_unit_test(the_first_sample_is_there_at_once),
        cmocka_unit_test(an_error_of_the_gpu_makes_it_ill_for_good),
        cmocka_unit_test(an_error_of_a_program_leaves_the_gpu_well),
        cmocka_unit_test(the_kernels_log_tells_of_errors_from_now_on),
        cmocka_unit_test(links_and_memory_that_fail_slowly_are_found),
        cmocka_unit_test(fewer_lanes_are_told_once_and_a_fabric_that_is_not_up_takes_no_work_until_it_is),
        cmocka_unit_test(the_driver_is_asked_for_links_rows_and_corrected_errors),
    };

    return cmocka_run_group_tests(tests, NULL, fake_gpus_gone);
}
