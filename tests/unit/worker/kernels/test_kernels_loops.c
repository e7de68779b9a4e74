/* The loops for AVX-512 and for AVX2 give the same bits, whole vectors and what is left of them. Which loops are right,
 * test_kernels.c tells: it compares with the plain table those that were chosen and those for any processor. */
#include "tests/unit/worker/kernels_try.h"

#define OUTS 6

/* What a call reads; and writes, one copy for each build. */
struct data {
    int rows, cols;
    size_t n; /* of them together */
    float *x, *z, *gamma, *beta, *freq;
    int32_t *index;
    uint64_t *sample;
    float *out[OUTS]; /* each of 2·n numbers */
    uint16_t *half;
};

typedef void (*loop_fn)(const struct cpu_loops *l, const struct data *d);

#define LOOP(name) static void loop_##name(const struct cpu_loops *l, const struct data *d)

LOOP(layernorm)
{
    l->layernorm_forward(d->x, d->gamma, d->beta, 1e-5f, d->rows, d->cols, d->out[0], d->out[1], d->out[2]);
    l->layernorm_backward(d->z, d->x, d->gamma, d->out[1], d->out[2], d->rows, d->cols, d->out[3], d->rows % 2,
                          d->out[4], d->out[5]);
}

LOOP(rmsnorm)
{
    l->rmsnorm_forward(d->x, d->gamma, 1e-5f, d->rows, d->cols, d->out[0], d->out[1]);
    l->rmsnorm_backward(d->z, d->x, d->gamma, d->out[1], d->rows, d->cols, d->out[2], d->rows % 2, d->out[3]);
}

LOOP(rope)
{
    int dim = d->cols / 2 * 2;

    if (dim > 0)
        l->rope(d->out[0], d->rows, 1, dim, d->cols, d->index, d->freq, d->rows % 2);
}

LOOP(activations)
{
    l->gelu_forward(d->x, d->n, d->out[0]);
    l->gelu_backward(d->x, d->z, d->n, d->out[1]);
    if (d->cols % 2 == 0) {
        l->swiglu_forward(d->x, d->rows, d->cols / 2, d->out[2]);
        l->swiglu_backward(d->x, d->z, d->rows, d->cols / 2, d->out[3]);
    }
}

LOOP(biases)
{
    size_t ld = (size_t)d->cols;

    l->add(d->out[0], d->x, d->n);
    l->add_bias(d->out[1], ld, d->beta, d->rows, d->cols);
    l->bias_gelu(d->out[2], d->out[3], ld, d->beta, d->rows, d->cols);
    l->bias_gradient(d->x, d->rows, d->cols, ld, d->out[4]);
}

LOOP(losses)
{
    int live = d->cols - d->cols / 5;

    l->xent_partial(d->x, d->rows, d->cols, 0, live, d->index, d->out[0]);
    l->xent_finish(d->x, d->out[0], 1, (size_t)d->rows, d->rows, d->cols, 0, live, d->index, 0.5f, d->out[1],
                   d->out[2]);
}

LOOP(scores)
{
    const struct cpu_drop drop = {
        .key = {3, 4}, .threshold = 1u << 30, .scale = 4.0f / 3, .sample = 5, .query = 6, .column = 7};
    int cols = d->cols < LOOPS_KEYS_MAX ? d->cols : LOOPS_KEYS_MAX;
    const struct cpu_drop *dropped = d->rows % 2 ? &drop : NULL;

    for (int r = 0; r < d->rows; r++) {
        d->out[1][r] = r % 3 ? d->z[r] : -INFINITY;
        d->out[2][r] = r % 3 ? 1 + d->z[r] * d->z[r] : 0;
    }
    l->scores_forward(d->out[0], (size_t)d->cols, d->rows, cols, cols - d->rows, 1 - d->rows / 2, 0.3f, d->out[1],
                      d->out[2], d->out[3], dropped);
    l->scores_backward(d->out[4], d->out[5], (size_t)d->cols, d->rows, cols, cols - d->rows, 1 - d->rows / 2, 0.3f,
                       d->gamma, d->beta, dropped);
}

LOOP(widths)
{
    l->narrow(d->x, d->n, d->half);
    l->widen(d->half, d->n, d->out[0]);
    l->widen_turned(d->half, (size_t)d->cols, d->cols, d->rows, d->out[1]);
}

LOOP(optimizer)
{
    const struct kern_adamw_step step = {.grad_scale = 0.7f, .lr = 1e-3f, .inv_bias1 = 1.3f, .inv_bias2 = 1.1f};
    const struct kern_adamw a = {.n = d->n,
                                 .w = d->out[0],
                                 .m = d->out[1],
                                 .v = d->out[2],
                                 .g = d->x,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .step = &step};
    double squares = l->sum_squares(d->x, d->n);

    for (size_t i = 0; i < d->n; i++)
        d->out[2][i] = fabsf(d->out[2][i]);
    l->adamw(&a, 0, d->n);
    memcpy(d->out[3], &squares, sizeof(squares));
    d->out[4][0] = l->dot(d->x, d->z, (int)d->n);
    l->scale_row(d->out[5], (int)d->n, 0.3f);
}

