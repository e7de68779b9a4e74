#include "tests/unit/test.h"

#include <stdio.h>
#include <time.h>

#include "tests/unit/scheduler/diagnose/programs.h"

#define RUNS 400

static uint64_t state_of_chance;

static int below(int n)
{
    state_of_chance = state_of_chance * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((state_of_chance >> 33) % (uint64_t)n);
}

static struct hang_verdict judge(const struct hang_rank *ranks, size_t n)
{
    struct hang_verdict v;

    assert_int_equal(hang_judge(ranks, n, &v), 0);
    return v;
}

/* Of any layout, with any rank that stops anywhere: that rank is named, and what it does. */
static void whoever_stops_is_named(void **state)
{
    const char *told = getenv("MUSTER_SEED");
    unsigned seed = told ? (unsigned)strtoul(told, NULL, 10) : (unsigned)time(NULL);

    (void)state;
    print_message("MUSTER_SEED=%u\n", seed);
    state_of_chance = seed;
    for (int i = 0; i < RUNS; i++) {
        int tp = 1 << below(4), pp = 1 + below(5), dp = 1 + below(6), kind = below(3);
        struct program p;
        struct hang_verdict v;
        int victim = below(tp * pp * dp);
        enum hang_class want = kind == 0 ? HANG_STOPPED : kind == 1 ? HANG_NOT_ENTERED : HANG_PHASE;

        program_run(&p, tp, pp, dp, victim, below(40));
        p.rank[victim].stopped = kind == 0;
        p.rank[victim].phase = kind == 2 ? HANG_SAVES : HANG_COMPUTES;
        p.rank[victim].idle_us = kind == 2 ? 601000000 : 8000000;
        v = judge(p.rank, (size_t)p.n);
        if (v.class_ != want || v.roots != 1 || v.root[0] != victim)
            fail_msg("tp %d pp %d dp %d: rank %d stopped after %ld operations, but %s names %zu, the first %d", tp, pp,
                     dp, victim, p.stop, hang_class_name(v.class_), v.roots, v.root[0]);
        assert_true(v.waiter != victim && (p.n == 1 || v.waiter >= 0 || v.waiting == 0));
        p.rank[below(p.n)].told = false; /* somebody goes on: it may all be well */
        assert_int_equal(judge(p.rank, (size_t)p.n).class_, HANG_NONE);
        program_clear(&p);
    }
}

/* Of any layout, with any rank that leaves out a call, makes two in the wrong order or one of another size: that rank
 * is named, the operation, and what the others called there. */
static void whoever_calls_something_else_is_named(void **state)
{
    const char *told = getenv("MUSTER_SEED");
    unsigned seed = told ? (unsigned)strtoul(told, NULL, 10) : (unsigned)time(NULL);
    int did = 0;

    (void)state;
    print_message("MUSTER_SEED=%u\n", seed);
    state_of_chance = seed;
    while (did < RUNS) {
        int tp = 1 << below(4), pp = 1 + below(4), dp = 1 + below(6);
        enum program_fault fault = PROGRAM_SKIPS + below(3);
        struct program p = {.tp = tp, .pp = pp, .dp = dp};
        int victim = below(tp * pp * dp), stage = victim / tp % pp, op, ops = PROGRAM_MICRO * (PROGRAM_CALLS + 2) + 2;
        long at = ops + below(3 * ops);
        struct hang_verdict v;

        p.ops = ops;
        op = program_op(&p, stage, at);
        if (tp * pp * dp == 1 || op < 0 || op == OP_RECV || op == OP_SEND || (op == OP_TENSOR && tp == 1) ||
            (op == OP_DATA && dp == 1) || (fault == PROGRAM_SWAPS && op != OP_DATA))
            continue; /* no fault at all */
        did++;
        program_fail(&p, tp, pp, dp, victim, fault, at);
        v = judge(p.rank, (size_t)p.n);
        if (v.class_ != HANG_DIFFERS || v.roots != 1 || v.root[0] != victim)
            fail_msg("tp %d pp %d dp %d: rank %d has fault %d at operation %ld, but %s names %zu, the first %d", tp, pp,
                     dp, victim, (int)fault, at, hang_class_name(v.class_), v.roots, v.root[0]);
        assert_int_not_equal(v.odd.did, v.odd.others);
        if (fault == PROGRAM_SIZE) /* also where it is one of two, neither of whom is most */
            assert_int_equal(v.odd.did, PROGRAM_WRONG);
        p.rank[below(p.n)].told = false;
        assert_int_equal(judge(p.rank, (size_t)p.n).class_, HANG_NONE);
        program_clear(&p);
    }
}

