#include "tests/unit/test.h"

#include <poll.h>

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

static void xids_are_known_by_whose_fault_they_are(void **state)
{
    static const unsigned int ill[] = {48, 62, 64, 74, 79, 95, 119, 120}, program[] = {0, 13, 31, 43, 45, 63, 68, 94};

    (void)state;
    for (size_t i = 0; i < COUNT(ill); i++)
        assert_non_null(gpus_xid_meaning(ill[i]));
    for (size_t i = 0; i < COUNT(program); i++)
        assert_null(gpus_xid_meaning(program[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sample_is_there_at_once),
        cmocka_unit_test(an_error_of_the_gpu_makes_it_ill_for_good),
        cmocka_unit_test(an_error_of_a_program_leaves_the_gpu_well),
        cmocka_unit_test(xids_are_known_by_whose_fault_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, fake_gpus_gone);
}
