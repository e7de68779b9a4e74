/* Which rank is found to be slow, when, and as what: on generated steps of many ranks and of few.
 *
 * MUSTER_SEED draws them anew; MUSTER_TEST_LONG=1 takes all steps without uneven replicas, too.
 */
#include "tests/unit/scheduler/diagnose/fleet.h"
#include "tests/unit/test.h"

#define CLEAN_STEPS 20000
#define TRIALS 40

static uint64_t seed_of(void)
{
    const char *given = getenv("MUSTER_SEED");
    static bool told;
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;

    if (!told)
        print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
    told = true;
    return seed;
}

static void no_rank_of_1024_is_found_in_20000_steps_of_noise(void **state)
{
    static const float imbalance[] = {0, 0.04f};
    struct lag_verdict v;
    struct fleet f;
    size_t suspects = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(imbalance); i++) {
        int steps = imbalance[i] > 0 || getenv("MUSTER_TEST_LONG") ? CLEAN_STEPS : CLEAN_STEPS / 10;

        fleet_make(&f, 8, 8, 16, seed_of() + i);
        f.imbalance = imbalance[i];
        fleet_start(&f);
        for (int done = 0; done < steps; done += LAG_WINDOW) {
            assert_int_equal(fleet_go(&f, LAG_WINDOW, &v), LAG_WINDOW);
            if (v.n > 0)
                fail_msg("step %d: rank %u is %.3f times as slow, %.1f sigmas, %s", done, v.found[0].rank,
                         v.found[0].factor, v.found[0].sigmas, lag_class_name(v.found[0].class_));
            suspects += v.suspects;
        }
        fleet_clear(&f);
    }
    print_message("suspects of the early rule: %zu\n", suspects);
}

/* With or without uneven replicas. */
static void a_rank_that_is_5_to_50_percent_slower_is_found_in_20_steps(void **state)
{
    static const struct {
        int percent, steps;
    } rows[] = {{5, 20}, {10, 20}, {20, 20}, {50, 20}};
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int trial = 0; trial < TRIALS / 4; trial++) {
            fleet_make(&f, 8, 8, 16, seed_of() + (uint64_t)trial);
            f.imbalance = trial % 2 ? 0.04f : 0;
            fleet_start(&f);
            assert_int_equal(fleet_go(&f, 50, &v), 50);
            f.victim = (uint32_t)(fleet_draw(&f) % f.n);
            f.slower = 1 + (float)rows[i].percent / 100;
            assert_in_range(fleet_go(&f, rows[i].steps, &v), 1, (uint64_t)rows[i].steps);
            assert_int_equal(v.n, 1);
            assert_int_equal(v.found[0].rank, f.victim);
            assert_int_equal(v.found[0].node, f.victim / 8);
            assert_int_equal(v.found[0].class_, LAG_COMPUTE);
            assert_true(fabs(v.found[0].factor - f.slower) < 0.02);
            assert_true(lag_is_slow(f.lag, f.victim));
            f.slower = 1; /* and well again */
            assert_in_range(fleet_go(&f, 50, &v), 1, 50);
            assert_true(v.found[0].over && v.found[0].rank == f.victim);
            assert_false(lag_is_slow(f.lag, f.victim));
            fleet_clear(&f);
        }
}

static void three_percent_is_at_the_edge_and_found_in_50_steps_on_the_average(void **state)
{
    struct lag_verdict v;
    struct fleet f;
    int found = 0, steps = 0;

    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        fleet_make(&f, 8, 8, 16, seed_of() + (uint64_t)trial);
        fleet_start(&f);
        f.victim = (uint32_t)(fleet_draw(&f) % f.n);
        f.slower = 1.03f;
        steps += fleet_go(&f, 100, &v);
        found += v.n > 0 && v.found[0].rank == f.victim;
        assert_true(v.n == 0 || v.found[0].rank == f.victim);
        fleet_clear(&f);
    }
    print_message("3 %%: %d of %d found, after %.0f steps on the average\n", found, TRIALS, (double)steps / TRIALS);
    assert_true(found >= TRIALS * 8 / 10);
    assert_true(steps <= 50 * TRIALS);
}

