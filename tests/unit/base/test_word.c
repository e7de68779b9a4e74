#include "base/word.h"

#include "tests/unit/test.h"

static void the_nearest_word_is_near_enough_to_be_meant(void **state)
{
    static const char *const known[] = {"watch", "follow", "priority", "n", "node remove"};
    static const struct {
        const char *word, *near;
    } table[] = {
        {"watch", "watch"},
        {"wacth", "watch"}, /* two neighbours swapped are one change */
        {"folow", "follow"},
        {"priortiyy", "priority"},
        {"node remvoe", "node remove"},
        {"x", NULL}, /* all of a known word changed is no guess */
        {"", NULL},
        {"wxyz", NULL},
        {"prirotiesrty", NULL},
        {"a word that is longer than forty characters is", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const char *near = word_nearest(table[i].word, known, COUNT(known));

        if (table[i].near)
            assert_string_equal(near, table[i].near);
        else
            assert_null(near);
    }
    assert_null(word_nearest("watch", known, 0));
}

static void a_word_stands_where_it_is_listed(void **state)
{
    static const char *const words[] = {"debug", "info", "warn", NULL};

    (void)state;
    assert_int_equal(word_index("debug", words), 0);
    assert_int_equal(word_index("warn", words), 2);
    assert_int_equal(word_index("war", words), -1);
    assert_int_equal(word_index("", words), -1);
}

static void words_are_listed_as_one_says_them(void **state)
{
    static const char *const words[] = {"debug", "info", "warn", NULL};
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    for (size_t from = 3; from-- > 0;) {
        static const char *const said[] = {"debug, info or warn", "info or warn", "warn"};

        buf_reset(&b);
        word_list(words + from, " or ", &b);
        assert_string_equal(buf_text(&b), said[from]);
    }
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_word_is_near_enough_to_be_meant),
        cmocka_unit_test(a_word_stands_where_it_is_listed),
        cmocka_unit_test(words_are_listed_as_one_says_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