LOOP(dropout)
{
    const struct kern_dropout drop = {.rows = d->rows,
                                      .cols = d->cols,
                                      .ld = d->cols,
                                      .p = 0.25f,
                                      .key = {1, 2},
                                      .threshold = 1u << 30,
                                      .position = d->index,
                                      .sample = d->sample};

    l->dropout(&drop, 0, d->rows, d->x, d->out[0]);
}

static const struct {
    const char *name;
    loop_fn fn;
    bool any; /* takes any numbers, also what is none */
} loop[] = {
    {"layernorm", loop_layernorm, false},    {"rmsnorm", loop_rmsnorm, false}, {"rope", loop_rope, false},
    {"activations", loop_activations, true}, {"biases", loop_biases, false},   {"losses", loop_losses, true},
    {"scores", loop_scores, false},          {"widths", loop_widths, true},    {"optimizer", loop_optimizer, false},
    {"dropout", loop_dropout, true},
};

static const float odd[] = {INFINITY, -INFINITY, NAN, -0.0f, 1e-42f, -1e-42f, 3e38f, 1e30f, -100, 100, 0x1.018p0f};

static struct data make(int rows, int cols, bool any)
{
    struct data d = {.rows = rows, .cols = cols, .n = (size_t)rows * (size_t)cols};

    d.x = try_floats(d.n, 4);
    for (size_t i = 0; any && i < d.n; i += (size_t)try_range(1, 60))
        d.x[i] = odd[try_range(0, COUNT(odd) - 1)];
    d.z = try_floats(d.n, 1);
    d.gamma = try_floats(d.n, 2);
    d.beta = try_floats(d.n, 2);
    d.freq = try_floats((size_t)cols, 1);
    d.index = try_bytes((size_t)rows * sizeof(*d.index));
    d.sample = try_bytes((size_t)rows * sizeof(*d.sample));
    for (int r = 0; r < rows; r++) {
        d.sample[r] = try_word();
        d.index[r] = r % 4 ? try_range(0, cols - 1) : -1;
    }
    for (int i = 0; i < OUTS; i++)
        d.out[i] = try_floats(3 * d.n + 2, 1);
    d.half = try_bytes(d.n * sizeof(*d.half));
    return d;
}

static void run(const struct cpu_loops *l, size_t i, const struct data *d, struct data *ret)
{
    *ret = *d;
    for (int o = 0; o < OUTS; o++)
        ret->out[o] = memcpy(try_bytes((3 * d->n + 2) * sizeof(float)), d->out[o], (3 * d->n + 2) * sizeof(float));
    ret->half = try_bytes(d->n * sizeof(*d->half));
    memset(ret->half, 0, d->n * sizeof(*d->half));
    loop[i].fn(l, ret);
}

/* What a sanitizer asks between a product and a sum keeps a compiler from contracting them, here and not there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOLERANCE 1e-4f
#else
#define TOLERANCE 0.0f
#endif

/* What is not a number may have any bits. */
static bool is_same(const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof(*x)) != 0 && !(isnan(x[i]) && isnan(y[i])) &&
            !(TOLERANCE > 0 && fabsf(x[i] - y[i]) <= TOLERANCE * (1 + fabsf(x[i]))))
            return false;
    return true;
}

static void check(size_t i, int rows, int cols)
{
    int before = try_arrays;
    struct data d = make(rows, cols, loop[i].any), wide, narrow;

    run(&cpu_loops_avx512, i, &d, &wide);
    run(&cpu_loops_avx2, i, &d, &narrow);
    for (int o = 0; o < OUTS; o++)
        if (!is_same(wide.out[o], narrow.out[o], 3 * d.n + 2))
            fail_msg("%s of %d x %d: other bits in result %d (seed %llu)", loop[i].name, rows, cols, o,
                     (unsigned long long)try_seed);
    if (memcmp(wide.half, narrow.half, d.n * sizeof(*d.half)) != 0)
        fail_msg("%s of %d x %d: other bits in bf16 (seed %llu)", loop[i].name, rows, cols,
                 (unsigned long long)try_seed);
    try_drop_arrays(before);
}

static bool has_both(void)
{
    const struct kern_cfg cfg = {.threads = 1};
    struct kern_stream *s;
    bool both;

    assert_int_equal(kern_cpu()->stream_new(&cfg, &s, NULL), 0);
    both = s->loops == &cpu_loops_avx512;
    kern_cpu()->stream_free(s);
    return both;
}

static void loops_have_the_same_bits_at_either_width(void **state)
{
    (void)state;
    if (!has_both()) {
        print_message("this processor has not both AVX2 and AVX-512\n");
        skip();
    }
    for (size_t i = 0; i < COUNT(loop); i++) {
        for (int cols = 1; cols <= 70; cols++)
            check(i, try_range(1, 5), cols);
        for (int n = 0; n < 20; n++)
            check(i, try_range(1, 30), try_range(1, 300));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(loops_have_the_same_bits_at_either_width, try_setup, try_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