static void one_late_member_is_told_from_a_slow_link_and_from_both(void **state)
{
    static const struct {
        float slower, link;
        enum lag_kind kind;
        enum lag_class class_;
    } rows[] = {{1.3f, 1, LAG_TP, LAG_COMPUTE},
                {1, 4, LAG_TP, LAG_LINK},
                {1, 4, LAG_DP, LAG_LINK},
                {1.1f, 5, LAG_TP, LAG_BOTH}};
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        fleet_make(&f, 4, 2, 8, seed_of());
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 100, &v), 100);
        assert_int_equal(v.n, 0);
        f.victim = 21;
        f.slower = rows[i].slower;
        f.link = rows[i].link;
        f.kind = rows[i].kind;
        assert_in_range(fleet_go(&f, 20, &v), 1, 20);
        assert_int_equal(v.found[0].class_, rows[i].class_);
        if (rows[i].class_ == LAG_LINK) {
            assert_true(f.place[v.found[0].rank].team[rows[i].kind] == f.place[21].team[rows[i].kind]);
            assert_true(v.found[0].factor > 1.5 && v.found[0].factor < 5 && v.found[0].p < 0.7);
            f.link = 1; /* and well again */
            assert_in_range(fleet_go(&f, 50, &v), 1, 50);
            assert_true(v.found[0].over && v.found[0].class_ == LAG_LINK);
        } else {
            assert_int_equal(v.found[0].rank, 21);
            assert_true(v.found[0].late_us > 30000);
        }
        fleet_clear(&f);
    }
}

static void a_node_is_named_where_all_its_groups_alone_are_long_in_their_calls(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 8, 1, 8, seed_of()); /* a tp group is a node */
    fleet_start(&f);
    (void)fleet_go(&f, 100, &v);
    f.victim = 40;
    f.link = 4;
    assert_in_range(fleet_go(&f, 20, &v), 1, 20);
    assert_int_equal(v.found[0].class_, LAG_LINK);
    assert_int_equal(v.found[0].node, 5);
    assert_int_equal(v.found[0].rank, 40);
    fleet_clear(&f);
}

static void a_host_that_withholds_the_processor_or_data_is_told_from_a_slow_device(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (int data = 0; data < 2; data++) {
        fleet_make(&f, 2, 2, 8, seed_of());
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 50, &v), 50);
        f.victim = 3;
        f.slower = data ? 1 : 1.4f;
        f.idle = data ? 0 : 1;
        f.data = data ? 0.3f : 0;
        assert_in_range(fleet_go(&f, 20, &v), 1, 20);
        assert_int_equal(v.n, 1);
        assert_int_equal(v.found[0].rank, 3);
        assert_int_equal(v.found[0].class_, LAG_HOST);
        assert_int_equal(v.found[0].data, data);
        assert_true(v.found[0].withheld > 0.2 && v.found[0].withheld < 0.4);
        fleet_clear(&f);
    }
}

static void a_stage_with_more_to_do_is_told_once_and_no_rank_is_blamed(void **state)
{
    struct lag_verdict v;
    struct fleet f;
    int told = 0;

    (void)state;
    fleet_make(&f, 4, 4, 8, seed_of());
    f.stage = 1.5f;
    fleet_start(&f);
    for (int i = 0; i < 50; i++) {
        (void)fleet_go(&f, LAG_WINDOW, &v);
        told += (int)v.n;
        if (v.n > 0) {
            assert_int_equal(v.found[0].class_, LAG_ROLE);
            assert_int_equal(v.found[0].role, 3);
            assert_true(v.found[0].factor > 1.45 && v.found[0].factor < 1.55);
        }
    }
    assert_int_equal(told, 1);
    for (size_t i = 0; i < f.n; i++)
        assert_false(lag_is_slow(f.lag, i));
    fleet_clear(&f);
}

/* Documents: work differs from rank to rank, and so does time; time for each token does not. */
static void longer_documents_are_no_slowness(void **state)
{
    struct lag_verdict v = {.n = 0};
    struct fleet f;

    (void)state;
    fleet_make(&f, 2, 1, 8, seed_of());
    fleet_start(&f);
    for (; f.step < 500; f.step++) {
        for (size_t i = 0; i < f.n; i++) {
            float work = 1000 + 3000 * fleet_uniform(&f);
            struct lag_sample s = {.busy = work * 100 * (1 + 0.015f * fleet_normal(&f)), .wall = 1e6f, .work = work};

            lag_take(f.lag, i, f.step, &s);
        }
        if (f.step % LAG_WINDOW == LAG_WINDOW - 1) {
            assert_true(lag_judge(f.lag, &v));
            assert_int_equal(v.n, 0);
        }
    }
    fleet_clear(&f);
}

static void few_ranks_are_compared_with_each_other_and_with_their_own_past(void **state)
{
    static const struct {
        int tp, pp, dp;
    } rows[] = {{1, 1, 2}, {1, 1, 4}, {2, 1, 1}, {1, 2, 1}, {2, 2, 1}, {2, 1, 2}};
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (uint32_t victim = 0; victim < (uint32_t)(rows[i].tp * rows[i].pp * rows[i].dp); victim++) {
            fleet_make(&f, rows[i].tp, rows[i].pp, rows[i].dp, seed_of() + victim);
            f.stage = 1.2f;
            fleet_start(&f);
            for (int clean = 0; clean < 2000; clean += 100)
                if (fleet_go(&f, 100, &v) != 100)
                    fail_msg("tp %d pp %d dp %d: rank %u, %s, factor %.2f", rows[i].tp, rows[i].pp, rows[i].dp,
                             v.found[0].rank, lag_class_name(v.found[0].class_), v.found[0].factor);
            f.victim = victim;
            f.slower = 1.5f;
            assert_in_range(fleet_go(&f, 20, &v), 1, 20);
            if (v.n != 1 || v.found[0].rank != victim || v.found[0].class_ != LAG_COMPUTE)
                fail_msg("tp %d pp %d dp %d: rank %u instead of %u, %s", rows[i].tp, rows[i].pp, rows[i].dp,
                         v.found[0].rank, victim, lag_class_name(v.found[0].class_));
            assert_true(fabs(v.found[0].factor - 1.5) < 0.1);
            fleet_clear(&f);
        }
}

