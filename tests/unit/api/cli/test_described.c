/* What a cluster file says of devices, as the planner sees it. */
#include "api/cli/described.h"

#include "api/cli/cli.h"
#include "tests/unit/test.h"

static const char two[] = "{\"classes\": {"
                          "\"new\": {\"nodes\": 2, \"devices_per_node\": 8, \"gflops\": 2000, \"memory_mib\": 1000},"
                          "\"old\": {\"nodes\": 8, \"devices_per_node\": 4, \"gflops\": 500, \"memory_mib\": 300},"
                          "\"a=b\": {\"nodes\": 1, \"devices_per_node\": 4}},"
                          "\"bandwidth\": {\"between\": {\"bytes_per_s\": 5e9}}}";

static int site_of(const char *classes, long devices, struct described *ret)
{
    json_auto_t *doc = json_loads(two, 0, NULL);

    assert_non_null(doc);
    return described_site("c.json", doc, classes, devices, false, ret);
}

static void one_class_is_that_which_is_named_or_has_most(void **state)
{
    struct described d;

    (void)state;
    assert_int_equal(site_of("new", 4, &d), 0);
    assert_int_equal(d.site.groups, 1);
    assert_int_equal(d.site.group[0].n, 4);
    assert_int_equal(d.site.node_devices, 8);
    assert_true(d.site.group[0].device.flops == 2e12 && d.site.between.bytes_per_s == 5e9);
    assert_null(d.net);
    described_clear(&d);
    assert_int_equal(site_of(NULL, 0, &d), 0); /* 32 of them, and all */
    assert_int_equal(d.site.group[0].n, 32);
    assert_true(d.site.group[0].device.flops == 5e11);
    described_clear(&d);
    assert_int_equal(site_of("a=b", 2, &d), 0);
    assert_int_equal(d.site.group[0].n, 2);
    described_clear(&d);
}

static void several_classes_are_groups_in_the_order_of_ranks(void **state)
{
    struct described d;

    (void)state;
    assert_int_equal(site_of("old=6,new=8", 1, &d), 0);
    assert_int_equal(d.site.groups, 2);
    assert_int_equal(d.site.group[0].n, 6);
    assert_int_equal(d.site.group[1].n, 8);
    assert_true(d.site.group[0].device.memory_bytes == UINT64_C(300) << 20);
    assert_true(d.site.group[1].device.memory_bytes == UINT64_C(1000) << 20);
    assert_non_null(d.net); /* nodes of unlike sizes */
    assert_int_equal(d.net->n, 3);
    assert_int_equal(d.net->part[1].devices, 2);
    assert_int_equal(d.net->part[2].devices, 8);
    assert_true(d.net->part[1].kind != d.net->part[2].kind);
    described_clear(&d);
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct {
        const char *classes;
        long devices;
        int status;
    } rows[] = {
        {"newer", 1, CLI_USAGE},         {"new", 17, CLI_REFUSED},       {"new=17", 1, CLI_REFUSED},
        {"new=8,new=8", 1, CLI_USAGE},   {"=8", 1, CLI_USAGE},           {"new=", 1, CLI_USAGE},
        {"new=0", 1, CLI_USAGE},         {"new=8,,old=4", 1, CLI_USAGE}, {"new=x", 1, CLI_USAGE},
        {"new=99999", 1, CLI_USAGE},     {"new,old", 1, CLI_USAGE},      {"new=8,old", 1, CLI_USAGE},
        {"new=8,older=1", 1, CLI_USAGE},
    };
    struct described d;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (site_of(rows[i].classes, rows[i].devices, &d) != rows[i].status)
            fail_msg("'%s'", rows[i].classes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_class_is_that_which_is_named_or_has_most),
        cmocka_unit_test(several_classes_are_groups_in_the_order_of_ranks),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
