/* The backward of each plain kernel, in double, against central differences of its forward. The float tables are
 * instances of the same text (plain), or are held to it (test_kernels). */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef double real;
#include "worker/engine/kernels/plain_math.h"

/* Central differences of width 1e-5 are off by about 1e-10 from the third derivative and 1e-11 from rounding. */
#define STEP 1e-5
#define TOLERANCE 1e-7

enum { MAX = 4096 };

static uint64_t state_word;

static double uniform(void)
{
    state_word = state_word * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)state_word * 0x1p-63;
}

static void randomise(double *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = uniform();
}

static int setup(void **state)
{
    (void)state;
    state_word = 4711;
    return 0;
}

typedef double (*objective_fn)(void);

/* gradient[i] must be the slope of f in x[i]. */
static void check_slope(const char *what, double *x, int n, const double *gradient, objective_fn f)
{
    for (int i = 0; i < n; i++) {
        double at = x[i], up, down, slope;

        x[i] = at + STEP;
        up = f();
        x[i] = at - STEP;
        down = f();
        x[i] = at;
        slope = (up - down) / (2 * STEP);
        if (!(fabs(slope - gradient[i]) <= TOLERANCE * (1 + fabs(slope))))
            fail_msg("%s: slope %d is %.12g, backward says %.12g (seed 4711)", what, i, slope, gradient[i]);
    }
}

static double weighted(const double *y, const double *w, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += y[i] * w[i];
    return sum;
}

/* Of each case: inputs, outputs, the weights that make one number of the outputs, and gradients. */
static double x[MAX], y[MAX], w[MAX], dx[MAX], gamma_[64], beta[64], dgamma[64], dbeta[64], mean[64], rstd[64];

enum { ROWS = 5, COLS = 13, N = ROWS * COLS };

static double layernorm(void)
{
    pm_layernorm_forward(x, gamma_, beta, 1e-5, ROWS, COLS, y, mean, rstd);
    return weighted(y, w, N);
}

static void layernorm_backward_is_the_slope_of_forward(void **state)
{
    (void)state;
    randomise(x, N);
    randomise(w, N);
    randomise(gamma_, COLS);
    randomise(beta, COLS);
    memset(dgamma, 0, sizeof(dgamma));
    memset(dbeta, 0, sizeof(dbeta));
    (void)layernorm();
    pm_layernorm_backward(w, x, gamma_, mean, rstd, ROWS, COLS, dx, false, dgamma, dbeta);
    check_slope("layernorm x", x, N, dx, layernorm);
    check_slope("layernorm gamma", gamma_, COLS, dgamma, layernorm);
    check_slope("layernorm beta", beta, COLS, dbeta, layernorm);
}

static double rmsnorm(void)
{
    pm_rmsnorm_forward(x, gamma_, 1e-5, ROWS, COLS, y, rstd);
    return weighted(y, w, N);
}

static void rmsnorm_backward_is_the_slope_of_forward(void **state)
{
    (void)state;
    randomise(x, N);
    randomise(w, N);
    randomise(gamma_, COLS);
    memset(dgamma, 0, sizeof(dgamma));
    (void)rmsnorm();
    pm_rmsnorm_backward(w, x, gamma_, rstd, ROWS, COLS, dx, false, dgamma);
    check_slope("rmsnorm x", x, N, dx, rmsnorm);
    check_slope("rmsnorm gamma", gamma_, COLS, dgamma, rmsnorm);
}

static double gelu(void)
{
    for (int i = 0; i < N; i++)
        y[i] = pm_gelu(x[i]);
    return weighted(y, w, N);
}

static void gelu_backward_is_the_slope_of_forward(void **state)
{
    (void)state;
    randomise(x, N);
    randomise(w, N);
    for (int i = 0; i < N; i++) {
        x[i] *= 6;
        dx[i] = w[i] * pm_gelu_slope(x[i]);
    }
    check_slope("gelu", x, N, dx, gelu);
}

static double swiglu(void)
{
    pm_swiglu_forward(x, ROWS, COLS, y);
    return weighted(y, w, N);
}

