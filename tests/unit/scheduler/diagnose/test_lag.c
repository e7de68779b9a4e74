/* Which rank is found to be slow, when, and as what: on generated steps of many ranks and of few.
 *
 * MUSTER_SEED draws them anew; MUSTER_TEST_LONG=1 takes all steps without uneven replicas, too.
 */
#include "tests/unit/scheduler/diagnose/fleet.h"
#include "tests/unit/short.h"
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

        if (test_in_short())
            steps = CLEAN_STEPS / 10;

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

static void three_percent_are_found_in_50_steps(void **state)
{
    struct lag_verdict v;
    struct fleet f;
    int found = 0, late = 0, steps = 0;

    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        int took;

        fleet_make(&f, 8, 8, 16, seed_of() + (uint64_t)trial);
        f.imbalance = trial % 2 ? 0.04f : 0;
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 50, &v), 50);
        f.victim = (uint32_t)(fleet_draw(&f) % f.n);
        f.slower = 1.03f;
        took = fleet_go(&f, 100, &v);
        steps += took;
        found += v.n > 0 && v.found[0].rank == f.victim && took <= 50;
        late += v.n > 0 && took > 50;
        assert_true(v.n == 0 || v.found[0].rank == f.victim);
        fleet_clear(&f);
    }
    print_message("3 %%: %d of %d found in 50 steps, %d more in 100; after %.0f steps on the average\n", found, TRIALS,
                  late, (double)steps / TRIALS);
    assert_true(found >= TRIALS * 98 / 100);
}

/* Steps of 5 ms, of which ranks tell by sums, each agent by sums of its own length for a while. */
static void short_steps_are_judged_by_sums_in_which_each_of_them_counts(void **state)
{
    static const uint32_t span[] = {8, 4, 16, 8};
    struct lag_verdict v = {.n = 0};
    struct fleet f;
    uint64_t step = 0, end;

    (void)state;
    fleet_make(&f, 1, 1, 4, seed_of());
    fleet_start(&f);
    for (; step < 3200 && v.n == 0; step += 16) {
        bool slow = step >= 1600;

        for (size_t i = 0; i < f.n; i++)
            for (uint32_t at = 0, k = step < 800 || step >= 960 ? 8 : span[i]; at < 16; at += k) {
                float base = 5000.0f * (float)k * (1 + 0.02f * fleet_normal(&f));
                /* stopped for 30 ms in every tenth step: the median step shows nothing */
                float more = slow && i == 2 ? 30000.0f * (float)k / 10 : 0;
                struct lag_sample s = {
                    .busy = base + more, .wall = 1.7f * base + more, .work = 64.0f * (float)k, .cpu = base};

                lag_take(f.lag, i, &(struct lag_span){step + at, k, k}, &s);
            }
        while (v.n == 0 && lag_judge(f.lag, &v))
            ;
        assert_true(v.n == 0 || slow);
    }
    end = v.end_step;
    assert_int_equal(v.n, 1);
    assert_int_equal(v.found[0].rank, 2);
    assert_int_equal(v.found[0].class_, LAG_HOST);
    assert_true(fabs(v.found[0].factor - 1.6) < 0.1 && fabs(v.found[0].withheld - 0.375) < 0.06);
    assert_in_range(end, 1600, 1600 + 20 * 8);
    assert_int_equal(v.end_step - v.first_step, 80);
    for (v.n = 0; step < 6400; step += 1) { /* they become longer, and are told one by one */
        for (size_t i = 0; i < f.n; i++)
            lag_take(f.lag, i, &(struct lag_span){step, 1, 1},
                     &(struct lag_sample){.busy = 50000, .wall = 60000, .work = 64, .cpu = 50000});
        while (lag_judge(f.lag, &v))
            end = v.end_step - v.first_step;
    }
    assert_int_equal(end, LAG_WINDOW);
    fleet_clear(&f);
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
        f.no_cpu = rows[i].link > 1; /* processors of a node have no link that may be slow */
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
    f.no_cpu = true;
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

/* On a device that is no processor, or where threads that wait take some, its time tells nothing; the kernel counts. */
static void a_rank_that_waits_for_a_processor_is_told_by_what_the_kernel_counts(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (int throttled = 0; throttled < 2; throttled++) {
        fleet_make(&f, 2, 2, 8, seed_of());
        f.no_cpu = true;
        f.starved = 0.1f; /* all do, a little */
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 100, &v), 100);
        f.victim = 3;
        f.slower = 1.5f;
        f.idle = 1;
        f.throttled = throttled;
        assert_in_range(fleet_go(&f, 20, &v), 1, 20);
        assert_int_equal(v.n, 1);
        assert_int_equal(v.found[0].rank, 3);
        assert_int_equal(v.found[0].class_, LAG_HOST);
        assert_false(v.found[0].data);
        assert_true(v.found[0].withheld > 0.25 && v.found[0].withheld < 0.45);
        assert_true((v.found[0].throttled > 0.2) == throttled);
        fleet_clear(&f);
    }
}

