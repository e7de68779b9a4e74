/* What a node says of its NIC: given in words, or found among the ports that are up. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "worker/agent/nic.h"

static void a_nic_is_given_by_family_and_rate(void **state)
{
    static const struct {
        const char *text;
        int r;
        enum plan_nic family;
        double gbit_s;
    } cases[] = {
        {"roce@100", 0, PLAN_NIC_ROCE, 100},
        {"ethernet", 0, PLAN_NIC_ETHERNET, 0},
        {"infiniband@12.5", 0, PLAN_NIC_INFINIBAND, 12.5},
        {"roce@", -EINVAL, 0, 0},
        {"roce@0", -EINVAL, 0, 0},
        {"roce@-4", -EINVAL, 0, 0},
        {"roce@nan", -EINVAL, 0, 0},
        {"roce@100g", -EINVAL, 0, 0},
        {"", -EINVAL, 0, 0},
        {"@100", -EINVAL, 0, 0},
        {"unknown", -EINVAL, 0, 0},
        {"infinibandinfiniband", -EINVAL, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nic nic = {.gbit_s = -1};

        if (nic_parse(cases[i].text, &nic, NULL) != cases[i].r)
            fail_msg("'%s'", cases[i].text);
        assert_true(cases[i].r ? nic.gbit_s == -1 : nic.family == cases[i].family && nic.gbit_s == cases[i].gbit_s);
    }
}

static void put(const char *root, const char *port, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", root, port);
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", root, port, name);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void the_fastest_port_that_is_up_counts(void **state)
{
    char root[] = "/tmp/muster-nic-XXXXXX";
    struct nic nic;

    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(nic_find("/nowhere/at/all").family, PLAN_NIC_UNKNOWN);
    assert_int_equal(nic_find(root).family, PLAN_NIC_UNKNOWN);
    put(root, "mlx5_0/ports/1", "state", "1: DOWN\n");
    put(root, "mlx5_0/ports/1", "link_layer", "InfiniBand\n");
    assert_int_equal(nic_find(root).family, PLAN_NIC_UNKNOWN);
    put(root, "mlx5_1/ports/1", "state", "4: ACTIVE\n");
    put(root, "mlx5_1/ports/1", "link_layer", "Ethernet\n");
    put(root, "mlx5_1/ports/1", "rate", "25 Gb/sec (1X EDR)\n");
    put(root, "mlx5_1/ports/2", "state", "4: ACTIVE\n");
    put(root, "mlx5_1/ports/2", "link_layer", "Ethernet\n");
    put(root, "mlx5_1/ports/2", "rate", "100 Gb/sec (4X EDR)\n");
    nic = nic_find(root);
    assert_int_equal(nic.family, PLAN_NIC_ROCE);
    assert_true(nic.gbit_s == 100);
    put(root, "mlx5_0/ports/1", "state", "4: ACTIVE\n");
    nic = nic_find(root);
    assert_int_equal(nic.family, PLAN_NIC_INFINIBAND);
    assert_true(nic.gbit_s == 0);
    assert_int_equal(io_remove_tree(root, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nic_is_given_by_family_and_rate),
        cmocka_unit_test(the_fastest_port_that_is_up_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
