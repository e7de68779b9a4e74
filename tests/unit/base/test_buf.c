#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static void an_empty_buffer_is_the_empty_text(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10);
    assert_string_equal(buf_text(&b), "");
    assert_null(b.data);
    buf_clear(&b);
}

static void writes_stop_at_the_limit_and_leave_the_contents(void **state)
{
    static const struct {
        size_t limit;
        const char *first, *second;
        int want;
    } edge[] = {
        {6, "abc", "def", 0},         /* exactly full */
        {5, "abc", "def", -EMSGSIZE}, /* one too many */
        {3, "abc", "", 0},            /* nothing fits into nothing left */
        {3, "abc", "x", -EMSGSIZE},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(edge); i++) {
        struct buf b;

        buf_init(&b, edge[i].limit);
        assert_int_equal(buf_addstr(&b, edge[i].first), 0);
        assert_int_equal(buf_addstr(&b, edge[i].second), edge[i].want);
        assert_int_equal(buf_failed(&b), edge[i].want != 0);
        assert_int_equal(b.len, strlen(edge[i].first) + (edge[i].want ? 0 : strlen(edge[i].second)));
        assert_int_equal(buf_text(&b)[b.len], '\0');
        buf_clear(&b);
    }
}

static void printf_grows_past_the_first_allocation(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 100000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buf_printf(&b, "%04d,", i), 0);
    assert_int_equal(b.len, 5000);
    assert_memory_equal(b.data + 4995, "0999,", 6);
    buf_clear(&b);
}

static void drop_keeps_the_rest(void **state)
{
    struct buf b;
    char *text;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(buf_addstr(&b, "line one\nline two"), 0);
    buf_drop(&b, 9);
    assert_string_equal(buf_text(&b), "line two");
    assert_int_equal(buf_addstr(&b, " and a line that makes it grow, for it is longer than what there was"), 0);
    buf_drop(&b, 5);
    text = buf_detach(&b);
    assert_string_equal(text, "two and a line that makes it grow, for it is longer than what there was");
    free(text);
    assert_int_equal(buf_addstr(&b, "again"), 0);
    buf_drop(&b, b.len);
    assert_string_equal(buf_text(&b), "");
    buf_clear(&b);
}

/* A queue: bytes go in behind and out in front, as many as come. */
static void a_queue_moves_nothing_when_it_drops_and_stays_within_a_few_times_its_most(void **state)
{
    enum { MOST = 10000, PIECE = 700 };
    uint32_t in = 0, out = 0, chance = 1;
    const char *before;
    size_t room = 0;
    struct buf b;

    (void)state;
    buf_init(&b, MOST);
    for (int i = 0; i < 20000; i++) {
        unsigned char piece[PIECE];
        size_t n = (chance = chance * 1664525u + 1013904223u) % PIECE;

        for (size_t k = 0; k < n; k++)
            piece[k] = (unsigned char)((in + k) * 31);
        if (buf_add(&b, piece, n) == 0)
            in += (uint32_t)n;
        n = b.len ? (chance >> 8) % (b.len < PIECE ? b.len + 1 : PIECE) : 0;
        for (size_t k = 0; k < n; k++)
            assert_int_equal((unsigned char)b.data[k], (unsigned char)((out + k) * 31));
        before = b.data;
        buf_drop(&b, n);
        out += (uint32_t)n;
        assert_true(b.len == 0 || b.data == before + n);
        room = b.cap + b.dropped > room ? b.cap + b.dropped : room;
        assert_int_equal(buf_text(&b)[b.len], '\0');
    }
    assert_int_equal(b.len, in - out);
    assert_in_range(room, PIECE, 8 * MOST);
    buf_clear(&b);
}

static void reserve_and_commit_write_in_place(void **state)
{
    struct buf b;
    char *p;

    (void)state;
    buf_init(&b, 8);
    p = buf_reserve(&b, 8);
    assert_non_null(p);
    memcpy(p, "abcdefgh", 8);
    buf_commit(&b, 8);
    assert_string_equal(buf_text(&b), "abcdefgh");
    assert_null(buf_reserve(&b, 1));
    buf_clear(&b);
}

static void detach_gives_the_text_once_and_nothing_after_a_failure(void **state)
{
    struct buf b;
    char *text;

    (void)state;
    buf_init(&b, 4);
    assert_int_equal(buf_addstr(&b, "abcd"), 0);
    text = buf_detach(&b);
    assert_string_equal(text, "abcd");
    free(text);
    assert_int_equal(b.len, 0);
    assert_int_equal(buf_addstr(&b, "too long"), -EMSGSIZE);
    assert_null(buf_detach(&b));
    text = buf_detach(&b); /* the failure is forgotten with the contents */
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_is_the_empty_text),
        cmocka_unit_test(writes_stop_at_the_limit_and_leave_the_contents),
        cmocka_unit_test(printf_grows_past_the_first_allocation),
        cmocka_unit_test(drop_keeps_the_rest),
        cmocka_unit_test(a_queue_moves_nothing_when_it_drops_and_stays_within_a_few_times_its_most),
        cmocka_unit_test(reserve_and_commit_write_in_place),
        cmocka_unit_test(detach_gives_the_text_once_and_nothing_after_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
