#include "tests/unit/test.h"

#include <string.h>

#include "server/cluster/notes.h"

static void notes_come_in_the_order_in_which_they_were_made(void **state)
{
    struct notes all = {.n = 0};

    (void)state;
    for (int i = 0; i < 100; i++)
        notes_add_new(&all, (uint64_t)i, "code", i % 2 ? json_pack("{s:i}", "i", i) : NULL, "note %d", i);
    assert_int_equal(all.n, 100);
    for (int i = 0; i < 100; i++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "note %d", i);
        assert_string_equal(all.v[i].text, text);
        assert_int_equal(all.v[i].job, i);
        assert_int_equal(json_integer_value(json_object_get(all.v[i].data, "i")), i % 2 ? i : 0);
    }
    notes_clear(&all);
    assert_int_equal(all.n, 0);
    assert_null(all.v);
    notes_clear(&all); /* of what is empty */
}

static void a_note_that_is_too_long_is_cut(void **state)
{
    struct notes all = {.n = 0};
    char text[2 * NOTES_TEXT_MAX];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    notes_add_new(&all, 0, "code", NULL, "%s", text);
    assert_int_equal(strlen(all.v[0].text), NOTES_TEXT_MAX - 1);
    notes_clear(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_come_in_the_order_in_which_they_were_made),
        cmocka_unit_test(a_note_that_is_too_long_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