/* On a busy host who needs more processor time waits for more of it, too. */
static void a_slow_rank_that_waits_for_its_processor_as_all_do_is_no_fault_of_its_host(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 1, 1, 4, seed_of());
    f.starved = 0.3f;
    fleet_start(&f);
    assert_int_equal(fleet_go(&f, 100, &v), 100);
    f.victim = 2;
    f.slower = 1.5f;
    f.away = 0.3f;
    assert_in_range(fleet_go(&f, 20, &v), 1, 20);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.found[0].rank, 2);
    assert_int_equal(v.found[0].class_, LAG_COMPUTE);
    fleet_clear(&f);
}

/* All ranks wait for processors in a third of their steps, as ever: the calls are longer than that explains. */
static void a_slow_link_is_found_where_processors_are_too_few(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 1, 1, 8, seed_of());
    f.per_node = 1;
    f.starved = 0.3f;
    fleet_start(&f);
    assert_int_equal(fleet_go(&f, 100, &v), 100);
    f.victim = 2;
    f.link = 6; /* 0.1 s in each */
    f.kind = LAG_DP;
    assert_in_range(fleet_go(&f, 20, &v), 1, 20);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.found[0].class_, LAG_LINK);
    assert_true(v.found[0].share > 0.05);
    fleet_clear(&f);
}

/* Its group's calls are long for all members: no link, as it is known that it stood still. */
static void a_rank_that_stands_still_in_calls_is_told_as_its_host_and_no_link(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 1, 1, 8, seed_of());
    f.per_node = 1;
    fleet_start(&f);
    assert_int_equal(fleet_go(&f, 100, &v), 100);
    f.victim = 2;
    f.link = 21; /* 0.4 s in each */
    f.kind = LAG_DP;
    f.away = 0.4f;
    assert_in_range(fleet_go(&f, 20, &v), 1, 20);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.found[0].rank, 2);
    assert_int_equal(v.found[0].class_, LAG_HOST);
    assert_true(v.found[0].away && !v.found[0].data && v.found[0].withheld > 0.35);
    f.link = 1;
    f.away = 0;
    assert_in_range(fleet_go(&f, 50, &v), 1, 50);
    assert_true(v.found[0].over && v.found[0].rank == 2);
    fleet_clear(&f);
}

/* What the kernel counted came late, or not at all: calls are long, and only how little processor time the rank had
 * tells why. Once it has its processor again, a link that is slow still is told. */
static void a_rank_without_a_processor_is_told_as_its_host_though_calls_are_long_for_all(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (int linked = 0; linked < 2; linked++) {
        fleet_make(&f, 1, 1, 2, seed_of());
        f.per_node = 1;
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 100, &v), 100);
        f.victim = 1;
        f.slower = 1.5f;
        f.idle = 1;
        f.link = 20;
        f.kind = LAG_DP;
        assert_in_range(fleet_go(&f, 20, &v), 1, 20);
        assert_int_equal(v.n, 1);
        assert_int_equal(v.found[0].rank, 1);
        assert_int_equal(v.found[0].class_, LAG_HOST);
        assert_int_equal(fleet_go(&f, 50, &v), 50); /* nothing else is news */
        f.slower = 1;
        f.link = linked ? 20 : 1;
        assert_in_range(fleet_go(&f, 50, &v), 1, 50);
        assert_true(v.found[v.n - 1].over && v.found[v.n - 1].rank == 1 && v.found[v.n - 1].class_ == LAG_COMPUTE);
        if (linked && v.n == 1)
            assert_in_range(fleet_go(&f, 20, &v), 1, 20);
        assert_int_equal(linked, v.found[0].class_ == LAG_LINK && !v.found[0].over);
        fleet_clear(&f);
    }
}

