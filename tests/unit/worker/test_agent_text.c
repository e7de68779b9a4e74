#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/philox.h"
#include "worker/agent/base64.h"
#include "worker/agent/utf8.h"

static void lengths_follow_the_unicode_table(void **state)
{
    static const struct { const char *text; size_t n; int len; } table[] = {
        { "a", 1, 1 },
        { "\x7F", 1, 1 },
        { "\0", 1, 0 },
        { "\x80", 1, 0 },         /* a tail without a head */
        { "\xC1\xBF", 2, 0 },     /* U+007F in a longer form */
        { "\xC2\x80", 2, 2 },
        { "\xC2", 1, -1 },
        { "\xC2" "a", 2, 0 },
        { "\xE0\x9F\xBF", 3, 0 }, /* U+07FF in a longer form */
        { "\xE0\xA0\x80", 3, 3 },
        { "\xED\xA0\x80", 3, 0 }, /* a surrogate */
        { "\xED\x9F\xBF", 3, 3 },
        { "\xE2\x82", 2, -1 },
        { "\xF0\x8F\xBF\xBF", 4, 0 },
        { "\xF0\x90\x80\x80", 4, 4 },
        { "\xF4\x8F\xBF\xBF", 4, 4 },
        { "\xF4\x90\x80\x80", 4, 0 }, /* beyond U+10FFFF */
        { "\xF5\x80\x80\x80", 4, 0 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        assert_int_equal(utf8_length(table[i].text, table[i].n), table[i].len);
}

static void patching_keeps_the_length(void **state)
{
    char text[] = "a\xFF\xC3\xA4\xE2\x82";

    (void)state;
    utf8_patch(text, 6);
    assert_string_equal(text, "a?\xC3\xA4??");
}

static void a_cut_never_splits_a_character(void **state)
{
    static const char text[] = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z";
    static const size_t cut[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11 };

    (void)state;
    for (size_t n = 0; n < COUNT(cut); n++)
        assert_int_equal(utf8_cut(text, n), cut[n]);
}

static void base64_is_the_one_of_the_rfc(void **state)
{
    static const struct { const char *bytes, *text; } table[] = {
        { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
        { "fooba", "Zm9vYmE=" }, { "foobar", "Zm9vYmFy" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct buf b;

        buf_init(&b, 64);
        assert_int_equal(base64_encode(table[i].bytes, strlen(table[i].bytes), &b), 0);
        assert_string_equal(buf_text(&b), table[i].text);
        buf_reset(&b);
        assert_int_equal(base64_decode(table[i].text, strlen(table[i].text), &b), 0);
        assert_string_equal(buf_text(&b), table[i].bytes);
        buf_clear(&b);
    }
}

static void damaged_base64_is_refused(void **state)
{
    static const char *const table[] = { "Z", "Zg=", "Zg===", "Z!==", "Zg==Zg==", "Zh==", "Zm9=", "====" };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct buf b;

        buf_init(&b, 64);
        assert_int_equal(base64_decode(table[i], strlen(table[i]), &b), -EPROTO);
        buf_clear(&b);
    }
}

static void random_bytes_come_back_from_base64(void **state)
{
    static const uint32_t key[2] = { 42, 0 };
    struct buf text, bytes;

    (void)state;
    print_message("seed %u\n", key[0]);
    buf_init(&text, 4096);
    buf_init(&bytes, 4096);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t w[4];

        philox4x32((uint32_t[4]){ i, 0, 0, 0 }, key, w);
        buf_reset(&text);
        buf_reset(&bytes);
        assert_int_equal(base64_encode(w, i % 16, &text), 0);
        assert_int_equal(base64_decode(buf_text(&text), text.len, &bytes), 0);
        assert_int_equal(bytes.len, i % 16);
        assert_memory_equal(buf_text(&bytes), w, i % 16);
    }
    buf_clear(&text);
    buf_clear(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_follow_the_unicode_table), cmocka_unit_test(patching_keeps_the_length),
        cmocka_unit_test(a_cut_never_splits_a_character),   cmocka_unit_test(base64_is_the_one_of_the_rfc),
        cmocka_unit_test(damaged_base64_is_refused),        cmocka_unit_test(random_bytes_come_back_from_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
