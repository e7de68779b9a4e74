#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compress/group.h"
#include "tests/unit/compress/data.h"

#define N 6000
#define ROOM (4 * N)
#define GUARD 0x5A

static float x[N], y[N], z[N];
static uint8_t block[ROOM], other[ROOM];
static const struct codec_site site = {.seed = 11, .tensor = 3, .step = 9, .micro = 2, .offset = 4096};

static void fill(enum data_kind kind, uint64_t seed)
{
    for (size_t i = 0; i < N; i++)
        x[i] = data_value(kind, seed, i);
}

static size_t up16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static void codecs_are_found_by_name_and_id_and_others_refused(void **state)
{
    const struct codec *c;
    static const char *const absent[] = {"none", "auto", "sdp4bit", "optq", "plane"};
    const struct codec *got = NULL;
    struct merr err;

    (void)state;
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++) {
        assert_int_equal(codec_by_name(codec_name(c), &got, &err), 0);
        assert_ptr_equal(got, c);
    }
    for (size_t i = 0; i < COUNT(absent); i++) {
        got = NULL;
        assert_int_equal(codec_by_name(absent[i], &got, &err), -ENOTSUP);
        assert_non_null(strstr(err.text, absent[i]));
        assert_null(got);
    }
    assert_int_equal(codec_by_name("r9", &got, &err), -EINVAL);
    assert_string_equal(err.text, "no codec is named 'r9'; codecs are r8, r6, r4, g8, g4, hs8, hs4, qwd8, qwd4, t8, "
                                  "t8-paper, t8-g64, t8-g256, t8-e5m2");
}

/* The fixed vector on which implementations are compared. */
static void the_fixed_vector_has_the_published_codes(void **state)
{
    static const int8_t r8[8] = {-37, 114, 23, -34, -56, 22, -31, 5};
    static const struct {
        const char *name;
        double nmse, within;
    } want[] = {
        {"r8", 4.28e-5, 0.005e-5}, {"g8", 1.49e-5, 0.005e-5},       {"g4", 4.90e-3, 0.005e-3},
        {"t8", 5.30e-4, 0.005e-4}, {"t8-paper", 5.30e-4, 0.005e-4},
    };
    const struct codec *c;
    struct merr err;
    float s, alpha;
    uint32_t flags = 0;

    (void)state;
    for (int i = 0; i < 128; i++)
        x[i] = (float)(37 * i % 101 - 50) / 50;
    for (size_t k = 0; k < COUNT(want); k++) {
        assert_int_equal(codec_by_name(want[k].name, &c, &err), 0);
        assert_int_equal(codec_encode(c, NULL, CODEC_F32, x, 128, block), 0);
        assert_int_equal(codec_decode(c, block, codec_size(c, 128), CODEC_F32, y, 128, &flags, &err), 0);
        assert_true(fabs(data_nmse(x, y, 128) - want[k].nmse) <= want[k].within);
        if (k == 0) {
            assert_memory_equal(block, r8, sizeof(r8));
            s = group_float((uint32_t)block[128] << 16 | (uint32_t)block[129] << 24);
            assert_true(fabsf(s - 0.01269531f) < 5e-9f);
        }
    }
    memcpy(&s, block + 128, 4);
    memcpy(&alpha, block + 132, 4);
    assert_true(fabsf(alpha - 767.6531f) < 1e-3f && fabsf(s - 4.5890694f) < 5e-6f);
}