/* Ranks find by themselves that their calls differ, when others of their role have not come so far: of the two that
 * have, the one is named that departs from its own last step, whichever stands first. */
static void the_odd_one_is_named_before_others_have_come_to_that_call(void **state)
{
    static const uint32_t usual[] = {1, 2, 3, 4, 1, 2}, wrong[] = {1, 2, 3, 4, 1, 9};

    (void)state;
    for (int victim = 0; victim < 4; victim++) {
        struct order_list list[4];
        struct hang_rank r[4];
        struct hang_verdict v;

        for (int i = 0; i < 4; i++) {
            bool there = i == victim || i == (victim ^ 1);

            list[i] = (struct order_list){.role = 5,
                                          .span = {3, 1},
                                          .ops = {there ? 2 : 1, 4},
                                          .odd = i == victim ? 3 : 1,
                                          .window = i == victim ? wrong : usual,
                                          .n = there ? 6 : 5};
            r[i] = (struct hang_rank){.told = true, .peer = -1, .order = &list[i]};
        }
        assert_int_equal(hang_odd(r, 4, &v), 0);
        assert_int_equal(v.class_, HANG_DIFFERS);
        assert_int_equal(v.roots, 1);
        assert_int_equal(v.root[0], victim);
        assert_int_equal(v.odd.did, 9);
        assert_int_equal(v.odd.others, 2);
    }
}

static void two_who_stop_are_both_named(void **state)
{
    struct program p;
    struct hang_verdict v;

    (void)state;
    program_run(&p, 2, 2, 4, 5, 7);
    p.rank[5].stopped = true;
    p.rank[12].stopped = true; /* it was waiting when that happened */
    v = judge(p.rank, (size_t)p.n);
    assert_int_equal(v.class_, HANG_STOPPED);
    assert_int_equal(v.roots, 2);
    assert_int_equal(v.root[0], 5);
    assert_int_equal(v.root[1], 12);
    program_clear(&p);
}

static void a_call_that_all_are_in_is_told_with_its_members(void **state)
{
    struct hang_group g[4];
    struct hang_rank r[4];
    struct hang_verdict v;

    (void)state;
    for (int i = 0; i < 4; i++) {
        g[i] = (struct hang_group){.key = 9 + (uint64_t)(i / 2), .entered = 7, .size = 2};
        r[i] = (struct hang_rank){.told = true,
                                  .inside = true,
                                  .peer = -1,
                                  .key = g[i].key,
                                  .call = 7,
                                  .phase = HANG_COMPUTES,
                                  .idle_us = 6000000,
                                  .gap_us = 1000,
                                  .group = &g[i],
                                  .n_groups = 1};
    }
    r[2].inside = r[3].inside = true;
    r[2].peer = 0; /* the others wait for a message of the first, which is in its call */
    r[3].peer = 1;
    v = judge(r, 4);
    assert_int_equal(v.class_, HANG_IN_CALL);
    assert_int_equal(v.roots, 2);
    assert_int_equal(v.root[0], 0);
    assert_int_equal(v.root[1], 1);
    assert_int_equal(v.waiting, 4);
}

