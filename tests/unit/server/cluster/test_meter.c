#include "tests/unit/test.h"

#include "server/cluster/meter.h"

static void means_are_of_the_reports_that_told_a_number(void **state)
{
    struct slot slots[2] = {{.slot = 0, .job = 7}, {.slot = 1}};
    struct node n = {.slots = slots, .n_slots = 2};
    int first[] = {10, -1}, second[] = {13, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

    (void)state;
    assert_int_equal(meter_read_host(&n, (enum report_host)0), METER_NONE);
    meter_take(&n, first, 2);
    meter_take(&n, second, COUNT(second)); /* more than there are */
    assert_int_equal(meter_read_host(&n, (enum report_host)0), 12);
    assert_int_equal(meter_read_host(&n, (enum report_host)1), 5);
    slots[0].job = 0;
    meter_take(&n, NULL, 0);
    assert_int_equal(meter_read_device(&slots[0]).busy, 67);
    assert_int_equal(meter_read_device(&slots[1]).busy, 0);
    meter_begin(&n);
    assert_int_equal(meter_read_host(&n, (enum report_host)0), METER_NONE);
    assert_int_equal(meter_read_device(&slots[0]).busy, 0);
    slots[0].job = 7;
    assert_int_equal(meter_read_device(&slots[0]).busy, 100); /* nothing was reported: as it is now */
}

static void what_a_gpu_tells_is_believed_where_it_can_be(void **state)
{
    static const struct {
        const char *gpu;
        struct meter_device is;
    } row[] = {
        {"{'slot': 0, 'utilization': 50, 'power_w': 300, 'memory_used_mib': 250, 'memory_mib': 1000, 'temperature_c': "
         "60}",
         {.use = 50, .power_w = 300, .memory = 25, .temperature = 60}},
        {"{'slot': 0, 'utilization': 101, 'power_w': 300, 'memory_used_mib': 1001, 'memory_mib': 1000}",
         {.use = METER_NONE, .power_w = 300, .memory = METER_NONE, .temperature = METER_NONE}},
        {"{'slot': 0, 'utilization': -1, 'power_w': 10001, 'memory_used_mib': 1, 'memory_mib': 0, 'temperature_c': 20}",
         {.use = METER_NONE, .power_w = METER_NONE, .memory = METER_NONE, .temperature = METER_NONE}},
        {"{'slot': 0, 'utilization': '50'}",
         {.use = METER_NONE, .power_w = METER_NONE, .memory = METER_NONE, .temperature = METER_NONE}},
        {"{'slot': 9, 'utilization': 50}",
         {.use = METER_NONE, .power_w = METER_NONE, .memory = METER_NONE, .temperature = METER_NONE}},
        {"{'slot': 0, 'utilization': 0, 'temperature_c': 201, 'memory_used_mib': 7, 'memory_mib': 7}",
         {.use = 0, .power_w = METER_NONE, .memory = 100, .temperature = METER_NONE}},
        {"7", {.use = METER_NONE, .power_w = METER_NONE, .memory = METER_NONE, .temperature = METER_NONE}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        char text[256];
        struct slot slot = {.slot = 0};
        struct node n = {.slots = &slot, .n_slots = 1};
        struct meter_device d;

        (void)snprintf(text, sizeof(text), "[%s]", row[i].gpu);
        for (char *p = text; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        n.gpus = json_loads(text, 0, NULL);
        assert_non_null(n.gpus);
        meter_take(&n, NULL, 0);
        d = meter_read_device(&slot);
        if (d.use != row[i].is.use || d.power_w != row[i].is.power_w || d.memory != row[i].is.memory ||
            d.temperature != row[i].is.temperature)
            fail_msg("row %zu: %d %% %d W %d %% %d C", i, d.use, d.power_w, d.memory, d.temperature);
        json_decref(n.gpus);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_of_the_reports_that_told_a_number),
        cmocka_unit_test(what_a_gpu_tells_is_believed_where_it_can_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
