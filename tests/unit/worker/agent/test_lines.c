#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/utf8.h"
#include "worker/agent/lines.h"

static struct lines *lines;
static struct buf out;

static int set_up(void **state)
{
    (void)state;
    lines = malloc(sizeof(*lines));
    lines_init(lines, 1 << 20);
    buf_init(&out, 1 << 22);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buf_clear(&out);
    free(lines);
    return 0;
}

static void feed(const char *text, int64_t now_us)
{
    lines_feed(lines, text, strlen(text), now_us, &out);
}

static void text_without_carriage_returns_passes_unchanged(void **state)
{
    (void)state;
    feed("one\ntwo\n\nthr", 1);
    assert_string_equal(buf_text(&out), "one\ntwo\n\n");
    feed("ee\n", 2);
    assert_string_equal(buf_text(&out), "one\ntwo\n\nthree\n");
}

static void what_carriage_returns_overwrite_is_dropped(void **state)
{
    static const struct {
        const char *in, *out;
    } table[] = {
        {"a\rb\rc\n", "c\n"},
        {"dos\r\nlines\r\n", "dos\nlines\n"},
        {"\rbar 1\rbar 2\n", "bar 2\n"},
        {"a\r\r\nb\n", "a\nb\n"},
        {"\n\r\n", "\n\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        buf_reset(&out);
        feed(table[i].in, 5000000);
        assert_string_equal(buf_text(&out), table[i].out);
    }
}

static void a_progress_bar_leaves_a_line_every_two_seconds(void **state)
{
    size_t n = 0;

    (void)state;
    for (int i = 0; i <= 100; i++) { /* ten seconds of ten updates each */
        char text[32];

        (void)snprintf(text, sizeof(text), "\r%d%%", i);
        feed(text, 1000000 + i * 100000);
    }
    feed("\n", 11100000);
    for (size_t i = 0; i < out.len; i++)
        n += out.data[i] == '\n';
    assert_in_range(n, 5, 6);
    assert_non_null(strstr(buf_text(&out), "100%\n"));
}

static void a_line_without_an_end_comes_after_a_pause(void **state)
{
    (void)state;
    feed("password: ", 1000);
    assert_int_equal(out.len, 0);
    assert_int_equal(lines_deadline(lines), 1000 + LINES_PAUSE_US);
    lines_pause(lines, 1000 + LINES_PAUSE_US - 1, &out);
    assert_int_equal(out.len, 0);
    lines_pause(lines, 1000 + LINES_PAUSE_US, &out);
    assert_string_equal(buf_text(&out), "password: ");
    assert_true(lines_deadline(lines) == INT64_MAX);
    feed("ok\n", 2000000);
    assert_string_equal(buf_text(&out), "password: ok\n");
}

static void a_character_cut_by_a_pause_is_not_harmed(void **state)
{
    (void)state;
    feed("x\xC3", 1000);
    lines_pause(lines, 1000 + LINES_PAUSE_US, &out);
    assert_string_equal(buf_text(&out), "x");
    feed("\xA4\n", 2000000);
    assert_string_equal(buf_text(&out), "x\xC3\xA4\n");
}

static void ill_formed_bytes_become_replacement_characters(void **state)
{
    (void)state;
    lines_feed(lines,
               "a\xFF"
               "b\0c\n",
               6, 1, &out);
    assert_string_equal(buf_text(&out), "a\xEF\xBF\xBD"
                                        "b\xEF\xBF\xBD"
                                        "c\n");
}

static void what_has_no_room_is_left_out_and_counted(void **state)
{
    (void)state;
    lines_init(lines, 10);
    feed("12345678\nabc\n", 1); /* three bytes too many */
    feed("more\n", 2);
    lines_end(lines, &out);
    assert_string_equal(buf_text(&out),
                        "12345678\na\n[muster: 8 bytes are left out here: this log had no room on its node]\n");
}

static void a_log_goes_on_once_a_quarter_of_its_room_is_free(void **state)
{
    static const struct {
        uint64_t used;
        bool on;
    } row[] = {{1000, false}, {2000, false}, {751, false}, {750, true}, {0, true}};

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        buf_reset(&out);
        lines_init(lines, 1000);
        lines_room(lines, 998, &out);
        feed("abcde\n", 1);
        lines_room(lines, row[i].used, &out);
        feed("next\n", 2);
        assert_string_equal(
            buf_text(&out),
            row[i].on ? "ab\n[muster: 4 bytes are left out here: this log had no room on its node]\nnext\n" : "ab");
        lines_end(lines, &out);
        if (!row[i].on)
            assert_non_null(strstr(buf_text(&out), "[muster: 9 bytes are left out here"));
    }
}

static void the_end_completes_the_last_line(void **state)
{
    (void)state;
    feed("no end", 1);
    lines_end(lines, &out);
    assert_string_equal(buf_text(&out), "no end\n");
}

static void random_bytes_always_give_text_whatever_the_pieces(void **state)
{
    static const uint32_t key[2] = {20261121, 7};
    struct buf once;

    (void)state;
    print_message("seed %u\n", key[0]);
    buf_init(&once, 1 << 22);
    for (uint32_t round = 0; round < 300; round++) {
        char text[400];
        uint32_t w[4];
        size_t n = 0, at;

        for (uint32_t i = 0; i < 100; i++) {
            philox4x32((uint32_t[4]){round, i, 0, 0}, key, w);
            for (int k = 0; k < 4; k++)
                text[n++] = w[k] >> 8 & 1 ? "\r\n\xC3\xA4\xE2\x82\xAC"
                                            "ab"[w[k] % 9]
                                          : (char)w[k];
        }
        buf_reset(&once);
        lines_init(lines, 1 << 20);
        lines_feed(lines, text, n, 7, &once);
        lines_end(lines, &once);
        buf_reset(&out);
        lines_init(lines, 1 << 20);
        for (at = 0; at < n; at += w[0]) {
            philox4x32((uint32_t[4]){round, (uint32_t)at, 1, 0}, key, w);
            w[0] = 1 + w[0] % 37;
            if (at + w[0] > n)
                w[0] = (uint32_t)(n - at);
            lines_feed(lines, text + at, w[0], 7, &out);
        }
        lines_end(lines, &out);
        assert_int_equal(out.len, once.len);
        assert_memory_equal(buf_text(&out), buf_text(&once), out.len);
        for (at = 0; at < out.len; at += (size_t)utf8_length(out.data + at, out.len - at))
            assert_true(utf8_length(out.data + at, out.len - at) > 0);
    }
    buf_clear(&once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_without_carriage_returns_passes_unchanged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_carriage_returns_overwrite_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_progress_bar_leaves_a_line_every_two_seconds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_without_an_end_comes_after_a_pause, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_character_cut_by_a_pause_is_not_harmed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ill_formed_bytes_become_replacement_characters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_no_room_is_left_out_and_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_log_goes_on_once_a_quarter_of_its_room_is_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_completes_the_last_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_bytes_always_give_text_whatever_the_pieces, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
