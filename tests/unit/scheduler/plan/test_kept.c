/* Schedules that a search keeps: the same ones as are made anew, and never more than there is room for. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/plan/search.h"

static void expect_same(const struct schedule *a, const struct schedule *b)
{
    struct buf x, y;

    buf_init(&x, 1 << 24);
    buf_init(&y, 1 << 24);
    schedule_print(a, &x);
    schedule_print(b, &y);
    assert_string_equal(buf_text(&x), buf_text(&y));
    for (int r = 0; r < a->ranks; r++)
        for (int i = 0; i < a->chunks; i++)
            assert_int_equal(schedule_slots(a, r, i), schedule_slots(b, r, i));
    buf_clear(&x);
    buf_clear(&y);
}

static void what_was_made_once_is_given_again(void **state)
{
    struct kept *k = kept_new();
    struct schedule *a, *b, *other, *fresh;

    (void)state;
    assert_non_null(k);
    assert_int_equal(kept_take(k, SCHEDULE_1F1B, 4, 2, 8, &a, NULL), 0);
    assert_int_equal(kept_take(k, SCHEDULE_1F1B, 4, 2, 8, &b, NULL), 0);
    assert_int_equal(kept_take(k, SCHEDULE_ZB_H1, 4, 2, 8, &other, NULL), 0);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, other);
    assert_int_equal(schedule_new(SCHEDULE_1F1B, 4, 2, 8, &fresh, NULL), 0);
    expect_same(a, fresh);
    schedule_free(fresh);
    kept_give(k, a);
    kept_give(k, b);
    kept_give(k, other);
    kept_give(k, NULL);
    kept_free(k);
    assert_int_equal(kept_take(NULL, SCHEDULE_1F1B, 2, 1, 4, &a, NULL), 0); /* with nothing to keep it in */
    kept_give(NULL, a);
}

static void one_that_is_taken_stays_however_many_come_after(void **state)
{
    struct kept *k = kept_new();
    struct schedule *held, *s, *fresh;

    (void)state;
    assert_non_null(k);
    assert_int_equal(kept_take(k, SCHEDULE_1F1B, 2, 1, 3, &held, NULL), 0);
    for (int micros = 4; micros < 4 + 2 * KEPT_MAX; micros++) {
        assert_int_equal(kept_take(k, SCHEDULE_1F1B, 2, 1, micros, &s, NULL), 0);
        assert_int_equal(s->micros, micros);
        kept_give(k, s);
    }
    for (int i = 0; i < 3; i++) { /* each of these alone has a third of all the room */
        assert_int_equal(kept_take(k, SCHEDULE_1F1B, 64, 1, 4000 + i, &s, NULL), 0);
        assert_int_equal(s->micros, 4000 + i);
        kept_give(k, s);
    }
    assert_int_equal(schedule_new(SCHEDULE_1F1B, 2, 1, 3, &fresh, NULL), 0);
    expect_same(held, fresh);
    schedule_free(fresh);
    kept_give(k, held);
    kept_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_made_once_is_given_again),
        cmocka_unit_test(one_that_is_taken_stays_however_many_come_after),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
