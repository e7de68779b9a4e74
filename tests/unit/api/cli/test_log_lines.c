#include "api/cli/log_lines.h"

#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/philox.h"

static struct buf out; /* what was handed on: "<rank>" before the beginning of each line */
static bool within;

static void write_text(void *arg, int64_t rank, const char *text, size_t len, bool ended)
{
    assert_ptr_equal(arg, &out);
    if (!within)
        assert_int_equal(buf_printf(&out, "<%d>", (int)rank), 0);
    assert_int_equal(buf_add(&out, text, len), 0);
    if (ended)
        assert_int_equal(buf_addstr(&out, "\n"), 0);
    within = !ended;
}

static struct log_lines *begin(bool apart)
{
    struct log_lines *l = log_lines_new(apart, write_text, &out);

    assert_non_null(l);
    buf_init(&out, 1 << 22);
    within = false;
    return l;
}

static int64_t take(struct log_lines *l, int rank, int generation, int64_t offset, const char *text)
{
    return log_lines_take(l, rank, generation, offset, text, strlen(text));
}

static void finish(struct log_lines *l, const char *want)
{
    log_lines_end(l);
    assert_string_equal(buf_text(&out), want);
    log_lines_free(l);
    buf_clear(&out);
}

static void lines_that_pieces_tear_are_whole_again(void **state)
{
    struct log_lines *l = begin(true);

    (void)state;
    assert_int_equal(take(l, 0, 1, 0, "one\ntw"), 6);
    assert_int_equal(take(l, 1, 1, 0, "ei"), 2);
    assert_int_equal(take(l, 0, 1, 6, "o\n\nthr"), 6);
    assert_int_equal(take(l, 1, 1, 2, "ns\n"), 3);
    assert_string_equal(buf_text(&out), "<0>one\n<0>two\n<0>\n<1>eins\n");
    finish(l, "<0>one\n<0>two\n<0>\n<1>eins\n<0>thr\n");
}

static void what_comes_twice_is_handed_on_once(void **state)
{
    struct log_lines *l = begin(true);

    (void)state;
    assert_int_equal(take(l, 3, 1, 0, "abc\nd"), 5);
    assert_int_equal(take(l, 3, 1, 0, "abc\nd"), 0);
    assert_int_equal(take(l, 3, 1, 2, "c\nde\nf"), 3);
    assert_int_equal(log_lines_next(l, 3, 1), 8);
    assert_int_equal(log_lines_next(l, 3, 2), 0);
    finish(l, "<3>abc\n<3>de\n<3>f\n");
}

static void what_is_not_kept_is_named_in_a_line_of_its_own(void **state)
{
    struct log_lines *l = begin(true), *one;

    (void)state;
    assert_int_equal(take(l, 3, 1, 0, "abc\nd"), 5);
    assert_int_equal(take(l, 3, 1, 1005, "z\n"), 2);
    assert_int_equal(take(l, 3, 1, 1006, "\nend\n"), 4);
    finish(l, "<3>abc\n<3>d\n<3>[muster: 1000 bytes of this output are not kept]\n<3>z\n<3>end\n");
    one = begin(false);
    assert_int_equal(take(one, 0, 1, 0, "abc"), 3);
    assert_int_equal(take(one, 0, 1, 10, "z"), 1);
    finish(one, "<0>abc\n<0>[muster: 7 bytes of this output are not kept]\n<0>z\n");
}

static void a_newer_generation_ends_the_lines_of_the_older(void **state)
{
    struct log_lines *l = begin(true);

    (void)state;
    (void)take(l, 0, 1, 0, "cut off");
    (void)take(l, 1, 1, 0, "waits");
    (void)take(l, 0, 2, 0, "again\n");
    finish(l, "<0>cut off\n<0>again\n<1>waits\n");
}

static void one_log_comes_as_it_is_written(void **state)
{
    struct log_lines *l = begin(false);

    (void)state;
    (void)take(l, 0, 1, 0, "how ");
    assert_string_equal(buf_text(&out), "<0>how ");
    (void)take(l, 0, 1, 4, "many?");
    (void)take(l, 0, 2, 0, "then\n");
    finish(l, "<0>how many?\n<0>then\n");
}

