#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/chunk.h"

static uint8_t in[CHUNK_BYTES_MAX], out[CHUNK_BYTES_MAX], back[CHUNK_BYTES_MAX];
static uint32_t seed = 12345;

static uint32_t rnd(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* Like trained weights: about normal, small. */
static void fill_weights(void)
{
    for (size_t i = 0; i < sizeof(in) / 4; i++) {
        float f = 0;

        for (int k = 0; k < 6; k++)
            f += (float)rnd() / (float)(1 << 24) - 0.5f;
        f *= 0.02f;
        memcpy(in + 4 * i, &f, 4);
    }
}

static void every_codec_gives_back_what_it_took(void **state)
{
    static const size_t lens[] = {1, 2, 3, 4, 7, 8, 9, 63, 64, 4096, 4099, 65536, CHUNK_BYTES_MAX - 4, CHUNK_BYTES_MAX};
    static const size_t sizes[] = {1, 2, 4, 8};
    struct chunk_coder *c = chunk_coder_new();

    (void)state;
    assert_non_null(c);
    for (int kind = 0; kind < 3; kind++) {
        fill_weights();
        for (size_t i = 0; kind && i < sizeof(in); i++)
            in[i] = kind == 1 ? 0 : (uint8_t)rnd();
        for (int codec = CHUNK_RAW; codec <= CHUNK_PLANE; codec++)
            for (size_t s = 0; s < COUNT(sizes); s++)
                for (size_t i = 0; i < COUNT(lens); i++) {
                    struct chunk_form form;

                    chunk_encode(c, (enum chunk_codec)codec, sizes[s], 1, in, lens[i], out, &form);
                    assert_true(form.len <= lens[i]);
                    if (form.codec == CHUNK_RAW)
                        memcpy(out, in, lens[i]);
                    memset(back, 0x55, lens[i]);
                    assert_int_equal(chunk_decode(c, &form, sizes[s], out, back, lens[i]), 0);
                    assert_memory_equal(in, back, lens[i]);
                }
    }
    chunk_coder_free(c);
}

/* Byte by byte: what the format says, of lengths around those that are taken at once. */
static void planes_hold_the_bytes_of_all_elements_from_the_most_significant_down(void **state)
{
    enum { LONGEST = 70 };

    (void)state;
    for (size_t i = 0; i < 8 * LONGEST + 8; i++)
        in[i] = (uint8_t)(i * 167 + (i >> 3) * 29 + 5);
    for (size_t esize = 2; esize <= 8; esize *= 2) {
        for (size_t n = 0; n <= LONGEST * esize + 1; n++) {
            size_t count = n / esize;

            for (int rotate = 0; rotate < 2; rotate++) {
                chunk_split(esize, rotate, in, out, n);
                for (size_t i = 0; i < count * esize; i++) {
                    size_t plane = i / count, e = i % count, from = esize - 1 - plane;
                    const uint8_t *x = in + e * esize;
                    int carry = x[from > 0 ? from - 1 : esize - 1] >> 7; /* of the byte below, round */

                    assert_int_equal(out[i], rotate ? (uint8_t)(x[from] << 1 | carry) : x[from]);
                }
                assert_memory_equal(out + count * esize, in + count * esize, n % esize);
                chunk_join(esize, rotate, out, back, n);
                assert_memory_equal(back, in, n);
            }
        }
    }
}

static void exponents_of_weights_shrink_and_noise_stays_raw(void **state)
{
    struct chunk_coder *c = chunk_coder_new();
    struct chunk_form form;

    (void)state;
    fill_weights();
    chunk_encode(c, CHUNK_PLANE, 4, 1, in, sizeof(in), out, &form);
    assert_int_equal(form.codec, CHUNK_PLANE);
    assert_true(form.len < sizeof(in) * 87 / 100); /* measured ratio about 1.2 */
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)rnd();
    chunk_encode(c, CHUNK_PLANE, 4, 1, in, sizeof(in), out, &form);
    assert_int_equal(form.codec, CHUNK_RAW);
    assert_int_equal(form.len, sizeof(in));
    chunk_coder_free(c);
}

static void garbage_is_refused_not_decoded(void **state)
{
    struct chunk_coder *c = chunk_coder_new();
    struct chunk_form form;
    int refused = 0;

    (void)state;
    fill_weights();
    for (int round = 0; round < 400; round++) {
        int codec = 1 + round % 3;

        chunk_encode(c, (enum chunk_codec)codec, 4, 1, in, 65536, out, &form);
        if (form.codec == CHUNK_RAW)
            continue;
        if (round % 2)
            form.len = rnd() % form.len;
        else
            out[rnd() % 64] ^= (uint8_t)(1 + rnd() % 255);
        refused += chunk_decode(c, &form, 4, out, back, 65536) == -EBADMSG;
    }
    assert_true(refused > 100); /* flips of raw planes are legal here: the chunk's own hash finds those */
    form = (struct chunk_form){.codec = 9, .len = 10};
    assert_int_equal(chunk_decode(c, &form, 4, out, back, 100), -EBADMSG);
    form = (struct chunk_form){.codec = CHUNK_RAW, .len = 10};
    assert_int_equal(chunk_decode(c, &form, 4, out, back, 100), -EBADMSG);
    assert_int_equal(chunk_decode(c, &form, 3, out, back, 10), -EBADMSG);
    chunk_coder_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_gives_back_what_it_took),
        cmocka_unit_test(planes_hold_the_bytes_of_all_elements_from_the_most_significant_down),
        cmocka_unit_test(exponents_of_weights_shrink_and_noise_stays_raw),
        cmocka_unit_test(garbage_is_refused_not_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