/* Sizes by the formula, for every length, with untouched neighbours. */
static void a_block_has_the_size_of_its_formula_and_keeps_to_it(void **state)
{
    const struct codec *c;

    (void)state;
    fill(DATA_NORMAL, 1);
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++) {
        size_t bits = c->bits, scale = c->scale == SCALE_BF16 ? 2 : c->scale == SCALE_F32 ? 4 : 8;

        for (size_t n = 0; n <= 4096; n += n < 300 || n > 4000 ? 1 : 37) {
            size_t codes = bits == 6 ? 3 * ((n + 3) / 4) : (n * bits + 7) / 8;
            size_t len = up16(codes) + up16(scale * ((n + c->group - 1) / c->group)) + 16;
            struct merr err;
            uint32_t flags = 0;

            assert_int_equal(codec_size(c, n), len);
            memset(block, GUARD, len + 64);
            memset(y, GUARD, (n + 16) * sizeof(y[0]));
            assert_int_equal(codec_encode(c, &site, CODEC_F32, x, n, block + 32), 0);
            assert_int_equal(codec_decode(c, block + 32, len, CODEC_F32, y, n, &flags, &err), 0);
            for (size_t i = 0; i < 32; i++)
                assert_true(block[i] == GUARD && block[32 + len + i] == GUARD);
            for (size_t i = 0; i < 16 * sizeof(y[0]); i++)
                assert_true(((uint8_t *)(y + n))[i] == GUARD);
            assert_true(n == 0 || data_nmse(x, y, n) < (n < 300 ? 0.5 : 0.1)); /* a chance of some values is rough */
            assert_int_equal(flags, 0);
        }
    }
}

static uint32_t chance = 2463534242u;

static uint32_t rnd(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 17;
    chance ^= chance << 5;
    return chance;
}

/* A run of numbers of all kinds: ordinary, zeros, huge, tiny, now and then not finite. */
static size_t fill_wild(void)
{
    size_t n = 1 + rnd() % N, i = 0;

    while (i < n) {
        size_t len = 1 + rnd() % 700;
        unsigned kind = rnd() % 8;
        float size = kind == 0 ? 0 : kind == 1 ? 1e37f : kind == 2 ? 1e-38f : kind == 3 ? 1e-44f : 1;

        for (size_t k = 0; k < len && i < n; k++, i++) {
            x[i] = data_value((enum data_kind)(rnd() % DATA_KINDS), chance, i) * size;
            if (kind == 4 && rnd() % 64 == 0)
                x[i] = rnd() % 2 ? NAN : -INFINITY;
        }
    }
    return n;
}

/* All of it, by one path: encode, decode, reduce, reduce and encode, in both types. */
static void run_all(const struct codec *c, size_t n, const char *path, uint8_t *blocks, uint8_t *again, float *out)
{
    struct codec_site s = site;
    size_t len = codec_size(c, n);
    const void *list[3] = {block, NULL, block};
    struct codec_parts parts = {.blocks = list, .n = 3, .len = len, .own = x, .own_type = CODEC_F32};
    uint16_t *half = (uint16_t *)(out + 2 * N);
    struct merr err;
    uint32_t flags = 0;

    assert_int_equal(codec_use(path), 0);
    s.offset = n % 2 ? 4096 : 4100;
    (void)codec_encode(c, &s, CODEC_F32, x, n, blocks);
    memcpy(block, blocks, len);
    assert_int_equal(codec_decode(c, blocks, len, CODEC_F32, out, n, &flags, &err), 0);
    assert_int_equal(codec_decode_reduce(c, &parts, CODEC_F32, out + N, n, &flags, &err), 0);
    assert_int_equal(codec_decode_reduce_encode(c, &parts, c, &s, again, n, &flags, &err), 0);
    assert_int_equal(codec_decode(c, again, len, CODEC_BF16, half, n, &flags, &err), 0);
    (void)codec_encode(c, &s, CODEC_BF16, half, n, blocks + len);
    for (size_t i = 0; i < n; i++)
        assert_true(isfinite(out[i]) && isfinite(out[N + i]));
}

static void each_path_makes_the_bits_of_the_plain_twin(void **state)
{
    const struct codec *c;
    const char *path;
    static uint8_t plain[ROOM], fast[ROOM], plain2[ROOM], fast2[ROOM];
    static float plain_out[3 * N], fast_out[3 * N];
    int rounds = getenv("MUSTER_TEST_LONG") ? 400 : 25;

    (void)state;
    print_message("# seed %u\n", chance);
    for (size_t i = 0; (path = codec_path_at(i)) != NULL; i++)
        print_message("# %s %s\n", path, codec_path_at(i + 1) ? "against plain" : "against itself");
    for (int round = 0; round < rounds; round++) {
        size_t n = fill_wild();

        for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++) {
            memset(plain_out, 0, sizeof(plain_out));
            run_all(c, n, "plain", plain, plain2, plain_out);
            for (size_t i = 0; strcmp(path = codec_path_at(i), "plain") != 0; i++) {
                memset(fast_out, 0, sizeof(fast_out));
                run_all(c, n, path, fast, fast2, fast_out);
                assert_memory_equal(plain, fast, 2 * codec_size(c, n));
                assert_memory_equal(plain2, fast2, codec_size(c, n));
                assert_memory_equal(plain_out, fast_out, sizeof(plain_out));
            }
        }
    }
    assert_int_equal(codec_use(NULL), 0);
    assert_string_equal(codec_path(), codec_path_at(0));
}