static void one_of_two_that_is_slow_since_the_beginning_is_found_and_a_faster_other_is_no_reason(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 1, 1, 2, seed_of());
    fleet_start(&f);
    f.victim = 1;
    f.slower = 1.5f;
    assert_in_range(fleet_go(&f, 50, &v), 1, 50);
    assert_int_equal(v.found[0].rank, 1);
    fleet_clear(&f);
    fleet_make(&f, 1, 1, 2, seed_of());
    fleet_start(&f);
    f.victim = 1;
    f.slower = 1.15f;
    assert_int_equal(fleet_go(&f, 200, &v), 200);
    f.slower = 1; /* it does better; the other is as it was */
    assert_int_equal(fleet_go(&f, 200, &v), 200);
    fleet_clear(&f);
}

static void steps_that_evaluate_or_save_count_for_nothing(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 1, 1, 16, seed_of());
    fleet_start(&f);
    for (int i = 0; i < 1000; i++) {
        fleet_step(&f, i % 10 < 4);
        if (f.step % LAG_WINDOW == 0) {
            assert_true(lag_judge(f.lag, &v));
            assert_int_equal(v.n, 0);
        }
    }
    f.victim = 3;
    f.slower = 1.5f;
    for (int i = 0; i < 200; i++) { /* most do: what is left is too little to judge by */
        fleet_step(&f, i % 10 < 6);
        if (f.step % LAG_WINDOW == 0) {
            assert_true(lag_judge(f.lag, &v));
            assert_int_equal(v.n, 0);
        }
    }
    fleet_clear(&f);
}

static void what_is_told_late_twice_or_not_at_all_holds_nothing_up(void **state)
{
    struct lag_sample s = {.busy = 100, .work = 1, .wall = 200, .cpu = 100};
    struct lag_verdict v;
    struct fleet f;
    int judged = 0;

    (void)state;
    fleet_make(&f, 1, 1, 4, 1);
    fleet_start(&f);
    lag_take(f.lag, 4, 0, &s); /* no such rank */
    for (uint64_t step = 0; step < 200; step++)
        for (size_t i = 0; i < 3; i++) { /* the fourth tells nothing */
            lag_take(f.lag, i, step, &s);
            lag_take(f.lag, i, step, &s);
            while (lag_judge(f.lag, &v)) {
                assert_int_equal(v.n, 0);
                judged++;
            }
        }
    assert_true(judged >= 10);
    lag_take(f.lag, 3, 5, &s); /* long judged */
    lag_take(f.lag, 3, UINT64_MAX, &s);
    lag_take(f.lag, 0, 200, &(struct lag_sample){.busy = NAN, .work = 0});
    while (lag_judge(f.lag, &v))
        assert_int_equal(v.n, 0);
    fleet_clear(&f);
}

static void every_class_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < LAG_CLASSES; i++)
        assert_true(lag_class_name((enum lag_class)i)[0] != '\0');
    assert_string_equal(lag_class_name(LAG_COMPUTE), "compute");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rank_of_1024_is_found_in_20000_steps_of_noise),
        cmocka_unit_test(a_rank_that_is_5_to_50_percent_slower_is_found_in_20_steps),
        cmocka_unit_test(three_percent_is_at_the_edge_and_found_in_50_steps_on_the_average),
        cmocka_unit_test(one_late_member_is_told_from_a_slow_link_and_from_both),
        cmocka_unit_test(a_node_is_named_where_all_its_groups_alone_are_long_in_their_calls),
        cmocka_unit_test(a_host_that_withholds_the_processor_or_data_is_told_from_a_slow_device),
        cmocka_unit_test(a_stage_with_more_to_do_is_told_once_and_no_rank_is_blamed),
        cmocka_unit_test(longer_documents_are_no_slowness),
        cmocka_unit_test(few_ranks_are_compared_with_each_other_and_with_their_own_past),
        cmocka_unit_test(one_of_two_that_is_slow_since_the_beginning_is_found_and_a_faster_other_is_no_reason),
        cmocka_unit_test(steps_that_evaluate_or_save_count_for_nothing),
        cmocka_unit_test(what_is_told_late_twice_or_not_at_all_holds_nothing_up),
        cmocka_unit_test(every_class_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
