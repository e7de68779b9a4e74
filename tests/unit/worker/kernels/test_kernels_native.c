/* The products that oneDNN makes from a description, against the plain twin: in f32 anywhere, in bf16 where the
 * processor has it. */
#include "tests/unit/worker/kernels_try.h"

#include <errno.h>

#include "base/bf16.h"
#include "worker/engine/kernels/cpu/native.h"

#define LONG_SUM 1e-5f

static size_t extent(int rows, int cols, bool turned, int ld)
{
    return turned ? (size_t)(cols - 1) * (size_t)ld + (size_t)rows : (size_t)(rows - 1) * (size_t)ld + (size_t)cols;
}

/* Numbers that are the same in both types. */
static void *operand(enum kern_type type, size_t n, float size)
{
    uint16_t *narrow = try_bytes(n * sizeof(*narrow));
    float *wide = try_bytes(n * sizeof(*wide));

    for (size_t i = 0; i < n; i++) {
        narrow[i] = bf16_from_float(size * try_uniform());
        wide[i] = bf16_to_float(narrow[i]);
    }
    return type == KERN_BF16 ? (void *)narrow : (void *)wide;
}

static void check(struct native *t, enum kern_type type, int form, int m, int n, int k, int pad)
{
    const struct kern_cfg cfg = {.threads = 1};
    int before = try_arrays;
    struct native_product p = {.type = type,
                               .trans_a = form & 1,
                               .trans_b = form & 2,
                               .accumulate = form & 4,
                               .m = m,
                               .n = n,
                               .k = k,
                               .lda = (form & 1 ? m : k) + pad,
                               .ldb = (form & 2 ? k : n) + pad,
                               .ldc = n + pad};
    size_t size = extent(m, n, false, p.ldc);
    float *start = try_floats(size, 1), *got = try_bytes(size * sizeof(*got)), *want = try_bytes(size * sizeof(*want));
    struct kern_gemm g = {.type = type,
                          .trans_a = p.trans_a,
                          .trans_b = p.trans_b,
                          .accumulate = p.accumulate,
                          .m = m,
                          .n = n,
                          .k = k,
                          .lda = p.lda,
                          .ldb = p.ldb,
                          .ldc = p.ldc,
                          .c = want,
                          .a = operand(type, extent(m, k, p.trans_a, p.lda), 1 / sqrtf((float)k)),
                          .b = operand(type, extent(k, n, p.trans_b, p.ldb), 2)};
    struct kern_stream *s;

    memcpy(got, start, size * sizeof(*got));
    memcpy(want, start, size * sizeof(*want));
    assert_int_equal(kern_plain()->stream_new(&cfg, &s, NULL), 0);
    assert_int_equal(kern_plain()->gemm(s, &g, NULL), 0);
    for (int again = 0; again < (p.accumulate ? 1 : 2); again++) /* made, then kept */
        assert_int_equal(native_run(t, &p, g.a, g.b, got), 0);
    try_compare("native product", form, got, want, size, LONG_SUM);
    kern_plain()->stream_free(s);
    try_drop_arrays(before);
}

static void made_products_match_the_plain_ones(void **state)
{
    struct native *t;

    (void)state;
    if (native_new(&t, NULL) == -ENOTSUP)
        return; /* another version of the library: bf16 is widened, which test_kernels_bf16 looks at */
    for (int type = KERN_F32; type <= (native_here() ? KERN_BF16 : KERN_F32); type++)
        for (int form = 0; form < 8; form++)
            for (int i = 0; i < 12; i++) /* more than are kept */
                check(t, (enum kern_type)type, form, try_range(1, 60), try_range(1, 60), try_range(1, 90),
                      try_range(0, 5));
    native_free(t);
}

static void what_a_processor_cannot_do_is_said(void **state)
{
    const struct native_product p = {.type = KERN_BF16, .m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4};
    uint16_t x[16] = {0};
    float c[16];
    struct native *t;

    (void)state;
    if (native_new(&t, NULL) != 0)
        return;
    assert_int_equal(native_run(t, &p, x, x, c), native_here() ? 0 : -ENOTSUP);
    native_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(made_products_match_the_plain_ones, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(what_a_processor_cannot_do_is_said, try_setup, try_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
