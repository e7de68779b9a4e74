/* The products of blocks of attention, packed and as operands lie, against sums in double. */
#include "tests/unit/worker/kernels_try.h"

#include "worker/engine/kernels/cpu/block.h"

#define LONG_SUM 1e-5f
#define TILE 32 /* at least the columns of any tile */

struct operands {
    struct block_shape shape;
    int pad;
    float *q, *k;      /* [rows, dim], [keys, dim] */
    float *p;          /* [rows, keys], 0 where a row does not see */
    float *got, *want; /* the largest of the three results */
    float *room;
};

static bool sees(const struct block_shape *x, int row, int key)
{
    return key < x->valid + row && key >= x->skip + row;
}

static struct operands make(int rows, int keys, int dim, int valid, int skip, int pad)
{
    struct operands o = {.shape = {rows, keys, dim, valid, skip}, .pad = pad};
    size_t ld = (size_t)(dim + pad), most = (size_t)(rows + keys) * (CPU_SCORES_LD + ld);

    o.q = try_floats((size_t)rows * ld, 1);
    o.k = try_floats((size_t)keys * ld, 1);
    o.p = try_floats((size_t)rows * CPU_SCORES_LD, 1);
    o.got = try_floats(most, 1);
    o.want = try_floats(most, 1);
    memcpy(o.want, o.got, most * sizeof(*o.got));
    o.room = try_bytes((size_t)((rows > keys ? rows : keys) + TILE) * (size_t)dim * sizeof(*o.room));
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < keys; k++)
            if (!sees(&o.shape, r, k))
                o.p[(size_t)r * CPU_SCORES_LD + k] = 0;
    return o;
}

static float product(const float *a, size_t step_a, const float *b, size_t step_b, int n)
{
    double sum = 0;

    for (size_t i = 0; i < (size_t)n; i++)
        sum += (double)a[i * step_a] * b[i * step_b];
    return (float)sum;
}

static void check_scores(const struct kern_stream *s, const struct operands *o, bool pack)
{
    const struct block_shape *x = &o->shape;
    int ld = x->dim + o->pad;
    struct block_right b = block_right(s, true, o->k, ld, x->keys, x->dim, pack ? o->room : NULL);

    assert_int_equal(block_scores(x, o->q, ld, &b, o->got, CPU_SCORES_LD), 0);
    for (int r = 0; r < x->rows; r++)
        for (int k = 0; k < x->keys; k++)
            if (sees(x, r, k)) {
                float want = product(o->q + (size_t)r * (size_t)ld, 1, o->k + (size_t)k * (size_t)ld, 1, x->dim);

                try_compare("scores", r, &o->got[(size_t)r * CPU_SCORES_LD + k], &want, 1, LONG_SUM);
            }
}

static void check_values(const struct kern_stream *s, const struct operands *o, bool pack, bool add)
{
    const struct block_shape *x = &o->shape;
    int ld = x->dim + o->pad;
    struct block_right b = block_right(s, false, o->k, ld, x->keys, x->dim, pack ? o->room : NULL);

    memcpy(o->got, o->want, (size_t)x->rows * (size_t)ld * sizeof(*o->got));
    assert_int_equal(block_values(x, o->p, CPU_SCORES_LD, &b, add, o->got, ld), 0);
    for (int r = 0; r < x->rows; r++)
        for (int d = 0; d < x->dim; d++) {
            size_t at = (size_t)r * (size_t)ld + d;
            float want = product(o->p + (size_t)r * CPU_SCORES_LD, 1, o->k + d, ld, x->keys) + (add ? o->want[at] : 0);

            try_compare("values", r, o->got + at, &want, 1, LONG_SUM);
        }
}

static void check_sums(const struct kern_stream *s, const struct operands *o, bool pack)
{
    const struct block_shape *x = &o->shape;
    int ld = x->dim + o->pad;
    struct block_right b = block_right(s, false, o->q, ld, x->rows, x->dim, pack ? o->room : NULL);

    memcpy(o->got, o->want, (size_t)x->keys * (size_t)ld * sizeof(*o->got));
    assert_int_equal(block_sums(x, o->p, CPU_SCORES_LD, &b, o->got, ld), 0);
    for (int k = 0; k < x->keys; k++)
        for (int d = 0; d < x->dim; d++) {
            size_t at = (size_t)k * (size_t)ld + d;
            float want = product(o->p + k, CPU_SCORES_LD, o->q + d, ld, x->rows) + o->want[at];

            try_compare("sums", k, o->got + at, &want, 1, LONG_SUM);
        }
}

static void blocks_match_at_any_size_and_mask(void **state)
{
    static const int dim[] = {1, 7, 16, 40, 48, 64, CPU_HEAD, CPU_HEAD + 16};
    const struct kern_cfg cfg = {.threads = 1};
    struct kern_stream *s;

    (void)state;
    assert_int_equal(kern_cpu()->stream_new(&cfg, &s, NULL), 0);
    for (int i = 0; i < 24; i++) {
        int before = try_arrays, rows = try_range(1, CPU_QUERIES), keys = try_range(1, i % 3 ? 40 : CPU_KEYS);
        int least = i % 2 ? 1 : 2 - rows; /* the first rows may see nothing */
        struct operands o = make(rows, keys, dim[i % COUNT(dim)], try_range(least, keys + 5),
                                 i % 3 ? LOOPS_NO_SKIP : try_range(-rows, keys), try_range(0, 3));

        check_scores(s, &o, i % 5 > 0);
        check_values(s, &o, i % 5 > 0, i % 4 < 2);
        check_sums(s, &o, i % 5 > 0);
        try_drop_arrays(before);
    }
    kern_cpu()->stream_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_match_at_any_size_and_mask, try_setup, try_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
