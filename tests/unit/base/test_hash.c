#include "tests/unit/test.h"

#include <stdlib.h>

#include "base/hash.h"

static void known_answers_come_out(void **state)
{
    (void)state;
    assert_int_equal(hash_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(hash_crc32c_plain(0, "123456789", 9), 0xe3069283u);
    assert_true(hash_xxh3("", 0) == 0x2d06800538d394c2u);
    assert_true(hash_xxh3("123456789", 9) == 0x72dcb18b67a17dffu);
}

static void the_megabyte_pattern_has_its_known_sums(void **state)
{
    enum { N = 1 << 20 };
    uint8_t *p = malloc(N);

    (void)state;
    assert_non_null(p);
    for (size_t i = 0; i < N; i++)
        p[i] = (uint8_t)(131 * i + 7);
    assert_int_equal(hash_crc32c(0, p, N), 0x303b6490u);
    assert_true(hash_xxh3(p, N) == 0x6f7c82505ffbc516u);
    free(p);
}

static void fast_and_plain_agree_at_every_length_and_offset(void **state)
{
    uint8_t p[80];

    (void)state;
    for (size_t i = 0; i < sizeof(p); i++)
        p[i] = (uint8_t)(i * 37 + 5);
    for (size_t off = 0; off < 9; off++)
        for (size_t len = 0; len <= 64; len++)
            assert_int_equal(hash_crc32c(0x1234u, p + off, len), hash_crc32c_plain(0x1234u, p + off, len));
}

/* Long data goes through several lanes at once, whose sums are put together. */
static void fast_and_plain_agree_where_lanes_begin_and_end(void **state)
{
    enum { LANES = 3 * 1024, N = 4 * LANES + 16 };
    static const size_t around[] = {LANES - 1, LANES, LANES + 1, LANES + 7, 2 * LANES - 1, 2 * LANES, 3 * LANES + 1024};
    static uint8_t p[N];

    (void)state;
    for (size_t i = 0; i < N; i++)
        p[i] = (uint8_t)(i * i >> 3 ^ i * 101);
    for (size_t off = 0; off < 9; off++)
        for (size_t k = 0; k < COUNT(around); k++)
            assert_int_equal(hash_crc32c(0x89abcdefu, p + off, around[k]),
                             hash_crc32c_plain(0x89abcdefu, p + off, around[k]));
}

static void a_sum_in_two_parts_is_the_sum_of_the_whole(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= 9; cut++)
        assert_int_equal(hash_crc32c(hash_crc32c(0, "123456789", cut), "123456789" + cut, 9 - cut), 0xe3069283u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers_come_out),
        cmocka_unit_test(the_megabyte_pattern_has_its_known_sums),
        cmocka_unit_test(fast_and_plain_agree_at_every_length_and_offset),
        cmocka_unit_test(fast_and_plain_agree_where_lanes_begin_and_end),
        cmocka_unit_test(a_sum_in_two_parts_is_the_sum_of_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
