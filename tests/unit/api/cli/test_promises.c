/* When a job starts, in words: only what the server knows. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/cli/promises.h"

#define AT "2026-01-02T03:04:05.000Z" /* of another day, whenever this runs */

static void a_start_names_what_it_waits_for(void **state)
{
    static const struct {
        const char *json, *words;
    } table[] = {
        {"{}", ""},
        {"{\"basis\": \"time-limits\"}", ""}, /* no time */
        {"{\"basis\": \"unheard-of\", \"at\": \"" AT "\"}", ""},
        {"{\"basis\": \"next-round\", \"at\": \"" AT "\"}", "about 2026-01-02 03:04, in the next full round"},
        {"{\"basis\": \"next-round\", \"after\": \"j2\", \"at\": \"" AT "\"}",
         "about 2026-01-02 03:04, when j2 gives devices up in a full round"},
        {"{\"basis\": \"time-limits\", \"after\": \"j2\", \"at\": \"" AT "\"}",
         "about 2026-01-02 03:04, after j2's time limit"},
        {"{\"basis\": \"work-left\", \"after\": \"j2\", \"at\": \"" AT "\", \"latest\": \"2026-01-03T00:00:00.000Z\"}",
         "about 2026-01-02 03:04, when j2 is expected to be done, by its measured speed; at the latest "
         "2026-01-03 00:00"},
        {"{\"basis\": \"reserved\", \"at\": \"" AT "\"}",
         "about 2026-01-02 03:04, when the devices that are kept for it are free"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].json, 0, NULL);
        char words[PROMISES_START_MAX] = "?";

        promises_start(o, words);
        if (strcmp(words, table[i].words) != 0)
            fail_msg("row %zu: %s", i, words);
    }
}

static void what_is_no_time_is_shown_as_it_is_within_bounds(void **state)
{
    char words[PROMISES_TIME_MAX];

    (void)state;
    promises_time("", words);
    assert_string_equal(words, "");
    promises_time("soon", words);
    assert_string_equal(words, "soon");
    promises_time("a text that is longer than any time would ever be", words);
    assert_int_equal(strlen(words), PROMISES_TIME_MAX - 1);
}

static int in_utc(void **state)
{
    (void)state;
    return setenv("TZ", "UTC0", 1); /* what is printed is of here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_names_what_it_waits_for),
        cmocka_unit_test(what_is_no_time_is_shown_as_it_is_within_bounds),
    };

    return cmocka_run_group_tests(tests, in_utc, NULL);
}
