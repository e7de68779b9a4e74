#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "scheduler/plan/layout.h"

static const struct plan_facts usual = {.virtual_workers = 8, .sequences = 32, .layers = 6, .heads = 6};

static void the_most_replicas_that_fit_are_chosen(void **state)
{
    static const struct {
        int tp, pp, v, devices, dp, world;
    } t[] = {
        {0, 0, 8, 1, 1, 1}, {1, 1, 8, 3, 3, 3},    {2, 1, 8, 3, 1, 2},     {2, 2, 8, 4, 1, 4}, {2, 2, 8, 11, 2, 8},
        {1, 1, 8, 9, 8, 8}, {1, 1, 1, 1000, 1, 1}, {2, 3, 4, 1000, 4, 24}, {1, 1, 8, 8, 8, 8}, {3, 1, 8, 6, 2, 6},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct plan_facts f = usual;
        struct layout l;

        f.tp = t[i].tp;
        f.pp = t[i].pp;
        f.virtual_workers = t[i].v;
        assert_int_equal(plan_layout(&f, t[i].devices, &l, NULL, NULL), 0);
        assert_int_equal(l.dp, t[i].dp);
        assert_int_equal(l.world, t[i].world);
        assert_int_equal(l.world, l.tp * l.pp * l.cp * l.dp);
    }
}

static void an_impossible_job_names_each_reason(void **state)
{
    static const struct {
        struct plan_facts f;
        int devices, code;
        const char *first;
        size_t n;
    } t[] = {
        {{.tp = 4, .virtual_workers = 8, .sequences = 32, .heads = 6, .layers = 6},
         8,
         -EINVAL,
         "heads-not-divisible",
         1},
        {{.pp = 7, .virtual_workers = 8, .sequences = 32, .heads = 6, .layers = 6}, 8, -EINVAL, "too-few-layers", 1},
        {{.tp = 2, .cp = 4, .virtual_workers = 8, .sequences = 32}, 7, -ENOSPC, "too-few-devices", 1},
        {{.virtual_workers = 0, .sequences = 32}, 8, -EINVAL, "no-virtual-workers", 1},
        {{.virtual_workers = 5, .sequences = 32}, 8, -EINVAL, "batch-not-divisible", 1},
        {{.virtual_workers = 8, .sequences = 32, .micro = 3}, 8, -EINVAL, "micro-not-divisible", 1},
        {{.tp = 5, .pp = 9, .virtual_workers = 5, .sequences = 32, .heads = 6, .layers = 6},
         1,
         -EINVAL,
         "heads-not-divisible",
         3},
        {{.tp = -1, .virtual_workers = 1, .sequences = 1}, 8, -EINVAL, "layout-out-of-range", 1},
        {{.tp = 1000, .pp = 1000, .virtual_workers = 1, .sequences = 1}, 8, -EINVAL, "layout-out-of-range", 1},
        {{.tp = 2, .pp = 2, .virtual_workers = 8, .sequences = 32}, 3, -ENOSPC, "too-few-devices", 1},
        {{.virtual_workers = 8, .sequences = 32}, 0, -ENOSPC, "too-few-devices", 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct layout l = {.tp = 77};
        struct plan_reasons why;
        struct merr err;

        assert_int_equal(plan_layout(&t[i].f, t[i].devices, &l, &why, &err), t[i].code);
        assert_string_equal(why.v[0].code, t[i].first);
        assert_int_equal(why.n, t[i].n);
        assert_string_equal(why.v[0].text, err.text);
        assert_int_equal(l.tp, 77);
    }
}

static void replicas_share_the_leaves_without_gap_or_overlap(void **state)
{
    (void)state;
    for (int v = 1; v <= 17; v++)
        for (int dp = 1; dp <= v; dp++) {
            int at = 0;

            for (int r = 0; r < dp; r++) {
                int begin, end;

                plan_leaves(v, dp, r, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end > begin);
                at = end;
            }
            assert_int_equal(at, v);
        }
}

static void more_devices_than_this_bring_nothing(void **state)
{
    struct plan_facts f = usual;
    struct layout l;

    (void)state;
    f.tp = 2;
    assert_int_equal(plan_layout(&f, 16, &l, NULL, NULL), 0);
    assert_int_equal(l.world, 16);
    assert_int_equal(plan_layout(&f, 100, &l, NULL, NULL), 0);
    assert_int_equal(l.world, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_replicas_that_fit_are_chosen),
        cmocka_unit_test(an_impossible_job_names_each_reason),
        cmocka_unit_test(replicas_share_the_leaves_without_gap_or_overlap),
        cmocka_unit_test(more_devices_than_this_bring_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
