/* What a wait lets go on, when it sleeps, and what ends it, with sources that do as the tests say. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "worker/engine/comm/wait.h"
#include "worker/flight/flight_read.h"

#define TIMEOUT_US 60000

struct fake { /* a source */
    struct wait *wait;
    int empty;          /* progress finds nothing so often first; */
    int moves;          /* then it has so many more to make, */
    bool *done;         /* and sets this with the last; NULL: nothing */
    bool late, unheard; /* late: something happens between falling asleep and sleeping */
    int lost, left;     /* of ranks, found at a look; -1: none */
    int looks, announced, arms, sleeps, awakes, abandons;
    bool alone; /* as announce was told */
    int64_t slept_us;
};

static bool fake_progress(void *self)
{
    struct fake *f = self;

    if (f->late && f->announced == 1 && f->sleeps == 0) {
        f->late = false;
        *f->done = true;
        return true;
    }
    if (f->empty > 0 && f->empty--)
        return false;
    if (f->moves == 0)
        return false;
    if (--f->moves == 0 && f->done)
        *f->done = true;
    return true;
}

static void fake_look(void *self)
{
    struct fake *f = self;

    f->looks++;
    if (f->lost >= 0)
        f->wait->peer[f->lost].lost = true;
    if (f->left >= 0)
        f->wait->peer[f->left].left = true;
}

static bool fake_unheard(const void *self)
{
    return ((const struct fake *)self)->unheard;
}

static void fake_announce(void *self, bool alone)
{
    struct fake *f = self;

    f->announced++;
    f->alone = alone;
}

static int fake_arm(void *self)
{
    ((struct fake *)self)->arms++;
    return -1;
}

static void fake_sleep(void *self, int64_t us)
{
    struct fake *f = self;

    f->sleeps++;
    f->slept_us = us;
    if (f->sleeps == 3 && f->done)
        *f->done = true; /* what it was woken by */
}

static void fake_awake(void *self)
{
    ((struct fake *)self)->awakes++;
}

static void fake_abandon(void *self)
{
    ((struct fake *)self)->abandons++;
}

static const struct wait_source sleeper = {.progress = fake_progress,
                                           .look = fake_look,
                                           .unheard = fake_unheard,
                                           .announce = fake_announce,
                                           .arm = fake_arm,
                                           .sleep = fake_sleep,
                                           .awake = fake_awake,
                                           .abandon = fake_abandon};
static const struct wait_source mover = {.progress = fake_progress, .abandon = fake_abandon};

struct scene {
    struct wait wait;
    struct flight *flight;
    struct fake a, b;
    bool done;
};

static void begin(struct scene *s, int64_t timeout_us)
{
    *s = (struct scene){.a = {.lost = -1, .left = -1}, .b = {.lost = -1, .left = -1}};
    assert_int_equal(flight_private(&s->flight, NULL), 0);
    assert_int_equal(wait_init(&s->wait, 0, 3, s->flight, timeout_us, NULL), 0);
    s->a.wait = s->b.wait = &s->wait;
    wait_add(&s->wait, &sleeper, &s->a);
}

static void end(struct scene *s)
{
    wait_clear(&s->wait);
    flight_close(s->flight);
}

static int until(struct scene *s)
{
    return wait_until(&s->wait, &s->done, 1, "tp");
}

static void a_wait_lets_all_sources_go_on_and_does_not_sleep_while_one_moves(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, TIMEOUT_US);
    wait_add(&s.wait, &mover, &s.b);
    s.a.moves = 3;
    s.b.moves = 1000;
    s.b.done = &s.done;
    assert_int_equal(until(&s), 0);
    assert_int_equal(s.a.moves + s.b.moves, 0);
    assert_int_equal(s.a.announced + s.a.looks + s.a.abandons, 0);
    end(&s);
}

static void a_wait_sleeps_with_its_only_sleeper_and_is_awake_after_each_time(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 10000000);
    wait_add(&s.wait, &mover, &s.b);
    s.a.done = &s.done; /* the third sleep is ended by what was waited for */
    assert_int_equal(until(&s), 0);
    assert_true(s.a.alone && s.a.sleeps == 3 && s.a.arms == 0);
    assert_true(s.a.announced == 3 && s.a.awakes == 3);
    assert_int_equal(s.a.slept_us, WAIT_SLICE_US);
    end(&s);
}

static void a_wait_that_may_spin_looks_on_before_it_sleeps(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 10000000);
    wait_spin(&s.wait);
    assert_true(s.wait.spin_us > 0 && s.wait.spin_us <= 1000);
    s.wait.spin_us = 10000000; /* for ever, here */
    s.a.empty = 100000;        /* looks before it moves */
    s.a.moves = 1;
    s.a.done = &s.done;
    assert_int_equal(until(&s), 0);
    assert_int_equal(s.a.announced + s.a.sleeps, 0);
    end(&s);
    begin(&s, 10000000); /* where more threads run than there are cores */
    assert_int_equal(s.wait.spin_us, 0);
    s.a.empty = 100000;
    s.a.done = &s.done;
    assert_int_equal(until(&s), 0);
    assert_int_equal(s.a.sleeps, 3);
    end(&s);
}

static void long_waits_soon_spin_no_more_until_one_was_short(void **state)
{
    int64_t spin_us = 100;

    (void)state;
    for (int i = 0; i < 7; i++) /* all that they spend in vain is twice the first */
        spin_us = wait_spin_next(spin_us, 100, 50000);
    assert_int_equal(spin_us, 0);
    assert_int_equal(wait_spin_next(0, 100, 50000), 0);
    assert_int_equal(wait_spin_next(0, 100, 150), 100);
    assert_int_equal(wait_spin_next(0, 0, 50), 0);
}

