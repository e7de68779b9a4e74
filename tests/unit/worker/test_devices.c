#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "worker/agent/devices.h"

static void a_list_gives_numbered_slots_with_classes(void **state)
{
    struct devices d;

    (void)state;
    assert_int_equal(devices_parse("cpu:2=fast,cpu:1=slow,cpu:1", 3, &d, NULL), 0);
    assert_int_equal(d.n, 4);
    assert_int_equal(d.threads, 3);
    assert_string_equal(d.v[0].class, "fast");
    assert_string_equal(d.v[1].class, "fast");
    assert_string_equal(d.v[2].class, "slow");
    assert_string_equal(d.v[3].class, "cpu");
    assert_string_equal(d.v[3].kind, "cpu");
}

static void threads_are_shared_out_and_never_none(void **state)
{
    struct devices d;

    (void)state;
    assert_int_equal(devices_parse("cpu:256", 0, &d, NULL), 0);
    assert_true(d.threads >= 1);
    assert_int_equal(d.n, DEVICES_MAX);
}

static void each_fault_names_the_part_and_changes_nothing(void **state)
{
    static const struct { const char *text, *word; } table[] = {
        { "", "empty" },           { "cpu", "no count" },        { "cpu:", "count" },      { "cpu:0", "count" },
        { "cpu:-1", "count" },     { "cpu:257", "256" },         { "cpu:2x", "'x'" },      { "tpu:1", "'tpu'" },
        { "gpu:1", "GPUs" },       { "cpu:1=", "class" },        { "cpu:1=Fast", "Fast" }, { "cpu:1,", "empty" },
        { "cpu:1=a@0.5", "'@" },   { "cpu:200,cpu:57", "256" },  { "cpu:99999999999999999999", "count" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct devices d = { .n = 77 };
        struct merr err = { "" };

        assert_int_equal(devices_parse(table[i].text, 0, &d, &err), -EINVAL);
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
    assert_int_equal(devices_parse("cpu:1,cpu:1=slow", 2, &d, NULL), 0);
    list = devices_json(&d);
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "slot")), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "class")), "slow");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "threads")), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_gives_numbered_slots_with_classes),
        cmocka_unit_test(threads_are_shared_out_and_never_none),
        cmocka_unit_test(each_fault_names_the_part_and_changes_nothing),
        cmocka_unit_test(slots_are_told_as_the_protocol_has_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
