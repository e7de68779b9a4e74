/* Attention of pieces of documents to keys that lie apart: the pieces together give what the whole documents give. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/kernels/kernels.h"

typedef double real;
#include "worker/engine/kernels/plain_math.h"

#define HEADS 4
#define KV_HEADS 2
#define DIM 6
#define ROWS 520
#define LD ((HEADS + 2 * KV_HEADS) * DIM)
#define APART (2 * KV_HEADS * DIM)
#define WIDTH (HEADS * DIM)

static const int32_t whole_cu[] = {0, 320, 323, ROWS};
static const uint64_t whole_samples[] = {17, UINT64_C(1) << 40, 3};
static const uint32_t drop_keys[] = {1, 2, 3, 4, 5, 6, 7, 8};

/* Zig-zag: document 0 of 320 rows in 4 pieces of which this buffer has the first and last, then the middle ones; the
 * second whole; the third in two. cu is of the rows in that order. */
static const struct {
    int first, rows, doc; /* first: row of the batch */
} piece[] = {{0, 80, 0}, {240, 80, 0}, {320, 3, 1}, {80, 80, 0}, {160, 80, 0}, {323, 65, 2}, {388, 132, 2}};

#define PIECES (int)COUNT(piece)

static struct layout {
    int32_t cu[8], past[8], kv_at[8];
    uint64_t samples[8];
} pieces(void)
{
    struct layout l = {{0}, {0}, {0}, {0}};

    for (int i = 0; i < PIECES; i++) {
        l.cu[i + 1] = l.cu[i] + piece[i].rows;
        l.kv_at[i] = whole_cu[piece[i].doc];
        l.past[i] = piece[i].first - l.kv_at[i];
        l.samples[i] = whole_samples[piece[i].doc];
    }
    return l;
}

static uint64_t seed = 1;

static double random_unit(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) / (1 << 24) - 0.5;
}

/* Rows of `size` bytes in the order of pieces, from or to that of documents. */
static void reorder(void *by_piece, void *by_doc, size_t size, bool back)
{
    char *p = by_piece, *d = by_doc;

    for (int i = 0, at = 0; i < PIECES; at += piece[i++].rows) {
        void *x = p + (size_t)at * size, *y = d + (size_t)piece[i].first * size;

        memcpy(back ? y : x, back ? x : y, (size_t)piece[i].rows * size);
    }
}

/* The double twin: exact to rounding, and each mistake shows. */
enum mistake { NONE, PAST_FORGOTTEN, WRONG_DOCUMENT, GRADIENT_ONCE };

static double qkv[ROWS * LD], dout[ROWS * WIDTH], out[2][ROWS * WIDTH], dqkv[2][ROWS * LD], kv[ROWS * APART];
static double dkv[ROWS * APART], lse[ROWS * HEADS], some_qkv[ROWS * LD], some_dout[ROWS * WIDTH], some_dqkv[ROWS * LD];

static double difference(const double *a, const double *b, size_t n)
{
    double most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(a[i]));
        off = fmax(off, fabs(a[i] - b[i]));
    }
    return off / most;
}

static double in_double(double dropout, enum mistake mistake)
{
    struct pm_attention a = {.heads = HEADS,
                             .kv_heads = KV_HEADS,
                             .dim = DIM,
                             .ld = LD,
                             .cu = whole_cu,
                             .docs = 3,
                             .scale = 0.6,
                             .qkv = qkv,
                             .out = out[0],
                             .lse = lse,
                             .dropout = dropout,
                             .drop_threshold = (uint32_t)(dropout * 0x1p32),
                             .drop_keys = drop_keys,
                             .samples = whole_samples,
                             .dout = dout,
                             .dqkv = dqkv[0]};
    struct layout l = pieces();

    for (size_t i = 0; i < COUNT(qkv); i++)
        qkv[i] = 3 * random_unit();
    for (size_t i = 0; i < COUNT(dout); i++)
        dout[i] = random_unit();
    pm_attention_forward(&a);
    pm_attention_backward(&a);
    for (size_t r = 0; r < ROWS; r++)
        memcpy(kv + r * APART, qkv + r * LD + WIDTH, APART * sizeof(*kv));
    reorder(some_qkv, qkv, LD * sizeof(*qkv), false);
    reorder(some_dout, dout, WIDTH * sizeof(*dout), false);
    memset(dkv, 0, sizeof(dkv));
    if (mistake == PAST_FORGOTTEN)
        l.past[1] -= 1;
    if (mistake == WRONG_DOCUMENT)
        l.kv_at[2] = 0;
    a.qkv = some_qkv;
    a.dout = some_dout;
    a.dqkv = some_dqkv;
    a.cu = l.cu;
    a.docs = PIECES;
    a.samples = l.samples;
    a.past = l.past;
    a.kv_at = l.kv_at;
    a.kv = kv;
    a.dkv = dkv;
    a.out = out[1];
    pm_attention_forward(&a);
    pm_attention_backward(&a);
    if (mistake == GRADIENT_ONCE)
        memset(dkv, 0, 80 * APART * sizeof(*dkv)); /* as if the last piece had taken the first one's place */
    memcpy(some_qkv, out[1], sizeof(out[1]));
    reorder(some_qkv, out[1], WIDTH * sizeof(**out), true);
    reorder(some_dqkv, dqkv[1], LD * sizeof(**dqkv), true);
    for (size_t r = 0; r < ROWS; r++)
        memcpy(dqkv[1] + r * LD + WIDTH, dkv + r * APART, APART * sizeof(*dkv));
    return fmax(difference(out[0], out[1], COUNT(out[0])), difference(dqkv[0], dqkv[1], COUNT(dqkv[0])));
}

