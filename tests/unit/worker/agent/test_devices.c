#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/worker/fake_gpus.h"
#include "worker/agent/devices.h"

static void a_list_gives_numbered_slots_with_classes(void **state)
{
    struct devices d;

    (void)state;
    assert_int_equal(devices_parse("cpu:2=fast,cpu:1=slow@0.25,cpu:1", 3, NULL, "no driver", &d, NULL), 0);
    assert_int_equal(d.n, 4);
    assert_int_equal(d.threads, 3);
    assert_string_equal(d.v[0].class, "fast");
    assert_string_equal(d.v[1].class, "fast");
    assert_string_equal(d.v[2].class, "slow");
    assert_true(d.v[1].share == 0 && d.v[2].share == 0.25 && d.v[3].share == 0);
    assert_string_equal(d.v[3].class, "cpu");
    assert_string_equal(d.v[3].kind, "cpu");
}

static void threads_are_shared_out_and_never_none(void **state)
{
    struct devices d;

    (void)state;
    assert_int_equal(devices_parse("cpu:256", 0, NULL, "no driver", &d, NULL), 0);
    assert_true(d.threads >= 1);
    assert_int_equal(d.n, DEVICES_MAX);
}

static void each_fault_names_the_part_and_changes_nothing(void **state)
{
    static const struct {
        const char *text, *word;
    } table[] = {
        {"", "empty"},
        {"cpu", "no count"},
        {"cpu:", "count"},
        {"cpu:0", "count"},
        {"cpu:-1", "count"},
        {"cpu:257", "256"},
        {"cpu:2x", "count"},
        {"tpu:1", "'tpu'"},
        {"gpu:1", "no driver"},
        {"cpu:1=", "class"},
        {"cpu:1=Fast", "Fast"},
        {"cpu:1,", "empty"},
        {"cpu:1=a@0", "'a@0'"},
        {"cpu:1=a@x", "no number"},
        {"cpu:1=a@65", "share"},
        {"cpu:1=@0.5", "class ''"},
        {"gpu:1=a@0.5", "processor"},
        {"cpu:200,cpu:57", "256"},
        {"cpu:99999999999999999999", "count"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct devices d = {.n = 77};
        struct merr err = {""};

        assert_int_equal(devices_parse(table[i].text, 0, NULL, "no driver", &d, &err), -EINVAL);
        if (!strstr(err.text, table[i].word))
            fail_msg("'%s' gives '%s', which does not name '%s'", table[i].text, err.text, table[i].word);
        assert_int_equal(d.n, 77);
    }
}

static void slots_are_told_as_the_protocol_has_them(void **state)
{
    json_auto_t *list = NULL;
    struct devices d;

    (void)state;
    assert_int_equal(devices_parse("cpu:1,cpu:1=slow", 2, NULL, "no driver", &d, NULL), 0);
    list = devices_json(&d);
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "slot")), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "class")), "slow");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "threads")), 2);
    assert_true(json_is_true(json_object_get(json_array_get(list, 1), "trains")));
}

static void gpus_are_slots_that_show_themselves_alone(void **state)
{
    struct gpus *g = NULL;
    struct devices d;
    struct merr err = {""};

    (void)state;
    fake_gpus("{\"gpus\": [" H100("GPU-a") "}, " H100("GPU-b") "}, " H100("GPU-c") "}]}");
    assert_int_equal(gpus_open(&g, NULL), 0);
    assert_int_equal(devices_parse("auto", 0, g, "", &d, NULL), 0);
    assert_int_equal(d.n, 3);
    assert_string_equal(d.v[2].class, "h100-80gb-hbm3");
    assert_string_equal(d.v[2].visible, "GPU-c");
    assert_int_equal(d.v[2].memory_mib, 81559);
    assert_int_equal(devices_parse("gpu:1=fast,cpu:1,gpu", 0, g, "", &d, NULL), 0);
    assert_int_equal(d.n, 4);
    assert_string_equal(d.v[0].class, "fast");
    assert_string_equal(d.v[1].visible, ""); /* a cpu slot sees none */
    assert_string_equal(d.v[2].visible, "GPU-b");
    assert_int_equal(devices_parse("gpu:4", 0, g, "", &d, &err), -EINVAL);
    assert_string_equal(err.text, "4 GPUs are asked for, but this node has 3");
    assert_int_equal(devices_parse("gpu,gpu", 0, g, "", &d, &err), -EINVAL);
    assert_string_equal(err.text, "1 GPUs are asked for, but this node has 0 more");
    gpus_close(g);
    assert_int_equal(devices_parse("auto", 0, NULL, "no driver", &d, NULL), 0);
    assert_int_equal(d.n, 1);
    assert_string_equal(d.v[0].class, "cpu");
}

static void the_class_of_a_gpu_is_its_model(void **state)
{
    static const char *const table[][2] = {
        {"NVIDIA H200", "h200"},
        {"NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"},
        {"Tesla T4", "t4"},
        {"NVIDIA GeForce RTX 4090", "rtx-4090"},
        {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-80gb-hbm3-mig-1g.10gb"},
        {"NVIDIA ", "gpu"},
        {"A  (B)", "a-b"},
        {"NVIDIA Graphics Device with a very long name", "graphics-device-with-a-very-lon"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        char class[DEVICES_CLASS_MAX];

        devices_gpu_class(table[i][0], class);
        assert_string_equal(class, table[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_gives_numbered_slots_with_classes),
        cmocka_unit_test(threads_are_shared_out_and_never_none),
        cmocka_unit_test(each_fault_names_the_part_and_changes_nothing),
        cmocka_unit_test(slots_are_told_as_the_protocol_has_them),
        cmocka_unit_test(gpus_are_slots_that_show_themselves_alone),
        cmocka_unit_test(the_class_of_a_gpu_is_its_model),
    };

    return cmocka_run_group_tests(tests, NULL, fake_gpus_gone);
}