static void zeros_stay_zeros_and_signs_mirror(void **state)
{
    const struct codec *c;
    static const size_t lens[] = {1, 31, 32, 127, 128, 129, 2048, 2100};
    struct merr err;
    uint32_t flags = 0;

    (void)state;
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++)
        for (size_t k = 0; k < COUNT(lens); k++) {
            size_t n = lens[k];

            memset(x, 0, sizeof(x));
            assert_int_equal(codec_encode(c, &site, CODEC_F32, x, n, block), 0);
            assert_int_equal(codec_decode(c, block, codec_size(c, n), CODEC_F32, y, n, &flags, &err), 0);
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == 0);
            if (codec_is_stochastic(c))
                continue;
            fill(DATA_T3, 5);
            (void)codec_encode(c, NULL, CODEC_F32, x, n, block);
            for (size_t i = 0; i < n; i++)
                x[i] = -x[i];
            (void)codec_encode(c, NULL, CODEC_F32, x, n, other);
            assert_int_equal(codec_decode(c, block, codec_size(c, n), CODEC_F32, y, n, &flags, &err), 0);
            assert_int_equal(codec_decode(c, other, codec_size(c, n), CODEC_F32, z, n, &flags, &err), 0);
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == -z[i]);
        }
    assert_int_equal(flags, 0);
}

static void what_is_not_finite_raises_the_flag_and_harms_no_neighbour(void **state)
{
    const struct codec *c;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    static const size_t at[] = {0, 77, 2047, 2048, 2999};

    (void)state;
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++)
        for (size_t k = 0; k < COUNT(odd); k++)
            for (size_t a = 0; a < COUNT(at); a++) {
                const void *list[2] = {NULL, block};
                struct codec_parts parts = {.blocks = list, .n = 2, .len = codec_size(c, 3000), .own = x};
                struct merr err;
                uint32_t flags = 0;

                fill(DATA_NORMAL, 3);
                assert_int_equal(codec_encode(c, &site, CODEC_F32, x, 3000, block), 0);
                x[at[a]] = odd[k];
                assert_int_equal(codec_decode_reduce(c, &parts, CODEC_F32, y, 3000, &flags, &err), 0);
                assert_int_equal(flags, CODEC_NONFINITE);
                flags = 0;
                assert_int_equal(codec_encode(c, &site, CODEC_F32, x, 3000, block), CODEC_NONFINITE);
                assert_int_equal(codec_decode(c, block, codec_size(c, 3000), CODEC_F32, y, 3000, &flags, &err), 0);
                assert_int_equal(flags, CODEC_NONFINITE);
                x[at[a]] = 0;
                assert_true(data_nmse(x, y, 3000) < 0.06);
            }
}

