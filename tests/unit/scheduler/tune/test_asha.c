#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/tune/asha.h"

static void rungs_are_apart_by_the_reduction(void **state)
{
    const struct asha_rules rules = {.first_steps = 10, .reduction = 4, .rungs = 3};
    static const int64_t steps[] = {10, 40, 160, INT64_MAX};

    (void)state;
    for (int k = 0; k < 4; k++)
        assert_int_equal(asha_steps(&rules, &(struct asha_trial){.rungs = k}), steps[k]);
    assert_int_equal(asha_steps(&(struct asha_rules){.first_steps = INT64_MAX / 2, .reduction = 4, .rungs = 3},
                                &(struct asha_trial){.rungs = 1}),
                     INT64_MAX);
}

/* Trials as text: "p.5" is paused at rung 0 with 0.5, "r.5" runs on from there, "p.5,.4" is paused at rung 1, "-" has
 * come nowhere. */
static void those_that_go_on_are_as_in_the_paper(void **state)
{
    static const struct {
        const char *trials[8];
        int reduction;
        bool max;
        size_t next; /* 8: none */
    } rows[] = {
        {{"p.5"}, 2, false, 8},                            /* one of one is no half */
        {{"p.5", "p.4"}, 2, false, 1},                     /* the best of two */
        {{"p.5", "p.4"}, 2, true, 0},                      /* where more is better */
        {{"p.5", "r.4"}, 2, false, 8},                     /* the best has gone on already */
        {{"p.5", "r.4", "p.6", "p.7"}, 2, false, 0},       /* two of four may */
        {{"p.5", "r.4", "p.6"}, 2, false, 8},              /* one of three */
        {{"p.5", "-", "-", "-"}, 2, false, 8},             /* those that still run do not count */
        {{"p.5", "p.4", "p.3", "p.6"}, 4, false, 2},       /* one of four */
        {{"p.5", "p.4", "p.3"}, 4, false, 8},              /* nobody of three */
        {{"p.1", "p.5,.4", "r.6,.3", "p.9"}, 2, false, 0}, /* rung 1: one of two has gone on from it */
        {{"p.1", "p.5,.2", "p.6,.3", "p.9"}, 2, false, 1}, /* the higher rung first */
        {{"pnan", "p.4"}, 2, false, 1},                    /* what is no number is the worst */
        {{"pnan", "pnan"}, 2, false, 8},
        {{"p.4", "p.4"}, 2, false, 0}, /* of equals the first */
    };
    const char *text;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct asha_rules rules = {
            .first_steps = 1, .reduction = rows[i].reduction, .rungs = 3, .max = rows[i].max};
        struct asha_trial trials[8];
        size_t n = 0, got;

        memset(trials, 0, sizeof(trials));
        for (; n < 8 && (text = rows[i].trials[n]); n++) {
            trials[n].paused = *text == 'p';
            for (char *p = (char *)text + 1; *text != '-' && (trials[n].rungs == 0 || *p++ == ',');)
                trials[n].at[trials[n].rungs++] = strtod(p, &p);
        }
        got = asha_promote(&rules, trials, n);
        if (got != (rows[i].next == 8 ? n : rows[i].next))
            fail_msg("row %zu: %zu goes on, not %zu", i, got, rows[i].next);
    }
}

/* A loss that falls to a level of its own, the level being what the trial draws. */
static double loss_of(double level, int64_t steps)
{
    return level + 1 / sqrt((double)steps);
}

static void a_search_finds_good_values_with_a_fraction_of_the_steps(void **state)
{
    enum { TRIALS = 256, WORKERS = 8, STEPS = 256 };
    const struct asha_rules rules = {.first_steps = 4, .reduction = 4, .rungs = 3}; /* 4, 16, 64, then 256 */
    static struct asha_trial trials[TRIALS];
    double level[TRIALS], best = 1, found = 1;
    int64_t done[TRIALS] = {0}, spent = 0;
    size_t begun = 0, ended = 0, running[WORKERS], n = 0;
    const uint32_t key[2] = {7, 7};

    (void)state;
    memset(trials, 0, sizeof(trials));
    for (uint32_t i = 0; i < TRIALS; i++) {
        uint32_t out[4];

        philox4x32((const uint32_t[4]){i, 0, 0, 0}, key, out);
        level[i] = (double)philox_unit(out[0]);
        best = level[i] < best ? level[i] : best;
    }
    for (;;) {
        while (n < WORKERS) { /* as the paper's get_job() */
            size_t next = asha_promote(&rules, trials, begun);

            if (next < begun)
                trials[next].paused = false;
            else if (begun < TRIALS)
                next = begun++;
            else
                break;
            running[n++] = next;
        }
        if (n == 0)
            break;
        size_t t = running[0]; /* the one that has run for longest comes to its rung */
        int64_t to = asha_steps(&rules, &trials[t]);

        memmove(running, running + 1, --n * sizeof(running[0]));
        to = to < STEPS ? to : STEPS;
        spent += to - done[t];
        done[t] = to;
        if (to == STEPS) {
            ended++;
            found = level[t] < found ? level[t] : found;
        } else {
            trials[t].at[trials[t].rungs++] = loss_of(level[t], to);
            trials[t].paused = true;
        }
    }
    assert_int_equal(begun, TRIALS);
    assert_in_range(ended, TRIALS / 64, TRIALS / 16);       /* a sixty-fourth in the long run, some more at first */
    assert_true(found - best < 0.01);                       /* the best of all is among them, or nearly */
    assert_in_range(spent, 1, (int64_t)TRIALS * STEPS / 8); /* against all of them to their end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rungs_are_apart_by_the_reduction),
        cmocka_unit_test(those_that_go_on_are_as_in_the_paper),
        cmocka_unit_test(a_search_finds_good_values_with_a_fraction_of_the_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