static void what_happens_while_falling_asleep_is_not_slept_through(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, TIMEOUT_US);
    s.a.late = true;
    s.a.done = &s.done;
    assert_int_equal(until(&s), 0);
    assert_true(s.a.announced == 1 && s.a.sleeps == 0 && s.a.awakes == 1);
    end(&s);
}

static void two_sleepers_are_polled_together(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 5000);
    wait_add(&s.wait, &sleeper, &s.b);
    assert_int_equal(until(&s), -ETIMEDOUT);
    assert_true(!s.a.alone && !s.b.alone && s.a.sleeps + s.b.sleeps == 0);
    assert_true(s.a.arms > 0 && s.a.arms == s.b.arms && s.a.announced == s.a.awakes && s.b.announced == s.b.awakes);
    end(&s);
}

static void sleeps_are_short_while_something_ends_that_wakes_nobody(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 10000000);
    s.a.done = &s.done;
    s.a.unheard = true;
    assert_int_equal(until(&s), 0);
    assert_true(s.a.slept_us > 0 && s.a.slept_us <= 1000);
    end(&s);
}

static void a_wait_without_success_ends_once_and_gives_everything_up(void **state)
{
    static const struct {
        int lost, left;
        bool abort, unheard;
        int code;
        const char *words;
    } cases[] = {
        {.lost = 2, .left = -1, .code = -ECONNRESET, .words = "rank 2 is gone"},
        {.lost = -1, .left = 1, .code = -ECONNRESET, .words = "rank 1 left while rank 0 waits for it in 'tp'"},
        {.lost = -1, .left = 2, .code = -ETIMEDOUT, .words = "rank 1 did not answer rank 0 in 'tp' for 60 ms"},
        {.lost = -1, .left = 1, .unheard = true, .code = -ETIMEDOUT, .words = "did not answer"},
        {.lost = 2, .left = -1, .abort = true, .code = -ECANCELED, .words = "told to give up while waiting for rank 1"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct scene s;
        struct merr err = {""};

        begin(&s, TIMEOUT_US);
        wait_add(&s.wait, &mover, &s.b);
        s.a.lost = cases[i].lost;
        s.a.left = cases[i].left;
        s.a.unheard = cases[i].unheard;
        if (cases[i].abort)
            flight_order_set(s.flight, FLIGHT_ABORT);
        assert_int_equal(until(&s), cases[i].code);
        assert_int_equal(failure_tell(&s.wait.failure, &err), cases[i].code);
        assert_non_null(strstr(err.text, cases[i].words));
        assert_true(s.a.abandons == 1 && s.b.abandons == 1);
        /* only one that is gone without a word may be the root: who watches is told which */
        assert_int_equal(flight_read_lost(s.flight), cases[i].lost >= 0 && !cases[i].abort ? cases[i].lost + 1 : 0);
        s.done = false;
        assert_int_equal(until(&s), cases[i].code); /* the first failure answers from now on */
        end(&s);
    }
}

static void a_watch_gives_what_a_leaver_sent_time_to_arrive(void **state)
{
    static const int rank[] = {0, 1};
    const struct wait_members of = {.group = "dp", .rank = rank, .n = 2};
    struct wait_vigil v = {0};
    struct scene s;
    struct merr err = {""};
    int64_t began = clock_mono_us();
    int r;

    (void)state;
    begin(&s, 20000000);
    s.a.left = 1;
    while ((r = wait_watch(&s.wait, &v, &of, "work")) == 0)
        ;
    assert_int_equal(r, -ECONNRESET);
    assert_true(clock_mono_us() - began >= WAIT_LEAVE_US);
    (void)failure_tell(&s.wait.failure, &err);
    assert_string_equal(err.text, "rank 1 left while the GPUs of 'dp' work");
    end(&s);
}

static void a_source_that_is_removed_is_not_asked_again(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, TIMEOUT_US);
    wait_add(&s.wait, &sleeper, &s.b);
    wait_remove(&s.wait, &s.a);
    wait_remove(&s.wait, &s.a);
    s.a.moves = s.b.moves = 5;
    s.b.done = &s.done;
    assert_int_equal(until(&s), 0);
    assert_true(s.a.moves == 5 && s.b.moves == 0);
    wait_nap(&s.wait, 1);
    assert_true(s.b.alone && s.b.sleeps == 1 && s.a.announced == 0);
    end(&s);
}

static void only_the_first_failure_is_kept(void **state)
{
    struct failure f = {0};
    struct merr err = {""};

    (void)state;
    assert_int_equal(failure_keep(&f, -EIO, "link %d broke", 3), -EIO);
    assert_int_equal(failure_keep(&f, -ETIMEDOUT, "nobody answered"), -EIO);
    failure_add(&f, ", and %s", "stays so");
    assert_int_equal(failure_tell(&f, &err), -EIO);
    assert_string_equal(err.text, "link 3 broke, and stays so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_lets_all_sources_go_on_and_does_not_sleep_while_one_moves),
        cmocka_unit_test(a_wait_sleeps_with_its_only_sleeper_and_is_awake_after_each_time),
        cmocka_unit_test(a_wait_that_may_spin_looks_on_before_it_sleeps),
        cmocka_unit_test(long_waits_soon_spin_no_more_until_one_was_short),
        cmocka_unit_test(what_happens_while_falling_asleep_is_not_slept_through),
        cmocka_unit_test(two_sleepers_are_polled_together),
        cmocka_unit_test(sleeps_are_short_while_something_ends_that_wakes_nobody),
        cmocka_unit_test(a_wait_without_success_ends_once_and_gives_everything_up),
        cmocka_unit_test(a_watch_gives_what_a_leaver_sent_time_to_arrive),
        cmocka_unit_test(a_source_that_is_removed_is_not_asked_again),
        cmocka_unit_test(only_the_first_failure_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