static void huge_and_tiny_groups_keep_their_precision(void **state)
{
    const struct codec *c;
    static const float sizes[] = {1e-37f, 1e-30f, 1e-4f, 1e4f, 1e30f, 1e36f};

    (void)state;
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++) {
        double at_one = 0;

        for (size_t k = 0; k <= COUNT(sizes); k++) {
            double nmse;
            struct merr err;
            uint32_t flags = 0;

            if (c->scale == SCALE_PAPER && k && (sizes[k - 1] < 1e-9f || sizes[k - 1] > 1e9f))
                continue; /* the two scales of the paper have floors and ceilings */
            fill(DATA_NORMAL, 8);
            for (size_t i = 0; k && i < N; i++)
                x[i] *= sizes[k - 1];
            assert_int_equal(codec_encode(c, &site, CODEC_F32, x, N, block), 0);
            assert_int_equal(codec_decode(c, block, codec_size(c, N), CODEC_F32, y, N, &flags, &err), 0);
            for (size_t i = 0; i < N; i++) { /* squares of these are beyond double's comfort, not of ratios */
                x[i] = k ? (float)((double)x[i] / (double)sizes[k - 1]) : x[i];
                y[i] = k ? (float)((double)y[i] / (double)sizes[k - 1]) : y[i];
            }
            nmse = data_nmse(x, y, N);
            at_one = k ? at_one : nmse;
            assert_true(nmse < 1.05 * at_one && nmse > 0.95 * at_one);
        }
    }
}

static void sums_beyond_f32_raise_the_flag_and_are_no_nan(void **state)
{
    const struct codec *c;

    (void)state;
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++) {
        const void *list[3] = {block, block, block};
        struct codec_parts parts = {.blocks = list, .n = 3, .len = codec_size(c, 300)};
        struct merr err;
        uint32_t flags = 0;

        for (size_t i = 0; i < 300; i++)
            x[i] = i % 2 ? 3e38f : -3e38f;
        (void)codec_encode(c, &site, CODEC_F32, x, 300, block);
        assert_int_equal(codec_decode_reduce(c, &parts, CODEC_F32, y, 300, &flags, &err), 0);
        assert_int_equal(codec_decode_reduce_encode(c, &parts, c, &site, other, 300, &flags, &err), 0);
        assert_int_equal(codec_decode(c, other, parts.len, CODEC_F32, z, 300, &flags, &err), 0);
        for (size_t i = 0; i < 300; i++)
            assert_true(isfinite(y[i]) && isfinite(z[i]));
    }
}

static void coding_again_what_was_decoded_changes_no_code(void **state)
{
    static const char *const names[] = {"g8", "g4"};

    (void)state;
    for (size_t k = 0; k < COUNT(names); k++) {
        const struct codec *c;
        struct merr err;
        uint32_t flags = 0;

        assert_int_equal(codec_by_name(names[k], &c, &err), 0);
        fill(DATA_LAPLACE, 4);
        (void)codec_encode(c, NULL, CODEC_F32, x, N, block);
        assert_int_equal(codec_decode(c, block, codec_size(c, N), CODEC_F32, y, N, &flags, &err), 0);
        (void)codec_encode(c, NULL, CODEC_F32, y, N, other);
        assert_memory_equal(block, other, N * c->bits / 8);
        for (size_t g = 0; g < N / 128; g++) {
            int32_t a, b;

            memcpy(&a, block + up16(N * c->bits / 8) + 4 * g, 4);
            memcpy(&b, other + up16(N * c->bits / 8) + 4 * g, 4);
            assert_true(abs(a - b) <= 1);
        }
    }
}

static void rounding_by_chance_depends_on_the_place_alone(void **state)
{
    const struct codec *c;
    struct codec_site s = site, part = site;
    struct merr err;

    (void)state;
    assert_int_equal(codec_by_name("hs4", &c, &err), 0);
    fill(DATA_NORMAL, 6);
    (void)codec_encode(c, &s, CODEC_F32, x, 512, block);
    part.offset += 256;
    (void)codec_encode(c, &part, CODEC_F32, x + 256, 256, other);
    assert_memory_equal(block + 128, other, 128);
    s.micro++;
    (void)codec_encode(c, &s, CODEC_F32, x, 512, other);
    assert_true(memcmp(block, other, 256) != 0);
}

