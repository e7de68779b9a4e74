#include "server/control/waiters.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/philox.h"

#define LIMIT 1000

static int seen[LIMIT + 1]; /* how often each waiter, by the number it has of its own, was looked at */
static int looked, due_seen;
static int leaving; /* the one that has its answer; -1: none, -2: all */

static bool look(void *arg, void *own, bool due)
{
    int id;

    assert_null(arg);
    memcpy(&id, own, sizeof(id));
    seen[id]++;
    looked++;
    due_seen += due;
    return leaving == -2 || id == leaving;
}

static int take(struct waiters *w, int64_t now_us, int who)
{
    memset(seen, 0, sizeof(seen));
    looked = due_seen = 0;
    leaving = who;
    waiters_take(w, now_us, look, NULL);
    return looked;
}

/* LIMIT of them, waiter i for the thing i / 2, due at 1000 + i, asleep. */
static struct waiters *full(void)
{
    struct waiters *w = waiters_new(LIMIT, sizeof(int));

    for (int i = 0; i < LIMIT; i++)
        assert_int_equal(waiters_add(w, (uint64_t)i / 2, 1000 + i, &i), 0);
    assert_int_equal(take(w, 0, -1), LIMIT); /* new, each is looked at once */
    assert_int_equal(take(w, 0, -1), 0);
    return w;
}

static void of_a_thousand_only_those_of_the_thing_are_looked_at(void **state)
{
    struct waiters *w = full();

    (void)state;
    waiters_wake(w, 123);
    waiters_wake(w, 123);
    waiters_wake(w, 99999);
    assert_int_equal(take(w, 0, 246), 2);
    assert_int_equal(seen[246] + seen[247], 2);
    assert_int_equal(due_seen, 0);
    assert_int_equal(waiters_count(w), LIMIT - 1);
    waiters_wake(w, 123); /* the other one stayed */
    assert_int_equal(take(w, 0, -2), 1);
    assert_int_equal(seen[247], 1);
    waiters_wake(w, 123);
    assert_int_equal(take(w, 0, -2), 0);
    waiters_free(w);
}

static void those_past_their_deadline_are_looked_at(void **state)
{
    struct waiters *w = full();

    (void)state;
    waiters_wake_due(w, 1002);
    assert_int_equal(take(w, 1002, -2), 3);
    assert_int_equal(due_seen, 3);
    waiters_wake_all(w);
    assert_int_equal(take(w, 0, -2), LIMIT - 3);
    assert_int_equal(due_seen, 0);
    assert_int_equal(waiters_count(w), 0);
    waiters_free(w);
}

static void the_limit_holds_and_places_are_used_again(void **state)
{
    struct waiters *w = full();
    int one = LIMIT;

    (void)state;
    assert_int_equal(waiters_add(w, 7, 0, &one), -ENOSPC);
    waiters_wake(w, 7);
    assert_int_equal(take(w, 0, 14), 2);
    assert_int_equal(waiters_add(w, 7, 0, &one), 0);
    assert_int_equal(waiters_add(w, 7, 0, &one), -ENOSPC);
    waiters_wake(w, 7);
    assert_int_equal(take(w, 0, -1), 2);
    assert_int_equal(seen[15] + seen[LIMIT], 2);
    waiters_free(w);
    waiters_free(NULL);
}

/* Against the plain way: look at all, each time. */
static void any_order_of_coming_and_going_finds_the_same(void **state)
{
    static const uint32_t key[2] = {5, 0};
    struct waiters *w = waiters_new(40, sizeof(int));
    uint64_t thing[40];
    bool there[40] = {false};

    (void)state;
    print_message("seed %u\n", key[0]);
    for (uint32_t step = 0; step < 4000; step++) {
        uint32_t r[4];
        int id;

        philox4x32((uint32_t[4]){step, 0, 0, 0}, key, r);
        id = (int)(r[0] % 40);
        if (r[1] % 2 == 0 && !there[id]) {
            thing[id] = (uint64_t)(r[2] % 7) << 40; /* far apart, so that some share a bucket */
            there[id] = true;
            assert_int_equal(waiters_add(w, thing[id], 0, &id), 0);
            assert_int_equal(take(w, 0, -1), 1);
        } else {
            uint64_t woken = (uint64_t)(r[2] % 7) << 40;
            int want = 0;

            waiters_wake(w, woken);
            (void)take(w, 0, id);
            for (int i = 0; i < 40; i++) {
                assert_int_equal(seen[i], there[i] && thing[i] == woken);
                want += seen[i];
            }
            assert_int_equal(looked, want);
            there[id] = there[id] && thing[id] != woken;
        }
    }
    waiters_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_thousand_only_those_of_the_thing_are_looked_at),
        cmocka_unit_test(those_past_their_deadline_are_looked_at),
        cmocka_unit_test(the_limit_holds_and_places_are_used_again),
        cmocka_unit_test(any_order_of_coming_and_going_finds_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
