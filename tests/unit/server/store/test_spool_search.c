#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/spool_read.h"
#include "tests/memory/spool_memory.h"

#define MIB (INT64_C(1) << 20)
#define LOG "rank-00000.g1.log"

struct scene {
    struct spool_memory *memory;
    struct spool spool;
    int64_t length;
};

static int enter(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->memory = spool_memory_new(&s->spool);
    return spool_make_job(&s->spool, 1, NULL);
}

static int leave(void **state)
{
    struct scene *s = *state;

    spool_memory_free(s->memory);
    free(s);
    return 0;
}

static void come(struct scene *s, const char *text, size_t len)
{
    bool is_new;

    while (len > 0) {
        int64_t now = spool_append_most(&s->spool, 1, LOG, 8, s->length, text, len, &is_new);

        assert_true(now > s->length);
        text += now - s->length;
        len -= (size_t)(now - s->length);
        s->length = now;
    }
}

/* n lines of 64 bytes with their numbers, the even ones of which are "even". */
static void fill(struct scene *s, int n)
{
    char *text = malloc((size_t)n * 64 + 1);

    for (int i = 0; i < n; i++)
        (void)snprintf(text + (size_t)i * 64, 65, "%09d %-4s %48s\n", i, i % 2 ? "odd" : "even", "");
    come(s, text, (size_t)n * 64);
    free(text);
}

struct answer {
    json_t *whole;
    const char *text; /* borrowed */
    int64_t from, to;
};

static struct answer ask(struct scene *s, const char *text, int64_t offset, int64_t before, int tail)
{
    struct pattern *p = NULL;
    struct answer a;
    const json_t *log;

    assert_int_equal(pattern_new(text, &p, NULL), 0);
    a.whole =
        spool_read_logs(&s->spool, 1, 0, 1, offset, tail, 0, &(struct spool_search){.pattern = p, .before = before});
    pattern_free(p);
    log = json_array_get(json_object_get(a.whole, "logs"), 0);
    a.text = json_string_value(json_object_get(log, "text"));
    a.from = json_integer_value(json_object_get(log, "offset"));
    a.to = json_integer_value(json_object_get(log, "next_offset"));
    return a;
}

static void expect(struct scene *s, const char *pattern, int64_t offset, int64_t before, int tail, const char *text)
{
    struct answer a = ask(s, pattern, offset, before, tail);

    assert_string_equal(a.text, text);
    json_decref(a.whole);
}

static void lines_that_match_are_answered_and_no_others(void **state)
{
    struct scene *s = *state;

    come(s, "one\ntwo\n\nthree\nfour", 19);
    expect(s, "^t", 0, 0, 0, "two\nthree\n");
    expect(s, "o", 0, 0, 0, "one\ntwo\nfour\n"); /* also one that has no end yet */
    expect(s, "^$", 0, 0, 0, "\n");
    expect(s, "five", 0, 0, 0, "");
    expect(s, "o", 4, 0, 0, "two\nfour\n");
}

static void the_last_lines_are_the_last_that_match(void **state)
{
    struct scene *s = *state;

    come(s, "one\ntwo\n\nthree\nfour", 19);
    expect(s, "o", 0, 0, 1, "four\n");
    expect(s, "o", 0, 0, 2, "two\nfour\n");
    expect(s, "o", 0, 0, 9, "one\ntwo\nfour\n");
    expect(s, "o", 0, 9, 1, "two\n");       /* before "three" */
    expect(s, "o", 4, 0, 9, "two\nfour\n"); /* and not before an offset */
    expect(s, "o", 0, 1, 9, "o\n");
}

/* Ask on, as clients do, and count lines. */
static int count(struct scene *s, const char *pattern, bool backwards, int *ret_asked)
{
    int64_t at = 0, was = -1;
    int lines = 0;

    for (*ret_asked = 0; at != was && *ret_asked < 1000; ++*ret_asked) {
        struct answer a = backwards ? ask(s, pattern, 0, at, 1000000) : ask(s, pattern, at, 0, 0);

        was = at;
        at = backwards ? a.from : a.to;
        for (const char *c = a.text; *c; c++)
            lines += *c == '\n';
        json_decref(a.whole);
        if (at == (backwards ? 0 : s->length))
            break;
    }
    return lines;
}

static void a_long_log_is_searched_in_stretches_that_leave_no_line_out_nor_tell_one_twice(void **state)
{
    struct scene *s = *state;
    int asked;

    fill(s, 200000); /* 12.2 MiB */
    for (int backwards = 0; backwards < 2; backwards++) {
        assert_int_equal(count(s, "00777 odd", backwards, &asked), 2); /* 000000777 and 000100777 */
        assert_in_range(asked, 3, 5);
        assert_int_equal(count(s, "even", backwards, &asked), 100000);
    }
}

static void lines_on_both_sides_of_a_gap_are_found(void **state)
{
    struct scene *s = *state;
    struct spool_extent e;
    int asked, kept;

    for (int i = 0; i < 48; i++)
        fill(s, 16384); /* a MiB */
    assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), 0);
    assert_true(e.gap_to - e.gap_from >= 12 * MIB);
    kept = (int)((e.length - (e.gap_to - e.gap_from)) / MIB);
    assert_int_equal(count(s, "000000777", false, &asked), kept);
    assert_int_equal(count(s, "000000777", true, &asked), kept);
}

static void a_line_longer_than_a_stretch_is_cut_and_the_search_goes_on(void **state)
{
    struct scene *s = *state;
    char *text = malloc(5 * MIB);
    int asked;

    memset(text, 'x', 5 * MIB);
    come(s, text, 5 * MIB);
    come(s, "\nend\n", 5);
    free(text);
    assert_int_equal(count(s, "xy", false, &asked), 0);
    assert_int_equal(count(s, "^x", false, &asked), 2);
    assert_int_equal(count(s, "end", false, &asked), 1);
    assert_int_equal(count(s, "end", true, &asked), 1);
}

static void a_slow_pattern_shortens_the_stretch_and_comes_to_the_end(void **state)
{
    struct scene *s = *state;
    struct answer a;
    int asked;

    fill(s, 16384); /* a MiB, less than a stretch */
    a = ask(s, "(.{0,12}.{0,12}.{0,12}){0,3}y", 0, 0, 0);
    assert_in_range(a.to, 64, s->length - 1);
    json_decref(a.whole);
    assert_int_equal(count(s, "(.{0,12}.{0,12}.{0,12}){0,3}y", false, &asked), 0);
    assert_in_range(asked, 1, 999);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_that_match_are_answered_and_no_others, enter, leave),
        cmocka_unit_test_setup_teardown(the_last_lines_are_the_last_that_match, enter, leave),
        cmocka_unit_test_setup_teardown(a_long_log_is_searched_in_stretches_that_leave_no_line_out_nor_tell_one_twice,
                                        enter, leave),
        cmocka_unit_test_setup_teardown(lines_on_both_sides_of_a_gap_are_found, enter, leave),
        cmocka_unit_test_setup_teardown(a_line_longer_than_a_stretch_is_cut_and_the_search_goes_on, enter, leave),
        cmocka_unit_test_setup_teardown(a_slow_pattern_shortens_the_stretch_and_comes_to_the_end, enter, leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