static void a_line_too_long_to_wait_for_is_broken_between_characters(void **state)
{
    struct log_lines *l = begin(true);
    struct buf text;
    size_t broken = 0, characters = 0;

    (void)state;
    buf_init(&text, 1 << 20);
    while (text.len < 2 * LOG_LINES_HELD + 100)
        assert_int_equal(buf_addstr(&text, "\xe2\x82\xac"), 0);
    for (size_t at = 0; at < text.len; at += 999) {
        size_t n = text.len - at < 999 ? text.len - at : 999;

        assert_int_equal(log_lines_take(l, 0, 1, (int64_t)at, text.data + at, n), n);
    }
    log_lines_end(l);
    for (const char *p = buf_text(&out); *p; broken++) {
        assert_memory_equal(p, "<0>", 3);
        for (p += 3; *p != '\n'; p += 3, characters++)
            assert_memory_equal(p, "\xe2\x82\xac", 3);
        p++;
    }
    assert_int_equal(characters * 3, text.len);
    assert_int_equal(broken, 3);
    buf_clear(&text);
    log_lines_free(l);
    buf_clear(&out);
}

static void the_oldest_generation_makes_room(void **state)
{
    struct log_lines *l = begin(true);

    (void)state;
    for (int rank = 0; rank <= LOG_LINES_LOGS; rank++)
        assert_int_equal(take(l, rank, rank == 7 ? 1 : 2, 0, "x"), 1);
    assert_int_equal(log_lines_next(l, 7, 1), 0);
    assert_int_equal(log_lines_next(l, LOG_LINES_LOGS, 2), 1);
    assert_string_equal(buf_text(&out), "<7>x\n");
    log_lines_free(l);
    buf_clear(&out);
}

/* However two logs are cut into pieces, and whatever of them comes twice, each has its lines in their order. */
static void any_pieces_give_the_same_lines(void **state)
{
    static const char *const text[2] = {"alpha\n\nb\xc3\xa9ta\ngamma delta\nend", "1\n22\n333\n\n\n4444\n"};
    static const uint32_t key[2] = {20, 0};

    (void)state;
    print_message("seed %u\n", key[0]);
    for (uint32_t round = 0; round < 300; round++) {
        struct log_lines *l = begin(true);
        size_t at[2] = {0, 0};
        char want[256] = "", got[256] = "";

        for (uint32_t i = 0; at[0] < strlen(text[0]) || at[1] < strlen(text[1]); i++) {
            uint32_t w[4];
            size_t r, back, n;

            philox4x32((uint32_t[4]){round, i, 0, 0}, key, w);
            r = w[0] % 2;
            back = w[1] % (at[r] + 1);
            n = w[2] % 6;
            back = back > 4 ? 4 : back;
            n = at[r] - back + n > strlen(text[r]) ? strlen(text[r]) - at[r] + back : n;
            (void)log_lines_take(l, (int64_t)r, 1, (int64_t)(at[r] - back), text[r] + at[r] - back, n);
            at[r] = n > back ? at[r] - back + n : at[r];
        }
        log_lines_end(l);
        for (size_t r = 0; r < 2; r++) {
            const char *p = text[r], *q = buf_text(&out);

            for (; *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] != '\0'))
                (void)snprintf(want + strlen(want), sizeof(want) - strlen(want), "<%zu>%.*s\n", r,
                               (int)strcspn(p, "\n"), p);
            for (; *q; q += strcspn(q, "\n") + 1)
                if (q[1] == (char)('0' + r))
                    (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%.*s\n", (int)strcspn(q, "\n"), q);
        }
        assert_string_equal(got, want);
        log_lines_free(l);
        buf_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_pieces_tear_are_whole_again),
        cmocka_unit_test(what_comes_twice_is_handed_on_once),
        cmocka_unit_test(what_is_not_kept_is_named_in_a_line_of_its_own),
        cmocka_unit_test(a_newer_generation_ends_the_lines_of_the_older),
        cmocka_unit_test(one_log_comes_as_it_is_written),
        cmocka_unit_test(a_line_too_long_to_wait_for_is_broken_between_characters),
        cmocka_unit_test(the_oldest_generation_makes_room),
        cmocka_unit_test(any_pieces_give_the_same_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