static void swiglu_backward_is_the_slope_of_forward(void **state)
{
    (void)state;
    randomise(x, 2 * N);
    randomise(w, N);
    for (int i = 0; i < 2 * N; i++)
        x[i] *= 4;
    pm_swiglu_backward(x, w, ROWS, COLS, dx);
    check_slope("swiglu", x, 2 * N, dx, swiglu);
}

static const int32_t position[ROWS] = {0, 1, 7, 1000, 3};
static const float freq[3] = {1, 0.1f, 0.01f};

static double rope(void)
{
    memcpy(y, x, N * sizeof(*y));
    pm_rope(y, ROWS, 2, 6, COLS, position, freq, false);
    return weighted(y, w, N);
}

static void inverse_rope_is_the_slope_of_rope(void **state)
{
    (void)state;
    randomise(x, N);
    randomise(w, N);
    memcpy(dx, w, N * sizeof(*dx));
    pm_rope(dx, ROWS, 2, 6, COLS, position, freq, true);
    check_slope("rope", x, N, dx, rope);
}

static const int32_t target[ROWS] = {0, 12, -1, 9, 3};
static double loss[ROWS];

/* Two slices, the last columns padding: the sum of losses times the weight of a token. */
static double xent(void)
{
    static double stats[2 * ROWS * 3], part[2][N];

    for (int t = 0; t < ROWS; t++) {
        memcpy(part[0] + t * 7, x + t * 14, 7 * sizeof(double));
        memcpy(part[1] + t * 7, x + t * 14 + 7, 7 * sizeof(double));
    }
    for (int k = 0; k < 2; k++)
        pm_xent_partial(part[k], ROWS, 7, 7 * k, 13, target, stats + k * ROWS * 3);
    for (int k = 0; k < 2; k++) {
        pm_xent_finish(part[k], stats, 2, ROWS, 7, 7 * k, 13, target, 0.125, loss, part[k]);
        for (int t = 0; t < ROWS; t++)
            memcpy(dx + t * 14 + 7 * k, part[k] + t * 7, 7 * sizeof(double));
    }
    return 0.125 * (loss[0] + loss[1] + loss[2] + loss[3] + loss[4]);
}

static void the_gradient_of_the_loss_is_its_slope(void **state)
{
    static double gradient[MAX];

    (void)state;
    randomise(x, ROWS * 14);
    (void)xent();
    memcpy(gradient, dx, sizeof(gradient));
    check_slope("loss", x, ROWS * 14, gradient, xent);
}

/* --- attention ---------------------------------------------------------------------------------------------- */

static const int32_t cu[] = {0, 1, 6, 9};
static const uint32_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8};
static const uint64_t samples[] = {17, UINT64_C(1) << 40, 3};
static struct pm_attention att = {.heads = 4,
                                  .kv_heads = 2,
                                  .dim = 3,
                                  .ld = 25,
                                  .cu = cu,
                                  .docs = 3,
                                  .scale = 0.6,
                                  .qkv = x,
                                  .out = y,
                                  .lse = mean,
                                  .drop_keys = keys,
                                  .samples = samples,
                                  .dout = w,
                                  .dqkv = dx};

static double attention(void)
{
    pm_attention_forward(&att);
    return weighted(y, w, 9 * 12);
}

static void attention_backward_is_the_slope_of_forward(void **state)
{
    static const double drop[] = {0, 0.4};

    (void)state;
    for (size_t i = 0; i < COUNT(drop); i++) {
        att.dropout = drop[i];
        att.drop_threshold = (uint32_t)(drop[i] * 0x1p32);
        randomise(x, 9 * 25);
        randomise(w, 9 * 12);
        memset(dx, 0, sizeof(dx));
        (void)attention();
        pm_attention_backward(&att);
        check_slope("attention", x, 9 * 25, dx, attention);
    }
}

