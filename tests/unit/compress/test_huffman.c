/* Frames of Huffman codes alone: zstd reads them, they are as short as such codes get, and damage is found. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "compress/huffman.h"

#define MOST 600000
#define ROUNDS 400

static uint8_t in[MOST], out[MOST + MOST / 100 + 64], back[MOST];
static uint64_t rng;

static size_t rnd(size_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (rng >> 11) % n;
}

enum { EVEN, STEEP, RARE, FALLING, CHANGING, KINDS };

/* n bytes of range values from lowest on. */
static void fill(int kind, size_t n, size_t lowest, size_t range)
{
    for (size_t i = 0; i < n; i++) {
        size_t x = rnd(range);

        for (int k = 0; kind == STEEP && k < 6; k++)
            x = x < rnd(range) ? x : rnd(range);
        if ((kind == RARE && rnd(100)) || (kind == CHANGING && i / 100000 % 2))
            x = 0;
        if (kind == FALLING)
            x = (size_t)__builtin_ctzll(rng >> 20 | (uint64_t)1 << 40) % range;
        in[i] = (uint8_t)(lowest + x);
    }
}

static double entropy_bytes(size_t n)
{
    double count[256] = {0}, bits = 0;

    for (size_t i = 0; i < n; i++)
        count[in[i]]++;
    for (int s = 0; s < 256; s++)
        bits -= count[s] > 0 ? count[s] * log2(count[s] / (double)n) : 0;
    return bits / 8;
}

static void zstd_and_we_read_what_we_wrote(void **state)
{
    struct huffman *h = huffman_new();
    const char *seed = getenv("MUSTER_SEED");

    (void)state;
    assert_non_null(h);
    rng = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) | 1;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)rng);
    for (int round = 0; round < ROUNDS; round++) {
        size_t range = 1 + rnd(129), n = HUFFMAN_LEAST + rnd(round % 20 ? 20000 : MOST - HUFFMAN_LEAST), len;

        fill(round % KINDS, n, rnd(130 - range), range);
        len = huffman_pack(h, in, n, out, n + n / 100 + 64);
        assert_true(len > 0 && len <= n + n / 200 + 64);
        memset(back, 0x55, n);
        assert_int_equal(ZSTD_decompress(back, n, out, len), n);
        assert_memory_equal(in, back, n);
        memset(back, 0x55, n);
        assert_int_equal(huffman_unpack(h, out, len, back, n), 0);
        assert_memory_equal(in, back, n);
        assert_int_equal(huffman_unpack(h, out, len, back, n - 1), -EBADMSG);
        assert_int_equal(huffman_unpack(h, out, len - 1, back, n), -EBADMSG);
    }
    huffman_free(h);
}

static void a_last_block_may_be_of_any_length(void **state)
{
    const size_t block = 128u << 10;
    struct huffman *h = huffman_new();

    (void)state;
    assert_non_null(h);
    for (size_t n = block + 1; n < block + 20; n++) {
        uint8_t *exact = malloc(n); /* AddressSanitizer sees what lies behind it */
        size_t len;

        assert_non_null(exact);
        fill(STEEP, n, 100, 20);
        memcpy(exact, in, n);
        len = huffman_pack(h, exact, n, out, 2 * n);
        assert_true(len > 0 && len < n);
        assert_int_equal(ZSTD_decompress(back, n, out, len), n);
        assert_memory_equal(exact, back, n);
        assert_int_equal(huffman_unpack(h, out, len, exact, n), 0);
        assert_memory_equal(exact, back, n);
        free(exact);
    }
    huffman_free(h);
}

static void damage_is_refused_or_read_as_zstd_reads_it(void **state)
{
    struct huffman *h = huffman_new();
    int refused = 0;

    (void)state;
    rng = 77;
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = 5000, len, got;

        fill(round % KINDS, n, 3, 60);
        len = huffman_pack(h, in, n, out, sizeof(out));
        out[round % 2 ? rnd(len) : rnd(60) % len] ^= (uint8_t)(1u << rnd(8));
        if (huffman_unpack(h, out, len, back, n) < 0) {
            refused++;
            continue;
        }
        got = ZSTD_decompress(in, sizeof(in), out, len);
        assert_int_equal(got, n);
        assert_memory_equal(in, back, n);
    }
    assert_true(refused > ROUNDS / 10);
    huffman_free(h);
}

static void codes_are_within_a_twentieth_of_entropy(void **state)
{
    struct huffman *h = huffman_new();

    (void)state;
    rng = 5;
    for (size_t range = 4; range <= 128; range *= 2) {
        fill(STEEP, MOST, 0, range);
        assert_true((double)huffman_pack(h, in, MOST, out, sizeof(out)) < 1.05 * entropy_bytes(MOST));
    }
    huffman_free(h);
}

static void what_it_cannot_code_it_leaves_to_others(void **state)
{
    struct huffman *h = huffman_new();

    (void)state;
    rng = 9;
    fill(EVEN, MOST, 0, 129);
    assert_int_equal(huffman_pack(h, in, HUFFMAN_LEAST - 1, out, sizeof(out)), 0);
    assert_true(huffman_pack(h, in, HUFFMAN_LEAST, out, sizeof(out)) > 0);
    assert_int_equal(huffman_pack(h, in, MOST, out, MOST / 2), 0);
    in[MOST / 2] = 129;
    assert_int_equal(huffman_pack(h, in, MOST, out, sizeof(out)), 0);
    huffman_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zstd_and_we_read_what_we_wrote),
        cmocka_unit_test(a_last_block_may_be_of_any_length),
        cmocka_unit_test(damage_is_refused_or_read_as_zstd_reads_it),
        cmocka_unit_test(codes_are_within_a_twentieth_of_entropy),
        cmocka_unit_test(what_it_cannot_code_it_leaves_to_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