/* Ranks that processors of one node compute meet in its memory. */
static void no_link_is_blamed_where_there_is_none(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        fleet_make(&f, 1, 1, 8, seed_of());
        f.per_node = apart ? 7 : 8;
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 100, &v), 100);
        f.victim = 2;
        f.link = 6;
        f.kind = LAG_DP;
        assert_int_equal(fleet_go(&f, 60, &v), apart ? 20 : 60);
        assert_int_equal(v.n, apart);
        fleet_clear(&f);
    }
}

static void calls_are_long_for_a_link_only_where_each_byte_takes_longer(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    for (int more = 0; more < 2; more++) {
        fleet_make(&f, 1, 1, 8, seed_of());
        f.per_node = 1;
        fleet_start(&f);
        assert_int_equal(fleet_go(&f, 100, &v), 100);
        f.victim = 2;
        f.link = 4;
        f.kind = LAG_DP;
        f.bytes = more ? 4 : 1; /* times as many are sent, and take as many times as long */
        assert_int_equal(fleet_go(&f, 60, &v), more ? 60 : 20);
        assert_int_equal(v.n, !more);
        if (!more) {
            assert_int_equal(v.found[0].class_, LAG_LINK);
            assert_true(fabs(v.found[0].kib_s_usual / v.found[0].kib_s - 4) < 0.8);
        }
        fleet_clear(&f);
    }
}

static void a_rank_whose_slowness_hardly_matters_to_the_step_is_not_told(void **state)
{
    struct lag_verdict v;
    struct fleet f;

    (void)state;
    fleet_make(&f, 1, 1, 2, seed_of());
    f.wall = 100; /* times as long as what is computed: calls are what takes the time */
    fleet_start(&f);
    assert_int_equal(fleet_go(&f, 100, &v), 100);
    f.victim = 1;
    f.slower = 1.5f;
    assert_int_equal(fleet_go(&f, 100, &v), 100);
    fleet_clear(&f);
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

            lag_take(f.lag, i, &(struct lag_span){f.step, 1, 1}, &s);
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
    lag_take(f.lag, 4, &(struct lag_span){0, 1, 1}, &s); /* no such rank */
    for (uint64_t step = 0; step < 200; step++)
        for (size_t i = 0; i < 3; i++) { /* the fourth tells nothing */
            lag_take(f.lag, i, &(struct lag_span){step, 1, 1}, &s);
            lag_take(f.lag, i, &(struct lag_span){step, 1, 1}, &s);
            while (lag_judge(f.lag, &v)) {
                assert_int_equal(v.n, 0);
                judged++;
            }
        }
    assert_true(judged >= 10);
    lag_take(f.lag, 3, &(struct lag_span){5, 1, 1}, &s); /* long judged */
    lag_take(f.lag, 3, &(struct lag_span){UINT64_MAX, 1, 1}, &s);
    lag_take(f.lag, 3, &(struct lag_span){300, LAG_SPAN_MAX + 1, 1}, &s);
    lag_take(f.lag, 3, &(struct lag_span){300, 1, 2}, &s);
    lag_take(f.lag, 3, &(struct lag_span){300, 0, 0}, &s);
    lag_take(f.lag, 0, &(struct lag_span){200, 1, 1}, &(struct lag_sample){.busy = NAN, .work = 0});
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
        cmocka_unit_test(three_percent_are_found_in_50_steps),
        cmocka_unit_test(short_steps_are_judged_by_sums_in_which_each_of_them_counts),
        cmocka_unit_test(one_late_member_is_told_from_a_slow_link_and_from_both),
        cmocka_unit_test(a_node_is_named_where_all_its_groups_alone_are_long_in_their_calls),
        cmocka_unit_test(a_host_that_withholds_the_processor_or_data_is_told_from_a_slow_device),
        cmocka_unit_test(a_rank_that_waits_for_a_processor_is_told_by_what_the_kernel_counts),
        cmocka_unit_test(a_slow_rank_that_waits_for_its_processor_as_all_do_is_no_fault_of_its_host),
        cmocka_unit_test(a_slow_link_is_found_where_processors_are_too_few),
        cmocka_unit_test(a_rank_that_stands_still_in_calls_is_told_as_its_host_and_no_link),
        cmocka_unit_test(a_rank_without_a_processor_is_told_as_its_host_though_calls_are_long_for_all),
        cmocka_unit_test(no_link_is_blamed_where_there_is_none),
        cmocka_unit_test(calls_are_long_for_a_link_only_where_each_byte_takes_longer),
        cmocka_unit_test(a_rank_whose_slowness_hardly_matters_to_the_step_is_not_told),
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