static void pieces_give_what_documents_give(void **state)
{
    (void)state;
    assert_true(in_double(0, NONE) < 1e-12);
    assert_true(in_double(0.3, NONE) < 1e-12);
    for (int m = PAST_FORGOTTEN; m <= GRADIENT_ONCE; m++)
        assert_true(in_double(0, (enum mistake)m) > 1e-3);
}

/* --- the tables -------------------------------------------------------------------------------------------- */

static float *floats(size_t n)
{
    float *x = calloc(n, sizeof(*x));

    assert_non_null(x);
    return x;
}

static double off_f32(const float *a, const float *b, size_t n)
{
    double most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    return off / most;
}

/* The same in a table's f32, pieces against documents; scores of blocks meet in another order. */
static double in_table(const struct kern_ops *k, struct kern_stream *s, float dropout)
{
    float *x = floats(ROWS * LD), *d = floats(ROWS * WIDTH), *y = floats(ROWS * WIDTH), *g = floats(ROWS * LD);
    float *px = floats(ROWS * LD), *pd = floats(ROWS * WIDTH), *py = floats(ROWS * WIDTH), *pg = floats(ROWS * LD);
    float *apart = floats(ROWS * APART), *grow = floats(ROWS * APART), *sums = floats(ROWS * HEADS);
    struct layout l = pieces();
    struct kern_attention a = {.tokens = ROWS,
                               .heads = HEADS,
                               .kv_heads = KV_HEADS,
                               .dim = DIM,
                               .ld = LD,
                               .cu = whole_cu,
                               .docs = 3,
                               .scale = 0.6f,
                               .qkv = x,
                               .out = y,
                               .lse = sums,
                               .dropout = dropout,
                               .drop_threshold = (uint32_t)((double)dropout * 0x1p32),
                               .drop_keys = drop_keys,
                               .samples = whole_samples,
                               .dout = d,
                               .dqkv = g};
    double off;

    for (int i = 0; i < ROWS * LD; i++)
        x[i] = (float)(3 * random_unit());
    for (int i = 0; i < ROWS * WIDTH; i++)
        d[i] = (float)random_unit();
    assert_int_equal(k->attention_forward(s, &a, NULL), 0);
    assert_int_equal(k->attention_backward(s, &a, NULL), 0);
    assert_int_equal(
        k->copy_rows(s, apart, APART * sizeof(*x), x + WIDTH, LD * sizeof(*x), APART * sizeof(*x), ROWS, NULL), 0);
    reorder(px, x, LD * sizeof(*x), false);
    reorder(pd, d, WIDTH * sizeof(*d), false);
    a.qkv = px;
    a.dout = pd;
    a.out = py;
    a.dqkv = pg;
    a.cu = l.cu;
    a.docs = PIECES;
    a.samples = l.samples;
    a.past = l.past;
    a.kv_at = l.kv_at;
    a.kv = apart;
    a.kv_rows = ROWS;
    a.dkv = grow;
    assert_int_equal(k->attention_forward(s, &a, NULL), 0);
    assert_int_equal(k->attention_backward(s, &a, NULL), 0);
    reorder(py, pd, WIDTH * sizeof(*d), true);
    reorder(pg, px, LD * sizeof(*x), true);
    for (size_t r = 0; r < ROWS; r++)
        memcpy(px + r * LD + WIDTH, grow + r * APART, APART * sizeof(*grow));
    off = fmax(off_f32(y, pd, ROWS * WIDTH), off_f32(g, px, ROWS * LD));
    for (size_t i = 0; i < 11; i++)
        free((float *[]){x, d, y, g, px, pd, py, pg, apart, grow, sums}[i]);
    return off;
}

static void tables_give_the_same_for_pieces(void **state)
{
    const struct kern_ops *const tables[] = {kern_plain(), kern_cpu()};

    (void)state;
    for (size_t t = 0; t < 2 * COUNT(tables); t++) {
        const struct kern_ops *k = tables[t / 2];
        struct kern_cfg cfg = {.threads = 2};
        struct kern_stream *s;

        assert_int_equal(k->stream_new(&cfg, &s, NULL), 0);
        assert_true(in_table(k, s, t % 2 ? 0.3f : 0) < 1e-5);
        k->stream_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_what_documents_give),
        cmocka_unit_test(tables_give_the_same_for_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
