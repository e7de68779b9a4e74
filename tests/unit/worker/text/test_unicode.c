/* Characters: their bytes, and whether they are letters, numbers or blanks. */
#include "tests/unit/test.h"

#include <string.h>

#include "worker/engine/text/unicode.h"

static void what_is_no_utf_8_has_no_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        uint32_t c;
    } table[] = {
        {"a", 1, 'a'},
        {"\x7f", 1, 0x7f},
        {"\xc3\xa9", 2, 0xe9},
        {"\xe2\x82\xac", 3, 0x20ac},
        {"\xf0\x9f\x98\x80", 4, 0x1f600},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
        {"\xf4\x90\x80\x80", 0, 0}, /* past the last */
        {"\xf5\x80\x80\x80", 0, 0},
        {"\x80", 0, 0}, /* begins none */
        {"\xc3", 0, 0}, /* ends too soon */
        {"\xe2\x82", 0, 0},
        {"\xc3(", 0, 0},
        {"\xc0\x80", 0, 0}, /* longer than need be */
        {"\xe0\x80\x80", 0, 0},
        {"\xf0\x80\x80\x80", 0, 0},
        {"\xed\xa0\x80", 0, 0}, /* half of a pair */
        {"\xed\x9f\xbf", 3, 0xd7ff},
        {"\xff", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        uint32_t c = 0;
        size_t n = unicode_get(table[i].text, strlen(table[i].text), &c);

        if (n != table[i].n || c != table[i].c)
            fail_msg("row %zu: %zu bytes, U+%04X", i, n, (unsigned)c);
    }
    for (uint32_t c = 0; c < 0x110000; c++) { /* and each one that there is comes back */
        char text[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        uint32_t got;

        if (c >= 0xd800 && c < 0xe000)
            continue;
        for (size_t k = n; k-- > 1;)
            text[k] = (char)(0x80 | ((c >> 6 * (n - 1 - k)) & 0x3f));
        text[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c >> 6 * (n - 1));
        if (unicode_get(text, n, &got) != n || got != c)
            fail_msg("U+%04X", (unsigned)c);
    }
}

static void each_character_is_of_one_class(void **state)
{
    static const struct {
        uint32_t c;
        enum unicode_class is;
    } table[] = {
        {'a', UNICODE_LETTER},       {'Z', UNICODE_LETTER},
        {'0', UNICODE_NUMBER},       {'9', UNICODE_NUMBER},
        {' ', UNICODE_SPACE},        {'\t', UNICODE_SPACE},
        {'\n', UNICODE_SPACE},       {'\r', UNICODE_SPACE},
        {'_', UNICODE_OTHER},        {'@', UNICODE_OTHER},
        {'[', UNICODE_OTHER},        {0, UNICODE_OTHER},
        {0xe9, UNICODE_LETTER},      {0x85, UNICODE_SPACE},
        {0xa0, UNICODE_SPACE},       {0xb2, UNICODE_NUMBER},
        {0x3b1, UNICODE_LETTER},     {0x4e00, UNICODE_LETTER},
        {0x9fff, UNICODE_LETTER},    {0x660, UNICODE_NUMBER},
        {0x2160, UNICODE_NUMBER},    {0x3000, UNICODE_SPACE},
        {0x200b, UNICODE_OTHER},     {0x1f600, UNICODE_OTHER},
        {0x301, UNICODE_OTHER},      /* an accent alone */ {0x10ffff, UNICODE_OTHER},
        {UINT32_MAX, UNICODE_OTHER},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        if (unicode_class_of(table[i].c) != table[i].is)
            fail_msg("U+%04X is of class %d", (unsigned)table[i].c, unicode_class_of(table[i].c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_utf_8_has_no_bytes),
        cmocka_unit_test(each_character_is_of_one_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
