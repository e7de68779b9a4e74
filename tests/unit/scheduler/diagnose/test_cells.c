/* Which cell, row or column of a matrix of transfer rates is found to be slow. */
#include "scheduler/diagnose/cells.h"

#include <math.h>
#include <stdbool.h>

#include "tests/unit/test.h"

#define MOST 16

struct scene {
    double rate[MOST * MOST], usual[MOST * MOST];
    size_t n;
};

/* Rates that vary by 6 %; each cell has its own usual one, which varies by more. */
static void begin(struct scene *s, size_t n, bool known)
{
    unsigned chance = 7;

    *s = (struct scene){.n = n};
    for (size_t at = 0; at < n * n; at++) {
        double usual;

        chance = chance * 1103515245u + 12345u;
        usual = 1e9 * (known ? 1 + (double)(chance >> 24) / 256 : 1);
        chance = chance * 1103515245u + 12345u;
        s->usual[at] = known ? usual : 0;
        s->rate[at] = usual * (0.97 + 0.06 * (double)(chance >> 24) / 256);
    }
}

static void hurt(struct scene *s, size_t i, size_t j, double by)
{
    s->rate[i * s->n + j] *= by;
}

static struct cells_finding judge(const struct scene *s)
{
    struct cells_finding f;

    cells_judge(s->rate, s->usual, s->n, &f);
    return f;
}

static void expect(const struct scene *s, enum cells_class class_, uint32_t from, uint32_t to, double factor)
{
    struct cells_finding f = judge(s);

    if (f.class_ != class_ || f.from != from || f.to != to || f.factor < 0.85 * factor || f.factor > 1.15 * factor)
        fail_msg("%zu nodes: %s %u %u, %.2f times, instead of %s %u %u, %.2f", s->n, cells_class_name(f.class_), f.from,
                 f.to, f.factor, cells_class_name(class_), from, to, factor);
}

static void nothing_is_found_among_cells_that_are_as_ever(void **state)
{
    struct scene s;

    (void)state;
    for (size_t n = 0; n <= MOST; n++)
        for (int known = 0; known < 2; known++) {
            begin(&s, n, known);
            expect(&s, CELLS_WELL, 0, 0, 1);
        }
}

static void a_hot_cell_row_column_or_both_name_the_link_or_the_end_of_it(void **state)
{
    struct scene s;

    (void)state;
    for (size_t n = 2; n <= MOST; n++)
        for (int known = n > 3 ? 0 : 1; known < 2; known++) {
            uint32_t v = (uint32_t)(n / 2);

            begin(&s, n, known);
            hurt(&s, v, 0, 0.3);
            expect(&s, CELLS_CELL, v, 0, 1 / 0.3);
            for (int kind = 0; kind < 3 && n > 2 + (size_t)!known; kind++) {
                begin(&s, n, known);
                for (size_t i = 0; i < n; i++) {
                    if (i != v && kind != 1)
                        hurt(&s, v, i, 0.3);
                    if (i != v && kind != 0)
                        hurt(&s, i, v, 0.3);
                }
                if (known || n > 5) /* without a past, those of half the cells are what is usual */
                    expect(&s, kind == 0 ? CELLS_ROW : kind == 1 ? CELLS_COLUMN : CELLS_NODE, v, v, 1 / 0.3);
            }
        }
}

/* Both ends of a pair measure at once, so that the matrix is symmetric. */
static void a_pair_that_is_slow_both_ways_is_one_link(void **state)
{
    struct scene s;

    (void)state;
    for (size_t n = 2; n <= MOST; n++) {
        struct cells_finding f;

        begin(&s, n, true);
        hurt(&s, 0, 1, 0.4);
        hurt(&s, 1, 0, 0.4);
        f = judge(&s);
        assert_int_equal(f.class_, CELLS_CELL);
        assert_int_equal(f.from + f.to, 1);
        assert_int_equal(f.hot, 2);
    }
}

static void cells_that_no_node_explains_are_the_fabric(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 8, true);
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 8; j++)
            if ((i < 4) != (j < 4)) /* what goes between two halves */
                hurt(&s, i, j, 0.5);
    assert_int_equal(judge(&s).class_, CELLS_FABRIC);
    begin(&s, 8, true);
    for (size_t at = 0; at < 64; at++)
        hurt(&s, at / 8, at % 8, 0.5);
    assert_int_equal(judge(&s).class_, CELLS_FABRIC);
}

static void a_tenth_less_is_noise_and_what_is_not_known_is_passed_over(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 8, true);
    for (size_t i = 0; i < 8; i++)
        hurt(&s, 3, i, 0.9);
    expect(&s, CELLS_WELL, 0, 0, 1);
    for (size_t at = 0; at < 64; at++)
        s.rate[at] = at % 2 ? 0 : s.rate[at];
    for (size_t i = 0; i < 8; i++)
        hurt(&s, 5, i, 0.4);
    expect(&s, CELLS_ROW, 5, 5, 1 / 0.4);
    s.rate[1] = -1;
    s.rate[2] = NAN;
    s.usual[5] = INFINITY;
    expect(&s, CELLS_ROW, 5, 5, 1 / 0.4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_found_among_cells_that_are_as_ever),
        cmocka_unit_test(a_hot_cell_row_column_or_both_name_the_link_or_the_end_of_it),
        cmocka_unit_test(a_pair_that_is_slow_both_ways_is_one_link),
        cmocka_unit_test(cells_that_no_node_explains_are_the_fabric),
        cmocka_unit_test(a_tenth_less_is_noise_and_what_is_not_known_is_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