static void damage_is_refused_by_name(void **state)
{
    const struct codec *c;

    (void)state;
    fill(DATA_NORMAL, 2);
    for (size_t entry = 0; (c = codec_at(entry)) != NULL; entry++) {
        size_t len = codec_size(c, 2100), scales = up16(c->bits == 6 ? 1575 : 2100 * c->bits / 8u);
        const struct {
            size_t at;
            uint8_t value;
            const char *words;
        } damage[] = {
            {len - 16, 2, "unknown flags"},
            {len - 12, 99, "got one of id 99"},
            {len - 11, 9, "version 9"},
            {len - 8, 1, "values, not 2100"},
            {len - 10, 1, "unknown flags"},
            {scales + (c->scale == SCALE_BF16 ? 1 : 3), 0xFF, "scale of group 0"},
            {scales + (c->scale == SCALE_BF16 ? 1 : 3), 0x7F, NULL}, /* 2^127 or NaN: by its other bits */
            {6,
             c->fp8         ? 0x7F
             : c->bits == 8 ? 0x80
             : c->bits == 6 ? 0x20
                            : 0x88,
             "no encoder writes"},
        };
        struct merr err;
        uint32_t flags = 0;

        for (size_t i = 0; i < COUNT(damage); i++) {
            const void *list[2] = {other, block};
            struct codec_parts parts = {.blocks = list, .n = 2, .len = len};
            int r;

            (void)codec_encode(c, &site, CODEC_F32, x, 2100, block);
            memcpy(other, block, len);
            block[damage[i].at] = damage[i].value;
            memcpy(z, y, sizeof(z));
            r = codec_decode(c, block, len, CODEC_F32, y, 2100, &flags, &err);
            if (!damage[i].words) {
                assert_true(r == 0 || r == -EBADMSG);
                continue;
            }
            assert_int_equal(r, -EBADMSG);
            assert_non_null(strstr(err.text, damage[i].words));
            assert_non_null(strstr(err.text, c->name));
            assert_int_equal(codec_decode_reduce(c, &parts, CODEC_F32, y, 2100, &flags, &err), -EBADMSG);
            assert_memory_equal(err.text, "block 1 of 2: ", 14);
            memcpy(y, z, sizeof(y));
            assert_int_equal(codec_decode_add(c, block, len, CODEC_F32, z, 2100, &flags, &err), -EBADMSG);
            assert_memory_equal(y, z, sizeof(y));
        }
        assert_int_equal(codec_decode(c, block, len - 1, CODEC_F32, y, 2100, &flags, &err), -EBADMSG);
        assert_int_equal(codec_decode(c, block, len, CODEC_F32, y, 2000, &flags, &err), -EBADMSG);
        assert_int_equal(codec_decode(c, block, len, CODEC_F32, y, SIZE_MAX, &flags, &err), -EBADMSG);
        assert_int_equal(flags, 0);
    }
}

static void sums_are_not_coded_in_another_transform(void **state)
{
    const struct codec *r8, *hs4;
    const void *list[1] = {block};
    struct codec_parts parts = {.blocks = list, .n = 1};
    struct merr err;
    uint32_t flags = 0;

    (void)state;
    assert_int_equal(codec_by_name("r8", &r8, &err), 0);
    assert_int_equal(codec_by_name("hs4", &hs4, &err), 0);
    parts.len = codec_size(r8, 256);
    (void)codec_encode(r8, NULL, CODEC_F32, x, 256, block);
    assert_int_equal(codec_decode_reduce_encode(r8, &parts, hs4, &site, other, 256, &flags, &err), -EINVAL);
    assert_non_null(strstr(err.text, "r8"));
    assert_int_equal(codec_use("avx1024"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_are_found_by_name_and_id_and_others_refused),
        cmocka_unit_test(the_fixed_vector_has_the_published_codes),
        cmocka_unit_test(a_block_has_the_size_of_its_formula_and_keeps_to_it),
        cmocka_unit_test(each_path_makes_the_bits_of_the_plain_twin),
        cmocka_unit_test(zeros_stay_zeros_and_signs_mirror),
        cmocka_unit_test(what_is_not_finite_raises_the_flag_and_harms_no_neighbour),
        cmocka_unit_test(huge_and_tiny_groups_keep_their_precision),
        cmocka_unit_test(sums_beyond_f32_raise_the_flag_and_are_no_nan),
        cmocka_unit_test(coding_again_what_was_decoded_changes_no_code),
        cmocka_unit_test(rounding_by_chance_depends_on_the_place_alone),
        cmocka_unit_test(damage_is_refused_by_name),
        cmocka_unit_test(sums_are_not_coded_in_another_transform),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
