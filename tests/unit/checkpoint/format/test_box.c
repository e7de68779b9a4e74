/* Boxes of a tensor: cut, met and walked, each beside the plain count of elements. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/box.h"

static void a_product_is_told_only_up_to_its_limit(void **state)
{
    static const struct {
        uint64_t v[3];
        int n;
        uint64_t max, want;
        bool fits;
    } table[] = {
        {{0}, 0, 1, 1, true},
        {{3, 4}, 2, 12, 12, true},
        {{3, 4}, 2, 11, 0, false},
        {{UINT64_MAX, UINT64_MAX}, 2, UINT64_MAX, 0, false}, /* which would pass 64 bits */
        {{UINT64_MAX, 1}, 2, UINT64_MAX, UINT64_MAX, true},
        {{UINT64_MAX, UINT64_MAX, 0}, 3, 1, 0, true}, /* nothing, however long the others */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        uint64_t got = 77;
        bool fits = box_product(table[i].v, table[i].n, table[i].max, &got);

        if (fits != table[i].fits || (fits && got != table[i].want))
            fail_msg("row %zu: %d, %llu", i, fits, (unsigned long long)got);
    }
}

/* Each element of a small tensor has a number; what a box has of them is written down in order. */
#define SIDE 5
#define ALL 256

static size_t elements(const struct box *b, int ret[ALL])
{
    uint64_t volume = box_volume(b);

    for (uint64_t i = 0; i < volume; i++) {
        uint64_t left = i;
        int at = 0, scale = 1;

        for (int d = b->ndim; d-- > 0; scale *= SIDE) {
            at += (int)(b->off[d] + left % b->len[d]) * scale;
            left /= b->len[d];
        }
        ret[i] = at;
    }
    return (size_t)volume;
}

static struct box random_box(unsigned *seed, int ndim)
{
    struct box b = {.ndim = ndim};

    for (int d = 0; d < ndim; d++) {
        b.off[d] = (uint64_t)rand_r(seed) % SIDE;
        b.len[d] = 1 + (uint64_t)rand_r(seed) % (SIDE - b.off[d]);
    }
    return b;
}

static void a_range_is_cut_into_boxes_in_its_order(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct box b = random_box(&seed, rand_r(&seed) % 4);
        int whole[ALL], part[ALL];
        size_t volume = elements(&b, whole), begin = (size_t)rand_r(&seed) % (volume + 1);
        size_t end = begin + (size_t)rand_r(&seed) % (volume - begin + 1), at = begin;
        struct box_piece piece[BOX_PIECES_MAX];
        int n = box_cut(&b, begin, end, piece);

        if (n > (b.ndim ? 2 * b.ndim - 1 : 1))
            fail_msg("round %d from seed 1: %d boxes of %d dims", round, n, b.ndim);
        for (int i = 0; i < n; i++) {
            size_t k = elements(&piece[i].box, part);

            assert_int_equal(piece[i].first, at - begin);
            if (at + k > end || memcmp(part, whole + at, k * sizeof(*part)) != 0)
                fail_msg("round %d from seed 1: box %d is of other elements", round, i);
            at += k;
        }
        assert_int_equal(at, end);
    }
}

static void what_two_boxes_share_is_walked_in_runs_of_both(void **state)
{
    unsigned seed = 2;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        int ndim = rand_r(&seed) % 4, in_a[ALL], in_b[ALL], in_both[ALL];
        struct box a = random_box(&seed, ndim), b = random_box(&seed, ndim), both;
        size_t na = elements(&a, in_a), nb = elements(&b, in_b), common = 0, at = 0;
        struct box_walk w;

        for (size_t i = 0; i < na; i++)
            for (size_t k = 0; k < nb; k++)
                common += in_a[i] == in_b[k];
        assert_int_equal(box_meet(&a, &b, &both), common > 0);
        if (common == 0)
            continue;
        assert_int_equal(elements(&both, in_both), common);
        box_walk_init(&w, &a, &b, &both);
        assert_int_equal(w.runs * w.run, common);
        for (uint64_t i = 0; i < w.runs; i++) {
            uint64_t from_a, from_b;

            box_walk_at(&w, i, &from_a, &from_b);
            for (uint64_t k = 0; k < w.run; k++, at++)
                if (in_a[from_a + k] != in_both[at] || in_b[from_b + k] != in_both[at])
                    fail_msg("round %d from seed 2: run %llu", round, (unsigned long long)i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_told_only_up_to_its_limit),
        cmocka_unit_test(a_range_is_cut_into_boxes_in_its_order),
        cmocka_unit_test(what_two_boxes_share_is_walked_in_runs_of_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
