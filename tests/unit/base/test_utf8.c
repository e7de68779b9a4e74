#include "base/utf8.h"

#include "tests/unit/test.h"

#include <string.h>

static void lengths_follow_the_unicode_table(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        int len;
    } table[] = {
        {"a", 1, 1},
        {"\x7F", 1, 1},
        {"\0", 1, 0},
        {"\x80", 1, 0},     /* a tail without a head */
        {"\xC1\xBF", 2, 0}, /* U+007F in a longer form */
        {"\xC2\x80", 2, 2},
        {"\xC2", 1, -1},
        {"\xC2"
         "a",
         2, 0},
        {"\xE0\x9F\xBF", 3, 0}, /* U+07FF in a longer form */
        {"\xE0\xA0\x80", 3, 3},
        {"\xED\xA0\x80", 3, 0}, /* a surrogate */
        {"\xED\x9F\xBF", 3, 3},
        {"\xE2\x82", 2, -1},
        {"\xF0\x8F\xBF\xBF", 4, 0},
        {"\xF0\x90\x80\x80", 4, 4},
        {"\xF4\x8F\xBF\xBF", 4, 4},
        {"\xF4\x90\x80\x80", 4, 0}, /* beyond U+10FFFF */
        {"\xF5\x80\x80\x80", 4, 0},
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
    static const size_t cut[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};

    (void)state;
    for (size_t n = 0; n < COUNT(cut); n++)
        assert_int_equal(utf8_cut(text, n), cut[n]);
}

static void a_copy_holds_whole_characters(void **state)
{
    static const char *const want[] = {"", "a", "a", "a\xC3\xA4", "a\xC3\xA4", "a\xC3\xA4", "a\xC3\xA4\xE2\x82\xAC"};
    char to[8];

    (void)state;
    for (size_t size = 1; size <= COUNT(want); size++) {
        memset(to, 'x', sizeof(to));
        utf8_copy(to, size, "a\xC3\xA4\xE2\x82\xAC");
        assert_string_equal(to, want[size - 1]);
    }
}

static void cleaning_keeps_a_character_that_is_cut_off_for_its_rest(void **state)
{
    static const char text[] = "a\xFF"
                               "b\0c\xE2\x82";
    struct buf out;

    (void)state;
    buf_init(&out, 64);
    assert_int_equal(utf8_clean(text, 7, 0, &out), 5);
    assert_string_equal(buf_text(&out), "a\xEF\xBF\xBD"
                                        "b\xEF\xBF\xBD"
                                        "c");
    buf_reset(&out);
    assert_int_equal(utf8_clean(text, 7, 1, &out), 7);
    assert_string_equal(buf_text(&out), "a\xEF\xBF\xBD"
                                        "b\xEF\xBF\xBD"
                                        "c\xEF\xBF\xBD"
                                        "\xEF\xBF\xBD");
    buf_clear(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_follow_the_unicode_table),
        cmocka_unit_test(patching_keeps_the_length),
        cmocka_unit_test(a_cut_never_splits_a_character),
        cmocka_unit_test(a_copy_holds_whole_characters),
        cmocka_unit_test(cleaning_keeps_a_character_that_is_cut_off_for_its_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
