/* The table of Xid errors, row by row, and the lines of the kernel's log that carry them. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "worker/agent/xid.h"

static void every_row_has_the_action_of_its_class(void **state)
{
    static const unsigned int node[] = {54, 79, 151, 167},
                              gpu[] = {46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158},
                              link[] = {74, 121, 137, 144, 145, 146, 147, 148, 149, 150},
                              app[] = {8, 11, 13, 25, 31, 32, 39, 40, 41, 69, 80, 94},
                              secondary[] = {38, 43, 44, 45, 63, 66, 67, 92, 141, 154};
    const struct {
        const unsigned int *code;
        size_t n;
        enum xid_class class_;
        enum xid_level level;
        int blame;
    } row[] = {{node, COUNT(node), XID_NODE, XID_STOP, 1000},
               {gpu, COUNT(gpu), XID_GPU, XID_STOP, 500},
               {link, COUNT(link), XID_LINK, XID_WATCH, 700},
               {app, COUNT(app), XID_APP, XID_WATCH, 100},
               {secondary, COUNT(secondary), XID_SECONDARY, XID_WATCH, 0}};
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        for (size_t k = 0; k < row[i].n; k++, n++) {
            const struct xid *x = xid_find(row[i].code[k]);

            print_message("Xid %u: %s, %s, blame %d\n", x->code, x->meaning, xid_level_names[x->level], x->blame);
            assert_int_equal(x->code, row[i].code[k]);
            assert_int_equal(x->class_, row[i].class_);
            assert_int_equal(x->level, row[i].level);
            assert_int_equal(x->blame, x->code == 92 ? 200 : row[i].blame);
            assert_true(strlen(x->meaning) > 0);
        }
    assert_null(xid_at(n)); /* no row is without a test */
    for (size_t i = 1; i < n; i++)
        assert_true(xid_at(i - 1)->code < xid_at(i)->code);
    assert_int_equal(xid_find(9999)->level, XID_WATCH);
    assert_int_equal(xid_find(9999)->blame, 0);
}

static void lines_of_the_kernels_log_are_read_and_others_passed_over(void **state)
{
    static const struct {
        const char *line, *pci;
        unsigned int code;
    } row[] = {
        {"NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.", "0000:1b:00", 79},
        {"4,1289,5140900,-;NVRM: Xid (PCI:0000:81:00.0): 31, pid='<unknown>', name=x", "0000:81:00.0", 31},
        {"[ 12.3] NVRM: Xid (PCI:0001:00:00): 119", "0001:00:00", 119},
        {"NVRM: Xid (PCI:0000:1b:00): ", NULL, 0},
        {"NVRM: Xid (PCI:0000:1b:00): x", NULL, 0},
        {"NVRM: Xid (PCI:): 79", NULL, 0},
        {"NVRM: Xid (PCI:0000:1b:00", NULL, 0},
        {"NVRM: Xid (PCI:0000000000000000000000000000000000:1b:00): 79", NULL, 0},
        {"NVRM: Xid (PCI:0000:1b:00): 99999999999999999999", NULL, 0},
        {"usb 1-1: new device", NULL, 0},
        {"", NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        char pci[32] = "";
        unsigned int code = 0;

        assert_int_equal(xid_parse(row[i].line, pci, &code), row[i].pci != NULL);
        if (row[i].pci)
            assert_string_equal(pci, row[i].pci);
        assert_int_equal(code, row[i].code);
    }
}

static void addresses_are_compared_by_their_parts(void **state)
{
    (void)state;
    assert_true(xid_is_of("00000000:1B:00.0", "0000:1b:00"));
    assert_true(xid_is_of("00000000:1B:00.0", "0000:1b:00.0"));
    assert_false(xid_is_of("00000000:1B:00.0", "0000:1c:00"));
    assert_false(xid_is_of("00000001:1B:00.0", "0000:1b:00"));
    assert_false(xid_is_of("", "0000:1b:00"));
    assert_false(xid_is_of("00000000:1B:00.0", "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_the_action_of_its_class),
        cmocka_unit_test(lines_of_the_kernels_log_are_read_and_others_passed_over),
        cmocka_unit_test(addresses_are_compared_by_their_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