static void a_window_has_the_slope_of_what_it_leaves(void **state)
{
    (void)state;
    for (att.window = 1; att.window <= 5; att.window++) {
        randomise(x, 9 * 25);
        randomise(w, 9 * 12);
        memset(dx, 0, sizeof(dx));
        (void)attention();
        pm_attention_backward(&att);
        check_slope("a window", x, 9 * 25, dx, attention);
    }
    att.window = 0;
}

#define NORM_ROWS 3
#define NORM_HEADS 2
#define NORM_DIM 4
#define NORM_LD 11

static double gamma_of_heads[NORM_DIM];

static double head_norm(void)
{
    double at[NORM_ROWS * NORM_LD];

    memcpy(at, x, sizeof(at));
    pm_head_norm_forward(at, gamma_of_heads, 1e-3, NORM_ROWS, NORM_HEADS, NORM_DIM, NORM_LD, y);
    return weighted(at, w, NORM_ROWS * NORM_LD);
}

static void head_norm_backward_is_the_slope_of_forward(void **state)
{
    double change[NORM_DIM] = {0};

    (void)state;
    randomise(x, NORM_ROWS * NORM_LD);
    randomise(w, NORM_ROWS * NORM_LD);
    randomise(gamma_of_heads, NORM_DIM);
    (void)head_norm(); /* what lies between the rows is no business of a norm: its slope is that of a copy */
    memcpy(dx, w, NORM_ROWS * NORM_LD * sizeof(*dx));
    pm_head_norm_backward(dx, y, gamma_of_heads, 1e-3, NORM_ROWS, NORM_HEADS, NORM_DIM, NORM_LD, change);
    check_slope("head norm", x, NORM_ROWS * NORM_LD, dx, head_norm);
    check_slope("head norm gamma", gamma_of_heads, NORM_DIM, change, head_norm);
}

/* A product's gradients are products: y = a·b has da = dy·b', db = a'·dy, in the forms a linear layer uses. */
static double product(void)
{
    const struct pm_gemm g = {.trans_b = true,
                              .m = 4,
                              .n = 5,
                              .k = 6,
                              .a = x,
                              .lda = 6,
                              .b = x + 24,
                              .ldb = 6,
                              .c = y,
                              .ldc = 5,
                              .bias = x + 54};

    pm_gemm(&g);
    return weighted(y, w, 20);
}

static void the_three_products_of_a_layer_belong_together(void **state)
{
    const struct pm_gemm da = {.m = 4, .n = 6, .k = 5, .a = w, .lda = 5, .b = x + 24, .ldb = 6, .c = dx, .ldc = 6};
    const struct pm_gemm db = {.trans_a = true,
                               .m = 5,
                               .n = 6,
                               .k = 4,
                               .a = w,
                               .lda = 5,
                               .b = x,
                               .ldb = 6,
                               .c = dx + 24,
                               .ldc = 6,
                               .accumulate = true};

    (void)state;
    randomise(x, 59);
    randomise(w, 20);
    memset(dx, 0, sizeof(dx));
    pm_gemm(&da);
    pm_gemm(&db);
    pm_bias_gradient(w, 4, 5, 5, dx + 54);
    check_slope("linear layer", x, 59, dx, product);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(layernorm_backward_is_the_slope_of_forward, setup),
        cmocka_unit_test_setup(rmsnorm_backward_is_the_slope_of_forward, setup),
        cmocka_unit_test_setup(gelu_backward_is_the_slope_of_forward, setup),
        cmocka_unit_test_setup(swiglu_backward_is_the_slope_of_forward, setup),
        cmocka_unit_test_setup(inverse_rope_is_the_slope_of_rope, setup),
        cmocka_unit_test_setup(the_gradient_of_the_loss_is_its_slope, setup),
        cmocka_unit_test_setup(attention_backward_is_the_slope_of_forward, setup),
        cmocka_unit_test_setup(a_window_has_the_slope_of_what_it_leaves, setup),
        cmocka_unit_test_setup(head_norm_backward_is_the_slope_of_forward, setup),
        cmocka_unit_test_setup(the_three_products_of_a_layer_belong_together, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
