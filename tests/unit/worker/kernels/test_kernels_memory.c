/* Copies and fills of any size, on one thread and several. */
#include "tests/unit/worker/kernels_try.h"

static const size_t size[] = {0, 1, 255, 65536, 65537, 300001, 1 << 20};

static void copies_and_fills_reach_all_and_no_more(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads += 3) {
        const struct kern_cfg cfg = {.threads = threads};
        const struct kern_ops *k = kern_cpu();
        struct kern_stream *s;

        assert_int_equal(k->stream_new(&cfg, &s, NULL), 0);
        for (size_t i = 0; i < COUNT(size); i++) {
            int before = try_arrays; /* guard pages stand around both */
            float *x = try_floats(size[i], 1), *y = try_floats(size[i], 1);

            assert_int_equal(k->copy(s, y, x, size[i] * sizeof(*x), NULL), 0);
            assert_memory_equal(y, x, size[i] * sizeof(*x));
            for (float value = 0; value < 2; value++) {
                assert_int_equal(k->fill(s, y, value, size[i], NULL), 0);
                for (size_t j = 0; j < size[i]; j++)
                    assert_true(y[j] == value);
            }
            try_drop_arrays(before);
        }
        k->stream_free(s);
    }
}

static void copies_may_overlap(void **state)
{
    enum { N = 1 << 20, BY = 70000 };
    const struct kern_cfg cfg = {.threads = 2};
    float *x = try_floats(N, 1), *was = try_bytes(N * sizeof(*was));
    struct kern_stream *s;

    (void)state;
    assert_int_equal(kern_cpu()->stream_new(&cfg, &s, NULL), 0);
    memcpy(was, x, N * sizeof(*was));
    assert_int_equal(kern_cpu()->copy(s, x + BY, x, (N - BY) * sizeof(*x), NULL), 0);
    assert_memory_equal(x + BY, was, (N - BY) * sizeof(*x));
    memcpy(was, x, N * sizeof(*was));
    assert_int_equal(kern_cpu()->copy(s, x, x + BY, (N - BY) * sizeof(*x), NULL), 0);
    assert_memory_equal(x, was + BY, (N - BY) * sizeof(*x));
    kern_cpu()->stream_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copies_and_fills_reach_all_and_no_more, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(copies_may_overlap, try_setup, try_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
