#include "tests/unit/test.h"

#include "worker/engine/comm/mesh.h"

static void every_rank_has_its_own_place_with_tp_fastest_then_cp_then_dp_then_pp(void **state)
{
    (void)state;
    for (int layout = 0; layout < 4 * 3 * 3 * 4; layout++) {
        int tp = 1 + layout % 4, cp = 1 + layout / 4 % 3, dp = 1 + layout / 12 % 3, pp = 1 + layout / 36;

        for (int r = 0; r < tp * cp * dp * pp; r++) {
            struct mesh m;

            mesh_init(&m, tp, cp, dp, pp, r);
            assert_int_equal(mesh_rank(&m, m.tp_index, m.cp_index, m.dp_index, m.pp_index), r);
            assert_int_equal(m.tp_index + tp * (m.cp_index + cp * (m.dp_index + dp * m.pp_index)), r);
            assert_int_equal(m.first, r < tp * cp * dp);
            assert_int_equal(m.last, r >= tp * cp * dp * (pp - 1));
        }
    }
}

static void groups_hold_this_rank_at_its_index(void **state)
{
    struct mesh m;
    int ranks[8];

    (void)state;
    for (int r = 0; r < 2 * 5 * 3 * 4; r++) {
        mesh_init(&m, 2, 5, 3, 4, r);
        assert_int_equal(mesh_tp_ranks(&m, ranks), 2);
        assert_int_equal(ranks[m.tp_index], r);
        assert_int_equal(ranks[1], ranks[0] + 1);
        assert_int_equal(mesh_cp_ranks(&m, ranks), 5);
        assert_int_equal(ranks[m.cp_index], r);
        assert_int_equal(ranks[1], ranks[0] + 2);
        assert_int_equal(mesh_dp_ranks(&m, ranks), 3);
        assert_int_equal(ranks[m.dp_index], r);
        assert_int_equal(mesh_pp_ranks(&m, ranks), 4);
        assert_int_equal(ranks[m.pp_index], r);
    }
}

static void neighbours_share_keys_and_values(void **state)
{
    struct mesh m;
    int ranks[2];

    (void)state;
    for (int r = 0; r < 8; r++) {
        mesh_init(&m, 4, 1, 2, 1, r);
        assert_int_equal(mesh_kv_ranks(&m, 2, ranks), 2);
        assert_int_equal(ranks[m.tp_index % 2], r);
        assert_int_equal(ranks[0] / 2, ranks[1] / 2);
    }
}

static void only_the_ends_of_a_pipeline_are_a_pair(void **state)
{
    struct mesh m;
    int pair[2];

    (void)state;
    mesh_init(&m, 2, 1, 1, 1, 1);
    assert_int_equal(mesh_pair_ranks(&m, pair), 0);
    mesh_init(&m, 2, 1, 1, 3, 3);
    assert_int_equal(mesh_pair_ranks(&m, pair), 0);
    mesh_init(&m, 2, 1, 1, 3, 1);
    assert_int_equal(mesh_pair_ranks(&m, pair), 2);
    assert_int_equal(pair[0], 1);
    assert_int_equal(pair[1], 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_its_own_place_with_tp_fastest_then_cp_then_dp_then_pp),
        cmocka_unit_test(groups_hold_this_rank_at_its_index),
        cmocka_unit_test(neighbours_share_keys_and_values),
        cmocka_unit_test(only_the_ends_of_a_pipeline_are_a_pair),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
