#include "tests/unit/test.h"

#include <string.h>

#include "scheduler/sequence/zigzag.h"

#define TOKENS_MAX 100

static void each_token_is_in_one_piece_of_one_rank(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++)
        for (int tokens = 0; tokens <= TOKENS_MAX; tokens++) {
            char seen[TOKENS_MAX] = "";

            for (int i = 0; i < ranks * ZIGZAG_PIECES; i++) {
                struct zigzag z = zigzag_piece(tokens, ranks, i / ZIGZAG_PIECES, i % ZIGZAG_PIECES);

                assert_true(z.start >= 0 && z.tokens >= 0 && z.start + z.tokens <= tokens);
                assert_true(z.tokens <= zigzag_size(tokens, ranks));
                for (int64_t t = z.start; t < z.start + z.tokens; t++)
                    assert_int_equal(seen[t]++, 0);
            }
            for (int t = 0; t < tokens; t++)
                assert_int_equal(seen[t], 1);
        }
}

static void pieces_of_a_rank_come_in_the_order_of_the_sequence(void **state)
{
    static const struct {
        int rank, piece, start, tokens;
    } t[] = {
        {0, 0, 0, 3}, {1, 0, 3, 3}, {2, 0, 6, 3}, {2, 1, 9, 3}, {1, 1, 12, 3}, {0, 1, 15, 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct zigzag z = zigzag_piece(16, 3, t[i].rank, t[i].piece);

        assert_int_equal(z.start, t[i].start);
        assert_int_equal(z.tokens, t[i].tokens);
    }
}

static void ranks_have_the_same_area_under_the_diagonal_where_pieces_come_out_even(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            int64_t all = 10 * 2 * ranks, area = 0;

            for (int i = 0; i < ZIGZAG_PIECES; i++) {
                struct zigzag z = zigzag_piece(all, ranks, rank, i);

                area += z.tokens * (2 * z.start + z.tokens + 1) / 2;
            }
            assert_int_equal(area * ranks, all * (all + 1) / 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_is_in_one_piece_of_one_rank),
        cmocka_unit_test(pieces_of_a_rank_come_in_the_order_of_the_sequence),
        cmocka_unit_test(ranks_have_the_same_area_under_the_diagonal_where_pieces_come_out_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
