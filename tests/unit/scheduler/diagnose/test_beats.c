/* Runs of which heartbeats alone are known: whom to name, and when not to. */
#include "tests/unit/test.h"

#include "scheduler/diagnose/hang.h"

#define S INT64_C(1000000)
#define GOES                                                                                                           \
    {                                                                                                                  \
        .told = false                                                                                                  \
    }
#define SILENT(idle_s, at)                                                                                             \
    {                                                                                                                  \
        .told = true, .phase = HANG_RUNS, .idle_us = (idle_s)*S, .gap_us = S, .step = at                               \
    }
#define SECTION(idle_s, at, for_s)                                                                                     \
    {                                                                                                                  \
        .told = true, .phase = HANG_RUNS, .idle_us = (idle_s)*S, .gap_us = S, .step = at, .allowed_us = (for_s)*S      \
    }
#define STOPPED(idle_s, at)                                                                                            \
    {                                                                                                                  \
        .told = true, .stopped = true, .phase = HANG_RUNS, .idle_us = (idle_s)*S, .gap_us = S, .step = at              \
    }

static void the_rank_that_holds_up_the_others_is_named_once_its_deadline_is_over(void **state)
{
    static const struct {
        const char *what;
        struct hang_rank rank[3];
        enum hang_class class_;
        int root;
        size_t roots;
    } row[] = {
        {"all go on", {GOES, GOES, GOES}, HANG_NONE, 0, 0},
        {"silent within 30 s", {GOES, SILENT(29, 7), GOES}, HANG_NONE, 0, 0},
        {"silent past it, others go on", {GOES, SILENT(31, 7), GOES}, HANG_NOT_ENTERED, 1, 1},
        {"a section within its time", {GOES, SECTION(100, 7, 100), GOES}, HANG_NONE, 0, 0},
        {"half as much again", {GOES, SECTION(149, 7, 100), GOES}, HANG_NONE, 0, 0},
        {"a section past it", {GOES, GOES, SECTION(151, 7, 100)}, HANG_PHASE, 2, 1},
        {"a short section is held to its own", {GOES, SECTION(4, 7, 2), GOES}, HANG_PHASE, 1, 1},
        {"others wait for one in a section", {SILENT(200, 7), SECTION(200, 7, 300), SILENT(200, 7)}, HANG_NONE, 0, 0},
        {"and the section passes", {SILENT(451, 7), SECTION(451, 7, 300), SILENT(451, 7)}, HANG_PHASE, 1, 1},
        {"one is stopped", {SILENT(40, 7), STOPPED(6, 7), SECTION(40, 7, 20)}, HANG_STOPPED, 1, 1},
        {"stopped for a moment", {GOES, STOPPED(4, 7), GOES}, HANG_NONE, 0, 0},
        {"one is behind", {SILENT(40, 8), SILENT(40, 8), SILENT(40, 7)}, HANG_NOT_ENTERED, 2, 1},
        {"one was silent first", {SILENT(40, 8), SILENT(45, 8), SILENT(40, 8)}, HANG_NOT_ENTERED, 1, 1},
        {"nobody can tell", {SILENT(40, 8), SILENT(40, 8), GOES}, HANG_NOT_ENTERED, 0, 2},
        {"two stopped", {STOPPED(40, 8), GOES, STOPPED(40, 8)}, HANG_STOPPED, 0, 2},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct hang_verdict v;

        hang_judge_beats(row[i].rank, 3, &v);
        if (v.class_ != row[i].class_ || v.roots != row[i].roots || (v.roots > 0 && v.root[0] != row[i].root))
            fail_msg("%s: %s, %zu roots, first %d", row[i].what, hang_class_name(v.class_), v.roots, v.root[0]);
    }
}

static void a_pace_is_learnt_and_until_then_a_start_may_take_its_time(void **state)
{
    struct hang_rank r = SILENT(200, 0);
    struct hang_verdict v;

    (void)state;
    r.gap_us = 0;
    hang_judge_beats(&r, 1, &v);
    assert_int_equal(v.class_, HANG_NONE);
    r.idle_us = 601 * S;
    hang_judge_beats(&r, 1, &v);
    assert_int_equal(v.class_, HANG_NOT_ENTERED);
    r.gap_us = 300 * S; /* steps of five minutes */
    r.idle_us = 899 * S;
    hang_judge_beats(&r, 1, &v);
    assert_int_equal(v.class_, HANG_NONE);
}

static void more_roots_than_are_listed_are_counted(void **state)
{
    struct hang_rank r[20];
    struct hang_verdict v;

    (void)state;
    for (int i = 0; i < 20; i++)
        r[i] = (struct hang_rank)SILENT(40, 8);
    hang_judge_beats(r, 20, &v);
    assert_int_equal(v.roots, 20);
    assert_int_equal(v.root[HANG_ROOTS_MAX - 1], HANG_ROOTS_MAX - 1);
    hang_judge_beats(r, 0, &v);
    assert_int_equal(v.class_, HANG_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_holds_up_the_others_is_named_once_its_deadline_is_over),
        cmocka_unit_test(a_pace_is_learnt_and_until_then_a_start_may_take_its_time),
        cmocka_unit_test(more_roots_than_are_listed_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
