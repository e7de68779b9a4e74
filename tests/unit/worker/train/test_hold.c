#include "tests/unit/test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "worker/engine/train/hold.h"

static char folder[] = "/tmp/muster-hold-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && setenv("MUSTER_HOLD", folder, 1) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

static void without_the_variable_nothing_is_held(void **state)
{
    struct hold h;

    (void)state;
    unsetenv("MUSTER_HOLD");
    assert_int_equal(hold_init(&h, "job", NULL), 0);
    assert_false(hold_may(&h));
    assert_false(hold_wanted(&h, 0));
    setenv("MUSTER_HOLD", folder, 1);
}

static void a_run_is_held_from_the_step_in_its_file_on(void **state)
{
    static const struct {
        const char *text; /* NULL: there is no file */
        uint64_t done;
        bool held;
    } cases[] = {
        {NULL, 5, false}, {"5", 4, false},  {"5", 5, true}, {"5\n", 5, true}, {"5\n", 6, true},
        {"12", 5, false}, {"12", 12, true}, {"0", 0, true}, {"", 0, true},    {"wait", 3, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hold h;

        assert_int_equal(hold_init(&h, "job", NULL), 0);
        assert_true(hold_may(&h));
        assert_int_equal(io_remove_tree(h.path, NULL), 0);
        if (cases[i].text)
            assert_int_equal(io_publish_file(h.path, cases[i].text, strlen(cases[i].text), 0600, NULL), 0);
        if (hold_wanted(&h, cases[i].done) != cases[i].held)
            fail_msg("'%s' with %d done: want %d", cases[i].text ? cases[i].text : "no file", (int)cases[i].done,
                     cases[i].held);
    }
}

static void the_word_start_holds_a_run_before_it_reads_its_state(void **state)
{
    static const char *const texts[] = {"start\n", "start", "5", "", "5 start"};
    struct hold h;

    (void)state;
    assert_int_equal(hold_init(&h, "job", NULL), 0);
    assert_int_equal(io_remove_tree(h.path, NULL), 0);
    assert_false(hold_start_wanted(&h));
    for (size_t i = 0; i < COUNT(texts); i++) {
        assert_int_equal(io_publish_file(h.path, texts[i], strlen(texts[i]), 0600, NULL), 0);
        assert_int_equal(hold_start_wanted(&h), i < 2);
    }
    assert_int_equal(io_publish_file(h.path, texts[0], strlen(texts[0]), 0600, NULL), 0);
    assert_true(hold_wanted(&h, 0));
}

static void jobs_of_other_names_go_on(void **state)
{
    struct hold mine, other;

    (void)state;
    assert_int_equal(hold_init(&mine, "mine", NULL), 0);
    assert_int_equal(hold_init(&other, "other", NULL), 0);
    assert_int_equal(io_publish_file(mine.path, "3", 1, 0600, NULL), 0);
    assert_true(hold_wanted(&mine, 3));
    assert_false(hold_wanted(&other, 3));
}

static void a_folder_too_long_to_be_one_is_refused(void **state)
{
    char name[HOLD_PATH_MAX + 1];
    struct hold h;
    struct merr err;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    setenv("MUSTER_HOLD", name, 1);
    assert_int_equal(hold_init(&h, "job", &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "MUSTER_HOLD"));
    setenv("MUSTER_HOLD", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_the_variable_nothing_is_held),
        cmocka_unit_test(a_run_is_held_from_the_step_in_its_file_on),
        cmocka_unit_test(the_word_start_holds_a_run_before_it_reads_its_state),
        cmocka_unit_test(jobs_of_other_names_go_on),
        cmocka_unit_test(a_folder_too_long_to_be_one_is_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
