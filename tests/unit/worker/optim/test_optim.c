#include "tests/unit/worker/optim_bench.h"

#include <math.h>

static void squares_count_every_element_once(void **state)
{
    struct bench b;
    double *sums, all = 0, want = 0;

    (void)state;
    open_bench(&b, 3);
    run_leaves(&b);
    sums = calloc(b.p.tensors, sizeof(*sums));
    assert_int_equal(optim_squares(b.o, sums, NULL), 0);
    for (int i = 0; i < b.p.tensors; i++)
        all += sums[i];
    for (int i = 0; i < b.p.n; i++)
        for (size_t e = b.p.v[i].at; e < b.p.v[i].at + b.p.v[i].box[0].len[0]; e++) {
            double g = (double)gradient(&b, 0, e) + (double)gradient(&b, 1, e) + (double)gradient(&b, 2, e);

            if (e == b.p.rest_n)
                g += 1.5;
            want += g * g;
        }
    /* f32 sums of three */
    assert_true(fabs(all / want - 1) < 1e-5);
    free(sums);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_count_every_element_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
