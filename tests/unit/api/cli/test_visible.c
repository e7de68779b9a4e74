/* Text of others on a terminal: nothing that would do something there comes through as it is. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"

static void shows(const char *text, size_t len, const char *want)
{
    char *got = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&got, &size);

    assert_non_null(to);
    cli_print_visible(to, text, len);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(got, want);
    free(got);
}

static void plain_text_lines_and_tabs_stay_as_they_are(void **state)
{
    static const char text[] = "loss 1.5\tok\nZürich 東京 \xf0\x9f\x99\x82\n";

    (void)state;
    shows(text, sizeof(text) - 1, text);
    shows("", 0, "");
}

static void control_characters_are_shown_with_a_caret(void **state)
{
    (void)state;
    shows("\033[2J\r\a\177", 7, "^[[2J^M^G^?");
    shows("a\0b", 3, "a^@b");
}

static void what_acts_beyond_ascii_is_shown_by_its_number(void **state)
{
    (void)state;
    shows("\xc2\x9b"
          "31m",
          5, "<U+009B>31m"); /* a control sequence in one character */
    shows("\xe2\x80\xae"
          "txt.exe",
          10, "<U+202E>txt.exe"); /* writes backwards from here */
    shows("\xe2\x81\xa6\xe2\x81\xa9", 6, "<U+2066><U+2069>");
    shows("\xd8\x9c", 2, "<U+061C>");
    shows("\xe2\x80\x8d\xe2\x80\xaf", 6, "\xe2\x80\x8d\xe2\x80\xaf"); /* their neighbours do nothing */
}

static void a_character_that_is_cut_off_is_not_read_beyond_its_end(void **state)
{
    char *cut = malloc(2); /* so that a sanitizer sees it */

    (void)state;
    assert_non_null(cut);
    memcpy(cut, "\xe2\x80", 2);
    shows(cut, 2, "\xe2\x80");
    free(cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_lines_and_tabs_stay_as_they_are),
        cmocka_unit_test(control_characters_are_shown_with_a_caret),
        cmocka_unit_test(what_acts_beyond_ascii_is_shown_by_its_number),
        cmocka_unit_test(a_character_that_is_cut_off_is_not_read_beyond_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
