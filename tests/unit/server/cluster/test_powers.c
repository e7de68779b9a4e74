#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "scheduler/cluster/sched.h"
#include "server/cluster/powers.h"

static void the_power_of_classes_is_read_whole_or_not_at_all(void **state)
{
    static const struct {
        const char *text;
        int r;
        size_t n;
    } row[] = {
        {NULL, 0, 0},
        {"", 0, 0},
        {"h100=700", 0, 1},
        {"h100=700,cpu=15", 0, 2},
        {"h100=700,", 0, 1},
        {"h100", -EINVAL, 0},
        {"=7", -EINVAL, 0},
        {"h100=", -EINVAL, 0},
        {"h100=0", -EINVAL, 0},
        {"h100=-1", -EINVAL, 0},
        {"h100=7x", -EINVAL, 0},
        {"h100=7,,a=1", -EINVAL, 0},
        {"a,b=7", -EINVAL, 0},
        {"h100=99999999999999999999", -EINVAL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct powers p = {.n = 99};
        struct merr err;
        int r = powers_read(row[i].text, &p, &err);

        if (r != row[i].r || p.n != (r < 0 ? 99 : row[i].n))
            fail_msg("'%s': %d, %zu", row[i].text ? row[i].text : "NULL", r, p.n);
        if (r < 0)
            assert_non_null(strstr(err.text, "CLASS=W"));
    }
}

static void a_class_that_was_not_told_has_no_power(void **state)
{
    struct powers p;
    struct merr err;

    (void)state;
    assert_int_equal(powers_read("h100=700,cpu=15", &p, &err), 0);
    assert_int_equal(powers_of(&p, "h100"), 700);
    assert_int_equal(powers_of(&p, "cpu"), 15);
    assert_int_equal(powers_of(&p, "h10"), 0);
    assert_int_equal(powers_of(&p, ""), 0);
}

static void classes_and_names_have_their_limits(void **state)
{
    char text[POWERS_CLASSES_MAX * 8 + 64] = "", name[SPEC_NAME_MAX + 8];
    struct powers p;
    struct merr err;

    (void)state;
    for (int i = 0; i <= POWERS_CLASSES_MAX; i++) {
        assert_int_equal(powers_read(text, &p, &err), 0);
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%sc%d=1", i ? "," : "", i);
    }
    assert_int_equal(powers_read(text, &p, &err), -EINVAL);
    memset(name, 'a', SPEC_NAME_MAX - 1);
    memcpy(name + SPEC_NAME_MAX - 1, "=1", 3);
    assert_int_equal(powers_read(name, &p, &err), 0);
    assert_int_equal(strlen(p.of[0].class_), SPEC_NAME_MAX - 1);
    memset(name, 'a', SPEC_NAME_MAX);
    memcpy(name + SPEC_NAME_MAX, "=1", 3);
    assert_int_equal(powers_read(name, &p, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_power_of_classes_is_read_whole_or_not_at_all),
        cmocka_unit_test(a_class_that_was_not_told_has_no_power),
        cmocka_unit_test(classes_and_names_have_their_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
