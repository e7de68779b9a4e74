#include "api/cli/top.h"

#include "api/cli/cli.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#define NOW_US INT64_C(1767225600000000) /* 2026-01-01T00:00:00Z */

static json_t *some_jobs(void)
{
    json_t *jobs =
        json_loads("[{\"id\": \"j9\", \"name\": \"b\", \"state\": \"queued\"},"
                   " {\"id\": \"j8\", \"name\": \"d\", \"state\": \"running\", \"devices\": {\"assigned\": 2},"
                   "  \"started_at\": \"2025-12-31T23:00:00Z\"},"
                   " {\"id\": \"j7\", \"name\": \"a\", \"state\": \"recovering\", \"devices\": {\"assigned\": 4},"
                   "  \"started_at\": \"2025-12-31T22:00:00Z\"},"
                   " {\"id\": \"j6\", \"name\": \"c\", \"state\": \"failed\","
                   "  \"started_at\": \"2025-12-31T21:00:00Z\", \"finished_at\": \"2025-12-31T23:30:00.000Z\"},"
                   " {\"id\": \"j5\", \"name\": \"e\", \"state\": \"succeeded\","
                   "  \"started_at\": \"2025-12-31T21:00:00Z\", \"finished_at\": \"2025-12-31T22:59:59.000Z\"}]",
                   0, NULL);

    assert_non_null(jobs);
    return jobs;
}

static void jobs_come_in_the_order_that_was_chosen(void **state)
{
    static const char *const want[TOP_ORDERS] = {"j8 j7 j9 j6 ", "j7 j8 j9 j6 ", "j6 j7 j8 j9 ", "j7 j9 j6 j8 "};
    json_auto_t *jobs = some_jobs();

    (void)state;
    for (enum top_order order = 0; order < TOP_ORDERS; order++) {
        json_auto_t *sorted = top_sort_new(jobs, order, NOW_US);
        char ids[64] = "";

        for (size_t i = 0; i < json_array_size(sorted); i++)
            (void)snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s ",
                           cli_str(json_array_get(sorted, i), "id"));
        if (strcmp(ids, want[order]) != 0)
            fail_msg("by %s: %s", top_order_name(order), ids);
    }
}

static void the_chosen_job_stays_chosen(void **state)
{
    json_auto_t *jobs = some_jobs();
    struct top_choice t = {.id = ""};

    (void)state;
    top_keep(&t, jobs);
    assert_string_equal(t.id, "j9");
    assert_int_equal(top_press(&t, jobs, TOP_KEY_DOWN), TOP_STAY);
    assert_string_equal(t.id, "j8");
    assert_int_equal(json_array_remove(jobs, 0), 0);
    top_keep(&t, jobs);
    assert_string_equal(t.id, "j8");
    assert_int_equal(json_array_remove(jobs, 0), 0); /* it is gone: the one in its place */
    top_keep(&t, jobs);
    assert_string_equal(t.id, "j7");
    for (int i = 0; i < 9; i++)
        (void)top_press(&t, jobs, TOP_KEY_DOWN);
    assert_string_equal(t.id, "j5");
    (void)top_press(&t, jobs, TOP_KEY_FIRST);
    assert_string_equal(t.id, "j7");
    (void)top_press(&t, jobs, TOP_KEY_UP);
    assert_string_equal(t.id, "j7");
    (void)top_press(&t, jobs, TOP_KEY_LAST);
    assert_string_equal(t.id, "j5");
    json_array_clear(jobs);
    top_keep(&t, jobs);
    assert_string_equal(t.id, "");
    assert_int_equal(top_press(&t, jobs, TOP_KEY_SHOW), TOP_STAY);
    assert_int_equal(top_press(&t, jobs, TOP_KEY_DOWN), TOP_STAY);
}

static void nothing_is_cancelled_without_a_yes(void **state)
{
    static const enum top_key others[] = {TOP_KEY_CANCEL, TOP_KEY_QUIT, TOP_KEY_SHOW, TOP_KEY_OTHER, TOP_KEY_DOWN};
    json_auto_t *jobs = some_jobs();
    struct top_choice t = {.id = "j8"};

    (void)state;
    assert_int_equal(top_press(&t, jobs, TOP_KEY_YES), TOP_STAY);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        assert_int_equal(top_press(&t, jobs, TOP_KEY_CANCEL), TOP_STAY);
        assert_true(t.asks && strstr(t.question, "j8 (d)"));
        assert_int_equal(top_press(&t, jobs, others[i]), TOP_STAY);
        assert_false(t.asks);
    }
    (void)top_press(&t, jobs, TOP_KEY_CANCEL);
    assert_int_equal(top_press(&t, jobs, TOP_KEY_YES), TOP_CANCEL);
    (void)top_press(&t, jobs, TOP_KEY_CANCEL);
    assert_int_equal(json_array_remove(jobs, 1),
                     0); /* the job asked about went away: the one in its place is not meant */
    top_keep(&t, jobs);
    assert_int_equal(top_press(&t, jobs, TOP_KEY_YES), TOP_STAY);
    t = (struct top_choice){.id = "j6"};
    (void)top_press(&t, jobs, TOP_KEY_CANCEL);
    assert_false(t.asks); /* it has ended */
}

static void keys_are_read_as_terminals_send_them(void **state)
{
    static const struct {
        const char *text;
        enum top_key key;
        size_t used;
    } rows[] = {
        {"\033[A", TOP_KEY_UP, 3},   {"\033OB", TOP_KEY_DOWN, 3},  {"jj", TOP_KEY_DOWN, 1},
        {"q", TOP_KEY_QUIT, 1},      {"\003", TOP_KEY_QUIT, 1},    {"\r", TOP_KEY_SHOW, 1},
        {"\033", TOP_KEY_OTHER, 1},  {"x", TOP_KEY_OTHER, 1},      {"\033[15~q", TOP_KEY_OTHER, 5},
        {"\033[", TOP_KEY_OTHER, 1}, {"\033[1", TOP_KEY_OTHER, 3}, {"y", TOP_KEY_YES, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t used;
        enum top_key key = top_key(rows[i].text, strlen(rows[i].text), &used);

        if (key != rows[i].key || used != rows[i].used)
            fail_msg("'%s' is key %d of %zu bytes", rows[i].text + 1, key, used);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_come_in_the_order_that_was_chosen),
        cmocka_unit_test(the_chosen_job_stays_chosen),
        cmocka_unit_test(nothing_is_cancelled_without_a_yes),
        cmocka_unit_test(keys_are_read_as_terminals_send_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
