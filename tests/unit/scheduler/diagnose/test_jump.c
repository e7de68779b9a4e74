/* Which numbers are a jump of a loss or gradient norm, and that noise is none. MUSTER_SEED draws the noise anew. */
#include "scheduler/diagnose/jump.h"

#include <math.h>
#include <stdlib.h>

#include "tests/unit/test.h"

#define NOISE_STEPS 100000

/* n times the same number: how many of them begin a jump. */
static int take(struct jump *j, int n, double value)
{
    double level;
    int found = 0;

    for (int i = 0; i < n; i++)
        found += jump_take(j, value, &level);
    return found;
}

static void numbers_five_times_as_high_as_of_late_are_a_jump(void **state)
{
    static const struct {
        int before; /* numbers that are 2 */
        double value;
        int found;
    } row[] = {
        {31, 1000, 0}, /* too early */
        {32, 9.9, 0},  {32, 10, 1},        {32, 1e30, 1}, {500, 10.1, 1},
        {500, -10, 0}, {500, INFINITY, 0}, {500, NAN, 0}, {500, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct jump j = {.n = 0};

        assert_int_equal(take(&j, row[i].before, 2), 0);
        assert_int_equal(take(&j, 1, row[i].value), row[i].found);
    }
}

static void a_jump_is_told_once_until_it_has_been_over_for_a_while(void **state)
{
    struct jump j = {.n = 0};

    (void)state;
    assert_int_equal(take(&j, JUMP_WINDOW, 2), 0);
    assert_int_equal(take(&j, 20, 50), 1);
    assert_int_equal(take(&j, JUMP_QUIET - 1, 2), 0);
    assert_int_equal(take(&j, 1, 50), 0); /* the same one goes on */
    assert_int_equal(take(&j, JUMP_QUIET, 2), 0);
    assert_int_equal(take(&j, 3, 50), 1);
}

static void numbers_that_stay_high_are_the_new_level(void **state)
{
    struct jump j = {.n = 0};

    (void)state;
    assert_int_equal(take(&j, JUMP_WINDOW, 2), 0);
    assert_int_equal(take(&j, 1000, 50), 1);
    assert_int_equal(take(&j, 1, 249), 0);
    assert_int_equal(take(&j, 1, 251), 1);
}

static void wide_noise_has_wider_jumps(void **state)
{
    struct jump j = {.n = 0};

    (void)state;
    for (int i = 0; i < JUMP_WINDOW; i++)
        (void)take(&j, 1, i % 2 ? 1 : 3);
    assert_int_equal(take(&j, 1, 10), 0);
    assert_int_equal(take(&j, 1, 17), 1);
}

static double normal(uint64_t *seed)
{
    double u = ((double)(((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 11)) + 1) * 0x1p-53;
    double v = (double)((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 11) * 0x1p-53;

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static void no_jump_is_found_in_100000_steps_of_noise_and_each_real_one_is(void **state)
{
    const char *given = getenv("MUSTER_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    struct jump j = {.n = 0};
    double level;

    (void)state;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < NOISE_STEPS; i++) {
        double fall = 2 + 8 * exp(-i / 2000.0); /* as a loss does */

        if (jump_take(&j, fall * exp(0.15 * normal(&seed)), &level))
            fail_msg("step %d is taken for a jump from %g", i, level);
    }
    for (int i = 0, found; i < 1000; i++) {
        found = jump_take(&j, 2 * 10 * exp(0.15 * normal(&seed)), &level);
        assert_int_equal(found, 1);
        for (int k = 0; k < JUMP_WINDOW; k++)
            assert_false(jump_take(&j, 2 * exp(0.15 * normal(&seed)), &level));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_five_times_as_high_as_of_late_are_a_jump),
        cmocka_unit_test(a_jump_is_told_once_until_it_has_been_over_for_a_while),
        cmocka_unit_test(numbers_that_stay_high_are_the_new_level),
        cmocka_unit_test(wide_noise_has_wider_jumps),
        cmocka_unit_test(no_jump_is_found_in_100000_steps_of_noise_and_each_real_one_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
