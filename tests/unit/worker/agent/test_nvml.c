#include "tests/unit/test.h"

#include <errno.h>

#include "tests/unit/worker/fake_gpus.h"
#include "worker/agent/nvml.h"

static struct nvml *opened(const char *gpus)
{
    struct nvml *n = NULL;
    struct merr err = {""};

    fake_gpus(gpus);
    if (nvml_open(&n, &err) < 0)
        fail_msg("%s", err.text);
    return n;
}

static void gpus_are_found_with_all_that_tells_them_apart(void **state)
{
    struct nvml *n = opened("{\"gpus\": [" H100("GPU-a") "}, " H100("GPU-b") "}]}");

    (void)state;
    assert_int_equal(nvml_count(n), 2);
    assert_string_equal(nvml_at(n, 1)->uuid, "GPU-b");
    assert_string_equal(nvml_at(n, 1)->name, "NVIDIA H100 80GB HBM3");
    assert_string_equal(nvml_at(n, 1)->pci, "00000000:02:00.0");
    assert_int_equal(nvml_at(n, 1)->memory_mib, 81559);
    assert_false(nvml_at(n, 1)->mig);
    nvml_close(n);
}

static void of_a_gpu_that_mig_has_cut_its_instances_are_offered(void **state)
{
    struct nvml *n = opened("{\"gpus\": [" H100(
        "GPU-a") ", \"power_mw\": 70500, \"mig\": ["
                 "{\"uuid\": \"MIG-1\", \"name\": \"NVIDIA H100 MIG 1g.10gb\", \"memory_mib\": 9728},"
                 "{\"uuid\": \"MIG-2\", \"name\": \"NVIDIA H100 MIG 1g.10gb\", \"memory_mib\": 9728}]}, " H100(
                     "GPU-b") "}]}");
    struct nvml_sample s;

    (void)state;
    assert_int_equal(nvml_count(n), 3);
    assert_string_equal(nvml_at(n, 1)->uuid, "MIG-2");
    assert_true(nvml_at(n, 1)->mig);
    assert_int_equal(nvml_at(n, 1)->memory_mib, 9728);
    assert_string_equal(nvml_at(n, 1)->pci, "00000000:01:00.0");
    assert_string_equal(nvml_at(n, 2)->uuid, "GPU-b");
    nvml_sample(n, 1, &s);
    assert_int_equal(s.power_w, 71); /* the whole GPU's, rounded */
    nvml_close(n);
}

static void a_sample_has_what_the_gpu_tells_and_no_more(void **state)
{
    struct nvml *n = opened("{\"gpus\": [" H100(
        "GPU-a") ", \"util\": 93, \"temperature\": 61, \"throttle\": 64,"
                 "\"power_limit_mw\": 700000, \"sm_mhz\": 1980, \"lanes\": 8, \"lanes_most\": 16, \"fabric\": 2,"
                 "\"ecc\": 2, \"remap_failed\": 1, \"pids\": [17, 4711]}, " H100("GPU-b") ", \"throttle\": 4}]}");
    struct nvml_sample s;

    (void)state;
    nvml_sample(n, 0, &s);
    assert_int_equal(s.utilization, 93);
    assert_int_equal(s.memory_used_mib, 7);
    assert_int_equal(s.temperature_c, 61);
    assert_int_equal(s.ecc_uncorrected, 2);
    assert_true(s.slowed && s.remap_failed && !s.lost);
    assert_int_equal(s.n_processes, 2);
    assert_int_equal(s.process[1], 4711);
    assert_int_equal(s.power_w, -1);
    assert_int_equal(s.power_limit_w, 700);
    assert_int_equal(s.sm_mhz, 1980);
    assert_int_equal(s.pcie_width, 8);
    assert_int_equal(s.pcie_width_most, 16);
    assert_true(s.fabric_pending);
    nvml_sample(n, 1, &s);
    assert_int_equal(s.utilization, -1);
    assert_true(s.sm_mhz == -1 && s.power_limit_w == -1 && s.pcie_width == -1 && !s.fabric_pending);
    assert_int_equal(s.ecc_uncorrected, -1);
    assert_int_equal(s.n_processes, 0);
    assert_false(s.slowed || s.remap_failed || s.lost); /* a power cap is no fault */
    fake_gpus("{\"gpus\": [" H100("GPU-a") ", \"lost\": true}, " H100("GPU-b") "}]}");
    nvml_sample(n, 0, &s);
    assert_true(s.lost);
    assert_int_equal(s.memory_used_mib, -1);
    nvml_close(n);
}

static void an_xid_is_told_for_the_gpu_it_hit(void **state)
{
    static const char two[] = "{\"gpus\": [" H100("GPU-a") "}, " H100(
        "GPU-b") ", \"mig\": ["
                 "{\"uuid\": \"MIG-1\", \"name\": \"m\", \"memory_mib\": 1},"
                 "{\"uuid\": \"MIG-2\", \"name\": \"m\", \"memory_mib\": 1}]}]%s}";
    char text[1024];
    struct nvml *n;
    unsigned int xid = 0;
    int hit[NVML_GPUS_MAX];

    (void)state;
    (void)snprintf(text, sizeof(text), two, "");
    n = opened(text);
    assert_int_equal(nvml_wait_xid(n, 20, hit, NVML_GPUS_MAX, &xid), 0);
    (void)snprintf(text, sizeof(text), two, ", \"xid\": {\"number\": 1, \"gpu\": 1, \"code\": 79}");
    fake_gpus(text);
    assert_int_equal(nvml_wait_xid(n, 1000, hit, NVML_GPUS_MAX, &xid), 2);
    assert_int_equal(xid, 79);
    assert_int_equal(hit[0], 1);
    assert_int_equal(hit[1], 2);
    assert_int_equal(nvml_wait_xid(n, 20, hit, NVML_GPUS_MAX, &xid), 0);
    nvml_close(n);
}

static void a_driver_that_does_not_work_says_so(void **state)
{
    struct nvml *n;
    struct merr err = {""};

    (void)state;
    fake_gpus("{\"broken\": true}");
    assert_int_equal(nvml_open(&n, &err), -EIO);
    assert_string_equal(err.text, "the GPU driver does not work: Driver Not Loaded");
}

static void a_gpu_that_does_not_answer_is_left_out(void **state)
{
    struct nvml *n = opened("{\"gpus\": [" H100("GPU-a") ", \"lost\": true}, " H100("GPU-b") "}]}");

    (void)state;
    assert_int_equal(nvml_count(n), 1);
    assert_string_equal(nvml_at(n, 0)->uuid, "GPU-b");
    nvml_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_found_with_all_that_tells_them_apart),
        cmocka_unit_test(of_a_gpu_that_mig_has_cut_its_instances_are_offered),
        cmocka_unit_test(a_sample_has_what_the_gpu_tells_and_no_more),
        cmocka_unit_test(an_xid_is_told_for_the_gpu_it_hit),
        cmocka_unit_test(a_driver_that_does_not_work_says_so),
        cmocka_unit_test(a_gpu_that_does_not_answer_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, fake_gpus_gone);
}