static void a_message_that_both_ends_are_at_is_told_with_its_ends(void **state)
{
    struct hang_rank r[2] = {
        {.told = true,
         .inside = true,
         .peer = 1,
         .sends = true,
         .phase = HANG_COMPUTES,
         .idle_us = 6000000,
         .gap_us = 1},
        {.told = true, .inside = true, .peer = 0, .key = 3, .phase = HANG_COMPUTES, .idle_us = 6000000, .gap_us = 1},
    };
    struct hang_verdict v;

    (void)state;
    r[0].key = 3;
    v = judge(r, 2);
    assert_int_equal(v.class_, HANG_IN_CALL);
    assert_int_equal(v.roots, 2);
    r[0].sends = false; /* both wait for the other's word: nobody sends */
    assert_int_equal(judge(r, 2).class_, HANG_CYCLE);
}

/* A ring of messages, and a rank that waits in a call behind it. */
static void a_message_that_is_lost_among_ranks_in_their_usual_order_is_a_link(void **state)
{
    struct order_list usual = {.span = {3, 1}, .ops = {4, 9}, .odd = 1}, other = {.span = {3, 1}, .odd = 5};
    struct hang_group g[2] = {{.key = 9, .entered = 6, .size = 2}, {.key = 9, .entered = 5, .size = 2}};
    struct hang_rank r[4] = {{.peer = -1, .key = 9, .call = 6, .group = &g[0], .n_groups = 1},
                             {.peer = 2, .key = 3, .order = &usual, .group = &g[1], .n_groups = 1},
                             {.peer = 3, .key = 3, .order = &usual},
                             {.peer = 1, .key = 3, .order = &usual}};
    struct hang_verdict v;

    (void)state;
    for (int i = 0; i < 4; i++) {
        r[i].told = r[i].inside = true;
        r[i].phase = HANG_COMPUTES;
        r[i].idle_us = 6000000;
        r[i].gap_us = 1;
    }
    v = judge(r, 4);
    assert_int_equal(v.class_, HANG_IN_CALL);
    assert_int_equal(v.roots, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(v.root[i], i + 1);
    assert_int_equal(v.waiting, 4);
    r[2].order = NULL; /* not known: it may be that they called in another order */
    assert_int_equal(judge(r, 4).class_, HANG_CYCLE);
    r[2].order = &other;
    assert_int_equal(judge(r, 4).class_, HANG_CYCLE);
    r[2].order = &usual;
    r[2].peer = 7; /* that there is not */
    assert_int_equal(judge(r, 4).class_, HANG_CYCLE);
}

static void calls_in_different_orders_are_a_cycle(void **state)
{
    struct hang_group a[2] = {{.key = 1, .entered = 5, .size = 2}, {.key = 2, .entered = 3, .size = 2}};
    struct hang_group b[2] = {{.key = 1, .entered = 4, .size = 2}, {.key = 2, .entered = 4, .size = 2}};
    struct hang_rank r[2] = {
        {.told = true, .inside = true, .peer = -1, .key = 1, .call = 5, .group = a, .n_groups = 2},
        {.told = true, .inside = true, .peer = -1, .key = 2, .call = 4, .group = b, .n_groups = 2}};
    struct hang_verdict v;

    (void)state;
    for (int i = 0; i < 2; i++) {
        r[i].phase = HANG_COMPUTES;
        r[i].idle_us = 9000000;
        r[i].gap_us = 1000;
    }
    v = judge(r, 2);
    assert_int_equal(v.class_, HANG_CYCLE);
    assert_int_equal(v.roots, 2);
}

static void a_member_that_never_called_in_its_group_is_found(void **state)
{
    struct hang_group g = {.key = 4, .entered = 1, .size = 2};
    struct hang_rank r[2] = {
        {.told = true, .inside = true, .peer = -1, .key = 4, .call = 1, .group = &g, .n_groups = 1},
        {.told = true, .peer = -1}};
    struct hang_verdict v;

    (void)state;
    r[0].idle_us = r[1].idle_us = 601000000;
    v = judge(r, 2);
    assert_int_equal(v.class_, HANG_PHASE);
    assert_int_equal(v.roots, 1);
    assert_int_equal(v.root[0], 1);
    r[1].idle_us = 599000000; /* a start may take long */
    assert_int_equal(judge(r, 2).class_, HANG_NONE);
}

static void each_phase_has_its_deadline(void **state)
{
    static const struct {
        enum hang_phase phase;
        int64_t gap_us, want_s, usual_us, allowed_s;
    } row[] = {
        {HANG_STARTS, 0, 600, 0, 0},
        {HANG_STARTS, 1000, 600, 0, 0},
        {HANG_COMPUTES, 0, 600, 0, 0},
        {HANG_COMPUTES, 1000, 5, 0, 0},
        {HANG_COMPUTES, 1000000, 5, 0, 0},
        {HANG_COMPUTES, 3000000, 15, 0, 0},
        {HANG_COMPUTES, 23000000, 115, 0, 0},
        {HANG_COMPUTES, 30000000, 120, 0, 0},
        {HANG_COMPUTES, 90000000, 270, 0, 0},
        {HANG_EVALUATES, 1000, 30, 0, 0},
        {HANG_EVALUATES, 7000000, 35, 0, 0},
        {HANG_SAVES, 1000, 600, 0, 0},
        {HANG_ENDS, 0, 600, 0, 0},
        {HANG_SAVES, 1000, 60, 2000000, 0},
        {HANG_SAVES, 1000, 100, 20000000, 0},
        {HANG_SAVES, 1000, 600, 500000000, 0},
        {HANG_READS, 1000, 5, 0, 0}, /* never yet: as it computes */
        {HANG_READS, 1000, 5, 100, 0},
        {HANG_READS, 1000, 15, 3000000, 0},
        {HANG_READS, 1000, 300, 90000000, 0},
        {HANG_READS, 0, 600, 0, 0},
        {HANG_EVALUATES, 1000, 180, 0, 120}, /* what it asked for, and half as much again */
        {HANG_COMPUTES, 1000, 90, 0, 60},
        {HANG_SAVES, 1000, 1800, 1, 1200},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        assert_int_equal(hang_deadline_us(&(struct hang_rank){.phase = row[i].phase,
                                                              .usual_us = row[i].usual_us,
                                                              .allowed_us = row[i].allowed_s * 1000000},
                                          row[i].gap_us),
                         row[i].want_s * 1000000);
}

static void no_ranks_and_one_rank_are_judged_too(void **state)
{
    struct hang_rank r = {.told = true, .peer = -1, .phase = HANG_COMPUTES, .idle_us = 6000000, .gap_us = 1000};
    struct hang_verdict v = judge(NULL, 0);

    (void)state;
    assert_int_equal(v.class_, HANG_NONE);
    v = judge(&r, 1);
    assert_int_equal(v.class_, HANG_NOT_ENTERED);
    assert_int_equal(v.roots, 1);
    assert_int_equal(v.waiter, -1);
    r.idle_us = 4000000;
    assert_int_equal(judge(&r, 1).class_, HANG_NONE);
    r.stopped = true; /* it may be let go on yet */
    assert_int_equal(judge(&r, 1).class_, HANG_NONE);
    r.idle_us = 6000000;
    assert_int_equal(judge(&r, 1).class_, HANG_STOPPED);
    r.stopped = false;
    r.inside = true;
    r.peer = 7; /* there is no such rank */
    assert_int_equal(judge(&r, 1).class_, HANG_CYCLE);
}

static void every_class_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < HANG_CLASSES; i++)
        assert_true(hang_class_name((enum hang_class)i)[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_stops_is_named),
        cmocka_unit_test(whoever_calls_something_else_is_named),
        cmocka_unit_test(the_odd_one_is_named_before_others_have_come_to_that_call),
        cmocka_unit_test(two_who_stop_are_both_named),
        cmocka_unit_test(a_call_that_all_are_in_is_told_with_its_members),
        cmocka_unit_test(a_message_that_both_ends_are_at_is_told_with_its_ends),
        cmocka_unit_test(a_message_that_is_lost_among_ranks_in_their_usual_order_is_a_link),
        cmocka_unit_test(calls_in_different_orders_are_a_cycle),
        cmocka_unit_test(a_member_that_never_called_in_its_group_is_found),
        cmocka_unit_test(each_phase_has_its_deadline),
        cmocka_unit_test(no_ranks_and_one_rank_are_judged_too),
        cmocka_unit_test(every_class_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
